"""BERT's WordPiece vocabularies with KerasHub's tokenizer."""

import re
import unicodedata

import tensorflow as tf

from t2t_lite.files import PathLike
from t2t_lite.tokenizers import base


class WordPieceVocabulary(base.Tokenizer):
    """A `vocab.txt`; line n, counted from 0, has the id n + 2.

    Ids 0 and 1 are PAD and EOS. Extra spaces, control characters, [CLS] and
    words of over 100 bytes are not preserved. If no piece has a capital, text
    is lower-cased; if no piece has an accent either, accents are removed. The
    last of equal lines counts.
    """

    def __init__(self, path: PathLike):
        super().__init__(path)
        pieces = base.vocab_lines(self._content)
        from keras_hub.tokenizers import WordPieceTokenizer  # takes seconds

        self._pieces = ["<pad>", "</s>", *pieces]
        self.vocab_size = len(self._pieces)
        # A ## piece continues a word; special pieces but [UNK] have no text.
        ignored = re.compile(r"^ (##(?=.)|(?!\[UNK\])\[\S+\]$)")
        words = [ignored.sub("", f" {piece}") for piece in pieces]
        self._words = tf.constant(["", "", *words])
        letters = "".join(words).replace("[UNK]", "")
        decomposed = unicodedata.normalize("NFD", letters)
        bare = "".join(c for c in decomposed if unicodedata.category(c) != "Mn")
        lower = letters == letters.lower()
        # NUL ends a text in TensorFlow Text, and a piece has at most 256 bytes.
        texts = ("" if len(p.encode()) > 256 else p for p in pieces)
        matched = base.dedupe_pieces(["" if "\0" in p else p for p in texts])
        self.unknown_id = 2 + matched.index("[UNK]")
        self._tokenizer = WordPieceTokenizer(
            matched, lowercase=lower, strip_accents=lower and letters == bare
        )

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def encode_tf(self, text: tf.Tensor) -> tf.RaggedTensor:
        # KerasHub uses TensorFlow only in graphs and knows only ASCII spaces.
        text = base.clean_utf8(text)
        text = tf.strings.regex_replace(text, r"[\s\pZ\x00]", " ")
        return self._tokenizer.tokenize(text) + 2

    def words_of_text(
        self, text: str, max_pieces: int | None = None
    ) -> list[range]:
        rows = enumerate(self.encode(base.to_valid_utf8(text).split()))
        return [range(n, n + 1) for n, ids in rows for _ in ids]

    def decode_tf(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        words = tf.gather(self._words, self._strip_special(ids))
        text = tf.strings.reduce_join(words, axis=-1)
        return tf.strings.regex_replace(text, "^ ", "")
