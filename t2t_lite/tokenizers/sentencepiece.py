"""SentencePiece vocabularies: training, encoding and decoding."""

import collections
import functools
import io
import itertools
import math
import random
import re
import tempfile
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text
from google.protobuf.message import DecodeError

from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.files import PathLike
from t2t_lite.tokenizers import base

# A larger corpus is sampled for its vocabulary to limit memory.
MAX_VOCABULARY_LINES = 1_000_000
_MIN_COVERAGE = 0.98  # of the trainer
_CHUNK = 10_000  # characters; the trainer limits the length of lines
# The trainer's range of sizes.
_MIN_SIZE, _MAX_SIZE = base.UNK_ID + 1, 2**31 - 1
# The trainer drops lines with these characters; a space replaces them.
_RESERVED_IN_TRAINING = str.maketrans(dict.fromkeys("\0\t\r\n\u2585", " "))

# SentencePiece writes a space as U+2581. The rules in the model file escape a
# real U+2581 as ESCAPE B; otherwise it would be decoded as a space. ESCAPE, a
# private character that texts should not contain, becomes ESCAPE A.
ESCAPE = "\uf8f0"
_ESCAPES = {"\u2581": f"{ESCAPE}B", ESCAPE: f"{ESCAPE}A"}

# Size at which a word table is cleared: its characters, and 64 for each word.
MAX_TABLE_CHARACTERS = 1 << 25
_WORD_COST = 64
_SEED_LOCK = threading.Lock()  # SentencePiece has one seed per process


class SentencePieceTokenizer(base.Tokenizer):
    """A SentencePiece vocabulary; `train` makes BPE with byte fallback.

    With a model from `train`, `decode_tf(encode_tf(text)) == text` for every
    valid Unicode string, including runs of spaces, tabs, line ends, NUL,
    unknown scripts, U+2581 and texts such as `"</s>"` or `"<0x41>"`. U+FFFD
    replaces invalid UTF-8 (`clean_utf8`).

    Other models keep their normalization, spaces and unknown characters. Their
    ids are shifted unless they begin with PAD_ID, EOS_ID and UNK_ID
    (`_remap_special_ids`).

    Example: "Two  men." -> [437, 3, 512, 290] -> "Two  men."

    Raises:
      T2TLiteError: the file is missing or damaged.
    """

    def __init__(self, path: PathLike):
        super().__init__(path)
        try:
            self._model, has_bytes = _remap_special_ids(self._content)
            self.vocab_size = int(self._tokenizer().vocab_size())
        except (tf.errors.OpError, DecodeError, ValueError) as error:
            raise T2TLiteError(
                f"{path} is not a SentencePiece model or is damaged. "
                "t2t-lite-datagen creates a new model."
            ) from error
        self.unknown_id = None if has_bytes else base.UNK_ID

    @functools.cached_property
    def _pieces(self) -> list[str]:  # type: ignore[override]
        pieces = self._tokenizer().id_to_string(tf.range(self.vocab_size))
        return [piece.decode() for piece in pieces.numpy()]

    def _tokenizer(self):
        """Return the tokenizer of TensorFlow Text, created in this graph.

        TensorFlow frees the resource of a tokenizer from outside of the graph
        when it clears the kernel cache, for example in tf.random.set_seed.
        """
        return tf_text.SentencepieceTokenizer(self._model)

    def encode_tf(self, text: tf.Tensor) -> tf.RaggedTensor:
        return self._tokenizer().tokenize(base.clean_utf8(text))

    def encode(self, texts: Sequence[str | bytes]) -> list[np.ndarray]:
        table = self._word_table
        return table.encode([base.to_valid_utf8(text) for text in texts])

    @functools.cached_property
    def _word_table(self):
        return _WordTable(self._model)

    def drop_merges(
        self, rows: Sequence[np.ndarray], rate: float, seed: int
    ) -> list[np.ndarray]:
        """Return random segmentations of the texts of rows of ids.

        Each merge of BPE is skipped with probability `rate` (BPE-dropout,
        arXiv:1910.13267, algorithm 1). Rows with UNK_ID stay unchanged. The
        result is a function of the arguments.

        Example: [437, 3] ("Two ") -> [60, 121, 3] ("T", "wo", " ").

        Raises:
          UsageError: the vocabulary is not a BPE model.
        """
        import sentencepiece

        table = self._word_table
        if not table.is_bpe:
            raise UsageError(
                f"bpe_dropout requires a BPE vocabulary (got {self.path})."
            )
        processor = table.processor
        texts = processor.decode([row.tolist() for row in rows])
        with _SEED_LOCK:
            sentencepiece.set_random_generator_seed(seed)
            # One new thread, because each thread has its own random numbers.
            options = {"alpha": rate, "nbest_size": -1, "num_threads": 1}
            sampled = processor.encode(texts, enable_sampling=True, **options)
        return [
            row if base.UNK_ID in row else np.array(ids, np.int32)
            for row, ids in zip(rows, sampled, strict=True)
        ]

    def decode_tf(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Return the text of each row.

        Incomplete characters, UNK_ID and ids outside the vocabulary become
        U+FFFD, or the `unk_surface` of a foreign model.
        """
        ids = self._strip_special(ids, base.UNK_ID)
        return self._tokenizer().detokenize(ids)

    @classmethod
    def train(
        cls,
        lines: Iterable[str],
        vocab_size: int,
        path: PathLike,
        seed: int = 0,
        tags: Sequence[str] = (),
        character_coverage: float = 0.9999,
    ) -> "SentencePieceTokenizer":
        """Learn a vocabulary and write it to `path`.

        The same arguments give the same file. A corpus with more lines than
        MAX_VOCABULARY_LINES is sampled at random, by `seed`. The size includes
        3 special pieces and 256 bytes. Each of `tags` becomes one piece. Bytes
        encode the rarest characters, beyond `character_coverage` of the text.

        Raises:
          T2TLiteError: there is no text, or `vocab_size` is too large or too
            small for it.
        """
        sample = _sample_lines(lines, seed)
        if not sample:
            raise T2TLiteError(
                "A vocabulary requires text; got a corpus without text. Check "
                "the files of the train split."
            )
        model = _train_model(sample, vocab_size, tags, character_coverage)
        base.write_vocabulary(path, model)
        return cls(path)


class _WordTable:
    """A table of the ids of words that encodes texts without TensorFlow.

    In a model from `train` a space always begins a piece, so the ids of a text
    are the ids of its words, each with the space before it. The first word of a
    text has no space before it.
    """

    def __init__(self, model: bytes):
        import sentencepiece
        from sentencepiece import sentencepiece_model_pb2

        self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        proto = sentencepiece_model_pb2.ModelProto.FromString(model)
        spec = proto.trainer_spec
        self.is_bpe = spec.model_type == spec.BPE
        charsmap = proto.normalizer_spec.precompiled_charsmap
        # Only models from `train` have these results of normalization rules.
        escapes = "\0".join((*sorted(_ESCAPES.values()), ""))
        self._never_crosses_spaces = charsmap.endswith(escapes.encode())
        self._words = _Words(self.processor)

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the ids, int32, of each text; texts must be valid UTF-8."""
        if not self._never_crosses_spaces:
            # More threads would compete with the processes of datagen.
            rows = self.processor.encode(list(texts), num_threads=1)
            return [np.array(ids, np.int32) for ids in rows]
        rows, look_up = [], self._words.__getitem__
        for text in texts:
            first, *others = text.split(" ")
            ids = look_up((first,)) + b"".join(map(look_up, others))
            rows.append(np.frombuffer(ids, np.int32))
        if self._words.characters > MAX_TABLE_CHARACTERS:
            self._words = _Words(self.processor)
        return rows


class _Words(dict[Any, bytes]):
    """The ids, int32, of words; the key of a first word is a tuple."""

    def __init__(self, processor: Any):
        super().__init__()
        self._processor, self.characters = processor, 0

    def __missing__(self, key: Any) -> bytes:
        word = key[0] if isinstance(key, tuple) else f" {key}"
        self.characters += len(word) + _WORD_COST
        self[key] = np.array(self._processor.encode(word), np.int32).tobytes()
        return self[key]


def _sample_lines(lines: Iterable[str], seed: int) -> list[str]:
    """Return a sample of non-blank lines, split into chunks for the trainer."""
    generator = random.Random(seed)
    sample, count = [], 0
    for line in lines:
        line = base.to_valid_utf8(line).translate(_RESERVED_IN_TRAINING)
        starts = () if line.isspace() else range(0, len(line), _CHUNK)
        for start in starts:
            count += 1
            if count <= MAX_VOCABULARY_LINES:
                sample.append(line[start : start + _CHUNK])
                continue
            index = generator.randrange(count)  # reservoir sampling
            if index < MAX_VOCABULARY_LINES:
                sample[index] = line[start : start + _CHUNK]
    return sample


def _train_model(lines, vocab_size, tags, coverage):
    """Train a BPE model and return its bytes, the same for equal arguments."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    texts = lines
    if coverage < _MIN_COVERAGE:
        covered = _coverages(lines).items()
        rare = {ord(c): " " for c, share in covered if share > coverage}
        texts, coverage = [line.translate(rare) for line in lines], 1.0
    model = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        rules = [
            [" ".join(f"{ord(c):X}" for c in text) for text in rule]
            for rule in _ESCAPES.items()
        ]
        escape, unescape = (Path(folder) / x for x in ("to.tsv", "from.tsv"))
        escape.write_text("".join(f"{a}\t{b}\n" for a, b in rules))
        unescape.write_text("".join(f"{b}\t{a}\n" for a, b in rules))
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(texts),
                model_writer=model,
                model_type="bpe",
                # Clamped: for other sizes the trainer's error names no limit.
                vocab_size=min(max(vocab_size, _MIN_SIZE), _MAX_SIZE),
                pad_id=base.PAD_ID,
                eos_id=base.EOS_ID,
                unk_id=base.UNK_ID,
                bos_id=-1,  # none
                unk_surface="\ufffd",
                user_defined_symbols=list(tags),
                byte_fallback=True,
                character_coverage=coverage,  # bytes encode the rarest ones
                # The only normalization is the escape of U+2581.
                normalization_rule_tsv=str(escape),
                denormalization_rule_tsv=str(unescape),
                remove_extra_whitespaces=False,
                add_dummy_prefix=False,
                max_sentence_length=8 * _CHUNK,  # bytes; drops no line
                num_threads=1,  # for a deterministic order of merges
                minloglevel=2,  # errors only
            )
        except RuntimeError as error:
            bound = f"valid for this corpus: {error}"
            if found := re.search(r" (<=|vs) (\d+)", str(error)):
                words = {"<=": "at most", "vs": "at least"}
                bound = f"{words[found[1]]} {found[2]} for this corpus"
                # Without the special pieces, the bytes, the tags and a space.
                room = vocab_size - _MIN_SIZE - 256 - len(tags) - 1
                if found[1] == "vs" and room > 0:
                    share = list(_coverages(lines).values())[room - 1]
                    share = math.floor(1000 * share) / 1000
                    bound += f", or `character_coverage` at most {share:g}"
            raise T2TLiteError(
                f"vocab_size must be {bound}; got vocab_size={vocab_size}."
            ) from error
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    # The names of temporary files would make each model different.
    proto.normalizer_spec.ClearField("normalization_rule_tsv")
    proto.denormalizer_spec.ClearField("normalization_rule_tsv")
    return proto.SerializeToString(deterministic=True)


def _coverages(lines: list[str]) -> dict[str, float]:
    """Return the characters, by frequency, and the fraction of text so far."""
    counts = collections.Counter(itertools.chain.from_iterable(lines))
    characters, numbers = zip(*counts.most_common(), strict=True)
    shares = np.cumsum(numbers) / counts.total()
    return dict(zip(characters, shares.tolist(), strict=True))


def _remap_special_ids(model: bytes) -> tuple[bytes, bool]:
    """Return a model whose first ids are PAD_ID, EOS_ID and UNK_ID.

    Texts keep their pieces, because order, scores and types do not change. Also
    return whether the model has byte fallback and encodes every text.

    Raises:
      DecodeError, ValueError: `model` is not a SentencePiece model.
    """
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    if not proto.pieces:
        raise ValueError("it has no pieces")
    spec, by_name = proto.trainer_spec, {p.piece: p for p in proto.pieces}
    types = {
        spec.pad_piece: proto.SentencePiece.CONTROL,
        spec.eos_piece: proto.SentencePiece.CONTROL,
        spec.unk_piece: proto.SentencePiece.UNKNOWN,
    }
    if [(p.piece, p.type) for p in proto.pieces[:3]] != list(types.items()):
        pieces = [by_name.get(n, proto.SentencePiece(piece=n)) for n in types]
        for piece, type_ in zip(pieces, types.values(), strict=True):
            piece.type = type_
        pieces += [p for p in proto.pieces if p.piece not in types]
        del proto.pieces[:]
        proto.pieces.extend(pieces)
        model = proto.SerializeToString(deterministic=True)
    return model, spec.byte_fallback
