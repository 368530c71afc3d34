"""SentencePiece vocabularies: learned from a corpus, text to ids and back."""

import os
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from t2t_lite.errors import T2TLiteError
from t2t_lite.text.encoder import (
    UNK_ID,
    TextEncoder,
    clean_utf8,
    cleaned,
    spans_of_offsets,
    write_vocabulary,
)
from t2t_lite.text.sentencepiece_model import (
    sample_lines,
    train_model,
    with_our_ids,
)
from t2t_lite.text.word_pieces import WordPieces


class SentencePieceEncoder(TextEncoder):
    """A SentencePiece vocabulary, BPE with byte fallback if `train` made it.

    Then `detokenize(tokenize(text)) == text` for every valid Unicode string,
    without exception: runs of spaces, tabs, line ends, NUL, unknown scripts,
    U+2581 and texts such as `"</s>"` or `"<0x41>"`. Text that is not valid
    UTF-8 comes back with U+FFFD in it (`clean_utf8`).

    keras-hub's SentencePieceTokenizer wraps the same op and has none of this:
    it keeps the ids of the file, passes broken UTF-8 on, and reads past EOS.
    Data generation needs neither op but `WordPieces`, for speed.

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
            self._tokenizer = tf_text.SentencepieceTokenizer(self._model)
            self.vocab_size = int(self._tokenizer.vocab_size())
        except (tf.errors.OpError, ValueError) as error:
            raise T2TLiteError(
                f"{path} is not a SentencePiece model or is damaged; "
                "t2t-lite-datagen makes a new one."
            ) from error
        self.unknown_id = None if writes_all else UNK_ID
        self._words: WordPieces | None = None  # made when it is needed

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        """The ids of each text, from UNK_ID to vocab_size - 1."""
        return self._tokenizer.tokenize(clean_utf8(text))

    def encode(self, texts: Sequence[str | bytes]) -> list[np.ndarray]:
        """The ids of each text, int32, without EOS: as `tokenize`, but fast."""
        if self._words is None:
            self._words = WordPieces(self._model)
        return self._words.encode([cleaned(text) for text in texts])

    def detokenize(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """The text of each row.

        Bytes that form no character, UNK_ID and ids outside the vocabulary
        become U+FFFD, or what another trainer's model has for unknown text.
        """
        return self._tokenizer.detokenize(self._ids_of_text(ids, UNK_ID))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The vocabulary's entry of each id, U+2581 where a space is.

        Ids beyond the last have an empty one, as in any vocabulary.
        """
        known = [i if i < self.vocab_size else UNK_ID for i in ids]
        found = self._tokenizer.id_to_string(tf.constant(known, tf.int32))
        return [
            "" if i >= self.vocab_size else piece.decode()
            for i, piece in zip(ids, found.numpy(), strict=True)
        ]

    def _spans(self, text):
        return text, spans_of_offsets(self._tokenizer, text)

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
        tags: Sequence[str] = (),
    ) -> "SentencePieceEncoder":
        """Learns a vocabulary of exactly that size and writes it to `path`.

        The same lines, size and seed give the same file. Of a corpus with more
        than MOST_VOCABULARY_LINES lines, a random sample of that many is used.

        Args:
          lines: the texts, streamed.
          vocab_size: pieces in all; 3 special ones and 256 bytes included.
          path: the model file; complete or not there.
          seed: of the sample.
          tags: each is one piece, wherever it stands in a text.

        Returns: the encoder; its `learned_from` says of how many lines.

        Raises:
          T2TLiteError: there is no text, too little for so many pieces, or too
            many different characters for so few.
        """
        kept, count = sample_lines(lines, seed)
        if not kept:
            raise T2TLiteError(
                "A vocabulary needs text; got a corpus without any. Check the "
                "files of the train split."
            )
        write_vocabulary(path, train_model(kept, vocab_size, tags))
        encoder = cls(path)
        encoder._learned_from = dict(
            lines=count, sampled_lines=len(kept), seed=seed
        )
        return encoder
