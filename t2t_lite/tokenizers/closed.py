"""A closed vocabulary of whole tokens, separated by white space."""

from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf

from t2t_lite.errors import T2TLiteError
from t2t_lite.files import PathLike
from t2t_lite.tokenizers import base

SPECIAL_TOKENS = ("<pad>", "</s>", "<unk>")  # PAD_ID, EOS_ID and UNK_ID


class ClosedVocabulary(base.Tokenizer):
    """A vocabulary of whole tokens, for formal languages such as trees.

    Example: "(S XX )S" -> [3, 9, 4] -> "(S XX )S"

    Line i of the UTF-8 file is the token of id i; the first three are
    SPECIAL_TOKENS.

    Raises:
      T2TLiteError: the file is missing, damaged or has other special tokens.
    """

    def __init__(self, path: PathLike):
        super().__init__(path)
        tokens = base.vocab_lines(self._content)
        is_list = tuple(tokens[:3]) == SPECIAL_TOKENS
        if not is_list or len(set(tokens)) < len(tokens):
            raise T2TLiteError(
                f"{path} is not a list of tokens or is damaged: it must begin "
                f"with {' '.join(SPECIAL_TOKENS)} and contain each token once. "
                "t2t-lite-datagen creates a new file."
            )
        self._pieces = tuple(tokens)
        self.vocab_size = len(tokens)
        ids = {token: index for index, token in enumerate(tokens)}
        self._ids = base.lookup_table(ids, base.UNK_ID)

    def encode_tf(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Return the ids of each text; UNK_ID for an unknown token."""
        tokens = tf.strings.split(text)
        ids = self._ids.lookup(tokens.flat_values)
        return tokens.with_flat_values(tf.maximum(ids, base.UNK_ID))

    def decode_tf(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Return the text of each row; unknown ids become `<unk>`."""
        ids = self._strip_special(ids, base.UNK_ID)
        tokens = tf.gather(tf.constant(self._pieces), ids)
        return tf.strings.reduce_join(tokens, axis=1, separator=" ")

    def encode(self, texts: Sequence[str | bytes]) -> list[np.ndarray]:
        """Return the ids of texts; raise T2TLiteError for an unknown token.

        Training data must be exact.
        """
        rows = super().encode(texts)
        for text, ids in zip(texts, rows, strict=True):
            if base.UNK_ID in ids:
                index = ids.tolist().index(base.UNK_ID)
                token = base.to_valid_utf8(text).split()[index]
                raise T2TLiteError(
                    f"Every token must be in {self.path.name}; got {token!r} "
                    f"in {text[:100]!r}. Correct the token, or add it to the "
                    "train split."
                )
        return rows

    @classmethod
    def write(cls, tokens: Iterable[str], path: PathLike) -> "ClosedVocabulary":
        """Write a vocabulary of tokens without white space, in order."""
        lines = "\n".join((*SPECIAL_TOKENS, *dict.fromkeys(tokens), ""))
        base.write_vocabulary(path, lines.encode())
        return cls(path)
