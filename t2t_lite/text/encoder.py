"""`TextEncoder`: text to ids and back, with ops that stay in a graph.

The same ops serve data generation, decoding and the exported model. They are
TF Text's, which stock TensorFlow Serving links.
"""

import hashlib
import os
import pathlib
from collections.abc import Container, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_lite import files
from t2t_lite.errors import T2TLiteError, UsageError, in_words, nearest
from t2t_lite.text.words import Span, spans_of_prefixes, words_of_spans

PAD_ID = 0
EOS_ID = 1
UNK_ID = 2  # in place of text that a vocabulary without bytes cannot write


def clean_utf8(text: tf.Tensor) -> tf.Tensor:
    """The text, of any shape, with U+FFFD wherever it is not valid UTF-8.

    Valid text comes back byte for byte: NUL, a byte order mark and
    noncharacters included. Broken bytes give as many U+FFFD as Python's
    `bytes.decode(errors="replace")`.
    """
    return tf.strings.unicode_transcode(
        text, "UTF-8", "UTF-8", errors="replace", replacement_char=0xFFFD
    )


def cleaned(text: str | bytes) -> str:
    """Return text in valid UTF-8, as `clean_utf8` does.

    U+FFFD replaces broken bytes, and each byte of a lone surrogate.
    """
    if isinstance(text, str):
        if text.isascii():
            return text
        text = text.encode("utf-8", "surrogatepass")
    return text.decode("utf-8", "replace")


class TextEncoder(tf.Module):
    """What every kind of vocabulary can do; `open_vocabulary` opens a file.

    A kind defines `tokenize`, `detokenize` and `_pieces`. An encoder held by a
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
    _pieces: Sequence[str]  # by id

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

        Returns: ragged int32 [B, None], never PAD_ID or EOS_ID.
        """
        raise NotImplementedError

    def tokenize_behind(self, text: tf.Tensor) -> tf.RaggedTensor:
        """The ids of each text where a word and a space stand before it.

        A vocabulary may write a word in another way at the start of a line.

        Args:
          text: tf.string [B].

        Returns: as `tokenize`.
        """
        before = tf.constant("a")
        count = self.tokenize(before[None]).row_lengths()[0]
        text = tf.strings.join([before, " ", tf.strings.strip(text)])
        return self.tokenize(text)[:, count:]

    def detokenize(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """The text of each row, up to its first EOS, without padding.

        Every row gives valid UTF-8, whatever the ids are.

        Args:
          ids: int32 [N, T], dense or ragged.

        Returns: tf.string [N].
        """
        raise NotImplementedError

    def _ids_of_text(self, ids, unknown=None):
        """The ids of each row before its first EOS, without padding.

        Those outside the vocabulary become `unknown`; None leaves them out.

        Example: [[5, 0, 6, 1, 7]] -> [[5, 6]], ragged int32 [N, None].
        """
        if isinstance(ids, tf.RaggedTensor):
            ids = ids.to_tensor(PAD_ID)
        ids = tf.cast(ids, tf.int32)
        ended = tf.cumsum(tf.cast(ids == EOS_ID, tf.int32), axis=1) > 0
        kept = ~ended & (ids != PAD_ID)
        known = (ids >= 0) & (ids < self.vocab_size)
        if unknown is None:
            return tf.ragged.boolean_mask(ids, kept & known)
        return tf.ragged.boolean_mask(tf.where(known, ids, unknown), kept)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The vocabulary's entry of each id; an empty one beyond the last.

        A model may have more ids than its vocabulary, see `vocab_divisor`.
        """
        size = self.vocab_size
        return [self._pieces[i] if i < size else "" for i in ids]

    def words_of_text(self, text: str) -> list[range]:
        """The words of a text, by number, that each of its pieces lies in.

        Words are what `str.split` finds. A piece of white space lies in none.

        Example: "Two  men." in pieces "Two", " ", " men", "." -> 0, none, 1, 1.
        """
        return words_of_spans(*self._spans(cleaned(text).encode()))

    def _spans(self, text: bytes) -> tuple[bytes, Sequence[Span]]:
        """A text as it is cut, and where in it each piece lies.

        This is for vocabularies that give back any text as it was.
        """
        ids = self.encode([text])[0].tolist()
        ends = range(1, len(ids) + 1)
        prefixes = self.decode([ids[:n] for n in ends])
        return text, spans_of_prefixes([each.encode() for each in prefixes])

    def ids_of(self, pieces: Sequence[str]) -> list[int]:
        """The id of each entry of the vocabulary.

        Raises:
          UsageError: the vocabulary has no such entry.
        """
        everything = self.pieces(range(self.vocab_size)) if pieces else []
        known = {piece: number for number, piece in enumerate(everything)}
        for piece in pieces:
            if piece not in known:
                raise UsageError(
                    f"{self.path} must have the piece {piece!r}; it has not."
                    f"{nearest(piece, known)}"
                )
        return [known[piece] for piece in pieces]

    def encode(self, texts: Sequence[str | bytes]) -> list[np.ndarray]:
        """The ids of each text, int32, without EOS: `tokenize` from Python."""
        texts = [cleaned(text) for text in texts]
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
    """The bytes of a vocabulary file, or a T2TLiteError."""
    try:
        return pathlib.Path(path).read_bytes()
    except OSError as error:
        raise T2TLiteError(
            f"Cannot read the vocabulary {path}: "
            f"{in_words(error, place=False)}. "
            "t2t-lite-datagen makes it."
        ) from error


def write_vocabulary(path: str | os.PathLike, content: bytes) -> None:
    """Writes a vocabulary file, complete or not at all, or a T2TLiteError."""
    path = pathlib.Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.write_file(path) as file:
            file.write(content)
    except OSError as error:
        raise T2TLiteError(
            f"Cannot write the vocabulary {path}: "
            f"{in_words(error, place=False)}."
        ) from error


def spans_of_offsets(tokenizer: Any, text: bytes) -> list[Span]:
    """Where the pieces of a text lie, by a tokenizer of TF Text."""
    _, starts, ends = tokenizer.tokenize_with_offsets([text])
    starts, ends = (x.flat_values.numpy().tolist() for x in (starts, ends))
    return list(zip(starts, ends, strict=True))


def lines_of(content: bytes) -> list[str]:
    r"""What "\n" ends in a vocabulary file; what is not UTF-8 has no lines."""
    try:
        lines = content.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError:
        return []
    return lines if lines[-1] else lines[:-1]


def matchable(
    pieces: Sequence[str], reserved: Container[int] = ()
) -> list[str]:
    """The pieces for a matcher of TF Text, which takes no empty or equal ones.

    What never matches stands for these, for all but the last of equal ones,
    and for those at `reserved`: no word has a line end.
    """
    last = {piece: index for index, piece in enumerate(pieces)}
    return [
        piece
        if piece and last[piece] == index and index not in reserved
        else f"\n{index}"
        for index, piece in enumerate(pieces)
    ]
