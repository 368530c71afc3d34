"""The model: nothing leaks, everything shared is shared, steps equal a pass."""

import itertools
import math
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import ops

from support.rounding import requires_bfloat16
from t2t_lite.errors import UsageError
from t2t_lite.hparam import HParams
from t2t_lite.model.attention_weights import (
    attention_weights,
    source_attention,
)
from t2t_lite.model.losses import SmoothedCrossEntropy, smoothed_cross_entropy
from t2t_lite.model.transformer import Transformer

VOCAB = 17
VARIANTS = list(
    itertools.product(
        ("post", "pre"), ("interleaved", "concatenated", "learned")
    )
)


def small_model(**changes):
    sizes = {
        "hidden_size": 8,
        "filter_size": 16,
        "num_heads": 2,
        "num_hidden_layers": 2,
        "residual_dropout": 0.0,
        "max_length": 16,
    }
    keras.utils.set_random_seed(1)
    return Transformer(VOCAB, VOCAB, **(sizes | changes)).build_weights()


def features(seed=0, batch=2, source=5, target=4):
    generator = np.random.default_rng(seed)
    return {
        "inputs": generator.integers(2, VOCAB, (batch, source)),
        "targets": generator.integers(2, VOCAB, (batch, target)),
    }


def test_future_target_does_not_change_past_logits():
    model, first = small_model(), features()
    second = {**first, "targets": first["targets"].copy()}
    second["targets"][:, 2:] = 3
    assert (first["targets"][:, 2:] != 3).any()
    # Target 2 is fed to position 3: positions 0..2 must not have seen it.
    np.testing.assert_array_equal(model(first)[:, :3], model(second)[:, :3])
    assert (np.array(model(first))[:, 3] != np.array(model(second))[:, 3]).any()


def test_a_target_is_predicted_without_seeing_itself():
    model, first = small_model(), features()
    second = {**first, "targets": first["targets"].copy()}
    second["targets"][:, 0] = (first["targets"][:, 0] + 1) % VOCAB
    np.testing.assert_array_equal(model(first)[:, 0], model(second)[:, 0])


@pytest.mark.parametrize("norm,positions", VARIANTS)
def test_extra_padding_does_not_change_real_positions(norm, positions):
    model = small_model(norm_placement=norm, position_encoding=positions)
    plain = features()
    padded = {k: np.pad(v, ((0, 0), (0, 3))) for k, v in plain.items()}
    np.testing.assert_allclose(model(padded)[:, :4], model(plain), atol=1e-5)


def test_every_source_token_matters():
    model, first = small_model(), features()
    for position in range(5):
        second = {**first, "inputs": first["inputs"].copy()}
        second["inputs"][:, position] = 2 + first["inputs"][:, position] % 14
        assert (np.array(model(first)) != np.array(model(second))).any()


@pytest.mark.parametrize("norm,positions", VARIANTS)
def test_cached_steps_equal_one_full_pass(norm, positions):
    model = small_model(norm_placement=norm, position_encoding=positions)
    batch = features()
    batch["inputs"][1, 3:] = 0
    expected = np.array(model(batch))
    memory, mask = model.encode(batch["inputs"])
    beam_size = 3
    cache = model.start_decoding(memory, mask, beam_size, 4)
    previous = np.zeros((2, beam_size), "int32")
    for index in range(4):
        logits, cache = model.decode_step(
            previous, ops.array(index, "int32"), cache
        )
        for beam in range(beam_size):
            np.testing.assert_allclose(
                logits[:, beam], expected[:, index], atol=1e-5
            )
        previous = np.repeat(batch["targets"][:, index, None], beam_size, 1)


def test_beams_that_follow_others_equal_full_passes_of_their_histories():
    """Beams hop between slots; each must keep its own past."""
    model = small_model()
    batch = features(batch=1)
    memory, mask = model.encode(batch["inputs"])
    generator = np.random.default_rng(5)
    beam_size, length = 3, 6
    cache = model.start_decoding(memory, mask, beam_size, length)
    histories = [[] for _ in range(beam_size)]
    previous = np.zeros((1, beam_size), "int32")
    for index in range(length):
        logits, cache = model.decode_step(
            previous, ops.array(index, "int32"), cache
        )
        for beam, history in enumerate(histories):
            full = model(
                {
                    "inputs": batch["inputs"],
                    "targets": np.array([[*history, 1]]),
                }
            )
            np.testing.assert_allclose(logits[:, beam], full[:, -1], atol=1e-5)
        parents = generator.integers(0, beam_size, (1, beam_size))
        previous = generator.integers(2, VOCAB, (1, beam_size)).astype("int32")
        cache = model.follow_beams(cache, ops.array(parents, "int32"))
        histories = [
            [*histories[parent], token]
            for parent, token in zip(parents[0], previous[0], strict=True)
        ]


def test_one_matrix_serves_source_target_and_softmax():
    model = small_model()
    tables = [v for v in model.trainable_variables if VOCAB in v.shape]
    assert len(tables) == 1
    before = np.array(model(features()))
    tables[0].assign(2 * tables[0])
    assert (np.array(model(features())) != before).any()
    separate = small_model(shared_embedding=False)
    tables = [v for v in separate.trainable_variables if VOCAB in v.shape]
    assert len(tables) == 3


def test_variable_names_are_unique_and_start_with_the_model():
    for norm, positions in VARIANTS:
        model = small_model(norm_placement=norm, position_encoding=positions)
        paths = [v.path for v in model.trainable_variables]
        assert len(set(paths)) == len(paths)
        assert all(path.startswith("transformer/") for path in paths)


@pytest.mark.parametrize(("d", "f", "layers"), [(64, 128, 2), (512, 2048, 6)])
def test_parameter_counts_follow_the_formula(d, f, layers):
    """V d for the table; 4 d^2 an attention; 2 d f + d + f; 2 d a norm."""
    vocab_size = 3000
    attention, feed_forward, norm = 4 * d * d, 2 * d * f + d + f, 2 * d
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    count = vocab_size * d + layers * (encoder + decoder)
    hparams = HParams(hidden_size=d, filter_size=f, num_hidden_layers=layers)
    model = Transformer.from_hparams(hparams, vocab_size, vocab_size)
    model.build_weights()
    assert sum(math.prod(v.shape) for v in model.trainable_variables) == count


def test_loss_sum_is_the_loss_of_the_logits():
    model, batch = small_model(), features()
    batch["targets"][1, 2:] = 0
    loss, count = model.loss_sum(batch, 0.1)
    losses = smoothed_cross_entropy(model(batch), batch["targets"], 0.1)
    expected = np.array(losses)[batch["targets"] != 0].sum()
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    assert int(count) == 6


def test_log_probs_add_up_over_every_continuation():
    """The probabilities of all one-token targets sum to one."""
    model = small_model()
    inputs = np.repeat(features(batch=1)["inputs"], VOCAB, 0)
    targets = np.arange(VOCAB)[:, None]
    losses = smoothed_cross_entropy(
        model({"inputs": inputs, "targets": targets}), targets
    )
    assert abs(np.exp(-np.array(losses)).sum() - 1) < 1e-5
    log_probs = model.token_log_probs({"inputs": inputs, "targets": targets})
    np.testing.assert_allclose(log_probs[1:], -losses[1:], rtol=1e-5)
    np.testing.assert_array_equal(log_probs[0], [0])


def test_log_probs_of_tokens_are_those_of_the_logits():
    model, batch = small_model(), features()
    batch["targets"][1, 2:] = 0
    losses = smoothed_cross_entropy(model(batch), batch["targets"])
    real = batch["targets"] != 0
    log_probs = model.token_log_probs(batch)
    np.testing.assert_allclose(log_probs, -losses * real, rtol=1e-5)


def test_fresh_model_costs_about_the_log_of_the_vocabulary():
    model = Transformer(
        1000,
        hidden_size=64,
        filter_size=128,
        num_heads=4,
        num_hidden_layers=2,
        residual_dropout=0.0,
    )
    generator = np.random.default_rng(0)
    batch = {
        side: generator.integers(2, 1000, (16, 12))
        for side in ("inputs", "targets")
    }
    loss, count = model.build_weights().loss_sum(batch)
    # Logits of variance one add half a nat at most.
    assert math.log(1000) - 0.1 < float(loss / count) < math.log(1000) + 0.7


def test_dropout_follows_the_seed_and_is_off_without_one():
    model, batch = small_model(residual_dropout=0.3), features()
    losses = [
        float(model.loss_sum(batch, seed=seed and ops.array(seed))[0])
        for seed in ([1, 2], [1, 2], [1, 3], None, None)
    ]
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]
    assert losses[3] == losses[4]


@pytest.mark.parametrize(
    "name", ["residual_dropout", "attention_dropout", "relu_dropout"]
)
def test_each_dropout_is_wired(name):
    model = small_model(**{name: 0.5})
    with_dropout = model.loss_sum(features(), seed=ops.array([1, 2]))[0]
    assert float(with_dropout) != float(model.loss_sum(features())[0])


@requires_bfloat16
def test_bfloat16_keeps_weights_and_logits_in_float32():
    model = small_model(dtype="mixed_bfloat16")
    assert {v.dtype for v in model.trainable_variables} == {"float32"}
    logits = model(features())
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    np.testing.assert_allclose(logits, small_model()(features()), atol=0.2)


@pytest.mark.parametrize(
    "options",
    [
        {"norm_placement": "pre"},
        {
            "norm_epsilon": 0.1,
            "embedding_scale": "none",
            "source_vector": True,
            "vocab_divisor": 8,
            "num_decoder_layers": 1,
            "position_encoding": "none",
            "max_relative_position": 3,
        },
    ],
    ids=["pre-norm", "tensor2tensor's"],
)
def test_config_round_trip(options):
    model = small_model(**options)
    twin = Transformer.from_config(model.get_config()).build_weights()
    weights = list(zip(model.weights, twin.weights, strict=True))
    for ours, theirs in weights:
        assert ours.path == theirs.path
        theirs.assign(ours)
    np.testing.assert_array_equal(model(features()), twin(features()))


def test_from_hparams_takes_every_model_hparam():
    hparams = HParams(
        hidden_size=8,
        filter_size=24,
        num_heads=4,
        key_depth=6,
        value_depth=10,
        attention_window=8,
        num_hidden_layers=1,
        num_encoder_layers=2,
        num_decoder_layers=3,
        norm_placement="pre",
        norm_epsilon=0.5,
        position_encoding="learned",
        embedding_scale="none",
        source_vector=True,
        max_length=9,
        shift_whole_rows=True,
        residual_dropout=0.2,
        attention_dropout=0.3,
        relu_dropout=0.4,
        shared_embedding=False,
    )
    config = Transformer.from_hparams(hparams, 5, 7).get_config()
    for name, value in hparams.to_dict().items():
        assert config.get(name, value) == value
    assert config["source_vocab_size"] == 5
    assert config["target_vocab_size"] == 7


_LOAD = """
import sys
import keras
import numpy as np
import t2t_lite

t2t_lite.Transformer  # registers its classes
model = keras.models.load_model(sys.argv[1])
assert model.loss.label_smoothing == 0.25
features = dict(np.load(sys.argv[2]))
np.save(sys.argv[3], model(features))
"""


@pytest.mark.slow
def test_a_saved_keras_model_loads_in_another_process(tmp_path):
    model, batch = small_model(norm_placement="pre"), features()
    model.compile("adam", SmoothedCrossEntropy(0.25))
    model.save(tmp_path / "model.keras")
    np.savez(tmp_path / "batch.npz", **batch)
    paths = [tmp_path / n for n in ("model.keras", "batch.npz", "logits.npy")]
    subprocess.run([sys.executable, "-c", _LOAD, *paths], check=True)
    np.testing.assert_allclose(np.load(paths[-1]), model(batch), atol=1e-6)


def test_hparams_in_place_of_sizes_name_the_call_that_takes_them():
    with pytest.raises(UsageError, match="call Transformer.from_hparams"):
        Transformer(HParams())


@requires_bfloat16
@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
def test_a_pure_dtype_gives_about_the_same_logits(dtype):
    model, other = small_model(), small_model(dtype=dtype)
    for each in (model, other):
        each.build()
    other.set_weights(model.get_weights())
    expected = np.array(model(features()))
    np.testing.assert_allclose(
        np.array(ops.cast(other(features()), "float32")), expected, atol=0.1
    )


@pytest.mark.parametrize("sizes", [(0,), (-1,), (10.5,), (10, 0)])
def test_a_vocabulary_has_a_size(sizes):
    with pytest.raises(UsageError, match="must be a whole number of at least"):
        Transformer(*sizes, shared_embedding=False)


@pytest.mark.parametrize("window", [None, 3])
def test_attention_weights_are_rows_that_sum_to_one(window):
    model = small_model(attention_window=window)
    batch = features()
    batch["inputs"][1, 3:] = 0
    weights = attention_weights(model, batch)
    shapes = {name: tuple(value.shape) for name, value in weights.items()}
    assert shapes == {
        "encoder": (2, 2, 2, 5, 5),
        "decoder": (2, 2, 2, 4, 4),
        "cross": (2, 2, 2, 4, 5),
    }
    for value in weights.values():
        np.testing.assert_allclose(np.sum(value, -1), 1.0, atol=1e-6)
    # Nobody real attends to padding.
    assert (np.array(weights["encoder"])[:, 1, :, :3, 3:] == 0).all()
    assert (np.array(weights["cross"])[:, 1, ..., 3:] == 0).all()
    positions = np.arange(4)
    future = positions[None] > positions[:, None]
    seen = np.array(weights["decoder"])[..., ~future]
    assert (np.array(weights["decoder"])[..., future] == 0).all()
    assert (seen > 0).all() == (window is None)


def test_attention_weights_are_those_that_make_the_output():
    """The last layer's cross-attention, made into its output by hand."""
    model, batch = small_model(num_hidden_layers=1), features()
    weights = np.array(attention_weights(model, batch)["cross"])[0]
    memory, mask = model.encode(batch["inputs"])
    attention = model.decoder_layers[0].cross_attention
    caught = []
    original = attention.attend
    attention.attend = lambda query, keys, values, bias, dropout: (
        caught.append((values, original(query, keys, values, bias, dropout)))
        or caught[-1][1]
    )
    model.decode(batch["targets"], memory, mask)
    ((values, context),) = caught
    np.testing.assert_allclose(weights @ np.array(values), context, atol=1e-5)


def test_source_attention_is_the_mean_of_the_heads_of_a_layer():
    model, batch = small_model(num_hidden_layers=3), features()
    batch["inputs"][1, 3:] = 0
    cross = np.array(attention_weights(model, batch)["cross"])
    for layer in (1, 2, 3):
        np.testing.assert_allclose(
            source_attention(model, batch, layer),
            cross[layer - 1].mean(axis=1),
            atol=1e-6,
        )


def test_source_attention_of_a_token_is_that_of_the_position_choosing_it():
    """It depends on the targets before, not on the token itself."""
    model, first = small_model(), features()
    second = {**first, "targets": first["targets"].copy()}
    second["targets"][:, 1] = (first["targets"][:, 1] + 1) % 15
    ours, theirs = (
        np.array(source_attention(model, batch, 2)) for batch in (first, second)
    )
    np.testing.assert_array_equal(ours[:, :2], theirs[:, :2])
    assert (ours[:, 2:] != theirs[:, 2:]).any()


def test_a_window_hides_what_lies_beyond_it():
    """One layer of r = 2 at the last of four targets sees the third fed."""
    model = small_model(num_hidden_layers=1, attention_window=2)
    first = features()
    for changed, matters in [(0, False), (1, True), (2, True), (3, False)]:
        second = {**first, "targets": first["targets"].copy()}
        second["targets"][:, changed] = (first["targets"][:, changed] + 1) % 15
        second["targets"][:, changed] += 2
        difference = np.array(model(first)) != np.array(model(second))
        assert difference[:, 3].any() == matters


def test_sharing_needs_equal_vocabularies():
    with pytest.raises(UsageError, match="shared_embedding needs one vocab"):
        Transformer(5, 7)


def test_heads_must_divide():
    with pytest.raises(UsageError, match="num_heads must divide hidden_size"):
        Transformer(5, hidden_size=8, num_heads=3)


@pytest.mark.slow
def test_trains_with_plain_compile_and_fit():
    """It learns to copy three tokens, with nothing but Keras."""
    model = small_model(hidden_size=32, filter_size=64, residual_dropout=0.1)
    generator = np.random.default_rng(0)
    inputs = generator.integers(2, VOCAB, (512, 3))
    inputs = np.concatenate([inputs, np.ones((512, 1), int)], axis=1)
    model.compile(
        optimizer=keras.optimizers.Adam(0.003),
        loss=SmoothedCrossEntropy(0.0),
    )
    history = model.fit(
        {"inputs": inputs, "targets": inputs},
        inputs,
        epochs=8,
        batch_size=32,
        verbose=0,
    )
    losses = history.history["loss"]
    assert losses[-1] < 0.5 * losses[0]
