"""tensor2tensor's subword vocabularies: the same ids, with graph ops only.

tensor2tensor splits a text between alphanumeric and other characters, drops a
single space between two words, escapes each word and segments it greedily into
the longest pieces of its vocabulary. The WordPiece op of TensorFlow Text does
the last step: without a suffix indicator it matches the longest piece first.
"""

import functools
import sys
import unicodedata
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from t2t_lite.errors import T2TLiteError
from t2t_lite.files import PathLike
from t2t_lite.tokenizers import base

_RESERVED = {base.PAD_ID: ("<pad>_", "<pad>"), base.EOS_ID: ("<EOS>_", "<EOS>")}
_ESCAPE_CHARACTERS = "\\_u;0123456789"
_SPACE = ord(" ")
_ESCAPES = r"\\u|\\\\|\\[0-9]+;"
_MAX_DIGITS = 7  # of a code point: the digits of sys.maxunicode
_INVALID_CHARACTER = 0x3013  # decoded for an escaped number beyond Unicode


class T2TSubwordTokenizer(base.Tokenizer):
    r"""A vocabulary file of tensor2tensor's `SubwordTextEncoder`.

    Ids are line numbers from 0, and every text has the same ids as in
    tensor2tensor. `decode_tf(encode_tf(text)) == text` for every valid Unicode
    string. A file without quotes may lack pieces that end in a space, for which
    tensor2tensor fails on some texts; here the space is escaped.

    As in tensor2tensor, the Unicode version of this Python defines letters and
    digits; an export keeps the definition.

    Example, where "men_" and "Two_" are pieces but "." is not: "Two  men." ->
    the pieces "Two_", " ", " ", "_", "men_", "\", "4", "6", ";", "_".

    Raises:
      T2TLiteError: the file is missing or is not a subword file with all
        characters of escapes.
    """

    def __init__(self, path: PathLike):
        super().__init__(path)
        self._pieces = pieces = parse_subwords(base.vocab_lines(self._content))
        self.vocab_size = len(pieces)
        self._texts = tf.constant(pieces)
        alphabet = {*_ESCAPE_CHARACTERS}.union(*pieces)
        if lacking := sorted({*_ESCAPE_CHARACTERS} - set(pieces)):
            raise T2TLiteError(
                "A subword file must have each of the characters "
                f"{_ESCAPE_CHARACTERS} as a piece; {path} lacks "
                f"{' '.join(lacking)}. Is the file truncated?"
            )
        # A character of the alphabet that is not a piece is first matched as an
        # id beyond the vocabulary, then replaced by the ids of its escape.
        escaped_only = sorted(alphabet - set(pieces))
        self._matcher = _make_matcher([*pieces, *escaped_only])
        self._bounds = tf.constant(_alphanumeric_bounds(), tf.int32)
        # Characters of the alphabet, and their escapes in a word.
        escapes = {c: c for c in alphabet if c != "\n"}
        escapes |= {"_": r"\u", "\\": r"\\"}
        self._escapes = base.lookup_table(escapes, "")
        self._final_ids = None  # ids of the matcher -> ids of the vocabulary
        if escaped_only:
            codes = [f"\\{ord(c)};" for c in escaped_only]
            ids = tf.RaggedTensor.from_tensor(tf.range(len(pieces))[:, None])
            escaped = self._matcher.tokenize(codes)
            self._final_ids = tf.concat([ids, escaped], axis=0)

    def encode_tf(self, text: tf.Tensor) -> tf.RaggedTensor:
        words = self._words(base.clean_utf8(text))
        unique, indices = tf.unique(words.flat_values)
        ids = self._matcher.tokenize(self._escape(unique))
        if self._final_ids is not None:
            ids = tf.gather(self._final_ids, ids).merge_dims(1, 2)
        return words.with_flat_values(tf.gather(ids, indices)).merge_dims(1, 2)

    def decode_tf(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Return the text of each row; ids outside the vocabulary are skipped.

        As in tensor2tensor, an escaped number beyond Unicode becomes U+3013.
        A lone surrogate becomes U+FFFD.
        """
        texts = tf.gather(self._texts, self._strip_special(ids))
        words = tf.strings.split(tf.strings.reduce_join(texts, axis=-1), "_")
        words = tf.ragged.boolean_mask(words, words != "")
        flat = _unescape(words.flat_values)  # [W]
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
        """Return True for each int32 code point that is a letter or a digit."""
        return tf.searchsorted(self._bounds, codes, side="right") % 2 == 1

    def _words(self, text):
        """Return the words of each text: ragged tf.string [B, None].

        Example: "a_b  c d" -> ["a", "_", "b", "  ", "c", "d"].
        """
        characters = tf.strings.unicode_decode(text, "UTF-8")
        codes, rows = characters.flat_values, characters.value_rowids()
        alphanumeric = self._is_alphanumeric(codes)  # [C]
        follows = rows[1:] == rows[:-1]  # [C - 1], True if in the same text
        changes = ~follows | (alphanumeric[1:] != alphanumeric[:-1])
        starts = tf.concat([[True], changes], axis=0)[: tf.size(codes)]
        # A single space between two words is dropped.
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

    def _escape(self, words):
        r"""Escape words, tf.string [W], for the matcher: "_" -> "\u_"."""
        characters = tf.strings.unicode_decode(words, "UTF-8")
        codes, indices = tf.unique(characters.flat_values)
        escapes = self._escapes.lookup(
            tf.strings.unicode_encode(codes[:, None], "UTF-8")
        )
        numbers = tf.strings.join(["\\", tf.strings.as_string(codes), ";"])
        escaped = tf.where(escapes == "", numbers, escapes)
        escaped = characters.with_flat_values(tf.gather(escaped, indices))
        return tf.strings.reduce_join(escaped, axis=1) + "_"


def parse_subwords(lines: Sequence[str]) -> list[str]:
    """Return the pieces of a subword file; [] for another file."""
    pieces = [_unquote(line.rstrip()) for line in lines]
    is_subwords = len(pieces) > len(_RESERVED) and all(
        pieces[index] in names for index, names in _RESERVED.items()
    )
    return pieces if is_subwords else []


def _unquote(line):
    is_quoted = line[:1] in {"'", '"'} and line[:1] == line[-1:]
    return line[1:-1] if is_quoted else line


def _make_matcher(pieces):
    """Return an op that segments words greedily into the longest pieces."""
    known = base.dedupe_pieces(pieces, _RESERVED)
    return tf_text.FastWordpieceTokenizer(
        known,
        suffix_indicator="",
        max_bytes_per_word=2**31 - 1,
        token_out_type=tf.int32,
        unknown_token=known[base.PAD_ID],  # every character is a piece: unused
        no_pretokenization=True,
    )


@functools.cache
def _alphanumeric_bounds():
    """Return the code points at which ranges of letters and digits change."""
    characters = map(chr, range(sys.maxunicode + 1))
    inside = [unicodedata.category(c)[0] in "LN" for c in characters]
    return np.flatnonzero(np.diff(inside, prepend=False))


def _unescape(words):
    r"""Return words, tf.string [W], without escapes.

    Example: "a\u\\\233;\9" -> "a_\é\9".
    """
    # Words have no underscore, so it can delimit the escapes.
    delimited = tf.strings.regex_replace(words, f"({_ESCAPES})", r"_\1_")
    chunks = tf.strings.split(delimited, "_")
    flat = chunks.flat_values
    is_number = tf.strings.regex_full_match(flat, r"\\[0-9]+;")
    numbers = tf.strings.regex_replace(
        tf.where(is_number, flat, r"\0;"), r"^\\0*([0-9]+);$", r"\1"
    )
    is_long = tf.strings.length(numbers) > _MAX_DIGITS
    numbers = tf.where(is_long, str(_INVALID_CHARACTER), numbers)
    codes = tf.strings.to_number(numbers, tf.int32)
    codes = tf.where(codes > sys.maxunicode, _INVALID_CHARACTER, codes)
    characters = tf.strings.unicode_encode(codes[:, None], "UTF-8")
    flat = tf.where(is_number, characters, flat)
    flat = tf.where(chunks.flat_values == r"\u", "_", flat)
    flat = tf.where(chunks.flat_values == r"\\", "\\", flat)
    return tf.strings.reduce_join(chunks.with_flat_values(flat), axis=-1)
