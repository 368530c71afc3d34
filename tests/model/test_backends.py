"""The model core on Keras' JAX backend, in a process of its own."""

import importlib.util
import os
import subprocess
import sys

import pytest

_SCRIPT = """
import sys
import jax
import keras
import numpy as np
from t2t_lite.decoding.search.beam_search import beam_search
from t2t_lite.model.attention_weights import attention_weights
from t2t_lite.ops import random_int16
from t2t_lite.model.transformer import Transformer

assert keras.backend.backend() == "jax"
assert "tensorflow" not in sys.modules
keras.utils.set_random_seed(1)
model = Transformer(
    17, hidden_size=8, filter_size=16, num_heads=2, num_hidden_layers=2
).build_weights()
generator = np.random.default_rng(0)
batch = {
    side: generator.integers(2, 17, (2, 5)) for side in ("inputs", "targets")
}

def loss(values, seed=None):
    mapping = list(zip(model.trainable_variables, values))
    with keras.StatelessScope(state_mapping=mapping):
        return model.loss_sum(batch, 0.1, seed)[0]

values = [v.value for v in model.trainable_variables]
total, gradients = jax.jit(jax.value_and_grad(loss))(values)
# The written-out gradients agree with a difference quotient.
step = 1e-4
moved = [v + step * g for v, g in zip(values, gradients)]
back = [v - step * g for v, g in zip(values, gradients)]
slope = (loss(moved) - loss(back)) / (2 * step)
squares = sum(float((g * g).sum()) for g in gradients)
np.testing.assert_allclose(slope, squares, rtol=0.05)
seed = np.array([1, 2], "int32")
assert loss(values, seed) == loss(values, seed) != total

memory, mask = model.encode(batch["inputs"])
ids, scores = beam_search(
    model.decode_step,
    model.follow_beams,
    model.start_decoding(memory, mask, 3, 6),
    batch_size=2,
    beam_size=3,
    vocab_size=17,
    limits=np.array([6, 4]),
    longest=6,
    alpha=0.6,
)
best = np.array(ids)[:, 0]
lengths = (best != 0).sum(-1)
log_probs = np.array(
    model.token_log_probs({"inputs": batch["inputs"], "targets": best})
)
expected = log_probs.sum(-1) / ((5 + lengths) / 6) ** 0.6
np.testing.assert_allclose(np.array(scores)[:, 0], expected, rtol=1e-4)
restricted = Transformer(
    17,
    hidden_size=8,
    filter_size=16,
    num_heads=2,
    num_hidden_layers=1,
    key_depth=3,
    value_depth=5,
    attention_window=4,
).build_weights()
relative = Transformer(
    17,
    hidden_size=8,
    filter_size=16,
    num_heads=2,
    num_hidden_layers=1,
    position_encoding="none",
    max_relative_position=2,
    source_vector=True,
).build_weights()
for made in (restricted, relative):
    logits = jax.jit(lambda inputs, targets: made(
        {"inputs": inputs, "targets": targets}
    ))(batch["inputs"], batch["targets"])
    assert logits.shape == (2, 5, 17)
    weights = attention_weights(made, batch)
    np.testing.assert_allclose(np.sum(weights["decoder"], -1), 1, rtol=1e-5)
# Steps are the full pass.
memory, mask = relative.encode(batch["inputs"])
cache = relative.start_decoding(memory, mask, 2, 5)
previous = np.zeros((2, 2), "int32")
for index in range(5):
    step, cache = relative.decode_step(previous, np.int32(index), cache)
    np.testing.assert_allclose(step[:, 1], logits[:, index], atol=1e-5)
    previous = np.repeat(batch["targets"][:, index, None], 2, 1)
# The second half of each row is a sentence of its own.
numbers, positions = np.array([[1, 1, 2, 2, 2]] * 2), [[0, 1, 0, 1, 2]] * 2
packed = {f"{side}_segmentation": numbers for side in batch}
packed |= {f"{side}_position": np.array(positions) for side in batch}
for made in (model, restricted, relative):
    both = jax.jit(lambda features: made(features))(batch | packed)
    for part in (slice(2), slice(2, 5)):
        alone = made({side: ids[:, part] for side, ids in batch.items()})
        np.testing.assert_allclose(both[:, part], alone, atol=1e-5)
# Rows of a batch lose what they lose in the batch.
rows = random_int16(np.zeros(7), seed, skip=(3, 5))
every = random_int16(np.zeros(35), seed)
np.testing.assert_array_equal(rows, every[15:22])
print("the core runs on JAX")
"""


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="JAX is not installed"
)
def test_core_trains_and_decodes_on_jax():
    result = subprocess.run(
        [sys.executable, "-c", _SCRIPT],
        env={**os.environ, "KERAS_BACKEND": "jax"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert "the core runs on JAX" in result.stdout, result.stderr
