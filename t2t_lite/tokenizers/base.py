"""`Tokenizer`: text to ids and back, with TensorFlow graph ops.

Data generation, decoding and the exported model use the same ops of TensorFlow
Text, which the stock TensorFlow Serving links.
"""

import bisect
import hashlib
import os
import re
from collections.abc import Container, Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from t2t_lite import files
from t2t_lite.errors import UsageError, did_you_mean, explain
from t2t_lite.files import PathLike

PAD_ID = 0
EOS_ID = 1
UNK_ID = 2  # text that a vocabulary without bytes cannot encode


class Tokenizer(tf.Module):
    """Base class of all tokenizers; `open_vocabulary` opens a file.

    A subclass defines `encode_tf`, `decode_tf` and `_pieces`. An exported model
    contains its tokenizers and does not need the vocabulary files.
    """

    path: Path  # of the vocabulary file
    sha256: str  # of the file's content, in hex
    vocab_size: int  # number of ids, PAD_ID and EOS_ID included
    # Id for text that the vocabulary cannot encode; None if it encodes all.
    unknown_id: int | None = None
    tags: Sequence[str] = ()  # pieces that are tags; see `tokenizers.tags`
    _pieces: Sequence[str]  # by id

    def __init__(self, path: PathLike):
        super().__init__()
        self.path = Path(path)
        self._content = read_vocabulary(path)
        self.sha256 = hashlib.sha256(self._content).hexdigest()

    def encode_tf(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Return the ids of texts [B], ragged int32, without PAD_ID and EOS_ID.

        U+FFFD replaces invalid UTF-8 first.
        """
        raise NotImplementedError

    def for_targets(self) -> "Tokenizer":
        """Return the tokenizer of target texts, for most vocabularies self."""
        return self

    def encode_continuation_tf(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Return the ids of each text as the continuation of a sentence.

        Some vocabularies encode a word differently at the start of a line.
        """
        before = tf.constant("a")
        count = self.encode_tf(before[None]).row_lengths()[0]
        text = tf.strings.join([before, " ", tf.strings.strip(text)])
        return self.encode_tf(text)[:, count:]

    def decode_tf(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Return the text of each row up to its first EOS, without padding.

        The ids are int32 [N, T], dense or ragged. The texts, tf.string [N], are
        valid UTF-8 for any ids.
        """
        raise NotImplementedError

    def _strip_special(self, ids, unknown=None):
        """Return the ids of each row before its first EOS, without padding.

        Ids outside the vocabulary become `unknown`; None drops them.

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

    def ids_to_pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the piece of each id; "" for ids beyond the vocabulary.

        The hparam `vocab_divisor` adds ids beyond the vocabulary to a model.
        """
        size = self.vocab_size
        return [self._pieces[i] if i < size else "" for i in ids]

    def pieces_to_ids(self, pieces: Sequence[str]) -> list[int]:
        """Return the id of each piece; raise UsageError for an unknown one."""
        ids = {piece: index for index, piece in enumerate(self._pieces)}
        for piece in pieces:
            if piece not in ids:
                raise UsageError(
                    f"The vocabulary {self.path} lacks the piece {piece!r}."
                    f"{did_you_mean(piece, ids)}"
                )
        return [ids[piece] for piece in pieces]

    def words_of_text(
        self, text: str, max_pieces: int | None = None
    ) -> list[range]:
        """Return the indices of the words that each piece of a text covers.

        Example: "Two  men." in pieces "Two", " ", " men", "." -> 0, none, 1, 1.
        Pieces after the first `max_pieces` are ignored.
        """
        (ids,) = self.encode_tf(tf.constant([to_valid_utf8(text)])).to_list()
        ends = range(1, len(ids[:max_pieces]) + 1)
        return words_of_prefixes(self.decode([ids[:end] for end in ends]))

    def encode(self, texts: Sequence[str | bytes]) -> list[np.ndarray]:
        """Return the ids of each text, int32, without EOS, like `encode_tf`."""
        texts = [to_valid_utf8(text) for text in texts]
        ids = self.encode_tf(tf.constant(texts, tf.string, shape=[len(texts)]))
        ends = ids.row_splits.numpy()[1:]
        return np.split(ids.flat_values.numpy(), ends)[: len(ends)]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each row of ids, like `decode_tf`."""
        rows = [np.asarray(row, np.int32) for row in ids]
        if not rows:
            return []
        ragged = tf.RaggedTensor.from_row_lengths(
            np.concatenate(rows), [len(row) for row in rows]
        )
        return [text.decode() for text in self.decode_tf(ragged).numpy()]


def clean_utf8(text: tf.Tensor) -> tf.Tensor:
    """Replace invalid UTF-8 in texts of any shape by U+FFFD.

    Valid text is unchanged, including NUL, a BOM and noncharacters. The result
    equals Python's `bytes.decode(errors="replace")`.
    """
    return tf.strings.unicode_transcode(
        text, "UTF-8", "UTF-8", errors="replace", replacement_char=0xFFFD
    )


def to_valid_utf8(text: str | bytes) -> str:
    """Replace invalid UTF-8 by U+FFFD, like `clean_utf8`.

    A lone surrogate becomes one U+FFFD for each of its bytes.
    """
    if isinstance(text, str):
        if text.isascii():
            return text
        text = text.encode("utf-8", "surrogatepass")
    return text.decode("utf-8", "replace")


def lookup_table(
    values: Mapping[str, str | int], default: str | int
) -> tf.lookup.StaticHashTable:
    """Return a table of texts, for graphs; integers become int32."""
    initializer = tf.lookup.KeyValueTensorInitializer(
        tf.constant(list(values)), tf.constant(list(values.values()))
    )
    return tf.lookup.StaticHashTable(initializer, default)


def read_vocabulary(path: PathLike) -> bytes:
    """Return the bytes of a vocabulary file; raise T2TLiteError if missing."""
    fix = "t2t-lite-datagen creates it."
    with explain(f"Cannot read the vocabulary {path}", OSError, fix=fix):
        return Path(path).read_bytes()


def write_vocabulary(path: PathLike, content: bytes) -> None:
    """Write a vocabulary file atomically."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_bytes(path, content)


def vocab_lines(content: bytes) -> list[str]:
    """Return the lines of a vocabulary file; [] if it is not UTF-8."""
    try:
        lines = content.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError:
        return []
    lines = [line.removesuffix("\r") for line in lines]
    return lines if lines[-1] else lines[:-1]


def dedupe_pieces(
    pieces: Sequence[str], reserved: Container[int] = ()
) -> list[str]:
    r"""Return distinct, non-empty pieces for a matcher of TensorFlow Text.

    "\nINDEX", which never matches a word, replaces empty pieces, all but the
    last of equal pieces, and the pieces at the indices `reserved`.
    """
    last = {piece: index for index, piece in enumerate(pieces)}
    return [
        piece
        if piece and last[piece] == index and index not in reserved
        else f"\n{index}"
        for index, piece in enumerate(pieces)
    ]


def words_of_prefixes(prefixes: Sequence[str]) -> list[range]:
    """Return the indices of the words of each piece.

    Example: "Two", "Two m", "Two men" -> 0, 1, 1. Prefix n is the text of the
    first n pieces. It may end in other text while a character is incomplete;
    all pieces of a character get the words of its last piece.
    """
    text = prefixes[-1] if prefixes else ""
    spans = [found.span() for found in re.finditer(r"\S+", text)]
    starts, ends = [a for a, _ in spans], [b for _, b in spans]
    words: list[range] = []
    start = waiting = 0
    for prefix in prefixes:
        end = len(os.path.commonprefix([prefix, text]))
        if start >= end < len(prefix):
            waiting += 1
            continue
        # A piece without text is at the end of the text before it.
        begin = start if end > start else max(start - 1, 0)
        start = max(start, end)
        first = bisect.bisect(ends, begin)
        last = bisect.bisect_left(starts, max(start, begin + 1))
        words += [range(first, max(first, last))] * (1 + waiting)
        waiting = 0
    return words
