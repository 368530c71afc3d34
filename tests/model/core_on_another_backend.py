"""Check the model core on the backend of KERAS_BACKEND, without TensorFlow.

`test_backends.py` runs it, because a process has only one Keras backend.
"""

import sys

import keras
import numpy as np
from keras import ops

from t2t_lite.decoding.search.beam_search import beam_search
from t2t_lite.model.attention_weights import attention_weights
from t2t_lite.model.layers import DropoutMasks
from t2t_lite.model.transformer import Transformer

BACKEND = keras.backend.backend()
GENERATOR = np.random.default_rng(0)
BATCH = {
    side: GENERATOR.integers(2, 17, (2, 5)) for side in ("inputs", "targets")
}


def make_model(num_hidden_layers=1, **options):
    sizes = {"hidden_size": 8, "filter_size": 16, "num_heads": 2}
    return Transformer(
        17, num_hidden_layers=num_hidden_layers, **sizes, **options
    ).build_weights()


def array(x):
    return ops.convert_to_numpy(x)


def loss_and_gradients(model):
    if BACKEND == "torch":
        loss, _ = model.loss_sum(BATCH, 0.1)
        loss.backward()
        values = [v.value for v in model.trainable_variables]
        return array(loss), [array(value.grad) for value in values]
    import jax

    def loss_of(values):
        mapping = list(zip(model.trainable_variables, values, strict=True))
        with keras.StatelessScope(state_mapping=mapping):
            return model.loss_sum(BATCH, 0.1)[0]

    values = [v.value for v in model.trainable_variables]
    return jax.jit(jax.value_and_grad(loss_of))(values)


def check_gradients(model):
    loss, gradients = loss_and_gradients(model)
    before = [array(v) for v in model.trainable_variables]

    def loss_after(step):
        moved = zip(model.trainable_variables, before, gradients, strict=True)
        for variable, value, gradient in moved:
            variable.assign(value + step * np.array(gradient))
        return array(model.loss_sum(BATCH, 0.1)[0])

    # The gradient agrees with a difference quotient.
    slope = (loss_after(1e-4) - loss_after(-1e-4)) / 2e-4
    squares = sum(np.sum(np.square(np.array(g))) for g in gradients)
    np.testing.assert_allclose(slope, squares, rtol=0.05)
    np.testing.assert_allclose(loss_after(0), loss, rtol=1e-5)
    seed = np.array([1, 2], "int32")
    dropped = [array(model.loss_sum(BATCH, 0.1, seed)[0]) for _ in range(2)]
    assert dropped[0] == dropped[1] != loss


def check_search(model, beam_size):
    memory, mask = model.encode(BATCH["inputs"])
    step_fn, cache = model.init_decoding(memory, mask, beam_size, 6)
    ids, scores = beam_search(
        step_fn,
        model.reorder_cache,
        cache,
        batch_size=2,
        beam_size=beam_size,
        limits=np.array([6, 4]),
        longest=6,
        alpha=0.6,
    )
    best = array(ids)[:, 0]
    lengths = (best != 0).sum(-1)
    log_probs = array(
        model.token_log_probs({"inputs": BATCH["inputs"], "targets": best})
    )
    expected = log_probs.sum(-1) / ((5 + lengths) / 6) ** 0.6
    np.testing.assert_allclose(array(scores)[:, 0], expected, rtol=1e-4)
    if beam_size == 1:  # greedy: each token is the most likely one
        features = {"inputs": BATCH["inputs"], "targets": best}
        likeliest = array(model(features)).argmax(-1)
        np.testing.assert_array_equal(np.where(best != 0, likeliest, 0), best)


def check_steps(model):
    logits = array(model(BATCH))
    memory, mask = model.encode(BATCH["inputs"])
    step_fn, cache = model.init_decoding(memory, mask, 2, 5)
    previous = np.zeros((2, 2), "int32")
    for index in range(5):
        step, cache = step_fn(previous, np.int32(index), cache)
        np.testing.assert_allclose(
            array(step)[:, 1], logits[:, index], atol=1e-5
        )
        previous = np.repeat(BATCH["targets"][:, index, None], 2, 1)


def check_packing(model):
    """Compare packed rows of two sentences with the sentences alone."""
    numbers, positions = np.array([[1, 1, 2, 2, 2]] * 2), [[0, 1, 0, 1, 2]] * 2
    packed = {f"{side}_segmentation": numbers for side in BATCH}
    packed |= {f"{side}_position": np.array(positions) for side in BATCH}
    both = array(model(BATCH | packed))
    for part in (slice(2), slice(2, 5)):
        single = model({side: ids[:, part] for side, ids in BATCH.items()})
        np.testing.assert_allclose(both[:, part], array(single), atol=1e-5)


def main():
    assert BACKEND in ("jax", "torch")
    assert "tensorflow" not in sys.modules
    keras.utils.set_random_seed(1)
    model = make_model(num_hidden_layers=2)
    restricted = make_model(key_depth=3, value_depth=5, attention_window=4)
    relative = make_model(
        position_encoding="none",
        max_relative_position=2,
        target_space_embedding=True,
    )
    biased = make_model(
        activation="swish",
        attention_bias=True,
        attention_score="additive",
        logits_bias=True,
        learned_start=True,
    )
    for variable in biased.trainable_variables:
        if len(variable.shape) == 1:
            noise = GENERATOR.normal(0, 0.3, variable.shape)
            variable.assign(array(variable) + noise)
    check_gradients(model)
    check_search(biased, 3)
    for beam_size in (1, 3):
        check_search(model, beam_size)
    for each in (model, restricted, relative, biased):
        check_packing(each)
        check_steps(each)
        for weights in attention_weights(each, BATCH)["decoder"]:
            np.testing.assert_allclose(array(weights).sum(-1), 1, rtol=1e-5)
    # Rows have the same dropout masks as in the whole batch.
    ones = np.ones((7, 5), "float32")
    whole = array(DropoutMasks(np.array([1, 2]))(ones, 0.5))
    part = array(DropoutMasks(np.array([1, 2, 3]))(ones[3:], 0.5))
    np.testing.assert_array_equal(part, whole[3:])
    assert 0 < (whole == 0).sum() < whole.size
    print(f"the core runs on {BACKEND}")


if __name__ == "__main__":
    main()
