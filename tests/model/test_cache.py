"""Cached steps equal full passes when beams are reordered."""

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from support.params import slow
from support.rounding import requires_bfloat16
from t2t_lite.model.transformer import Transformer
from t2t_lite.ops import for_xla

VOCAB = 13
INPUTS = np.array([[3, 4, 5, 1], [6, 1, 0, 0]], "int32")


def small_model(**options):
    return Transformer(
        VOCAB,
        VOCAB,
        hidden_size=8,
        filter_size=16,
        num_heads=2,
        num_hidden_layers=2,
        **options,
    ).build_weights()


def random_beams(batch, beam_size, length):
    """Return random parents and tokens of a search, and their prefixes."""
    generator = np.random.default_rng(0)
    shape = (length, batch, beam_size)
    parents = generator.integers(0, beam_size, shape).astype("int32")
    tokens = generator.integers(2, VOCAB, shape).astype("int32")
    # The tokens of each beam before each step: [B, K, step].
    prefixes = [np.zeros((batch, beam_size, 0), "int32")]
    for step in range(length):
        kept = np.take_along_axis(prefixes[-1], parents[step][..., None], 1)
        prefixes.append(
            np.concatenate([kept, tokens[step][..., None]], axis=-1)
        )
    return parents, tokens, prefixes


def cached_logits(model, inputs, parents, tokens):
    """Return the logits of all steps of a search: [L, B, K, V]."""
    length, _, beam_size = parents.shape
    memory, mask = model.encode(inputs)
    step_fn, cache = model.init_decoding(memory, mask, beam_size, length)
    logits = tf.TensorArray(tf.float32, length)
    ids = tf.zeros_like(tokens[0])

    def step(index, ids, cache, logits):
        scores, cache = step_fn(ids, index, cache)
        cache = model.reorder_cache(cache, parents[index])
        return index + 1, tokens[index], cache, logits.write(index, scores)

    *_, logits = tf.while_loop(
        lambda index, *_: index < length,
        step,
        (tf.constant(0), ids, cache, logits),
    )
    return logits.stack()


def check_reordered_beams(model, beam_size, length, in_graph, atol=1e-5):
    parents, tokens, prefixes = random_beams(2, beam_size, length)
    decode = tf.function(cached_logits) if in_graph else cached_logits
    logits = decode(
        model, tf.constant(INPUTS), tf.constant(parents), tf.constant(tokens)
    )
    assert logits.dtype == tf.float32
    steps = {0, 1, 15, 16, 17, 31, 32, length - 1} & set(range(length))
    inputs = np.repeat(INPUTS, beam_size, axis=0)
    for step in steps:
        targets = prefixes[step].reshape(2 * beam_size, step)
        targets = np.pad(targets, ((0, 0), (0, 1)), constant_values=1)
        full = model({"inputs": inputs, "targets": targets})[:, -1]
        found = tf.reshape(logits[step], full.shape)
        np.testing.assert_allclose(found, full, atol=atol)


@pytest.mark.parametrize(
    ("beam_size", "options", "in_graph"),
    [
        (4, {"key_depth": 3, "value_depth": 7}, True),
        (4, {"attention_score": "dot", "max_relative_position": 5}, False),
        slow(1, {}, True),
        slow(4, {}, False),
        slow(4, {"attention_window": 21}, True),
        slow(4, {"attention_score": "additive", "key_depth": 3}, True),
        slow(1, {"max_relative_position": 5}, True),
        slow(4, {"max_relative_position": 40, "value_depth": 7}, True),
        slow(21, {"key_depth": 3}, True),
    ],
)
def test_growing_cache_equals_full_passes(beam_size, options, in_graph):
    check_reordered_beams(small_model(**options), beam_size, 35, in_graph)


@pytest.mark.parametrize(
    "options",
    [
        {"norm_placement": "pre", "position_encoding": "learned"},
        {"norm_epsilon": 0.1, "position_encoding": "concatenated"},
        {"target_space_embedding": True, "shared_embedding": False},
        {"vocab_divisor": 8, "embedding_scale": "none"},
        {"num_encoder_layers": 1, "num_decoder_layers": 3},
    ],
)
def test_cached_steps_equal_a_full_pass_of_every_variant(options):
    check_reordered_beams(small_model(**options), 3, 6, in_graph=False)


def test_cached_steps_equal_a_full_pass_with_biases_and_a_learned_start():
    model = small_model(
        attention_bias=True,
        logits_bias=True,
        learned_start=True,
        activation="swish",
    )
    generator = np.random.default_rng(0)
    for weight in model.trainable_variables:
        if weight.path.endswith("bias"):
            weight.assign(generator.normal(size=weight.shape))
    check_reordered_beams(model, 3, 6, in_graph=False)
    start = np.array(model({"inputs": INPUTS, "targets": INPUTS}))[:, 0]
    table = np.array(model.target_embedding.table)
    table[0] = 0
    model.target_embedding.table.assign(table)
    other = np.array(model({"inputs": INPUTS, "targets": INPUTS}))[:, 0]
    assert np.abs(start - other)[:, 1:].max() > 0.01


@requires_bfloat16
@pytest.mark.parametrize("beam_size", [1, 3])
def test_bfloat16_cache_is_close_to_a_full_pass(beam_size):
    model = small_model(dtype="mixed_bfloat16")
    check_reordered_beams(model, beam_size, 20, in_graph=True, atol=0.06)


def test_eager_step_does_not_change_its_input_cache():
    model = small_model()
    memory, mask = model.encode(INPUTS)
    step_fn, start = model.init_decoding(memory, mask, 2, 4)
    ids, index = np.zeros((2, 2), "int32"), ops.array(0)
    first, _ = step_fn(ids, index, start)
    again, _ = step_fn(ids, index, start)
    np.testing.assert_array_equal(first, again)


def test_weights_laid_out_once_give_the_same_step():
    sizes = {"hidden_size": 512, "filter_size": 1024, "num_hidden_layers": 1}
    model = Transformer(VOCAB, **sizes, attention_bias=True).build_weights()
    generator = np.random.default_rng(0)
    for weight in model.trainable_variables:
        weight.assign(0.1 * generator.normal(size=weight.shape))
    memory, mask = model.encode(INPUTS)

    @tf.function
    def step(weights=None):
        step_fn, cache = model.init_decoding(memory, mask, 2, 4, weights)
        return step_fn(np.ones((2, 2), "int32"), ops.array(0), cache)[0]

    np.testing.assert_allclose(step(model.step_weights()), step(), atol=1e-5)


@pytest.mark.parametrize("bias", [False, True])
def test_a_compiled_step_with_a_wide_vocabulary_equals_a_plain_one(bias):
    model = Transformer(
        9000, hidden_size=8, num_hidden_layers=1, logits_bias=bias
    ).build_weights()
    for weight in model.weights:
        weight.assign(np.random.default_rng(0).normal(size=weight.shape))
    memory, mask = model.encode(INPUTS)

    def step(weights=None):
        options = {"weights": weights}
        step_fn, cache = model.init_decoding(memory, mask, 2, 4, **options)
        return step_fn(np.zeros((2, 2), "int32"), ops.array(0), cache)[0]

    with for_xla():
        weights = model.step_weights()
        compiled = tf.function(step, jit_compile=True)(weights)
    np.testing.assert_allclose(compiled, step(), atol=1e-4)
