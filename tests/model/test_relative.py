"""Relative positions: keys and values know how far away they are."""

import numpy as np
import pytest
from keras import ops

from support.rounding import requires_bfloat16
from t2t_lite.model.attention_weights import attention_weights
from t2t_lite.model.layers import MultiHeadAttention
from t2t_lite.model.layers.masks import attention_scores_bias
from t2t_lite.model.layers.relative import (
    distance_matrices,
    relative_scores,
    relative_values,
)
from t2t_lite.model.transformer import Transformer


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def test_distances_beyond_the_last_share_its_row():
    matrices = distance_matrices(4, 3, "float32")
    rows = [[1, 2, 2, 2], [0, 1, 2, 2], [0, 0, 1, 2], [0, 0, 0, 1]]
    np.testing.assert_array_equal(matrices, np.eye(3)[np.array(rows)])


@pytest.mark.parametrize("length", [1, 2, 7])
@pytest.mark.parametrize("reach", [1, 3, 9])
def test_scores_and_values_are_sums_over_the_pairs(length, reach):
    query, weights = random(2, 3, length, 4), random(2, 3, length, length)
    keys, values = random(2 * reach + 1, 4), random(2 * reach + 1, 5)
    matrices = distance_matrices(length, 2 * reach + 1, "float32")
    scores, context = (np.zeros((2, 3, length, size)) for size in (length, 5))
    for t in range(length):
        for s in range(length):
            row = max(-reach, min(reach, s - t)) + reach
            scores[:, :, t, s] = query[:, :, t] @ keys[row]
            context[:, :, t] += weights[:, :, t, s, None] * values[row]
    np.testing.assert_allclose(
        relative_scores(query, keys, matrices), scores, atol=1e-5
    )
    np.testing.assert_allclose(
        relative_values(weights, values, matrices), context, atol=1e-5
    )


def attention_of_distances():
    """One that asks 1 everywhere, and whose keys and values are distances'."""
    layer = MultiHeadAttention(1, max_relative_position=1)
    layer.build((None, None, 1))
    for kernel, value in (
        ("query", 1),
        ("key", 0),
        ("value", 0),
        ("output", 1),
    ):
        getattr(layer, f"{kernel}_kernel").assign([[float(value)]])
    layer.relative_keys.assign(np.log([[1.0], [2.0], [4.0]]))
    layer.relative_values.assign([[-1.0], [0.0], [1.0]])
    return layer


def test_attention_to_distances_counted_by_hand():
    """Before, here and behind weigh 1, 2 and 4, and give -1, 0 and 1."""
    layer, bias = attention_of_distances(), ops.zeros((1, 1, 1, 3))
    weights = layer.weights_of(np.ones((1, 3, 1)), bias)
    np.testing.assert_allclose(
        weights[0, 0],
        [[0.2, 0.4, 0.4], [1 / 7, 2 / 7, 4 / 7], [0.25, 0.25, 0.5]],
        atol=1e-6,
    )
    output = layer(np.ones((1, 3, 1)), bias)
    np.testing.assert_allclose(output[0, :, 0], [0.8, 3 / 7, -0.5], atol=1e-6)


def test_what_a_mask_hides_has_no_distance():
    layer = attention_of_distances()
    bias = attention_scores_bias(np.array([1, 0, 1], bool))
    output = layer(np.ones((1, 3, 1)), bias)
    np.testing.assert_allclose(output[0, :, 0], [2 / 3, 0.6, -1 / 3], atol=1e-6)


def test_a_dropped_weight_drops_its_distance_too():
    layer = attention_of_distances()
    output = layer(
        np.ones((1, 3, 1)),
        ops.zeros((1, 1, 1, 3)),
        dropout=lambda weights, rate: weights * np.eye(3)[::-1],
    )
    # What is left is the key on the other diagonal: 2 behind, here, 2 before.
    np.testing.assert_allclose(output[0, :, 0], [0.4, 0, -0.25], atol=1e-6)


def test_order_matters_only_with_positions():
    """Two tokens swapped that the last one sees; no position is added."""
    inputs, targets = np.array([[3, 4, 5, 1]]), np.array([[6, 1]])
    swapped = inputs[:, [1, 0, 2, 3]]
    for reach in (None, 3):
        model = Transformer(
            9,
            hidden_size=8,
            filter_size=16,
            num_heads=2,
            num_hidden_layers=2,
            position_encoding="none",
            max_relative_position=reach,
        ).build_weights()
        one, other = (
            np.array(model({"inputs": each, "targets": targets}))
            for each in (inputs, swapped)
        )
        assert np.allclose(one, other, atol=1e-5) == (reach is None)


def test_a_decoder_alone_has_tables_and_cross_attention_has_none():
    model = Transformer(
        9, hidden_size=8, num_heads=2, max_relative_position=3
    ).build_weights()
    tables = {
        weight.path: tuple(weight.shape)
        for weight in model.trainable_variables
        if "relative" in weight.path
    }
    assert tables == {
        f"transformer/{stack}_layer_{n}/self_attention/relative_{side}": (7, 4)
        for stack in ("encoder", "decoder")
        for n in range(6)
        for side in ("keys", "values")
    }


def test_the_weights_of_a_relative_model_are_rows_that_sum_to_one():
    model = Transformer(
        9, hidden_size=8, num_heads=2, max_relative_position=2
    ).build_weights()
    batch = {"inputs": [[3, 4, 5, 1, 0]], "targets": [[6, 7, 8, 1]]}
    batch = {side: np.array(ids) for side, ids in batch.items()}
    weights = attention_weights(model, batch)
    for value in weights.values():
        np.testing.assert_allclose(np.sum(value, -1), 1.0, atol=1e-6)
    assert (np.array(weights["encoder"])[..., :4, 4] == 0).all()


@requires_bfloat16
def test_bfloat16_is_near_float32():
    batch = {"inputs": [[3, 4, 5, 1, 0]], "targets": [[6, 7, 8, 1]]}
    batch = {side: np.array(ids) for side, ids in batch.items()}
    models = [
        Transformer(
            9,
            hidden_size=8,
            num_heads=2,
            num_hidden_layers=2,
            max_relative_position=2,
            source_vector=True,
            dtype=dtype,
        ).build_weights()
        for dtype in ("float32", "mixed_bfloat16")
    ]
    models[1].set_weights(models[0].get_weights())
    exact, near = (model(batch) for model in models)
    np.testing.assert_allclose(near, exact, atol=0.2)
    memory, mask = models[1].encode(batch["inputs"])
    cache = models[1].start_decoding(memory, mask, 2, 4)
    ids = np.zeros((1, 2), "int32")
    for index in range(4):
        logits, cache = models[1].decode_step(ids, ops.array(index), cache)
        np.testing.assert_allclose(logits[:, 1], near[:, index], atol=0.1)
        ids = np.repeat(batch["targets"][:, index, None], 2, axis=1)


def test_no_array_is_as_large_as_a_vector_for_each_pair():
    import tensorflow as tf

    length, size, reach = 64, 32, 2
    layer = MultiHeadAttention(1, max_relative_position=reach)
    layer.build((None, None, size))

    @tf.function
    def attend(x):
        return layer(x, tf.zeros((1, 1, 1, length)))

    graph = attend.get_concrete_function(tf.TensorSpec([1, length, size])).graph
    largest = max(
        output.shape.num_elements() or 0
        for operation in graph.get_operations()
        for output in operation.outputs
        if output.shape.rank is not None
    )
    assert largest == length * length * (2 * reach + 1)
