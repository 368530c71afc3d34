"""Encoders: text to ids and back, with graph ops only; SentencePiece's first.

The same ops serve data generation, decoding and the exported model. They are
TF Text's, which stock TensorFlow Serving links. keras-hub's tokenizer wraps the
same two ops; it is not used because it adds seconds of import to every process
and nothing to the graph.
"""

import hashlib
import io
import os
import pathlib
import random
import re
import tempfile
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf

# Importing TF Text is also what lets a process load an exported model.
import tensorflow_text as tf_text

from t2t_lite.errors import T2TLiteError
from t2t_lite.word_pieces import WordPieces

PAD_ID = 0
EOS_ID = 1
UNK_ID = 2  # never produced: bytes stand for what the vocabulary lacks

_SPECIAL_PIECES = [b"<pad>", b"</s>"]  # of PAD_ID and EOS_ID
_BYTE_PIECES = 256

# A corpus with more lines is sampled for its vocabulary, which bounds memory.
MOST_VOCABULARY_LINES = 1_000_000
_CHUNK = 10_000  # characters; the trainer takes no endless lines

# SentencePiece writes a space as U+2581. So that a real U+2581 is not read back
# as a space it is escaped inside the model file: U+2581 as ESCAPE B, and ESCAPE
# itself, a private character that no text should contain, as ESCAPE A.
_ESCAPE = "F8F0"
_NORMALIZE = f"2581\t{_ESCAPE} 42\n{_ESCAPE}\t{_ESCAPE} 41\n"
_DENORMALIZE = f"{_ESCAPE} 42\t2581\n{_ESCAPE} 41\t{_ESCAPE}\n"

# The trainer drops a line that contains one of these, so it sees a space.
_RESERVED_IN_TRAINING = str.maketrans(dict.fromkeys("\0\t\r\n\u2585", " "))


def clean_utf8(text: tf.Tensor) -> tf.Tensor:
    """The text with U+FFFD wherever it is not valid UTF-8.

    Valid text comes back byte for byte: NUL, a byte order mark and
    noncharacters included. Broken bytes give as many U+FFFD as Python's
    `bytes.decode(errors="replace")`.

    Args:
      text: tf.string of any shape.

    Returns:
      tf.string of the same shape.
    """
    return tf.strings.unicode_transcode(
        text, "UTF-8", "UTF-8", errors="replace", replacement_char=0xFFFD
    )


class TextEncoder(tf.Module):
    """What every kind of vocabulary can do; `open_vocabulary` opens a file.

    A kind defines `tokenize`, `detokenize` and `pieces`. An encoder held by a
    `tf.Module` is saved with it, no file beside it is needed.

    Attributes:
      path: the vocabulary file.
      sha256: of that file, in hex.
      vocab_size: ids in all; PAD_ID and EOS_ID are two of them.
      unknown_id: stands for what the vocabulary cannot write; None where it can
        write everything.
    """

    path: pathlib.Path
    sha256: str
    vocab_size: int
    unknown_id: int | None = None

    def _read(self, path):
        """Takes note of the file and gives its bytes."""
        self.path = pathlib.Path(path)
        content = read_vocabulary(path)
        self.sha256 = hashlib.sha256(content).hexdigest()
        return content

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        """The ids of each text, without EOS.

        Args:
          text: tf.string [B]; broken UTF-8 is cleaned first.

        Returns:
          ragged int32 [B, None], never PAD_ID or EOS_ID.
        """
        raise NotImplementedError

    def detokenize(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """The text of each row, up to its first EOS; padding is no text.

        Every row gives valid UTF-8, whatever the ids are.

        Args:
          ids: int32 [N, T], dense or ragged.

        Returns:
          tf.string [N].
        """
        raise NotImplementedError

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The vocabulary's entry of each id."""
        raise NotImplementedError

    def encode(self, texts: Sequence[str | bytes]) -> list[np.ndarray]:
        """The ids of each text, int32, without EOS: `tokenize` from Python."""
        texts = [_clean(text) for text in texts]
        ids = self.tokenize(tf.constant(texts, tf.string, shape=[len(texts)]))
        ends = ids.row_splits.numpy()[1:]
        return np.split(ids.flat_values.numpy(), ends)[: len(ends)]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The text of each row of ids: `detokenize` from Python."""
        rows = [np.asarray(row, np.int32) for row in ids]
        if not rows:
            return []
        ragged = tf.RaggedTensor.from_row_lengths(
            np.concatenate(rows), [len(row) for row in rows]
        )
        return [text.decode() for text in self.detokenize(ragged).numpy()]


def read_vocabulary(path: str | os.PathLike) -> bytes:
    """The bytes of a vocabulary file.

    Raises:
      T2TLiteError: it cannot be read.
    """
    try:
        return pathlib.Path(path).read_bytes()
    except OSError as error:
        raise T2TLiteError(
            f"Cannot read the vocabulary {path}: {error.strerror}. "
            "t2t-lite-datagen makes it."
        ) from error


def ids_of_text(ids: tf.Tensor | tf.RaggedTensor) -> tf.RaggedTensor:
    """The ids of each row before its first EOS, without padding.

    Example: [[5, 0, 6, 1, 7]] -> [[5, 6]].

    Args:
      ids: int [N, T], dense or ragged.

    Returns:
      ragged int32 [N, None].
    """
    if isinstance(ids, tf.RaggedTensor):
        ids = ids.to_tensor(PAD_ID)
    ids = tf.cast(ids, tf.int32)
    is_eos = tf.equal(ids, EOS_ID)
    ended = tf.cumsum(tf.cast(is_eos, tf.int32), axis=1) > 0  # [N, T]
    return tf.ragged.boolean_mask(ids, ~ended & (ids != PAD_ID))


class SentencePieceEncoder(TextEncoder):
    """A SentencePiece BPE vocabulary with byte fallback.

    `detokenize(tokenize(text)) == text` for every valid Unicode string, without
    exception: runs of spaces, tabs, line ends, NUL, unknown scripts,
    U+2581 and texts such as `"</s>"` or `"<0x41>"`. Text that is not valid
    UTF-8 comes back with U+FFFD in it (`clean_utf8`).

    Example: "Two  men." -> [437, 3, 512, 290] -> "Two  men."

    Args:
      path: a model file as `train` writes it: ids 0 and 1 are `<pad>`, `</s>`.

    Raises:
      T2TLiteError: the file is missing, damaged or has other special ids.
    """

    def __init__(self, path: str | os.PathLike):
        super().__init__(name="sentence_piece_encoder")
        model = self._read(path)
        try:
            self._pieces = tf_text.SentencepieceTokenizer(model)
            self.vocab_size = int(self._pieces.vocab_size())
            special = self._pieces.id_to_string([PAD_ID, EOS_ID]).numpy()
        except (tf.errors.OpError, ValueError) as error:
            raise T2TLiteError(
                f"{path} is not a SentencePiece model or is damaged; "
                "t2t-lite-datagen makes it anew."
            ) from error
        if special.tolist() != _SPECIAL_PIECES:
            raise T2TLiteError(
                f"Pieces 0 and 1 of a vocabulary must be <pad> and </s>; got "
                f"{[piece.decode() for piece in special]} in {path}."
            )
        self._words = None  # made when it is needed

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        """The ids of each text, from UNK_ID + 1 to vocab_size - 1."""
        return self._pieces.tokenize(clean_utf8(text))

    def encode(self, texts: Sequence[str | bytes]) -> list[np.ndarray]:
        """The ids of each text, int32, without EOS: as `tokenize`, but fast."""
        if self._words is None:
            self._words = WordPieces(self.path.read_bytes(), _NORMALIZE)
        return self._words.encode([_clean(text) for text in texts])

    def detokenize(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """The text of each row.

        Bytes that form no character, UNK_ID and ids outside the vocabulary
        become U+FFFD.
        """
        kept = ids_of_text(ids)
        ids = kept.flat_values
        known = (ids >= 0) & (ids < self.vocab_size)
        ids = tf.where(known, ids, UNK_ID)
        return self._pieces.detokenize(kept.with_flat_values(ids))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The vocabulary's entry of each id, U+2581 where a space is."""
        ids = tf.constant(np.asarray(ids, np.int32))
        return [p.decode() for p in self._pieces.id_to_string(ids).numpy()]

    @classmethod
    def train(
        cls,
        lines: Iterable[str],
        vocab_size: int,
        path: str | os.PathLike,
        seed: int = 0,
    ) -> "SentencePieceEncoder":
        """Learns a vocabulary of exactly that size and writes it to `path`.

        The same lines, size and seed give the same file. Of a corpus with more
        than MOST_VOCABULARY_LINES lines, a random sample of that many is used.

        Args:
          lines: the texts, streamed.
          vocab_size: pieces in all; 3 special ones and 256 bytes included.
          path: the model file, written aside and renamed.
          seed: of the sample.

        Returns:
          the encoder; its `learned_from` says of how many `lines` it was
          learned, of how many in the sample, and with what `seed`.

        Raises:
          T2TLiteError: there is no text, too little for so many pieces, or too
            many different characters for so few.
        """
        path = pathlib.Path(path)
        kept, count = _training_lines(lines, seed)
        if not kept:
            raise T2TLiteError(
                "A vocabulary needs text; got a corpus without any. Check the "
                "files of the train split."
            )
        model = _trained(kept, vocab_size)
        aside = path.with_name(f".{path.name}.{os.getpid()}.aside")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(aside, "wb") as file:
                file.write(model)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, path)
        except OSError as error:
            raise T2TLiteError(
                f"Cannot write the vocabulary {path}: {error.strerror}."
            ) from error
        finally:
            aside.unlink(missing_ok=True)
        encoder = cls(path)
        encoder.learned_from = {
            "lines": count,
            "sampled_lines": len(kept),
            "seed": seed,
        }
        return encoder


def _clean(text):
    """What `clean_utf8` makes of it; lone surrogates are broken bytes, too."""
    if isinstance(text, str):
        if text.isascii():
            return text
        text = text.encode("utf-8", "surrogatepass")
    return text.decode("utf-8", "replace")


def _training_lines(lines, seed):
    """What the trainer is given, all lines or a sample; how many there are."""
    choose = random.Random(seed)
    kept, count = [], 0
    for count, line in enumerate(_in_pieces(lines), start=1):
        if count <= MOST_VOCABULARY_LINES:
            kept.append(line)
            continue
        place = choose.randrange(count)  # reservoir sampling
        if place < MOST_VOCABULARY_LINES:
            kept[place] = line
    return kept, count


def _in_pieces(lines):
    """The lines as the trainer can take them; empty ones say nothing."""
    for line in lines:
        line = line.translate(_RESERVED_IN_TRAINING)
        for start in range(0, len(line), _CHUNK):
            yield line[start : start + _CHUNK]


def _trained(lines, vocab_size):
    """The bytes of a freshly trained model."""
    import sentencepiece

    model = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        rules = pathlib.Path(folder)
        (rules / "normalize.tsv").write_text(_NORMALIZE)
        (rules / "denormalize.tsv").write_text(_DENORMALIZE)
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines),
                model_writer=model,
                model_type="bpe",
                vocab_size=vocab_size,
                pad_id=PAD_ID,
                eos_id=EOS_ID,
                unk_id=UNK_ID,
                bos_id=-1,  # none
                unk_surface="\ufffd",
                byte_fallback=True,
                character_coverage=0.9999,  # the rarest are left to the bytes
                # Nothing is normalized but the escape of U+2581.
                normalization_rule_tsv=str(rules / "normalize.tsv"),
                denormalization_rule_tsv=str(rules / "denormalize.tsv"),
                remove_extra_whitespaces=False,
                add_dummy_prefix=False,
                max_sentence_length=8 * _CHUNK,  # bytes: no line is dropped
                num_threads=1,  # the order of merges must not depend on it
                minloglevel=2,  # errors only
            )
        except RuntimeError as error:
            raise _explained(error, vocab_size) from error
    return _without_paths(model.getvalue())


def _explained(error, vocab_size):
    """A T2TLiteError that says what the trainer's error means."""
    message = str(error)
    if most := re.search(r"too high .*<= (\d+)", message):
        return T2TLiteError(
            f"vocab_size must be at most {most[1]} for so small a corpus; got "
            f"vocab_size={vocab_size}."
        )
    if least := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return T2TLiteError(
            f"vocab_size must be at least {least[1]}, for the {_BYTE_PIECES} "
            "bytes and the characters of the corpus; got "
            f"vocab_size={vocab_size}."
        )
    return T2TLiteError(
        f"SentencePiece cannot train a vocabulary of {vocab_size}: {message}"
    )


def _without_paths(model):
    """The model without the names of the temporary rule files."""
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    proto.normalizer_spec.ClearField("normalization_rule_tsv")
    proto.denormalizer_spec.ClearField("normalization_rule_tsv")
    return proto.SerializeToString(deterministic=True)
