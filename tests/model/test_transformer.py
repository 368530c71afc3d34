"""The model: causality, padding, shared weights, dtypes, saving, training."""

import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from support.peak_memory import peak_memory
from support.rounding import requires_bfloat16
from t2t_lite.errors import UsageError
from t2t_lite.hparam import HParams
from t2t_lite.model.attention_weights import attention_weights
from t2t_lite.model.losses import SmoothedCrossEntropy, smoothed_cross_entropy
from t2t_lite.model.transformer import Transformer

VOCAB = 17


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
    # Target 2 is the input of position 3: positions 0..2 must not see it.
    np.testing.assert_array_equal(model(first)[:, :3], model(second)[:, :3])
    assert (np.array(model(first))[:, 3] != np.array(model(second))[:, 3]).any()


@pytest.mark.parametrize(
    ("norm", "positions"),
    [("post", "interleaved"), ("pre", "concatenated"), ("pre", "learned")],
)
def test_extra_padding_does_not_change_real_positions(norm, positions):
    model = small_model(norm_placement=norm, position_encoding=positions)
    plain = features()
    padded = {k: np.pad(v, ((0, 0), (0, 3))) for k, v in plain.items()}
    np.testing.assert_allclose(model(padded)[:, :4], model(plain), atol=1e-5)


def test_order_matters_only_with_positions():
    """Two source tokens are swapped; positions are relative or absent."""
    inputs, targets = np.array([[3, 4, 5, 1]]), np.array([[6, 1]])
    swapped = inputs[:, [1, 0, 2, 3]]
    for reach in (None, 3):
        model = small_model(
            position_encoding="none", max_relative_position=reach
        )
        one, other = (
            np.array(model({"inputs": each, "targets": targets}))
            for each in (inputs, swapped)
        )
        assert np.allclose(one, other, atol=1e-5) == (reach is None)


def test_weights_have_the_paths_that_checkpoints_store():
    model = small_model(
        num_hidden_layers=1,
        norm_placement="pre",
        position_encoding="learned",
        max_relative_position=2,
        target_space_embedding=True,
    )
    norm = ("scale", "bias")
    attention = [f"{n}_kernel" for n in ("query", "key", "value", "output")]
    relative = ("relative_keys", "relative_values")
    network = ("hidden_kernel", "hidden_bias", "output_kernel", "output_bias")
    parts = {
        "shared_embedding": ["table"],
        "target_space_embedding": ["vector"],
    }
    for stack in ("encoder", "decoder"):
        layer = f"{stack}_layer_0"
        parts |= {
            f"{stack}_positions": ["table"],
            f"{stack}_norm": norm,
            f"{layer}/self_attention": [*attention, *relative],
            f"{layer}/self_attention_norm": norm,
            f"{layer}/feed_forward": network,
            f"{layer}/feed_forward_norm": norm,
        }
    parts["decoder_layer_0/cross_attention"] = attention
    parts["decoder_layer_0/cross_attention_norm"] = norm
    assert sorted(
        weight.path for weight in model.trainable_variables
    ) == sorted(
        f"transformer/{part}/{name}" for part in parts for name in parts[part]
    )


@pytest.mark.parametrize(
    ("arguments", "options", "word"),
    [
        ((5, 7), {}, "shared_embedding"),
        ((5,), {"hidden_size": 8, "num_heads": 3}, "num_heads=3"),
        ((HParams(),), {}, "Transformer.from_hparams"),
        ((0,), {}, "whole number"),
        ((10.5,), {}, "whole number"),
        ((10, 0), {"shared_embedding": False}, "whole number"),
    ],
)
def test_invalid_sizes_are_wrong_usage(arguments, options, word):
    with pytest.raises(UsageError, match=word):
        Transformer(*arguments, **options)


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


@pytest.mark.parametrize("rows", [2, 300])
@pytest.mark.parametrize("bias", [False, True])
def test_loss_and_log_probs_agree_with_the_logits(rows, bias):
    model, batch = small_model(logits_bias=bias), features(batch=rows)
    if bias:
        model.softmax_embedding.bias.assign(np.arange(VOCAB) / VOCAB)
    batch["targets"][1, 2:] = 0
    loss, count = model.loss_sum(batch, 0.1)
    real = batch["targets"] != 0
    losses = smoothed_cross_entropy(model(batch), batch["targets"], 0.1)
    np.testing.assert_allclose(loss, np.array(losses)[real].sum(), rtol=1e-5)
    assert int(count) == real.sum()
    losses = smoothed_cross_entropy(model(batch), batch["targets"])
    np.testing.assert_allclose(
        model.token_log_probs(batch), -losses * real, rtol=1e-5, atol=1e-6
    )


@requires_bfloat16
@pytest.mark.parametrize(
    "dtype", ["mixed_bfloat16", "float64", "bfloat16", "float16"]
)
@pytest.mark.parametrize(
    "options", [{"attention_window": 4}, {"max_relative_position": 2}]
)
def test_other_dtypes_give_about_the_same_logits(dtype, options):
    model, batch = small_model(**options), features(source=50)
    other = small_model(dtype=dtype, **options)
    if dtype == "mixed_bfloat16":
        assert {v.dtype for v in other.trainable_variables} == {"float32"}
        assert other(batch).dtype == "float32"
    other.set_weights(model.get_weights())
    np.testing.assert_allclose(
        np.array(ops.cast(other(batch), "float32")), model(batch), atol=0.2
    )


@pytest.mark.parametrize(
    "name", ["residual_dropout", "attention_dropout", "relu_dropout"]
)
def test_each_dropout_follows_the_seed_and_is_off_without_one(name):
    model, batch = small_model(**{name: 0.5}), features()
    losses = [
        float(model.loss_sum(batch, seed=seed and ops.array(seed))[0])
        for seed in ([1, 2], [1, 2], [1, 3], None, None)
    ]
    assert losses[0] == losses[1] and losses[3] == losses[4]
    assert len(set(losses)) == 3


def test_every_model_hparam_survives_from_hparams_and_config():
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
        target_space_embedding=True,
        max_length=9,
        shift_across_segments=True,
        residual_dropout=0.2,
        attention_dropout=0.3,
        relu_dropout=0.4,
        shared_embedding=False,
        activation="gelu",
        attention_bias=True,
        logits_bias=True,
        learned_start=True,
    )
    model = Transformer.from_hparams(hparams, 5, 7).build_weights()
    config = model.get_config()
    assert config.items() >= hparams.model_kwargs().items()
    assert config["source_vocab_size"] == 5
    assert config["target_vocab_size"] == 7
    twin = Transformer.from_config(config).build_weights()
    for ours, theirs in zip(model.weights, twin.weights, strict=True):
        assert ours.path == theirs.path
        theirs.assign(ours)
    batch = {"inputs": np.array([[2, 3]]), "targets": np.array([[2, 6, 1]])}
    np.testing.assert_array_equal(model(batch), twin(batch))


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
def test_saved_keras_model_loads_in_another_process(tmp_path):
    model, batch = small_model(norm_placement="pre"), features()
    model.compile("adam", SmoothedCrossEntropy(0.25))
    model.save(tmp_path / "model.keras")
    np.savez(tmp_path / "batch.npz", **batch)
    paths = [tmp_path / n for n in ("model.keras", "batch.npz", "logits.npy")]
    subprocess.run([sys.executable, "-c", _LOAD, *paths], check=True)
    np.testing.assert_allclose(np.load(paths[-1]), model(batch), atol=1e-6)


@pytest.mark.parametrize(
    ("window", "reach"), [(None, None), (3, None), (None, 2)]
)
def test_attention_weights_sum_to_one(window, reach):
    model = small_model(attention_window=window, max_relative_position=reach)
    batch = features()
    batch["inputs"][1, 3:] = 0
    weights = attention_weights(model, batch)
    shapes = {name: np.shape(value) for name, value in weights.items()}
    assert shapes == {
        "encoder": (2, 2, 2, 5, 5),
        "decoder": (2, 2, 2, 4, 4),
        "cross": (2, 2, 2, 4, 5),
    }
    for value in weights.values():
        np.testing.assert_allclose(np.sum(value, -1), 1.0, atol=1e-6)
    # Real positions do not attend to padding.
    assert (np.array(weights["encoder"])[:, 1, :, :3, 3:] == 0).all()
    assert (np.array(weights["cross"])[:, 1, ..., 3:] == 0).all()
    positions = np.arange(4)
    future = positions[None] > positions[:, None]
    seen = np.array(weights["decoder"])[..., ~future]
    assert (np.array(weights["decoder"])[..., future] == 0).all()
    assert (seen > 0).all() == (window is None)


@pytest.mark.slow
def test_trains_with_plain_compile_and_fit():
    """Learn to copy three tokens with Keras alone."""
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


def loss_and_gradients(model, batch, seed=(1, 2)):
    weights = [v.value for v in model.trainable_variables]
    with tf.GradientTape() as tape:
        loss, _ = model.loss_sum(batch, 0.1, tf.constant(seed))
    gradients = tape.gradient(loss, weights)
    return loss, [tf.convert_to_tensor(gradient) for gradient in gradients]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm_placement": "pre"},
        {"attention_window": 4},
        {"max_relative_position": 2, "position_encoding": "none"},
    ],
    ids=["post", "pre", "window", "relative"],
)
def test_gradient_checkpointing_keeps_the_loss_and_gradients(changes):
    dropout = {f"{x}_dropout": 0.3 for x in ("residual", "attention", "relu")}
    model, batch = small_model(**dropout, **changes), features(target=5)
    for side in ("inputs", "targets"):  # two sentences per row
        batch[f"{side}_segmentation"] = np.array([[1, 1, 2, 2, 2]] * 2)
        batch[f"{side}_position"] = np.array([[0, 1, 0, 1, 2]] * 2)
    loss, gradients = loss_and_gradients(model, batch)
    model.gradient_checkpointing = True
    again, recomputed = loss_and_gradients(model, batch)
    np.testing.assert_allclose(again, loss, rtol=1e-6)
    for ours, theirs in zip(recomputed, gradients, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    assert loss_and_gradients(model, batch, seed=(1, 3))[0] != loss


@pytest.mark.slow
def test_gradient_checkpointing_reduces_memory():
    model = small_model(num_hidden_layers=3, filter_size=1024)
    batch = {
        side: tf.ones((16, 32), tf.int32) for side in ("inputs", "targets")
    }
    peaks = []
    for model.gradient_checkpointing in (False, True):
        step = tf.function(lambda: loss_and_gradients(model, batch))
        peaks.append(peak_memory(step))
    assert peaks[1] < 0.8 * peaks[0]
