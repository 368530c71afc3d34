"""Texts on their way into a model and out of it, whatever engine searches."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from t2t_lite.text.encoder import EOS_ID, PAD_ID, TextEncoder
from t2t_lite.text.form import TextForm

# White space as `str.strip` knows it, which is what counts in a corpus.
_BLANK = r"[\s\v\x1c-\x1f\x{85}\pZ]*"


def prepare(texts: tf.Tensor, form: TextForm | None) -> tf.Tensor:
    """The texts, of any shape, as they are tokenized: blank ones are empty."""
    blank = tf.strings.regex_full_match(texts, _BLANK)
    texts = tf.where(blank, "", texts)
    return texts if form is None else form.prepare(texts)


def with_eos(
    tokens: tf.RaggedTensor, max_length: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Cuts and ends rows of tokens.

    Example, with a `max_length` of 3: [[5, 6, 7, 8], [5], []] ->
    [[5, 6, 1], [5, 1, 0], [1, 0, 0]], [3, 2, 1], [True, False, False].

    Args:
      tokens: ragged int32 [B, None].
      max_length: tokens, EOS included.

    Returns: ids int32 [B, S], lengths with EOS int32 [B], bool [B] where
      tokens were cut off.
    """
    cut = tokens.row_lengths() > max_length - 1
    tokens = tokens[:, : max_length - 1]
    eos = tf.fill([tokens.nrows(), 1], tf.constant(EOS_ID, tokens.dtype))
    tokens = tf.concat([tokens, eos], axis=1)
    lengths = tf.cast(tokens.row_lengths(), tf.int32)
    return tf.cast(tokens.to_tensor(PAD_ID), tf.int32), lengths, cut


def count_tokens(
    texts: Sequence[bytes],
    encoder: TextEncoder,
    max_length: int,
    form: TextForm | None,
) -> np.ndarray:
    """How many tokens a model gets of each text, EOS included: int64 [B]."""
    ids = encoder.tokenize(prepare(tf.constant(texts), form))
    return np.minimum(ids.row_lengths().numpy() + 1, max_length)


def on_one_line(texts: tf.Tensor) -> tf.Tensor:
    """The texts with line ends as spaces: an answer is one line."""
    return tf.strings.regex_replace(texts, r"\r\n|\r|\n", " ")


def strip_line_end(line: str | bytes) -> bytes:
    r"""The line as bytes, without "\n" or "\r\n" at its end."""
    if isinstance(line, str):
        # Lone surrogates become broken bytes, which the encoder cleans.
        line = line.encode("utf-8", "surrogatepass")
    return line.removesuffix(b"\n").removesuffix(b"\r")


def decoded(line: str | bytes) -> str:
    """The line as text, without its end, U+FFFD for what is not UTF-8."""
    return strip_line_end(line).decode("utf-8", "replace")
