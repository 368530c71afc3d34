"""Searches that XLA compiles, for a sentence at a time.

A step of a search is hundreds of small operations. For one sentence of a small
model each takes TensorFlow about as long to begin as to do; XLA makes a few
kernels of them. It compiles for seconds, though, and anew for each shape, and
for batches it is the slower one.
"""

from collections.abc import Callable

import tensorflow as tf

from t2t_lite.model.layers.backend import for_xla

_POWERS = [2**power for power in range(31)]
_SHORTEST = 32


def compiled(
    search: Callable[..., tuple[tf.Tensor, tf.Tensor]],
    longest_of: Callable[[tf.Tensor], tf.Tensor],
) -> Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
    """The same search, compiled.

    Batches are padded to powers of two, sources to at least 32 tokens, so that
    there are few shapes.

    Args:
      search: `(ids int32 [B, S], limits int32 [B], longest=L)` -> tokens int32
        [B, N, L] and scores float32 [B, N], of operations that XLA knows;
        sentences do not affect one another.
      longest_of: `S -> L`, the largest limit of sources so long.

    Returns: `(ids, limits) -> (tokens, scores)`; there L is the largest limit.
    """

    @tf.function(jit_compile=True, autograph=False)
    def whole(ids, limits):
        with for_xla():
            return search(ids, limits, longest=longest_of(tf.shape(ids)[1]))

    def padded(ids, limits):
        rows, width = tf.unstack(tf.shape(ids))
        more_rows = _power_of_two(rows) - rows
        more_width = _power_of_two(tf.maximum(width, _SHORTEST)) - width
        tokens, scores = whole(
            tf.pad(ids, [[0, more_rows], [0, more_width]]),
            tf.pad(limits, [[0, more_rows]]),
        )
        longest = tf.reduce_max(tf.concat([limits, [0]], axis=0))
        return tokens[:rows, :, :longest], scores[:rows]

    return padded


def _power_of_two(size):
    """The least one that is no smaller."""
    return tf.gather(_POWERS, tf.searchsorted(_POWERS, size[None])[0])
