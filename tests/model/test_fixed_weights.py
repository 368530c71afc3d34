"""Frozen weights, which oneDNN packs once, in a separate process."""

import subprocess
import sys

import pytest

from support.rounding import requires_bfloat16

_SCRIPT = """
from t2t_lite.tf_setup import start_tensorflow, weights_are_frozen

start_tensorflow(frozen_weights=True)
assert weights_are_frozen()

import numpy as np
import tensorflow as tf
from t2t_lite.model.transformer import Transformer

LENGTH = 12
tf.keras.utils.set_random_seed(1)

def new_model(**options):
    model = Transformer(
        50, hidden_size=64, filter_size=256, num_heads=2, num_hidden_layers=2,
        dtype="mixed_bfloat16", **options,
    ).build_weights()
    for weight in model.weights:  # biases begin as zeros
        weight.assign_add(tf.random.normal(weight.shape, stddev=0.1))
    return model

def steps_of(model):
    @tf.function(autograph=False, reduce_retracing=True)
    def steps(ids, targets):
        memory, mask = model.encode(ids)
        step_fn, cache = model.init_decoding(memory, mask, 1, LENGTH)
        last = tf.pad(targets, [[0, 0], [1, 0]])

        def step(index, cache, logits):
            new, cache = step_fn(last[:, index, None], index, cache)
            return index + 1, cache, logits.write(index, new[:, 0])

        logits = tf.TensorArray(tf.float32, LENGTH, element_shape=[None, 50])
        state = tf.while_loop(
            lambda index, *_: index < LENGTH, step, (0, cache, logits)
        )
        return tf.transpose(state[2].stack(), [1, 0, 2])

    return steps

def rows(count):
    return tf.random.uniform([count, LENGTH], 2, 50, tf.int32)

# Models of one shape and another; numbers of rows for each of which weights may
# be packed in another way.
models = new_model(max_relative_position=3), new_model(), new_model()
for steps, model in [(steps_of(model), model) for model in models]:
    for count in (1, 40, 17, 1):
        ids, targets = rows(count), rows(count)
        whole = model({"inputs": ids, "targets": targets})
        assert np.ptp(whole) > 5
        np.testing.assert_allclose(steps(ids, targets), whole, atol=0.15)

# What has a bias is one operation for oneDNN, which packs its weights.
graph = steps.get_concrete_function(rows(40), rows(40)).graph.as_graph_def()
nodes = [*graph.node, *(n for f in graph.library.function for n in f.node_def)]
products, biases = [
    sum(node.op == kind for node in nodes) for kind in ("MatMul", "BiasAdd")
]
assert products == biases > 0, (products, biases)
print("done")
"""


@requires_bfloat16
@pytest.mark.slow
def test_cached_steps_equal_full_passes_in_bfloat16():
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], capture_output=True, text=True
    )
    assert not done.returncode, done.stderr
    assert done.stdout.split() == ["done"]
