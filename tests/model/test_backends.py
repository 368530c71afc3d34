"""The model on JAX, and operations for CPUs with and without a GPU."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

# Traces a training step and a search step, with and without a GPU; prints
# whether `tf_cpu` is loaded.
_TRACE = """
import sys
import tensorflow as tf
from t2t_lite.model.transformer import Transformer

model = Transformer(
    17, hidden_size=8, filter_size=16, num_heads=2, num_hidden_layers=1
).build_weights()
ids = tf.TensorSpec([None, None], tf.int32)

def train(inputs, targets):
    with tf.GradientTape() as tape:
        batch = {"inputs": inputs, "targets": targets}
        loss, _ = model.loss_sum(batch, 0.1, tf.constant([1, 2]))
    weights = [v.value for v in model.trainable_variables]
    return tape.gradient(loss, weights)

def step(inputs):
    memory, mask = model.encode(inputs)
    step_fn, cache = model.init_decoding(memory, mask, 2, 5)
    logits, cache = step_fn(tf.zeros([2, 2], tf.int32), tf.constant(0), cache)
    return logits, model.reorder_cache(cache, tf.zeros([2, 2], tf.int32))

for gpus in ["GPU:0"], []:
    tf.config.get_visible_devices = lambda kind=None: gpus
    tf.function(train).get_concrete_function(ids, ids)
    tf.function(step).get_concrete_function(ids)
    print("t2t_lite.ops.tf_cpu" in sys.modules)
"""


def test_operations_for_cpus_are_used_only_without_a_gpu():
    result = subprocess.run(
        [sys.executable, "-c", _TRACE],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.stdout.split() == ["False", "True"], result.stderr


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="JAX is not installed"
)
def test_core_trains_and_decodes_on_jax():
    script = pathlib.Path(__file__).with_name("core_on_another_backend.py")
    result = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "KERAS_BACKEND": "jax"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert "runs on jax" in result.stdout, result.stderr
