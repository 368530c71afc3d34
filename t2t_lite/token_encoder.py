"""The encoder of a closed vocabulary: tokens to ids and back, in graphs."""

import hashlib
import os
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf

from t2t_lite import atomic
from t2t_lite.errors import T2TLiteError
from t2t_lite.text_encoder import EOS_ID, PAD_ID, UNK_ID

SPECIAL_TOKENS = ("<pad>", "</s>", "<unk>")  # of PAD_ID, EOS_ID and UNK_ID


class TokenEncoder(tf.Module):
    """A vocabulary of whole tokens that are separated by spaces.

    For languages that are written down, such as linearized trees; text of
    people needs a subword vocabulary. The interface is that of
    `text_encoder.SentencePieceEncoder`.

    Example: "(S XX )S" -> [3, 9, 4] -> "(S XX )S"

    Args:
      path: a UTF-8 file with a token a line, as `write` makes it: line i is the
        token of id i, and the first three are SPECIAL_TOKENS.

    Raises:
      T2TLiteError: the file is missing, damaged or has other special tokens.
    """

    def __init__(self, path: str | os.PathLike):
        super().__init__(name="token_encoder")
        self.path = pathlib.Path(path)
        try:
            content = self.path.read_bytes()
            lines = content.decode().splitlines()
        except OSError as error:
            raise T2TLiteError(
                f"Cannot read the vocabulary {path}: {error.strerror}. "
                "t2t-lite-datagen makes it."
            ) from error
        except UnicodeDecodeError as error:
            raise T2TLiteError(
                f"{path} is not a list of tokens or is damaged; "
                "t2t-lite-datagen makes it anew."
            ) from error
        if tuple(lines[:3]) != SPECIAL_TOKENS or len(set(lines)) < len(lines):
            raise T2TLiteError(
                f"A list of tokens must begin with {' '.join(SPECIAL_TOKENS)} "
                f"and name each token once; {path} does not. t2t-lite-datagen "
                "makes it anew."
            )
        self.tokens = tuple(lines)
        self.sha256 = hashlib.sha256(content).hexdigest()
        self.vocab_size = len(lines)
        self._ids = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant(lines), tf.range(len(lines), dtype=tf.int32)
            ),
            default_value=UNK_ID,
        )
        self._known = frozenset(lines[UNK_ID + 1 :])

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        """The ids of each text, without EOS; UNK_ID for an unknown token.

        Args:
          text: tf.string [B].

        Returns:
          ragged int32 [B, None].
        """
        tokens = tf.strings.split(text)
        ids = self._ids.lookup(tokens.flat_values)
        return tokens.with_flat_values(tf.maximum(ids, UNK_ID))

    def detokenize(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """The text of each row, up to its first EOS; padding is no text.

        Args:
          ids: int32 [N, T], dense or ragged; an id outside the vocabulary is
            `<unk>`.

        Returns:
          tf.string [N].
        """
        if isinstance(ids, tf.RaggedTensor):
            ids = ids.to_tensor(PAD_ID)
        ids = tf.cast(ids, tf.int32)
        is_eos = tf.equal(ids, EOS_ID)
        ended = tf.cumsum(tf.cast(is_eos, tf.int32), axis=1) > 0  # [N, T]
        known = (ids >= 0) & (ids < self.vocab_size)
        tokens = tf.gather(tf.constant(self.tokens), tf.where(known, ids, 2))
        kept = tf.ragged.boolean_mask(tokens, ~ended & (ids != PAD_ID))
        return tf.strings.reduce_join(kept, axis=1, separator=" ")

    def encode(self, texts: Sequence[str | bytes]) -> list[np.ndarray]:
        """The ids of each text, int32, without EOS.

        Raises:
          T2TLiteError: a token is not in the vocabulary: what is learned from
            must be exact.
        """
        for text in texts:
            text = text.decode() if isinstance(text, bytes) else text
            for token in text.split():
                if token not in self._known:
                    raise T2TLiteError(
                        f"Every token must be in {self.path.name}; got "
                        f"{token!r} in {text[:100]!r}. If it is no mistake, "
                        "let the train split have it, too."
                    )
        if not texts:
            return []
        ids = self.tokenize(tf.constant(texts))
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

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The token of each id."""
        return [self.tokens[id_] for id_ in ids]

    @classmethod
    def write(
        cls, tokens: Iterable[str], path: str | os.PathLike
    ) -> "TokenEncoder":
        """Writes a vocabulary of these tokens, in their order.

        Raises:
          T2TLiteError: a token is empty or holds white space, or the file
            cannot be written.
        """
        tokens = list(dict.fromkeys(tokens))
        for token in tokens:
            if token.split() != [token]:
                raise T2TLiteError(
                    "A token must not be empty nor hold white space; got "
                    f"{token!r}."
                )
        text = "".join(f"{line}\n" for line in (*SPECIAL_TOKENS, *tokens))
        try:
            atomic.write_text(pathlib.Path(path), text)
        except OSError as error:
            raise T2TLiteError(
                f"Cannot write the vocabulary {path}: {error.strerror}."
            ) from error
        return cls(path)
