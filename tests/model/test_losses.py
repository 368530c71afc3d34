"""The loss agrees with numpy, and the fused loss with the plain one."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from support.peak_memory import peak_memory
from t2t_lite.model import losses


def numpy_loss(logits, targets, smoothing):
    """Compute the loss with numpy: smoothed targets and log-softmax."""
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    vocab_size = logits.shape[-1]
    smoothed = np.full(logits.shape, smoothing / (vocab_size - 1))
    rows = np.arange(len(targets))
    smoothed[rows, targets] = 1 - smoothing
    return -(smoothed * log_probs).sum(-1)


def example(rows=7, size=6, vocab_size=11, seed=0):
    generator = np.random.default_rng(seed)
    hidden = generator.normal(size=(rows, size)).astype("float32")
    table = generator.normal(size=(vocab_size, size)).astype("float32")
    targets = generator.integers(1, vocab_size, rows).astype("int32")
    return hidden, table, targets


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])
def test_loss_agrees_with_numpy(smoothing):
    hidden, table, targets = example()
    logits = hidden @ table.T
    np.testing.assert_allclose(
        losses.smoothed_cross_entropy(logits, targets, smoothing),
        numpy_loss(logits.astype("float64"), targets, smoothing),
        rtol=1e-5,
    )


@pytest.mark.parametrize(
    "rows, size", [(1, 6), (7, 6), (256, 6), (700, 6), (7, 256)]
)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_fused_loss_and_gradients_equal_the_plain_ones(rows, size, smoothing):
    hidden, table, targets = example(rows, size)
    targets[rows // 2 :: 3] = 0  # padding
    hidden, table = tf.constant(hidden), tf.constant(table)
    real = tf.constant(targets != 0, tf.float32)

    def plain():
        logits = hidden @ tf.transpose(table)
        return tf.reduce_sum(
            losses.smoothed_cross_entropy(logits, targets, smoothing) * real
        )

    def fused():
        return losses.fused_cross_entropy_sum(
            hidden, table, tf.constant(targets), smoothing
        )

    results = []
    for function in (fused, plain):
        with tf.GradientTape() as tape:
            tape.watch([hidden, table])
            loss = 3.0 * function()
        results.append([loss, *tape.gradient(loss, [hidden, table])])
    for ours, expected in zip(*results, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [0, 1, 7, 512, 513, 1100])
def test_fused_log_probs_agree_with_the_logits(rows):
    hidden, table, targets = example(rows)
    np.testing.assert_allclose(
        losses.fused_log_probs(hidden, table, ops.array(targets)),
        -numpy_loss((hidden @ table.T).astype("float64"), targets, 0.0),
        rtol=1e-4,
        atol=1e-4,
    )


def test_huge_logits_stay_finite():
    hidden, table, targets = example()
    loss = losses.fused_cross_entropy_sum(
        hidden * 1e3, table, ops.array(targets), 0.1
    )
    assert np.isfinite(float(loss))


def test_keras_loss_is_the_mean_over_real_targets():
    hidden, table, targets = example(8)
    targets[5:] = 0
    logits = (hidden @ table.T).reshape(2, 4, -1)
    loss = losses.SmoothedCrossEntropy(0.1)(targets.reshape(2, 4), logits)
    each = numpy_loss((hidden @ table.T)[:5], targets[:5], 0.1)
    np.testing.assert_allclose(loss, each.mean(), rtol=1e-5)
    for weights in ([[1, 2, 0, 1], [3, 9, 9, 9]], [1, 3]):
        weights = np.array(weights, "float32")
        loss = losses.SmoothedCrossEntropy(0.1)(
            targets.reshape(2, 4), logits, sample_weight=weights
        )
        # Weights of the five real targets; the last is in the second row.
        shares = weights.ravel()[:5] if weights.ndim == 2 else [1, 1, 1, 1, 3]
        # Keras divides by the sum of the weights.
        expected = np.average(each, weights=shares)
        np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_memory_of_the_fused_loss_is_independent_of_the_number_of_blocks():
    vocab, size = 4096, 64
    table = keras.random.normal((vocab, size))

    @tf.function(autograph=False)
    def gradients(hidden, table, targets):
        with tf.GradientTape() as tape:
            tape.watch([hidden, table])
            loss = losses.fused_cross_entropy_sum(hidden, table, targets, 0.1)
        return tape.gradient(loss, [hidden, table])

    def memory_of(blocks):
        rows = blocks * losses.BLOCK_ROWS
        hidden = keras.random.normal((rows, size)) / size
        targets = ops.ones(rows, "int32")
        return peak_memory(lambda: gradients(hidden, table, targets))

    # The logits of the 8 additional blocks would be 8 times this size.
    logits_of_a_block = 4 * losses.BLOCK_ROWS * vocab
    assert memory_of(12) - memory_of(4) < 3 * logits_of_a_block
