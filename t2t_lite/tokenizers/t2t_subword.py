r"""tensor2tensor's subword vocabularies: the same ids, with graph ops only.

tensor2tensor cuts a text where letters and digits meet anything else, leaves
out a single space between two words, escapes each word and covers it greedily
with the longest pieces of its vocabulary. TF Text's WordPiece does the last
step: without a mark for suffixes it is longest match first.
"""

import functools
import os
import sys
import unicodedata
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from t2t_lite.errors import T2TLiteError
from t2t_lite.tokenizers.base import (
    EOS_ID,
    PAD_ID,
    Tokenizer,
    clean_utf8,
    dedupe_pieces,
    vocab_lines,
)

_RESERVED = {PAD_ID: ("<pad>_", "<pad>"), EOS_ID: ("<EOS>_", "<EOS>")}
_ESCAPE_CHARACTERS = "\\_u;0123456789"
_SPACE = ord(" ")
_ESCAPES = r"\\u|\\\\|\\[0-9]+;"
_MOST_DIGITS = 7  # of a character, as sys.maxunicode has them
_NO_CHARACTER = 0x3013  # what an escaped number beyond Unicode stands for


class T2TSubwordTokenizer(Tokenizer):
    r"""A vocabulary file of tensor2tensor's `SubwordTextEncoder`.

    Ids are the lines of the file, counted from 0; every text gets the ids that
    tensor2tensor gives it. `decode_tf(encode_tf(text)) == text` for every valid
    Unicode string. Where a file without quotes lost pieces that end in a space,
    tensor2tensor fails on some texts; here the space is escaped.

    What counts as a letter or digit is what the Unicode version of this Python
    says, as in tensor2tensor; an export keeps it.

    Example, where "men_" and "Two_" are pieces but "." is not: "Two  men." ->
    the pieces "Two_", " ", " ", "_", "men_", "\", "4", "6", ";", "_".

    Args:
      path: one piece a line, in quotes or not, `<pad>_` and `<EOS>_` first.

    Raises:
      T2TLiteError: the file is missing or of another kind: a character that
        escapes are made of is not a piece.
    """

    def __init__(self, path: str | os.PathLike):
        super().__init__(path)
        pieces = parse_subwords(vocab_lines(self._content))
        self.vocab_size = len(pieces)
        self._texts = tf.constant(pieces)
        self._pieces = pieces
        alphabet = {*_ESCAPE_CHARACTERS}.union(*pieces)
        if lacking := sorted({*_ESCAPE_CHARACTERS} - set(pieces)):
            raise T2TLiteError(
                "A subword file must have each of the characters "
                f"{_ESCAPE_CHARACTERS} as a piece; {path} lacks "
                f"{' '.join(lacking)}. Is it cut off?"
            )
        # A character of the alphabet that is not a piece is matched as an id
        # beyond the vocabulary, and written as the ids of its escape.
        alone = sorted(alphabet - set(pieces))
        self._matcher = _matcher([*pieces, *alone])
        self._bounds = tf.constant(_alphanumeric_bounds(), tf.int32)
        # How a character of the alphabet is written in a word.
        written = {c: c for c in alphabet if c != "\n"}
        written |= {"_": r"\u", "\\": r"\\"}
        self._written = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                list(written), list(written.values())
            ),
            default_value="",
        )
        self._alone = None
        if alone:
            escapes = self._matcher.tokenize([f"\\{ord(c)};" for c in alone])
            own = tf.RaggedTensor.from_tensor(tf.range(len(pieces))[:, None])
            self._alone = tf.concat([own, escapes], axis=0)

    def encode_tf(self, text: tf.Tensor) -> tf.RaggedTensor:
        words = self._words(clean_utf8(text))
        different, places = tf.unique(words.flat_values)
        ids = self._matcher.tokenize(self._escaped(different))
        if self._alone is not None:
            ids = tf.gather(self._alone, ids).merge_dims(1, 2)
        return words.with_flat_values(tf.gather(ids, places)).merge_dims(1, 2)

    def decode_tf(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Return the text of each row; ids outside the vocabulary are skipped.

        As in tensor2tensor, an escaped number beyond Unicode becomes U+3013.
        Half a surrogate pair becomes U+FFFD.
        """
        texts = tf.gather(self._texts, self._ids_of_text(ids))
        words = tf.strings.split(tf.strings.reduce_join(texts, axis=-1), "_")
        words = tf.ragged.boolean_mask(words, words != "")
        flat = _unescaped(words.flat_values)  # [W]
        first = tf.strings.unicode_decode(
            tf.strings.substr(flat, 0, 1, "UTF8_CHAR"), "UTF-8"
        )
        alphanumeric = self._is_alphanumeric(first.flat_values)
        rows = words.value_rowids()
        follows = (rows[1:] == rows[:-1]) & alphanumeric[:-1]
        gaps = tf.concat([[False], follows & alphanumeric[1:]], axis=0)
        gaps = tf.where(gaps[: tf.size(flat)], " ", "")
        words = words.with_flat_values(tf.strings.join([gaps, flat]))
        return tf.strings.reduce_join(words, axis=-1)

    def _is_alphanumeric(self, codes):
        """Return whether each int32 code point is a letter or a digit."""
        return tf.searchsorted(self._bounds, codes, side="right") % 2 == 1

    def _words(self, text):
        """Return the words of each text: ragged tf.string [B, None].

        Example: "a_b  c d" -> ["a", "_", "b", "  ", "c", "d"].
        """
        characters = tf.strings.unicode_decode(text, "UTF-8")
        codes, rows = characters.flat_values, characters.value_rowids()
        alphanumeric = self._is_alphanumeric(codes)  # [C]
        follows = rows[1:] == rows[:-1]  # [C - 1], in the same text
        changes = ~follows | (alphanumeric[1:] != alphanumeric[:-1])
        starts = tf.concat([[True], changes], axis=0)[: tf.size(codes)]
        # A single space between two words is implied.
        is_between = (
            (codes[1:-1] == _SPACE)
            & (follows[:-1] & alphanumeric[:-2])
            & (follows[1:] & alphanumeric[2:])
        )
        kept = tf.concat([[True], ~is_between, [True]], axis=0)
        kept = kept[: tf.size(codes)]
        codes, rows, starts = (
            tf.boolean_mask(values, kept) for values in (codes, rows, starts)
        )
        starts = tf.where(starts)[:, 0]  # [W]
        words = tf.RaggedTensor.from_row_starts(codes, starts)
        return tf.RaggedTensor.from_value_rowids(
            tf.strings.unicode_encode(words, "UTF-8"),
            tf.gather(rows, starts),
            nrows=characters.nrows(),
        )

    def _escaped(self, words):
        r"""Return words, tf.string [W], as they are matched: "_" -> "\u_"."""
        characters = tf.strings.unicode_decode(words, "UTF-8")
        codes, places = tf.unique(characters.flat_values)
        written = self._written.lookup(
            tf.strings.unicode_encode(codes[:, None], "UTF-8")
        )
        numbers = tf.strings.join(["\\", tf.strings.as_string(codes), ";"])
        escaped = tf.where(written == "", numbers, written)
        escaped = characters.with_flat_values(tf.gather(escaped, places))
        return tf.strings.reduce_join(escaped, axis=1) + "_"


def parse_subwords(lines: Sequence[str]) -> list[str]:
    """Return the pieces of a subword file; [] if it is of another kind."""
    pieces = [_unquoted(line.rstrip()) for line in lines]
    is_subwords = len(pieces) > len(_RESERVED) and all(
        pieces[index] in names for index, names in _RESERVED.items()
    )
    return pieces if is_subwords else []


def _unquoted(line):
    for quote in "'\"":
        if line.startswith(quote) and line.endswith(quote):
            return line[1:-1]
    return line


def _matcher(pieces):
    """Return what covers words with the longest pieces, from their start."""
    known = dedupe_pieces(pieces, _RESERVED)
    return tf_text.FastWordpieceTokenizer(
        known,
        suffix_indicator="",
        max_bytes_per_word=2**31 - 1,
        token_out_type=tf.int32,
        unknown_token=known[PAD_ID],  # every character is a piece: unused
        no_pretokenization=True,
    )


@functools.cache
def _alphanumeric_bounds():
    """Return the code points where letters and numbers begin or cease."""
    bounds, inside = [], False
    for code in range(sys.maxunicode + 1):
        if (unicodedata.category(chr(code))[0] in "LN") != inside:
            bounds.append(code)
            inside = not inside
    return np.array(bounds)


def _unescaped(words):
    r"""Return words, tf.string [W], without escapes.

    Example: "a\u\\\233;\9" -> "a_\é\9".
    """
    # No word has an underscore, so it may set the escapes apart.
    marked = tf.strings.regex_replace(words, f"({_ESCAPES})", r"_\1_")
    parts = tf.strings.split(marked, "_")
    flat = parts.flat_values
    is_number = tf.strings.regex_full_match(flat, r"\\[0-9]+;")
    numbers = tf.strings.regex_replace(
        tf.where(is_number, flat, r"\0;"), r"^\\0*([0-9]+);$", r"\1"
    )
    is_long = tf.strings.length(numbers) > _MOST_DIGITS
    numbers = tf.where(is_long, str(_NO_CHARACTER), numbers)
    codes = tf.strings.to_number(numbers, tf.int32)
    codes = tf.where(codes > sys.maxunicode, _NO_CHARACTER, codes)
    characters = tf.strings.unicode_encode(codes[:, None], "UTF-8")
    flat = tf.where(is_number, characters, flat)
    flat = tf.where(parts.flat_values == r"\u", "_", flat)
    flat = tf.where(parts.flat_values == r"\\", "\\", flat)
    return tf.strings.reduce_join(parts.with_flat_values(flat), axis=-1)
