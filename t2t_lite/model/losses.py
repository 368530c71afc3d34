"""Label-smoothed cross-entropy of logits or of the decoder's output.

Smoothing distributes `label_smoothing` over the V - 1 other tokens (section
5.4; arXiv:1512.00567). With the smoothed target distribution q,

    loss = -sum_v q_v log p_v = logsumexp(z) - (a z_target + b sum_v z_v),
    b = label_smoothing / (V - 1),    a = 1 - label_smoothing - b,

in nats, always in float32.
"""

from typing import Any

import keras
from keras import ops

from t2t_lite.model.masks import padding_mask
from t2t_lite.ops import Tensor, scatter_add, with_control_dependency

# Rows of logits in a block. More rows need more memory; fewer rows add the
# gradient of the table more often.
BLOCK_ROWS = 512


def smoothed_cross_entropy(
    logits: Tensor, targets: Tensor, label_smoothing: float = 0.0
) -> Tensor:
    """Return the loss of every position, padding included, in nats.

    Logits are [..., V], targets int [...], and the result is float32 [...].
    """
    logits = ops.cast(logits, "float32")
    vocab_size = logits.shape[-1]
    target_weight, uniform_weight = _target_weights(label_smoothing, vocab_size)
    chosen = ops.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    loss = ops.logsumexp(logits, axis=-1) - target_weight * chosen
    if uniform_weight:
        loss = loss - uniform_weight * ops.sum(logits, axis=-1)
    return loss


@keras.saving.register_keras_serializable(package="t2t_lite")
class SmoothedCrossEntropy(keras.losses.Loss):
    """Mean `smoothed_cross_entropy` of real targets, for `Model.compile`."""

    def __init__(
        self, label_smoothing: float = 0.0, name: str = "smoothed_cross_entropy"
    ):
        super().__init__(name=name, reduction="mean_with_sample_weight")
        self.label_smoothing = label_smoothing

    def __call__(
        self,
        y_true: Tensor,
        y_pred: Tensor,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """Return the mean loss of int [B, T] targets under [B, T, V] logits.

        `sample_weight`, float [B] or [B, T], weights sentences or targets.
        """
        real = ops.cast(padding_mask(y_true), "float32")
        if sample_weight is not None:
            weights = ops.cast(sample_weight, "float32")
            if len(weights.shape) == 1:
                weights = weights[:, None]
            real = real * weights
        return super().__call__(y_true, y_pred, sample_weight=real)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Return the loss of every position: float32 [B, T]."""
        targets = ops.cast(y_true, "int32")
        return smoothed_cross_entropy(y_pred, targets, self.label_smoothing)

    def get_config(self) -> dict[str, Any]:
        return {"label_smoothing": self.label_smoothing, "name": self.name}


def fused_log_probs(hidden: Tensor, table: Tensor, targets: Tensor) -> Tensor:
    """Return the log-probability of each target, float32 [N], without gradient.

    The arguments are those of `fused_cross_entropy_sum`.
    """
    columns = ops.transpose(table)

    def score_block(block):
        hidden, targets = block
        return -smoothed_cross_entropy(ops.matmul(hidden, columns), targets)

    log_probs = ops.map(score_block, (_to_blocks(hidden), _to_blocks(targets)))
    return ops.reshape(log_probs, (-1,))[: ops.shape(hidden)[0]]


def fused_cross_entropy_sum(
    hidden: Tensor, table: Tensor, targets: Tensor, label_smoothing: float = 0.0
) -> Tensor:
    """Return the summed loss of a softmax layer, in blocks of logits.

    Logits [N, V] and arrays of the same size would dominate the memory and time
    of a training step. Instead, one pass computes the loss and the gradients of
    each block of rows. Only the softmax term of the gradient needs [R, V]; the
    terms of the target and of the smoothing have rank one.

    Args:
      hidden: float [N, D], the decoder's output.
      table: float [V, D], the softmax matrix.
      targets: int32 [N]; padding, 0, does not contribute.
      label_smoothing: probability, in [0, 1), of all other tokens.

    Returns:
      float32 scalar, in nats, differentiable in `hidden` and `table`.
    """
    weights = ops.cast(padding_mask(targets), "float32")

    @ops.custom_gradient
    def loss_of(hidden, table):
        loss, hidden_gradient, table_gradient = _loss_and_gradients(
            hidden, table, targets, weights, label_smoothing
        )

        def gradient(*args, upstream=None):
            if upstream is None:  # Keras passes it by name only on PyTorch
                (upstream,) = args
            return (
                ops.cast(hidden_gradient * upstream, hidden.dtype),
                ops.cast(table_gradient * upstream, table.dtype),
            )

        return loss, gradient

    return loss_of(hidden, table)


def _loss_and_gradients(hidden, table, targets, weights, label_smoothing):
    """Return the summed loss and its float32 gradients [N, D] and [V, D]."""
    vocab_size = table.shape[0]
    target_weight, uniform_weight = _target_weights(label_smoothing, vocab_size)
    log_partition_sum, hidden_gradient, table_gradient = (
        _logsumexp_and_gradients(hidden, table, weights)
    )
    hidden = ops.cast(hidden, "float32")
    # The term of the target's logit: -a z_target.
    chosen = ops.cast(ops.take(table, targets, axis=0), "float32")  # [N, D]
    target_logits = ops.sum(hidden * chosen, axis=-1)
    loss = log_partition_sum - target_weight * ops.sum(weights * target_logits)
    scale = (target_weight * weights)[:, None]
    hidden_gradient = hidden_gradient - scale * chosen
    table_gradient = scatter_add(table_gradient, targets, -scale * hidden)
    if uniform_weight:
        # The term of all logits: -b sum_v z_v = -b h . sum_v table_v.
        table_sum = ops.sum(ops.cast(table, "float32"), axis=0)  # [D]
        hidden_sum = ops.sum(weights[:, None] * hidden, axis=0)  # [D]
        loss = loss - uniform_weight * ops.sum(hidden_sum * table_sum)
        hidden_gradient = (
            hidden_gradient - uniform_weight * weights[:, None] * table_sum
        )
        table_gradient = table_gradient - uniform_weight * hidden_sum
    return loss, hidden_gradient, table_gradient


def _logsumexp_and_gradients(hidden, table, weights):
    rows, size = ops.shape(hidden)
    hidden, weights = _to_blocks(hidden), _to_blocks(weights)
    blocks, block = ops.shape(weights)
    # The gradient of the table is accumulated as [D, V], the faster layout.
    columns = ops.transpose(table)  # [V, D] -> [D, V]

    def step(index, loss, hidden_gradient, table_gradient):
        x = hidden[index]  # [R, D]
        weight = weights[index][:, None]  # [R, 1]
        logits = ops.cast(ops.matmul(x, columns), "float32")  # [R, V]
        probs = ops.softmax(logits, axis=-1)
        # logsumexp = max logit - log(max prob)
        max_logit = ops.max(logits, axis=-1, keepdims=True)
        max_prob = ops.max(probs, axis=-1, keepdims=True)
        loss = loss + ops.sum(weight * (max_logit - ops.log(max_prob)))
        probs = ops.cast(probs, x.dtype)
        x_gradient = weight * ops.cast(ops.matmul(probs, table), "float32")
        weighted = ops.cast(weight, x.dtype) * x
        table_gradient = table_gradient + ops.cast(
            ops.matmul(ops.transpose(weighted), probs), "float32"
        )
        hidden_gradient = ops.scatter_update(
            hidden_gradient, ops.reshape(index, (1, 1)), x_gradient[None]
        )
        # Blocks run one after another, so they use the same memory.
        index = with_control_dependency(index + 1, table_gradient)
        return index, loss, hidden_gradient, table_gradient

    _, loss, hidden_gradient, table_gradient = ops.while_loop(
        lambda index, *_: index < blocks,
        step,
        (
            ops.zeros((), "int32"),
            ops.zeros((), "float32"),
            ops.zeros_like(hidden, dtype="float32"),
            ops.zeros_like(columns, dtype="float32"),
        ),
    )
    # [blocks, R, D] -> [blocks * R, D] -> [N, D]
    hidden_gradient = ops.reshape(hidden_gradient, (blocks * block, size))
    return loss, hidden_gradient[:rows], ops.transpose(table_gradient)


def _to_blocks(x):
    """[N, ...] -> [blocks, R, ...], R <= BLOCK_ROWS, with zeros at the end."""
    rows, *rest = ops.shape(x)
    blocks = 1 + abs(rows - 1) // BLOCK_ROWS  # at least one, also for N = 0
    block = (rows + blocks - 1) // blocks  # R: blocks have equal sizes
    padding = ((0, blocks * block - rows), *((0, 0) for _ in rest))
    return ops.reshape(ops.pad(x, padding), (blocks, block, *rest))


def _target_weights(label_smoothing, vocab_size):
    """Return a, the weight of the target's logit, and b, of every logit."""
    uniform_weight = label_smoothing / max(vocab_size - 1, 1)
    return 1.0 - label_smoothing - uniform_weight, uniform_weight
