"""SentencePiece vocabularies: learned from a corpus, text to ids and back."""

import array
import collections
import io
import itertools
import os
import pathlib
import random
import re
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text
from google.protobuf.message import DecodeError

from t2t_lite.errors import T2TLiteError
from t2t_lite.tokenizers.base import (
    EOS_ID,
    PAD_ID,
    UNK_ID,
    Tokenizer,
    clean_utf8,
    to_valid_utf8,
    write_vocabulary,
)

# A larger corpus is sampled for its vocabulary, which bounds memory.
MOST_VOCABULARY_LINES = 1_000_000
_CHUNK = 10_000  # characters; the trainer needs lines of a bounded length
_LEAST_SIZE, _MOST_SIZE = UNK_ID + 1, 2**31 - 1  # that the trainer can count
# The trainer drops a line that contains one of these, so it sees a space.
_RESERVED_IN_TRAINING = str.maketrans(dict.fromkeys("\0\t\r\n\u2585", " "))

# SentencePiece writes a space as U+2581. A real U+2581 is escaped inside the
# model file, or it would be read back as a space: U+2581 as ESCAPE B, and
# ESCAPE itself, a private character that no text should contain, as ESCAPE A.
ESCAPE = "\uf8f0"
_ESCAPES = {"\u2581": f"{ESCAPE}B", ESCAPE: f"{ESCAPE}A"}

# A table of words is cleared at this size in characters, 64 more for a word.
_MOST_CHARACTERS = 1 << 25
_WORD_COST = 64


class SentencePieceTokenizer(Tokenizer):
    """A SentencePiece vocabulary, BPE with byte fallback if `train` made it.

    Then `decode_tf(encode_tf(text)) == text` for every valid Unicode string:
    runs of spaces, tabs, line ends, NUL, unknown scripts, U+2581 and texts such
    as `"</s>"` or `"<0x41>"`. Text that is not valid UTF-8 comes back with
    U+FFFD in it (`clean_utf8`).

    Models of other trainers keep their normalization, spaces and unknown
    characters. The ids of all pieces are moved unless the model begins with
    PAD_ID, EOS_ID and UNK_ID (`_with_our_ids`).

    Example: "Two  men." -> [437, 3, 512, 290] -> "Two  men."

    Args:
      path: a model file.

    Raises:
      T2TLiteError: the file is missing or damaged.
    """

    def __init__(self, path: str | os.PathLike):
        super().__init__(path)
        try:
            self._model, writes_all = _with_our_ids(self._content)
            tokenizer = self._tokenizer()
            self.vocab_size = int(tokenizer.vocab_size())
            pieces = tokenizer.id_to_string(tf.range(self.vocab_size))
        except (tf.errors.OpError, DecodeError, ValueError) as error:
            raise T2TLiteError(
                f"{path} is not a SentencePiece model or is damaged; "
                "t2t-lite-datagen makes a new one."
            ) from error
        self._pieces = [piece.decode() for piece in pieces.numpy()]
        self.unknown_id = None if writes_all else UNK_ID
        self._words: _WordTable | None = None

    def _tokenizer(self):
        """Return TF Text's tokenizer, made in the current graph.

        The resource of a tokenizer that was made outside of a graph goes when
        TensorFlow clears its cache of kernels, as tf.random.set_seed does.
        """
        return tf_text.SentencepieceTokenizer(self._model)

    def encode_tf(self, text: tf.Tensor) -> tf.RaggedTensor:
        return self._tokenizer().tokenize(clean_utf8(text))

    def encode(self, texts: Sequence[str | bytes]) -> list[np.ndarray]:
        if self._words is None:
            self._words = _WordTable(self._model)
        return self._words.encode([to_valid_utf8(text) for text in texts])

    def decode_tf(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Return the text of each row.

        Bytes that are not a character, UNK_ID and ids outside the vocabulary
        become U+FFFD, or the unknown text of another trainer's model.
        """
        return self._tokenizer().detokenize(self._ids_of_text(ids, UNK_ID))

    @classmethod
    def train(
        cls,
        lines: Iterable[str],
        vocab_size: int,
        path: str | os.PathLike,
        seed: int = 0,
        tags: Sequence[str] = (),
    ) -> "SentencePieceTokenizer":
        """Learn a vocabulary of exactly that size and write it to `path`.

        The same arguments give the same file. Of a corpus with more than
        MOST_VOCABULARY_LINES lines, a random sample of that many is used.

        Args:
          lines: the texts, streamed.
          vocab_size: of pieces, 3 special ones and 256 bytes among them.
          path: of the model file.
          seed: of the sample.
          tags: texts that are one piece each, wherever they stand.

        Raises:
          T2TLiteError: there is no text, too little for so many pieces, or too
            many different characters for so few.
        """
        kept = _sample_lines(lines, seed)
        if not kept:
            raise T2TLiteError(
                "A vocabulary needs text; got a corpus without any. Check the "
                "files of the train split."
            )
        write_vocabulary(path, _train_model(kept, vocab_size, tags))
        return cls(path)


class _WordTable:
    """Encode texts without TensorFlow, by a table of the ids of their words.

    In a model that `train` made no piece continues after a space, so the ids of
    a text are those of its words, each with the space before it.

    The ids of all words lie in one array, and numpy joins those of a text: with
    a dict of lists, data generation takes 1.25 times as long (150,000 pairs of
    `benchmarks/datagen.py`, `benchmarks/versions.py --corpus`, AMD EPYC with
    AVX-512).
    """

    def __init__(self, model: bytes):
        import sentencepiece
        from sentencepiece import sentencepiece_model_pb2

        self._processor = sentencepiece.SentencePieceProcessor(
            model_proto=model
        )
        proto = sentencepiece_model_pb2.ModelProto.FromString(model)
        charsmap = proto.normalizer_spec.precompiled_charsmap
        # The results of the rules, which only our own models have.
        ours = "\0".join((*sorted(_ESCAPES.values()), ""))
        self._never_crosses_spaces = charsmap.endswith(ours.encode())
        self._clear()

    def _clear(self):
        # The number of each word, counted as words are looked up; the key of
        # the first word of a text, which has no space before it, is a tuple.
        self._numbers: dict[Any, int] = collections.defaultdict(
            itertools.count().__next__
        )
        self._characters = 0
        self._ids = np.array([], np.int32)  # of all words
        self._starts = np.array([0], np.int64)  # in it, and its length

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the ids of each text, int32; texts must be valid UTF-8."""
        if not self._never_crosses_spaces:
            # More threads would compete with the processes of datagen.
            rows = self._processor.encode(list(texts), num_threads=1)
            return [np.array(ids, np.int32) for ids in rows]
        numbers, ends = array.array("q"), []
        look_up = self._numbers.__getitem__
        for text in texts:
            first, *others = text.split(" ")
            numbers.append(look_up((first,)))
            numbers.extend(map(look_up, others))
            ends.append(len(numbers))
        self._encode_new_words()
        rows = self._join(np.array(numbers), np.array(ends, np.int64))
        if self._characters > _MOST_CHARACTERS:
            self._clear()
        return rows

    def _encode_new_words(self):
        count = len(self._numbers) - len(self._starts) + 1
        new_words = [*itertools.islice(reversed(self._numbers), count)][::-1]
        words = [
            word[0] if isinstance(word, tuple) else f" {word}"
            for word in new_words
        ]
        pieces = self._processor.encode(words)
        ends = self._starts[-1] + np.cumsum([*map(len, pieces)], dtype=np.int64)
        self._starts = np.append(self._starts, ends)
        new = np.fromiter(itertools.chain.from_iterable(pieces), np.int32)
        self._ids = np.append(self._ids, new)
        self._characters += sum(map(len, words)) + _WORD_COST * len(words)

    def _join(self, numbers, ends):
        """Return the ids of the words of each text, which end at `ends`."""
        starts = self._starts[numbers]
        lengths = self._starts[numbers + 1] - starts
        word_ends = np.cumsum(lengths)
        shifts = np.repeat(starts - word_ends + lengths, lengths)
        ids = self._ids[shifts + np.arange(len(shifts))]
        cuts = [0, *word_ends[ends - 1].tolist()] if len(ends) else [0]
        return [ids[start:end] for start, end in itertools.pairwise(cuts)]


def _sample_lines(lines: Iterable[str], seed: int) -> list[str]:
    """Return lines for the trainer, none of them blank or too long."""
    choose = random.Random(seed)
    kept, count = [], 0
    for line in lines:
        line = to_valid_utf8(line).translate(_RESERVED_IN_TRAINING)
        starts = () if line.isspace() else range(0, len(line), _CHUNK)
        for start in starts:
            count += 1
            if count <= MOST_VOCABULARY_LINES:
                kept.append(line[start : start + _CHUNK])
                continue
            index = choose.randrange(count)  # reservoir sampling
            if index < MOST_VOCABULARY_LINES:
                kept[index] = line[start : start + _CHUNK]
    return kept


def _train_model(
    lines: list[str], vocab_size: int, tags: Sequence[str]
) -> bytes:
    """Return the bytes of a BPE model, the same for the same arguments."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    model = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        rules = [
            [" ".join(f"{ord(c):X}" for c in text) for text in rule]
            for rule in _ESCAPES.items()
        ]
        paths = [pathlib.Path(folder) / name for name in ("to.tsv", "from.tsv")]
        paths[0].write_text("".join(f"{a}\t{b}\n" for a, b in rules))
        paths[1].write_text("".join(f"{b}\t{a}\n" for a, b in rules))
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines),
                model_writer=model,
                model_type="bpe",
                # Its error for numbers out of its range names no limit.
                vocab_size=min(max(vocab_size, _LEAST_SIZE), _MOST_SIZE),
                pad_id=PAD_ID,
                eos_id=EOS_ID,
                unk_id=UNK_ID,
                bos_id=-1,  # none
                unk_surface="\ufffd",
                user_defined_symbols=list(tags),
                byte_fallback=True,
                character_coverage=0.9999,  # the rarest are left to the bytes
                # Nothing is normalized but the escape of U+2581.
                normalization_rule_tsv=str(paths[0]),
                denormalization_rule_tsv=str(paths[1]),
                remove_extra_whitespaces=False,
                add_dummy_prefix=False,
                max_sentence_length=8 * _CHUNK,  # bytes: no line is dropped
                num_threads=1,  # the order of merges must not depend on it
                minloglevel=2,  # errors only
            )
        except RuntimeError as error:
            bound = f"one that SentencePiece can train: {error}"
            if found := re.search(r" (<=|vs) (\d+)", str(error)):
                words = {"<=": "at most", "vs": "at least"}
                bound = f"{words[found[1]]} {found[2]} for this corpus"
            raise T2TLiteError(
                f"vocab_size must be {bound}; got vocab_size={vocab_size}."
            ) from error
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    # The names of the temporary files would make each model different.
    proto.normalizer_spec.ClearField("normalization_rule_tsv")
    proto.denormalizer_spec.ClearField("normalization_rule_tsv")
    return proto.SerializeToString(deterministic=True)


def _with_our_ids(model: bytes) -> tuple[bytes, bool]:
    """Return a model that begins with PAD_ID, EOS_ID and UNK_ID.

    Pieces keep their order, scores and meaning, so those of texts do not
    change. Also returns whether the model writes every text, with bytes for
    characters that it does not know.

    Raises:
      DecodeError, ValueError: it is not a model.
    """
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    if not proto.pieces:
        raise ValueError("it has no pieces")
    spec, by_name = proto.trainer_spec, {p.piece: p for p in proto.pieces}
    kinds = {
        spec.pad_piece: proto.SentencePiece.CONTROL,
        spec.eos_piece: proto.SentencePiece.CONTROL,
        spec.unk_piece: proto.SentencePiece.UNKNOWN,
    }
    if [(p.piece, p.type) for p in proto.pieces[:3]] != list(kinds.items()):
        pieces = [by_name.get(n, proto.SentencePiece(piece=n)) for n in kinds]
        for piece, kind in zip(pieces, kinds.values(), strict=True):
            piece.type = kind
        pieces += [p for p in proto.pieces if p.piece not in kinds]
        del proto.pieces[:]
        proto.pieces.extend(pieces)
        model = proto.SerializeToString(deterministic=True)
    return model, spec.byte_fallback
