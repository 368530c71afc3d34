"""BERT's WordPiece vocabularies: TF Text's tokenizer behind our two ids."""

import os
import re
import unicodedata

import tensorflow as tf
import tensorflow_text as tf_text

from t2t_lite.errors import T2TLiteError
from t2t_lite.text.encoder import (
    EOS_ID,
    TextEncoder,
    clean_utf8,
    lines_of,
    matchable,
    spans_of_offsets,
)

UNKNOWN_PIECE = "[UNK]"
_SUFFIX = "##"
_FIRST_ID = EOS_ID + 1  # of the first line of the file
_SPECIAL = re.compile(r"\[\S+\]")


class WordPieceEncoder(TextEncoder):
    """A `vocab.txt` as BERT and TF Text have it, with two ids more.

    Such files have no agreed place for padding and most have no EOS. So ids 0
    and 1 are PAD and EOS here whatever the file says, and line n of the file,
    counted from 0, has the id n + 2: the vocabulary has two ids more than the
    file has lines, and its own [PAD], [CLS] and the like are never used.

    keras-hub's WordPieceTokenizer keeps the ids of the file and must be told
    what is lower-cased; here the file says both.

    What is lost, because WordPiece does not record it:
      - a word with a part that no piece covers becomes [UNK] as a whole;
        generated data counts these in its manifest (`unknown_id`);
      - white space: words come back with one space between them, and
        punctuation and CJK characters are words: "Don't!" -> "Don ' t !";
      - control characters;
      - case, if no piece has a capital letter, and then accents, if no piece
        has one. The file does not say it in any other way.

    Example, without capitals: "Two  men." -> "two", "men", "." -> "two men .".

    Args:
      path: one piece a line, UTF-8, [UNK] among them, suffixes with ##. Of two
        equal lines the last counts.

    Raises:
      T2TLiteError: the file is missing or of another kind.
    """

    def __init__(self, path: str | os.PathLike):
        super().__init__(name="wordpiece_encoder")
        pieces = wordpieces_of(self._read(path))
        if not pieces:
            raise T2TLiteError(
                f"{path} is not a WordPiece vocabulary: it must be UTF-8 and "
                f"have {UNKNOWN_PIECE} as a line."
            )
        self.vocab_size = _FIRST_ID + len(pieces)
        matched = matchable(pieces)
        self.unknown_id = _FIRST_ID + matched.index(UNKNOWN_PIECE)
        self._pieces = ["<pad>", "</s>", *pieces]
        self._texts = tf.constant(["", "", *map(_text_of, pieces)])
        known = [p for p in pieces if not _SPECIAL.fullmatch(p)]
        lowers = all(p == p.lower() for p in known)
        strips = lowers and all(p == _bare(p) for p in known)
        self._only_lowers = lowers and not strips
        try:
            self._matcher = tf_text.FastBertTokenizer(
                matched,
                suffix_indicator=_SUFFIX,
                max_bytes_per_word=2**31 - 1,
                token_out_type=tf.int32,
                unknown_token=UNKNOWN_PIECE,
                lower_case_nfd_strip_accents=strips,
            )
        except RuntimeError as error:
            raise T2TLiteError(
                f"{path} is not a WordPiece vocabulary that can be used: "
                f"{error}"
            ) from error

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        return self._matcher.tokenize(self._cased(text)) + _FIRST_ID

    def _cased(self, text):
        text = clean_utf8(text)
        return tf.strings.lower(text, "utf-8") if self._only_lowers else text

    def _spans(self, text):
        text = self._cased(tf.constant(text)).numpy()
        return text, spans_of_offsets(self._matcher, text)

    def detokenize(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """The text of each row: its words, a space between them.

        A piece in brackets, such as [CLS], is skipped, except for [UNK]. So
        are ids outside the vocabulary.
        """
        texts = tf.gather(self._texts, self._ids_of_text(ids))
        joined = tf.strings.reduce_join(texts, axis=-1)
        return tf.strings.regex_replace(joined, "^ ", "")


def wordpieces_of(content: bytes) -> list[str]:
    """The pieces of a WordPiece file of this content; [] if it is not one."""
    pieces = [line.strip("\r") for line in lines_of(content)]
    return pieces if UNKNOWN_PIECE in pieces else []


def _text_of(piece):
    """What a piece adds to a text."""
    if _SPECIAL.fullmatch(piece) and piece != UNKNOWN_PIECE:
        return ""
    is_suffix = piece.startswith(_SUFFIX) and piece != _SUFFIX
    return piece.removeprefix(_SUFFIX) if is_suffix else f" {piece}"


def _bare(piece):
    """The piece without accents, as BERT's lower-casing leaves it."""
    parts = unicodedata.normalize("NFD", piece)
    return "".join(c for c in parts if unicodedata.category(c) != "Mn")
