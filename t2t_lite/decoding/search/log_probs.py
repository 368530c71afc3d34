"""Log-probabilities of tokens: the best of each row, and the impossible ones.

Shapes: R rows, V vocabulary. Only `keras.ops`, with sizes known or not.
"""

from keras import ops

from t2t_lite.model.layers.backend import Tensor, gather_rows

# The log-probability of what does not exist: finite, because infinities turn
# into NaN in differences and NaN is no legal JSON.
IMPOSSIBLE = -1e9

# Rows of logits at least this wide are searched in two stages, by blocks.
_TWO_STAGE_WIDTH = 2048
_BLOCK = 64


def is_possible(log_probs: Tensor) -> Tensor:
    """Whether a log-probability or score belongs to a real hypothesis."""
    return log_probs > 0.01 * IMPOSSIBLE


def log_normalizer(logits: Tensor) -> Tensor:
    """What is subtracted from logits to give log-probabilities.

    Args:
      logits: float [..., V].

    Returns: float32 [..., 1], the logarithm of the summed exponentials.
    """
    logits = ops.cast(logits, "float32")
    top = ops.max(logits, axis=-1, keepdims=True)
    share = ops.max(ops.softmax(logits), axis=-1, keepdims=True)
    return _normalizer(top, share)


def _normalizer(top, share):
    """By the largest logit of a row and its probability, at least 1 / V.

    The backend's softmax goes over a row once; subtracting, exponentials and
    their sum are three passes over it.
    """
    return top - ops.log(share)


def best_log_probs(
    logits: Tensor, width: int, normalizer: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The `width` likeliest tokens of each row of logits.

    The array of log-probabilities is never made: a row's score is its logit
    minus its normalizer.

    Args:
      logits: float [R, V].
      width: how many, at most V.
      normalizer: float32 [R, 1]; None: that of these logits.

    Returns: log-probabilities float32 [R, width], best first, and ids int32
      [R, width]. Rows that hold a NaN have no possible token.
    """
    logits = ops.cast(logits, "float32")
    best, ids = _top_k(logits, width)
    if normalizer is None:
        shares = gather_rows(ops.softmax(logits), ids)
        normalizer = _normalizer(
            ops.max(best, axis=-1, keepdims=True),
            ops.max(shares, axis=-1, keepdims=True),
        )
    log_probs = best - normalizer
    # Written so that a NaN becomes impossible, too.
    return ops.where(log_probs > IMPOSSIBLE, log_probs, IMPOSSIBLE), ids


def _top_k(rows, width):
    """`top_k` with int32 indices; wide rows cost little more than a maximum.

    The `width` largest of a row lie in the `width` blocks with the largest
    maxima, or after the last whole block.
    """
    count, size = ops.shape(rows)
    block = _block_of(size)
    whole = size - size % block
    if size < _TWO_STAGE_WIDTH or whole // block < width:
        values, ids = ops.top_k(rows, width)
        return values, ops.cast(ids, "int32")
    in_blocks = rows if whole == size else rows[:, :whole]
    blocks = ops.reshape(in_blocks, (count, whole // block, block))
    _, chosen = ops.top_k(ops.max(blocks, axis=-1), width)  # [R, width]
    # In the order of the ids, so that ties go to the smaller id.
    chosen = ops.sort(ops.cast(chosen, "int32"), axis=-1)
    some = width * block
    values = ops.reshape(gather_rows(blocks, chosen), (count, some))
    ids = chosen[..., None] * block + ops.arange(block, dtype="int32")
    ids = ops.reshape(ids, (count, some))
    if whole < size:
        rest = ops.arange(whole, size, dtype="int32")[None]
        rest = ops.broadcast_to(rest, (count, size - whole))
        values = ops.concatenate([values, rows[:, whole:]], axis=-1)
        ids = ops.concatenate([ids, rest], axis=-1)
    values, places = ops.top_k(values, width)
    return values, gather_rows(ids, places)


def _block_of(size):
    """How wide blocks of a row are: a divisor of its size if there is one.

    A rest would cost a copy of all the blocks.
    """
    near = range(_BLOCK // 2, 2 * _BLOCK + 1)
    divisors = [block for block in near if size % block == 0]
    return min(divisors, key=lambda b: abs(b - _BLOCK), default=_BLOCK)
