"""Keys and values that grow, stay where they are, and follow their beams."""

import numpy as np
import pytest
import tensorflow as tf

from support.rounding import requires_bfloat16
from t2t_lite.model.cache import _block_length
from t2t_lite.model.layers.backend import new_buffer, write_rows
from t2t_lite.model.transformer import Transformer

VOCAB = 13


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


def hopping_beams(batch, beam_size, length, seed=0):
    """Random parents and tokens of a search, and the histories they make."""
    generator = np.random.default_rng(seed)
    shape = (length, batch, beam_size)
    parents = generator.integers(0, beam_size, shape).astype("int32")
    tokens = generator.integers(2, VOCAB, shape).astype("int32")
    # What each beam had been given before each step: [B, K, 0...length - 1].
    histories = [np.zeros((batch, beam_size, 0), "int32")]
    for step in range(length):
        kept = np.take_along_axis(histories[-1], parents[step][..., None], 1)
        histories.append(
            np.concatenate([kept, tokens[step][..., None]], axis=-1)
        )
    return parents, tokens, histories


def cached_logits(model, inputs, parents, tokens):
    """The logits of every step of such a search: [L, B, K, V]."""
    length, _, beam_size = parents.shape
    memory, mask = model.encode(inputs)
    cache = model.start_decoding(memory, mask, beam_size, length)
    logits = tf.TensorArray(tf.float32, length)
    ids = tf.zeros_like(tokens[0])

    def step(index, ids, cache, logits):
        scores, cache = model.decode_step(ids, index, cache)
        cache = model.follow_beams(cache, parents[index])
        return index + 1, tokens[index], cache, logits.write(index, scores)

    *_, logits = tf.while_loop(
        lambda index, *_: index < length,
        step,
        (tf.constant(0), ids, cache, logits),
    )
    return logits.stack()


@pytest.mark.parametrize(
    "beam_size,options,in_graph",
    [
        (1, {}, False),
        (1, {}, True),
        (4, {}, False),
        (4, {}, True),
        (4, {"key_depth": 3, "value_depth": 7}, True),
        pytest.param(
            *(10, {"key_depth": 3, "value_depth": 7}, True),
            marks=pytest.mark.slow,
        ),
        (4, {"attention_window": 21}, True),
        (1, {"max_relative_position": 5}, True),
        (4, {"max_relative_position": 5}, False),
        (4, {"max_relative_position": 40, "value_depth": 7}, True),
        pytest.param(
            *(10, {"max_relative_position": 5}, True), marks=pytest.mark.slow
        ),
    ],
)
def test_hopping_beams_equal_full_passes_across_blocks(
    beam_size, options, in_graph
):
    length, model = 35, small_model(**options)
    assert length > 2 * _block_length(beam_size, 7, "float32")
    parents, tokens, histories = hopping_beams(2, beam_size, length)
    inputs = np.array([[3, 4, 5, 1], [6, 1, 0, 0]], "int32")
    decode = tf.function(cached_logits) if in_graph else cached_logits
    logits = decode(
        model, tf.constant(inputs), tf.constant(parents), tf.constant(tokens)
    )
    for beam in range(beam_size):
        for step in (0, 1, 15, 16, 17, 31, 32, 34):
            targets = np.pad(histories[step][:, beam], ((0, 0), (0, 1)))
            targets[:, -1] = 1
            full = model({"inputs": inputs, "targets": targets})[:, -1]
            np.testing.assert_allclose(logits[step, :, beam], full, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "beam_size", [3, pytest.param(10, marks=pytest.mark.slow)]
)
def test_kept_sentences_go_on_as_they_would_have(beam_size):
    model, length, rows = small_model(), 20, tf.constant([2, 0])
    inputs = np.array([[3, 4, 5, 1], [6, 1, 0, 0], [7, 8, 1, 0]], "int32")
    _, tokens, _ = hopping_beams(3, beam_size, length)

    @tf.function
    def search(inputs, tokens):
        memory, mask = model.encode(inputs)
        cache = model.start_decoding(memory, mask, beam_size, length, True)
        for step in range(17):  # into the second block
            _, cache = model.decode_step(tokens[step], tf.constant(step), cache)
        kept = model.keep_sentences(cache, rows)
        step, ids = tf.constant(17), tokens[17]
        some, kept = model.decode_step(tf.gather(ids, rows), step, kept)
        all_, cache = model.decode_step(ids, step, cache)
        return some, all_, model.coverage(kept), model.coverage(cache)

    some, all_, coverage, whole = search(inputs, tokens)
    np.testing.assert_allclose(some, tf.gather(all_, rows), atol=1e-5)
    np.testing.assert_allclose(coverage, tf.gather(whole, rows), atol=1e-5)
    assert np.ptp(all_, axis=0).max() > 0.01  # sentences differ


@requires_bfloat16
@pytest.mark.parametrize("beam_size", [1, 3])
def test_bfloat16_cache_equals_full_pass_closely(beam_size):
    model = small_model(dtype="mixed_bfloat16")
    parents, tokens, histories = hopping_beams(2, beam_size, 20)
    inputs = np.array([[3, 4, 5, 1], [6, 1, 0, 0]], "int32")
    logits = tf.function(cached_logits)(
        model, tf.constant(inputs), tf.constant(parents), tf.constant(tokens)
    )
    assert logits.dtype == tf.float32
    last = histories[19][:, -1]
    targets = np.pad(last, ((0, 0), (0, 1)), constant_values=1)
    full = model({"inputs": inputs, "targets": targets})[:, -1]
    np.testing.assert_allclose(logits[19, :, -1], full, atol=0.05)


@requires_bfloat16
@pytest.mark.parametrize("beam_size, dtype", [(1, "float32"), (3, "bfloat16")])
def test_a_single_hypothesis_in_bfloat16_attends_in_float32(beam_size, dtype):
    model = small_model(dtype="mixed_bfloat16")
    memory, mask = model.encode(tf.ones([2, 5], tf.int32))
    start = tf.function(
        lambda: model.start_decoding(memory, mask, beam_size, 4)
    )
    cache = start()
    for name in ("keys_0", "values_0", "source_keys_0", "source_values_0"):
        assert cache[name].dtype == dtype
    assert cache["self_kernel_0"].dtype == "bfloat16"


@pytest.mark.parametrize(
    "beam_size, depth, dtype, positions",
    [
        (1, 64, "float32", 16),
        (4, 64, "float32", 16),
        (8, 64, "float32", 16),
        (8, 64, "bfloat16", 4),
        (4, 32, "bfloat16", 16),
        (16, 64, "float32", 1),
        (64, 64, "float32", 1),
    ],
)
def test_block_lengths_in_a_graph(beam_size, depth, dtype, positions):
    lengths = []
    make = tf.function(
        lambda: lengths.append(_block_length(beam_size, depth, dtype))
    )
    make()
    assert lengths == [positions]


def test_buffers_of_a_graph_are_not_one():
    @tf.function
    def write(count):
        buffers = [new_buffer((count, 2), "float32") for _ in range(2)]
        assert buffers[0].shape.as_list() == [None, 2]
        written = write_rows(buffers[0], tf.constant([1]), tf.ones([1, 2]))
        return written, buffers[1]

    written, other = write(tf.constant(3))
    np.testing.assert_array_equal(written, [[0, 0], [1, 1], [0, 0]])
    np.testing.assert_array_equal(other, 0)


def test_eager_writes_leave_the_buffer_as_it_was():
    buffer = new_buffer((3, 2), "float32")
    written = write_rows(buffer, tf.constant([2, 0]), tf.ones([2, 2]))
    np.testing.assert_array_equal(written, [[1, 1], [0, 0], [1, 1]])
    np.testing.assert_array_equal(buffer, 0)


@requires_bfloat16
def test_a_step_reads_no_matrix_but_the_embedding():
    """A step that read another one in bfloat16 would cast it each time."""
    model = small_model(dtype="mixed_bfloat16")
    memory, mask = model.encode(tf.ones([2, 5], tf.int32))
    cache = model.start_decoding(memory, mask, 3, 4)
    step = tf.function(model.decode_step, autograph=False)
    ids = tf.zeros([2, 3], tf.int32)
    graph = step.get_concrete_function(ids, tf.constant(0), cache).graph
    matrices = [v.shape for v in graph.variables if len(v.shape) > 1]
    assert matrices == [(VOCAB, 8)]
