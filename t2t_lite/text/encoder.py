"""Encoders: text to ids and back, with graph ops only; SentencePiece's first.

The same ops serve data generation, decoding and the exported model. They are
TF Text's, which stock TensorFlow Serving links. keras-hub's tokenizer wraps the
same two ops; it is not used because it adds seconds of import to every process
and nothing to the graph.
"""

import hashlib
import os
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf

# Importing TF Text is also what lets a process load an exported model.
import tensorflow_text as tf_text

from t2t_lite import files
from t2t_lite.errors import T2TLiteError
from t2t_lite.text.sentencepiece_model import (
    EOS_ID,
    NORMALIZATION,
    PAD_ID,
    UNK_ID,
    sample_lines,
    train_model,
    with_our_ids,
)
from t2t_lite.text.word_pieces import WordPieces


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


def lines_of(content: bytes) -> list[str]:
    r"""The lines of a vocabulary that is text, which end with "\n".

    Args:
      content: of the file; none that is not UTF-8 has lines.
    """
    try:
        lines = content.decode().split("\n")
    except UnicodeDecodeError:
        return []
    return lines if lines[-1] else lines[:-1]


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
    """A SentencePiece vocabulary, BPE with byte fallback if `train` made it.

    Then `detokenize(tokenize(text)) == text` for every valid Unicode string,
    without exception: runs of spaces, tabs, line ends, NUL, unknown scripts,
    U+2581 and texts such as `"</s>"` or `"<0x41>"`. Text that is not valid
    UTF-8 comes back with U+FFFD in it (`clean_utf8`).

    Models of other trainers keep what they do to text, spaces and unknown
    characters. Where PAD_ID, EOS_ID and UNK_ID are something else in them, or
    nothing, the ids of all pieces are moved (`with_our_ids`).

    Example: "Two  men." -> [437, 3, 512, 290] -> "Two  men."

    Args:
      path: a model file.

    Raises:
      T2TLiteError: the file is missing or damaged.
    """

    def __init__(self, path: str | os.PathLike):
        super().__init__(name="sentence_piece_encoder")
        model = self._read(path)
        try:
            self._model, writes_all = with_our_ids(model)
            self._pieces = tf_text.SentencepieceTokenizer(self._model)
            self.vocab_size = int(self._pieces.vocab_size())
        except (tf.errors.OpError, ValueError) as error:
            raise T2TLiteError(
                f"{path} is not a SentencePiece model or is damaged; "
                "t2t-lite-datagen makes it anew."
            ) from error
        self.unknown_id = None if writes_all else UNK_ID
        self._words = None  # made when it is needed

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        """The ids of each text, from UNK_ID to vocab_size - 1."""
        return self._pieces.tokenize(clean_utf8(text))

    def encode(self, texts: Sequence[str | bytes]) -> list[np.ndarray]:
        """The ids of each text, int32, without EOS: as `tokenize`, but fast."""
        if self._words is None:
            self._words = WordPieces(self._model, NORMALIZATION)
        return self._words.encode([_clean(text) for text in texts])

    def detokenize(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """The text of each row.

        Bytes that form no character, UNK_ID and ids outside the vocabulary
        become U+FFFD, or what another trainer's model has for unknown text.
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

    @property
    def learned_from(self) -> dict[str, int]:
        """`lines`, `sampled_lines` and `seed` of what `train` learned from."""
        # A tf.Module wraps the dicts that it has; json may not know them.
        return dict(self._learned_from)

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
          path: the model file; complete or not there.
          seed: of the sample.

        Returns:
          the encoder; its `learned_from` says of how many lines.

        Raises:
          T2TLiteError: there is no text, too little for so many pieces, or too
            many different characters for so few.
        """
        path = pathlib.Path(path)
        kept, count = sample_lines(lines, seed)
        if not kept:
            raise T2TLiteError(
                "A vocabulary needs text; got a corpus without any. Check the "
                "files of the train split."
            )
        model = train_model(kept, vocab_size)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with files.write_file(path) as file:
                file.write(model)
        except OSError as error:
            raise T2TLiteError(
                f"Cannot write the vocabulary {path}: {error.strerror}."
            ) from error
        encoder = cls(path)
        encoder._learned_from = {
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
