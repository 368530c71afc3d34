"""Adam, AdamW and Adafactor, the moving average, and freezing."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_lite.errors import UsageError
from t2t_lite.hparam import HParams
from t2t_lite.training import optimizers

SHAPES = {"table": (7, 4), "bias": (4,), "heads": (2, 3, 4)}


def _weights(seed):
    random = np.random.default_rng(seed)
    return [random.normal(size=shape) for shape in SHAPES.values()]


def _variables():
    return [tf.Variable(w, dtype=tf.float32) for w in _weights(0)]


def _gradients(step):
    return [tf.constant(w, tf.float32) for w in _weights([1, step])]


def _make(name, variables):
    if name == "adafactor":
        return optimizers.Adafactor(variables)
    decay = 0.1 if name == "adamw" else 0.0
    hparams = HParams(optimizer="adamw", weight_decay=decay)
    return optimizers.Adam(variables, hparams)


def _keras(name, rate):
    import keras

    if name == "adafactor":
        return keras.optimizers.Adafactor(rate, relative_step=False)
    if name == "adam":
        return keras.optimizers.Adam(rate, 0.9, 0.98, 1e-9)
    adamw = keras.optimizers.AdamW(rate, 0.1, 0.9, 0.98, 1e-9)
    adamw.exclude_from_weight_decay(var_names=["bias"])
    return adamw


@pytest.mark.parametrize("name", ["adam", "adamw", "adafactor"])
def test_ten_updates_give_the_same_weights_as_keras(name):
    import keras

    ours = _variables()
    optimizer = _make(name, ours)
    theirs = [
        keras.Variable(w, dtype="float32", name=variable)
        for variable, w in zip(SHAPES, _weights(0), strict=True)
    ]
    peer = _keras(name, 0.01)
    for step in range(10):
        optimizer.apply(_gradients(step), tf.constant(0.01))
        peer.apply(_gradients(step), theirs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b.value, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["adamw", "adafactor"])
def test_skipped_update_changes_nothing(name):
    variables = _variables()
    optimizer = _make(name, variables)
    for step in range(2):
        optimizer.apply(_gradients(step), tf.constant(0.1))
    kept = [*variables, *optimizer.tensors(list(SHAPES)).values()]
    values = [v.numpy() for v in kept]
    zeros = [tf.zeros_like(v) for v in variables]
    optimizer.apply(zeros, tf.constant(0.1), tf.constant(False))
    for variable, value in zip(kept, values, strict=True):
        np.testing.assert_array_equal(variable, value)


def test_adafactor_keeps_rows_and_columns_of_matrices():
    state = optimizers.Adafactor(_variables()).tensors(list(SHAPES))
    assert {name: tuple(v.shape) for name, v in state.items()} == {
        "adafactor/applied": (),
        "adafactor/row/table": (7,),
        "adafactor/column/table": (4,),
        "adafactor/square/bias": (4,),
        "adafactor/row/heads": (2, 3),
        "adafactor/column/heads": (2, 4),
    }


def test_adafactor_does_not_change_rows_without_gradient():
    weights = tf.Variable(tf.ones([3, 2]))
    gradient = tf.constant([[1.0, 2.0], [0.0, 0.0], [0.0, 0.0]])
    optimizers.Adafactor([weights]).apply([gradient], tf.constant(0.1))
    assert np.all(weights.numpy()[0] < 1)
    np.testing.assert_array_equal(weights[1:], np.ones((2, 2)))


def test_moving_average_matches_three_updates_by_hand():
    weights = tf.Variable([0.0])
    average = optimizers.MovingAverage([weights], decay=0.24)
    seen = []
    for n, value in enumerate([11.0, 8.0, 4.0], start=1):
        weights.assign([value])
        average.update(tf.Variable(n, dtype=tf.int64))
        seen.append(float(average.averages[0][0]))
    # The decays are 2/11, min(0.24, 3/12) and min(0.24, 4/13).
    np.testing.assert_allclose(
        seen, [9.0, 0.24 * 9 + 0.76 * 8, 0.24 * 8.24 + 0.76 * 4], rtol=1e-6
    )


def test_moving_average_starts_at_the_weights():
    weights = tf.Variable([3.0, 4.0])
    average = optimizers.MovingAverage([weights], decay=0.999)
    np.testing.assert_array_equal(average.averages[0], [3.0, 4.0])
    weights.assign([5.0, 6.0])
    average.reset()
    np.testing.assert_array_equal(average.averages[0], [5.0, 6.0])


PATHS = [
    "transformer/source_embedding/table",
    "transformer/softmax/table",
    "transformer/encoder_positions/table",
    "transformer/encoder_layer_0/self_attention/query_kernel",
    "transformer/encoder_layer_0/self_attention_norm/scale",
    "transformer/encoder_norm/bias",
    "transformer/decoder_layer_0/self_attention/query_kernel",
]


@pytest.mark.parametrize(
    ("patterns", "numbers"),
    [
        (["encoder"], [2, 3, 4, 5]),
        (["embeddings", "decoder"], [0, 1, 6]),
        (["*/self_attention/*"], [3, 6]),
        (["encoder_layer_0/*"], [3, 4]),
        (["*scale", "*bias"], [4, 5]),
    ],
)
def test_patterns_freeze_parts_of_the_model(patterns, numbers):
    assert optimizers.frozen_paths(PATHS, patterns) == {
        PATHS[n] for n in numbers
    }


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        (["encodr"], "'encodr' .* Did you mean encoder"),
        (["encoder", "softmax"], "'softmax' .* mean softmax/"),
        (["encoder_layer_1/*"], "Did you mean encoder_layer_0/"),
        (["*"], "all weights"),
    ],
)
def test_useless_pattern_is_refused(patterns, message):
    with pytest.raises(UsageError, match=message):
        optimizers.frozen_paths(PATHS, patterns)
