"""Our side of accelerator.py: the model core on Keras' JAX backend.

Imports no TensorFlow, so that an accelerator's image needs JAX and Keras only.
"""

import functools
import os
import sys

os.environ["KERAS_BACKEND"] = "jax"
# The peer needs room on the same device.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import keras
import numpy as np
from side import serve

from t2t_lite.decoding.search.beam_search import beam_search
from t2t_lite.hparam import HParams
from t2t_lite.model.transformer import Transformer

# No hypothesis may end early: the end of sequence is an id that does not exist.
NO_EOS = -1
_RATE, _BETA1, _BETA2, _EPSILON = 1e-4, 0.9, 0.98, 1e-9


def make_step(task, sizes):
    """Return a function that runs a round and returns the result and device.

    Args:
      task: "train", "greedy" or "beam".
      sizes: sizes of the model and its batch, from accelerator.py.
    """
    keras.utils.set_random_seed(1)
    hparams = HParams(**sizes["model"])
    vocab_size = sizes["vocab_size"]
    model = Transformer.from_hparams(hparams, vocab_size, vocab_size)
    model.build_weights()
    make = _trainer if task == "train" else _decoder
    run = make(model, sizes, 4 if task == "beam" else 1)

    def step():
        result = run()
        device = jax.local_devices()[0]
        memory = device.memory_stats() or {}
        return {
            "result": result,
            "device": device.device_kind,
            "peak_bytes": memory.get("peak_bytes_in_use"),
        }

    return step


def _trainer(model, sizes, _):
    """Return a function that makes updates and returns the last loss."""
    batch = _packed_batch(sizes)
    weights = model.trainable_variables

    def loss_of(values, seed):
        mapping = list(zip(weights, values, strict=True))
        with keras.StatelessScope(state_mapping=mapping):
            loss, count = model.loss_sum(batch, 0.1, seed)
        return loss / count

    @functools.partial(jax.jit, donate_argnums=0)
    def update(state, number):
        values, firsts, seconds = state
        seed = jnp.stack([jnp.int32(0), number])
        loss, gradients = jax.value_and_grad(loss_of)(values, seed)
        return adam(values, gradients, firsts, seconds, number), loss

    values = [jnp.array(v.value) for v in weights]
    zeros = [[jnp.zeros_like(v) for v in values] for _ in range(2)]
    state, number = (values, *zeros), 0

    def run():
        nonlocal state, number
        for _ in range(sizes["updates"]):
            number += 1
            state, loss = update(state, np.int32(number))
        return float(loss)  # waits for the device

    return run


def adam(values, gradients, firsts, seconds, number):
    """Return lists of weights, first and second moments after an update."""
    firsts = [
        _BETA1 * m + (1 - _BETA1) * g
        for m, g in zip(firsts, gradients, strict=True)
    ]
    seconds = [
        _BETA2 * s + (1 - _BETA2) * jnp.square(g)
        for s, g in zip(seconds, gradients, strict=True)
    ]
    rate = _RATE * jnp.sqrt(1 - _BETA2**number) / (1 - _BETA1**number)
    values = [
        v - rate * m / (jnp.sqrt(s) + _EPSILON)
        for v, m, s in zip(values, firsts, seconds, strict=True)
    ]
    return values, firsts, seconds


def _packed_batch(sizes):
    """Return full rows of pairs of equal length; see `Segments`."""
    shape = sizes["rows"], sizes["length"]
    generator = np.random.default_rng(1)
    positions = np.arange(shape[1])
    batch = {}
    for side in ("inputs", "targets"):
        batch |= {
            side: generator.integers(2, sizes["vocab_size"], shape),
            f"{side}_segmentation": positions // sizes["pair"] + 1,
            f"{side}_position": positions % sizes["pair"],
        }
    return {
        name: jnp.asarray(np.broadcast_to(values, shape), "int32")
        for name, values in batch.items()
    }


def _decoder(model, sizes, beam_size):
    """Return a function that decodes a batch, all to the same length."""
    rows, length = sizes["sentences"], sizes["pair"]
    vocab_size = sizes["vocab_size"]
    inputs = np.random.default_rng(1).integers(
        2, vocab_size, (rows, length), "int32"
    )

    @jax.jit
    def decode(values, inputs):
        mapping = list(zip(model.trainable_variables, values, strict=True))
        with keras.StatelessScope(state_mapping=mapping):
            memory, mask = model.encode(inputs)
            step_fn, cache = model.init_decoding(
                memory, mask, beam_size, length
            )
            return beam_search(
                step_fn,
                model.reorder_cache,
                cache,
                batch_size=rows,
                beam_size=beam_size,
                limits=np.full(rows, length, "int32"),
                longest=length,
                alpha=0.6,
                eos_id=NO_EOS,
            )[0]

    values = [v.value for v in model.trainable_variables]

    def run():
        ids = np.array(decode(values, inputs))  # waits for the device
        assert ids.shape == (rows, beam_size, length)
        return length

    return run


if __name__ == "__main__":
    serve(make_step, sys.argv[1:])
