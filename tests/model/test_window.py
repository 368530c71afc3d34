"""Restricted self-attention: full attention under a band, in linear memory."""

import numpy as np
import pytest
from keras import ops

from support.rounding import requires_bfloat16
from t2t_lite.model.layers import MultiHeadAttention
from t2t_lite.model.layers.masks import attention_scores_bias, band_mask
from t2t_lite.model.layers.window import attend_window


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def test_band_mask_is_the_literal_matrix():
    both = [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    mask = band_mask(4, 4, reach=1, causal=False)
    np.testing.assert_array_equal(mask[0, 0], np.array(both, bool))
    back = [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    mask = band_mask(4, 4, reach=1, causal=True)
    np.testing.assert_array_equal(mask[0, 0], np.array(back, bool))


def test_band_mask_counts_keys_from_their_offset():
    mask = band_mask(2, 4, reach=1, causal=False, offset=-2)
    # Keys lie at -2, -1, 0, 1; queries at 0 and 1.
    expected = [[0, 1, 1, 1], [0, 0, 1, 1]]
    np.testing.assert_array_equal(mask[0, 0], np.array(expected, bool))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 31, 32, 33, 100])
@pytest.mark.parametrize("reach", [0, 1, 5, 31, 40, 200])
def test_blocks_equal_full_attention_under_the_band(reach, length, causal):
    query, keys = random(2, 3, length, 4), random(2, 3, length, 4, seed=1)
    values = random(2, 3, length, 6, seed=2)
    real = np.ones((2, length), bool)
    real[1, -(length // 3) :] = length < 3
    bias = attention_scores_bias(real)[:, None, None]
    got = attend_window(query, keys, values, bias, reach, causal)

    band = np.array(band_mask(length, length, reach, causal))
    scores = query @ keys.swapaxes(-1, -2) + np.where(
        band & real[:, None, None], 0.0, -1e9
    )
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    for row in range(2):
        some = real[row]
        np.testing.assert_allclose(
            np.array(got)[row][:, some],
            (weights @ values)[row][:, some],
            atol=1e-5,
        )


def test_a_window_as_wide_as_the_text_sees_all_of_it():
    x = random(2, 50, 8)
    bias = ops.zeros((2, 1, 1, 50))
    full, restricted = MultiHeadAttention(2), MultiHeadAttention(2, window=100)
    for layer in (full, restricted):
        layer.build((None, None, 8))
    restricted.set_weights(full.get_weights())
    np.testing.assert_allclose(restricted(x, bias), full(x, bias), atol=1e-5)


@requires_bfloat16
def test_a_window_under_bfloat16_is_about_that_of_float32():
    x = random(2, 50, 8)
    bias = np.zeros((2, 1, 1, 50), "float32")
    bias[1, ..., 40:] = -1e9
    exact, rounded = (
        MultiHeadAttention(2, window=4, dtype=dtype)
        for dtype in ("float32", "mixed_bfloat16")
    )
    for layer in (exact, rounded):
        layer.build((None, None, 8))
    rounded.set_weights(exact.get_weights())
    outputs = [
        np.array(ops.cast(layer(x, ops.array(bias)), "float32"))[:, :40]
        for layer in (exact, rounded)
    ]
    np.testing.assert_allclose(*outputs, atol=0.05)


def test_a_window_sees_r_neighbors_and_no_more():
    layer = MultiHeadAttention(2, window=4)
    layer.build((None, None, 8))
    x = random(1, 60, 8)
    bias = ops.zeros((1, 1, 1, 60))
    before = np.array(layer(x, bias))
    for position in range(60):
        moved = x.copy()
        moved[0, position] += 1.0
        changed = (np.array(layer(moved, bias)) != before)[0].any(-1)
        near = abs(np.arange(60) - position) <= 2
        np.testing.assert_array_equal(changed, near)


def test_no_array_of_a_window_grows_with_the_square_of_the_length():
    import tensorflow as tf

    length = 4096

    @tf.function
    def attend(x):
        return attend_window(x, x, x, None, 16, False)

    graph = attend.get_concrete_function(tf.TensorSpec([1, 1, length, 2])).graph
    sizes = [
        output.shape.num_elements() or 0
        for operation in graph.get_operations()
        for output in operation.outputs
        if output.shape.rank is not None
    ]
    assert max(sizes) <= length * 3 * 32
