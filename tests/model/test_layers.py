"""Masks, positions, attention, normalization, dropout: each by hand."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from t2t_lite.hparam import ModelHParams
from t2t_lite.model.layers import (
    DropoutMasks,
    EncoderLayer,
    FeedForward,
    LayerNormalization,
    LearnedPositions,
    MultiHeadAttention,
    SinusoidalPositions,
    TokenEmbedding,
)
from t2t_lite.model.layers.masks import (
    attention_scores_bias,
    causal_mask,
    padding_mask,
)
from t2t_lite.model.layers.position import position_signal


def softmax(x):
    exponentials = np.exp(x - x.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def test_causal_mask_is_lower_triangular():
    expected = [[[[1, 0, 0], [1, 1, 0], [1, 1, 1]]]]
    np.testing.assert_array_equal(causal_mask(3), np.array(expected, bool))


def test_padding_mask_is_true_at_real_tokens():
    mask = padding_mask(np.array([[5, 1, 0], [1, 0, 0]]))
    np.testing.assert_array_equal(mask, [[1, 1, 0], [1, 0, 0]])


@pytest.mark.parametrize("key_depth,value_depth", [(None, None), (3, 5)])
def test_attention_agrees_with_numpy(key_depth, value_depth):
    heads = 2
    layer = MultiHeadAttention(heads, key_depth, value_depth)
    layer.build((None, None, 8))
    key_depth, value_depth = key_depth or 4, value_depth or 4
    x, memory = random(2, 3, 8), random(2, 5, 8, seed=1)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], bool)

    kernels = [np.array(w) for w in layer.weights]
    context = np.zeros((2, 3, heads * value_depth))
    for head in range(heads):
        columns = slice(head * key_depth, (head + 1) * key_depth)
        query, keys = (
            x @ kernels[0][:, columns],
            memory @ kernels[1][:, columns],
        )
        scores = query @ keys.transpose(0, 2, 1) / math.sqrt(key_depth)
        weights = softmax(np.where(mask[:, None], scores, -np.inf))
        columns = slice(head * value_depth, (head + 1) * value_depth)
        context[..., columns] = weights @ (memory @ kernels[2][:, columns])

    bias = attention_scores_bias(mask)[:, None, None, :]
    np.testing.assert_allclose(
        layer(x, bias, memory=memory), context @ kernels[3], atol=1e-5
    )


def test_self_attention_of_other_depths_is_attention_to_itself():
    """Its three products are one, whose columns must be told apart."""
    layer = MultiHeadAttention(2, key_depth=3, value_depth=5)
    layer.build((None, None, 8))
    x, bias = random(2, 4, 8), ops.zeros((1, 1, 1, 4))
    np.testing.assert_allclose(
        layer(x, bias), layer(x, bias, memory=x), atol=1e-6
    )


@pytest.mark.parametrize(("key_depth", "value_depth"), [(None, None), (2, 3)])
def test_a_row_alone_in_a_graph_attends_as_it_does_among_others(
    key_depth, value_depth
):
    attention = MultiHeadAttention(2, key_depth, value_depth)
    attention.build((None, None, 8))
    memory, x = random(3, 4, 8), random(3, 2, 8, seed=1)
    mask = ops.convert_to_tensor([[1, 1, 1, 1], [1, 0, 1, 0], [0, 0, 0, 0]])
    bias = attention_scores_bias(ops.cast(mask, "bool"))[:, None, None]

    @tf.function(input_signature=[tf.TensorSpec([None, 1, 8])])
    def alone(row):
        return attention(row, bias, memory=memory)

    np.testing.assert_allclose(
        alone(x[:, :1]), attention(x, bias, memory=memory)[:, :1], atol=1e-6
    )


def test_weight_on_padding_is_exactly_zero():
    layer = MultiHeadAttention(2)
    layer.build((None, None, 8))
    memory = random(1, 4, 8)
    bias = attention_scores_bias(np.array([1, 1, 0, 0], bool))
    moved = memory.copy()
    moved[:, 2:] = 1e3
    x = random(1, 3, 8, seed=1)
    np.testing.assert_array_equal(
        layer(x, bias, memory=memory), layer(x, bias, memory=moved)
    )


def test_row_that_may_attend_nothing_is_finite():
    layer = MultiHeadAttention(2)
    layer.build((None, None, 8))
    bias = attention_scores_bias(np.zeros((1, 1, 1, 3), bool))
    assert np.isfinite(np.array(layer(random(1, 3, 8), bias))).all()


def test_interleaved_positions_are_the_formula_of_section_3_5():
    signal = np.array(position_signal(np.arange(300), 8))
    for position, pair in [(0, 0), (1, 0), (7, 2), (299, 3)]:
        angle = position / 10000 ** (2 * pair / 8)
        np.testing.assert_allclose(
            signal[position, 2 * pair : 2 * pair + 2],
            [math.sin(angle), math.cos(angle)],
            atol=2e-5,
        )


def test_concatenated_positions_are_sines_then_cosines():
    signal = np.array(position_signal(np.arange(4), 8, "concatenated"))
    frequencies = np.exp(-np.arange(4) * math.log(10000) / 3)
    np.testing.assert_allclose(signal[3, :4], np.sin(3 * frequencies), 1e-4)
    np.testing.assert_allclose(signal[3, 4:], np.cos(3 * frequencies), 1e-4)


def test_positions_are_float32_under_bfloat16():
    """In bfloat16, 256 and 257 are the same number."""
    layer = SinusoidalPositions(dtype="mixed_bfloat16")
    shifted = layer(ops.zeros((1, 2, 64), "bfloat16"), start=256)
    signal = position_signal(np.array([256, 257]), 64)
    np.testing.assert_allclose(
        ops.cast(shifted, "float32")[0], signal, atol=0.01
    )


def test_positions_go_on_where_a_step_starts():
    x = ops.zeros((1, 6, 8))
    for layer in (SinusoidalPositions(), LearnedPositions(6)):
        layer.build((None, None, 8))
        whole = layer(x)
        np.testing.assert_allclose(layer(x[:, :1], start=4)[:, 0], whole[:, 4])


def test_learned_positions_add_nothing_past_the_last():
    layer = LearnedPositions(3)
    layer.build((None, None, 8))
    expected = 1 + np.pad(np.array(layer.table), ((0, 2), (0, 0)))
    np.testing.assert_array_equal(layer(ops.ones((1, 5, 8)))[0], expected)
    step = layer(ops.ones((1, 1, 8)), start=4)
    np.testing.assert_array_equal(step[0], expected[4:])


def test_an_odd_signal_ends_in_a_zero():
    even, odd = (
        np.array(position_signal(ops.arange(6), depth, "concatenated"))
        for depth in (8, 9)
    )
    np.testing.assert_array_equal(odd, np.pad(even, ((0, 0), (0, 1))))


def test_embedding_is_scaled_and_padding_is_zero():
    layer = TokenEmbedding(5, 16)
    layer.build()
    out = np.array(layer(np.array([[3, 0]])))
    np.testing.assert_allclose(out[0, 0], 4 * np.array(layer.table)[3])
    np.testing.assert_array_equal(out[0, 1], np.zeros(16))


def test_logits_are_products_with_the_unscaled_table():
    layer = TokenEmbedding(5, 16)
    layer.build()
    hidden = random(2, 3, 16)
    np.testing.assert_allclose(
        layer.logits(hidden), hidden @ np.array(layer.table).T, atol=1e-5
    )


def test_feed_forward_agrees_with_numpy():
    layer = FeedForward(6)
    layer.build((None, None, 4))
    for weight in layer.weights:
        weight.assign(random(*weight.shape, seed=len(weight.shape)))
    w1, b1, w2, b2 = (np.array(w) for w in layer.weights)
    x = random(2, 3, 4)
    expected = np.maximum(x @ w1 + b1, 0) @ w2 + b2
    np.testing.assert_allclose(layer(x), expected, atol=1e-5)


def test_normalization_agrees_with_numpy_and_its_gradient_with_autodiff():
    tf = pytest.importorskip("tensorflow")
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


def test_dropout_is_a_function_of_its_seed():
    x = ops.ones((100, 100))
    first, again, other = (
        np.array(DropoutMasks(np.array(seed))(x, 0.25))
        for seed in ([3, 4], [3, 4], [3, 5])
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert set(np.unique(first)) == {0, np.float32(1 / 0.75)}
    assert abs((first == 0).mean() - 0.25) < 0.02


def test_dropout_keeps_the_mean_whatever_the_share_is_rounded_to():
    """0.1 is no multiple of 2 ** -16; 0.000005 is less than half of one."""
    x = ops.ones((1001, 999))  # an odd number of units
    dropped = np.array(DropoutMasks(np.array([1, 2]))(x, 0.1))
    assert abs((dropped == 0).mean() - 0.1) < 0.002
    assert abs(dropped.mean() - 1) < 0.002
    np.testing.assert_array_equal(
        DropoutMasks(np.array([1, 2]))(x, 0.000005), x
    )


def test_dropout_keeps_something_whatever_the_share():
    kept = DropoutMasks([1, 2])(np.ones(1 << 18, "float32"), 0.9999999)
    assert 0 < np.count_nonzero(kept) < 50


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dropout_lets_gradients_through_where_it_lets_values(dtype):
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
def test_rows_lose_what_they_lose_in_their_batch(jit, seed, shape):
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


def test_each_call_of_a_pass_draws_another_mask():
    masks = DropoutMasks(np.array([3, 4]))
    x = ops.ones((50, 50))
    assert (np.array(masks(x, 0.5)) != np.array(masks(x, 0.5))).any()


def test_layers_rebuild_from_their_config():
    for layer in (
        MultiHeadAttention(2, attention_dropout=0.1),
        MultiHeadAttention(
            2, key_depth=3, value_depth=5, window=4, causal=True
        ),
        FeedForward(6, 0.1),
        LayerNormalization(1e-5),
        SinusoidalPositions("concatenated"),
        LearnedPositions(7),
        TokenEmbedding(5, 8),
        EncoderLayer(ModelHParams(num_heads=2)),
    ):
        config = layer.get_config()
        assert type(layer).from_config(config).get_config() == config
    assert keras.backend.backend() in ("tensorflow", "jax")
