"""Masks, positions, normalization, embedding, dropout: each by hand."""

import math

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from t2t_lite.model.layers import (
    DropoutMasks,
    FeedForward,
    LayerNormalization,
    LearnedPositions,
    SinusoidalPositions,
    TokenEmbedding,
    position_signal,
)
from t2t_lite.model.masks import band_mask, causal_mask, padding_mask


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def test_causal_mask_is_lower_triangular():
    expected = [[[[1, 0, 0], [1, 1, 0], [1, 1, 1]]]]
    np.testing.assert_array_equal(causal_mask(3), np.array(expected, bool))


def test_padding_mask_is_true_at_real_tokens():
    mask = padding_mask(np.array([[5, 1, 0], [1, 0, 0]]))
    np.testing.assert_array_equal(mask, [[1, 1, 0], [1, 0, 0]])


@pytest.mark.parametrize(
    ("keys", "causal", "offset", "expected"),
    [
        (3, False, 0, [[1, 1, 0], [1, 1, 1], [0, 1, 1]]),
        (3, True, 0, [[1, 0, 0], [1, 1, 0], [0, 1, 1]]),
        # Keys lie at -2, -1, 0, 1; queries at 0, 1, 2.
        (4, False, -2, [[0, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1]]),
    ],
)
def test_band_mask_is_the_literal_matrix(keys, causal, offset, expected):
    mask = band_mask(3, keys, radius=1, causal=causal, offset=offset)
    np.testing.assert_array_equal(mask[0, 0], np.array(expected, bool))


def test_interleaved_positions_follow_the_formula_of_section_3_5():
    signal = np.array(position_signal(np.arange(300), 8))
    for position, pair in [(0, 0), (1, 0), (7, 2), (299, 3)]:
        angle = position / 10000 ** (2 * pair / 8)
        np.testing.assert_allclose(
            signal[position, 2 * pair : 2 * pair + 2],
            [math.sin(angle), math.cos(angle)],
            atol=2e-5,
        )


def test_concatenated_positions_are_sines_then_cosines():
    even, odd = (
        np.array(position_signal(np.arange(4), depth, "concatenated"))
        for depth in (8, 9)
    )
    frequencies = np.exp(-np.arange(4) * math.log(10000) / 3)
    np.testing.assert_allclose(even[3, :4], np.sin(3 * frequencies), 1e-4)
    np.testing.assert_allclose(even[3, 4:], np.cos(3 * frequencies), 1e-4)
    np.testing.assert_array_equal(odd, np.pad(even, ((0, 0), (0, 1))))


def test_positions_are_float32_under_bfloat16():
    """In bfloat16, 256 and 257 are the same number."""
    layer = SinusoidalPositions(dtype="mixed_bfloat16")
    shifted = layer(ops.zeros((1, 2, 64), "bfloat16"), start=256)
    signal = position_signal(np.array([256, 257]), 64)
    np.testing.assert_allclose(
        ops.cast(shifted, "float32")[0], signal, atol=0.01
    )


def test_learned_positions_add_nothing_past_the_last():
    layer = LearnedPositions(3)
    layer.build((None, None, 8))
    expected = 1 + np.pad(np.array(layer.table), ((0, 2), (0, 0)))
    np.testing.assert_array_equal(layer(ops.ones((1, 5, 8)))[0], expected)
    step = layer(ops.ones((1, 1, 8)), start=4)
    np.testing.assert_array_equal(step[0], expected[4:])


def test_embedding_is_scaled_padding_is_zero_and_logits_are_not_scaled():
    layer, hidden = TokenEmbedding(5, 16), random(2, 3, 16)
    layer.build()
    table = np.array(layer.table)
    out = np.array(layer(np.array([[3, 0]])))
    np.testing.assert_allclose(out[0], [4 * table[3], np.zeros(16)])
    np.testing.assert_allclose(
        layer.logits(hidden), hidden @ table.T, atol=1e-5
    )


@pytest.mark.parametrize("width", [12, 600, 640])  # wide, 640: rows spread
def test_feed_forward_gradients_in_a_graph_agree_with_numpy(width):
    layer, x = FeedForward(width), random(2, 3, 4)
    layer.build((None, None, 4))
    layer.hidden_bias.assign(random(width, seed=1))
    upstream = random(2, 3, 4, seed=2)

    @tf.function
    def gradients(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            out = layer(x, dropout=lambda x, rate: x)  # in training
            loss = tf.reduce_sum(out * upstream)
        return tape.gradient(loss, [x, *(w.value for w in layer.weights)])

    found = gradients(tf.constant(x))
    kernel, bias, output = map(
        np.array, (layer.hidden_kernel, layer.hidden_bias, layer.output_kernel)
    )
    rows, above = x.reshape(6, 4), upstream.reshape(6, 4)
    units = np.maximum(rows @ kernel + bias, 0)
    hidden = (above @ output.T) * (units > 0)
    wanted = (
        (hidden @ kernel.T).reshape(x.shape),
        rows.T @ hidden,
        hidden.sum(0),
        units.T @ above,
        above.sum(0),
    )
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_normalization_agrees_with_numpy_and_its_gradient_with_autodiff():
    layer = LayerNormalization()
    layer.build((None, None, 6))
    layer.scale.assign(random(6, seed=1))
    layer.bias.assign(random(6, seed=2))
    x, upstream = tf.constant(random(2, 3, 6)), random(2, 3, 6, seed=3)

    def plain(x):
        mean = tf.reduce_mean(x, -1, keepdims=True)
        variance = tf.reduce_mean((x - mean) ** 2, -1, keepdims=True)
        normalized = (x - mean) / tf.sqrt(variance + layer.epsilon)
        return normalized * layer.scale.value + layer.bias.value

    results = []
    for function in (layer, plain):
        with tf.GradientTape() as tape:
            tape.watch(x)
            out = function(x)
            total = tf.reduce_sum(out * upstream)
        weights = [w.value for w in layer.weights]
        results.append([out, *tape.gradient(total, [x, *weights])])
    for ours, expected in zip(*results, strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_dropout_depends_on_its_seed_and_on_the_call():
    x = ops.ones((100, 100))
    first, again, other = (
        np.array(DropoutMasks(np.array(seed))(x, 0.25))
        for seed in ([3, 4], [3, 4], [3, 5])
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert set(np.unique(first)) == {0, np.float32(1 / 0.75)}
    assert abs((first == 0).mean() - 0.25) < 0.02
    masks = DropoutMasks(np.array([3, 4]))
    assert (np.array(masks(x, 0.25)) != np.array(masks(x, 0.25))).any()


def test_dropout_keeps_the_mean_when_the_rate_is_rounded():
    """0.1 is rounded to a multiple of 2 ** -16, and 0.000005 to 0."""
    x = ops.ones((1001, 999))  # an odd number of units
    dropped = np.array(DropoutMasks(np.array([1, 2]))(x, 0.1))
    assert abs((dropped == 0).mean() - 0.1) < 0.002
    assert abs(dropped.mean() - 1) < 0.002
    np.testing.assert_array_equal(
        DropoutMasks(np.array([1, 2]))(x, 0.000005), x
    )
    kept = DropoutMasks([1, 2])(np.ones(1 << 18, "float32"), 0.9999999)
    assert 0 < np.count_nonzero(kept) < 50


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dropout_masks_gradients_like_values(dtype):
    x = tf.cast(tf.fill([3, 50], 2.0), dtype)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = DropoutMasks(tf.constant([1, 2]))(x, 0.5)
    assert y.dtype == x.dtype
    gradient = tape.gradient(y, x, output_gradients=tf.ones_like(y))
    np.testing.assert_array_equal(gradient * 2.0, y)
    assert 0 < tf.reduce_mean(tf.cast(y, "float32")) < 4


@pytest.mark.parametrize(
    ("jit", "seed", "shape"),
    [
        (False, (3, 4), (7, 3, 5)),
        (False, (-3, 4), (6, 1)),
        (False, (3, 4), (5, 16)),
        (True, (-3, 4), (5, 7)),
    ],
)
def test_rows_have_the_dropout_masks_of_their_batch(jit, seed, shape):
    @tf.function(jit_compile=jit, autograph=False)
    def dropped(x, seed):
        masks = DropoutMasks(seed)
        return masks(x, 0.5), masks(x, 0.5)

    x = tf.ones(shape)
    whole = dropped(x, tf.constant(seed))
    for rows in (slice(0, 3), slice(1, 2), slice(3, None)):
        part = dropped(x[rows], tf.constant((*seed, rows.start)))
        for ours, theirs in zip(part, whole, strict=True):
            np.testing.assert_array_equal(ours, theirs[rows])
