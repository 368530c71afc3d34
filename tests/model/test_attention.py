"""Attention by hand: heads, masks, windows and relative positions."""

import math

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from t2t_lite.model.attention import MultiHeadAttention
from t2t_lite.model.masks import attention_scores_bias


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def softmax(x):
    exponentials = np.exp(x - x.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def make_attention(num_heads, *arguments, size=8, **options):
    layer = MultiHeadAttention(num_heads, *arguments, **options)
    layer.build((None, None, size))
    return layer


def attention_by_numpy(layer, x, memory, mask):
    """Compute attention by loops; `mask` is bool [B or 1, T or 1, S]."""
    query, key, value, output, *others = [np.array(w) for w in layer.weights]
    vectors, tables = (
        (others, []) if layer.score == "additive" else ([], others)
    )
    d_k, d_v = layer.key_depth, layer.value_depth
    reach = layer.max_relative_position
    context = np.zeros((*x.shape[:2], layer.num_heads * d_v))
    distances = np.arange(memory.shape[1]) - np.arange(x.shape[1])[:, None]
    for head in range(layer.num_heads):
        columns = slice(head * d_k, (head + 1) * d_k)
        queries, keys = x @ query[:, columns], memory @ key[:, columns]
        if layer.score == "scaled":
            queries = queries / math.sqrt(d_k)
        scores = queries @ keys.swapaxes(1, 2)
        if vectors:
            hidden = np.tanh(queries[:, :, None] + keys[:, None])
            scores = hidden @ vectors[0][head]
        if tables:
            rows = np.clip(distances, -reach, reach) + reach
            scores += np.einsum("btd,tsd->bts", queries, tables[0][rows])
        weights = softmax(np.where(mask, scores, -1e9))
        columns = slice(head * d_v, (head + 1) * d_v)
        context[..., columns] = weights @ (memory @ value[:, columns])
        if tables:
            context[..., columns] += np.einsum(
                "bts,tsd->btd", weights, tables[1][rows]
            )
    return context @ output


@pytest.mark.parametrize("score", ["scaled", "dot", "additive"])
@pytest.mark.parametrize("depths", [(None, None), (3, 5)])
def test_cross_attention_agrees_with_numpy(depths, score):
    layer = make_attention(2, *depths, score=score)
    x, memory = random(2, 3, 8), random(2, 5, 8, seed=1)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], bool)[:, None]
    np.testing.assert_allclose(
        layer(x, attention_scores_bias(mask)[:, None], memory=memory),
        attention_by_numpy(layer, x, memory, mask),
        atol=1e-5,
    )


@pytest.mark.parametrize("depths", [(None, None), (3, 5)])
@pytest.mark.parametrize("reach", [None, 1, 3, 9])
def test_self_attention_agrees_with_numpy(depths, reach):
    layer = make_attention(2, *depths, max_relative_position=reach)
    x, mask = random(2, 7, 8), np.tril(np.ones((1, 7, 7), bool))
    np.testing.assert_allclose(
        layer(x, attention_scores_bias(mask)[:, None]),
        attention_by_numpy(layer, x, x, mask),
        atol=1e-5,
    )


def test_weight_on_padding_is_exactly_zero():
    layer, x = make_attention(2), random(1, 3, 8, seed=1)
    bias = attention_scores_bias(np.array([1, 1, 0, 0], bool))
    memory = random(1, 4, 8)
    moved = memory.copy()
    moved[:, 2:] = 1e3
    np.testing.assert_array_equal(
        layer(x, bias, memory=memory), layer(x, bias, memory=moved)
    )


def test_row_with_all_keys_masked_is_finite():
    bias = attention_scores_bias(np.zeros((1, 1, 1, 3), bool))
    assert np.isfinite(np.array(make_attention(2)(random(1, 3, 8), bias))).all()


def relative_attention():
    """Return a layer with queries of 1 and only relative keys and values."""
    layer = make_attention(1, size=1, max_relative_position=1)
    for kernel, value in ("query", 1), ("key", 0), ("value", 0), ("output", 1):
        getattr(layer, f"{kernel}_kernel").assign([[float(value)]])
    layer.relative_keys.assign(np.log([[1.0], [2.0], [4.0]]))
    layer.relative_values.assign([[-1.0], [0.0], [1.0]])
    return layer


def test_relative_attention_matches_values_by_hand():
    """Earlier, equal and later positions weigh 1, 2, 4; values are -1, 0, 1."""
    layer, bias = relative_attention(), ops.zeros((1, 1, 1, 3))
    np.testing.assert_allclose(
        layer.attention_weights(np.ones((1, 3, 1)), bias)[0, 0],
        [[0.2, 0.4, 0.4], [1 / 7, 2 / 7, 4 / 7], [0.25, 0.25, 0.5]],
        atol=1e-6,
    )
    output = layer(np.ones((1, 3, 1)), bias)
    np.testing.assert_allclose(output[0, :, 0], [0.8, 3 / 7, -0.5], atol=1e-6)
    # A mask hides the key in the middle.
    bias = attention_scores_bias(np.array([1, 0, 1], bool))
    output = layer(np.ones((1, 3, 1)), bias)
    np.testing.assert_allclose(output[0, :, 0], [2 / 3, 0.6, -1 / 3], atol=1e-6)


def test_dropped_weight_drops_its_relative_value():
    output = relative_attention()(
        np.ones((1, 3, 1)),
        ops.zeros((1, 1, 1, 3)),
        dropout=lambda weights, rate: weights * np.eye(3)[::-1],
    )
    # Only the other diagonal is left: distances 2, 0 and -2.
    np.testing.assert_allclose(output[0, :, 0], [0.4, 0, -0.25], atol=1e-6)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 31, 32, 33, 100])
@pytest.mark.parametrize("window", [0, 3, 11, 63, 80, 400])
def test_window_equals_full_attention_with_a_band_mask(window, length, causal):
    layer = make_attention(2, 3, 5, window=window, causal=causal)
    x, segments = random(2, length, 8), np.ones((2, length), "int32")
    segments[1, length // 3 :] = 2  # a packed row
    distances = np.arange(length) - np.arange(length)[:, None]
    mask = (distances >= -(window // 2)) & (
        distances <= (0 if causal else window // 2)
    )
    mask = mask & (segments[:, :, None] == segments[:, None])
    expected = attention_by_numpy(layer, x, x, mask)
    np.testing.assert_allclose(layer(x, segments=segments), expected, atol=1e-5)
    weights = np.array(layer.attention_weights(x, segments=segments))
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    assert ((weights > 0) == mask[:, None]).all()


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({"window": 32}, 2048 * 3 * 32),
        # Not [T, T, d], but [T, T, 2k + 1].
        ({"max_relative_position": 2}, 2048 * 2048 * 5),
    ],
)
def test_size_of_the_largest_array_is_bounded(options, most):
    length, size = 2048, 32
    layer = make_attention(1, size=size, **options)

    @tf.function
    def attend(x):
        if layer.window:
            return layer(x, segments=tf.ones((1, length), tf.int32))
        return layer(x, tf.zeros((1, 1, 1, length)))

    graph = attend.get_concrete_function(tf.TensorSpec([1, length, size])).graph
    largest = max(
        output.shape.num_elements() or 0
        for operation in graph.get_operations()
        for output in operation.outputs
        if output.shape.rank is not None
    )
    assert 0 < largest <= most
