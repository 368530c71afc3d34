"""Import of tensor2tensor checkpoints: exact and complete, or an error."""

import json
import math
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from support import t2t_train_dir
from support.places import SHARED_DATA
from support.t2t_reference import reference_logits
from support.t2t_train_dir import (
    PIECES,
    VALUES,
    counters_of,
    slots_of,
    variables_of,
    write_train_dir,
)
from t2t_lite import plugins, registry
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.interop.tensor2tensor.hparams import (
    DEFAULTS,
    hparams_of,
    read_train_dir,
    read_values,
)
from t2t_lite.interop.tensor2tensor.importing import import_run
from t2t_lite.training.distribute import choose_strategy
from t2t_lite.training.options import TrainingOptions
from t2t_lite.training.run import Run
from t2t_lite.training.trainer import Trainer

RECORDED = SHARED_DATA / "t2t"
needs_recordings = pytest.mark.skipif(
    not RECORDED.is_dir(), reason=f"needs tensor2tensor's files in {RECORDED}"
)
VOCABULARY = RECORDED / "vocab.m30k_ende.1000.subwords"
PRE_NORM = {
    "layer_preprocess_sequence": "n",
    "layer_postprocess_sequence": "da",
}
IDS = np.array([[5, 9, 3, 1, 0], [2, 7, 8, 20, 1]])
TARGETS = np.array([[9, 4, 1, 0], [6, 13, 25, 1]])


def import_folder(folder, output_dir, vocabulary, hparams=None, **options):
    """Import a folder; return the result."""
    train_dir = read_train_dir(folder)
    plugins.load_plugins()
    problem = registry.problem("text").with_options(
        {"vocabulary": str(vocabulary)}
    )
    return import_run(
        train_dir,
        hparams_of(read_values(hparams or folder / "hparams.json")),
        [vocabulary],
        output_dir,
        problem,
        seed=1,
        **options,
    )


def write(tmp_path, values, variables, **options):
    folder = tmp_path / "train"
    return folder, write_train_dir(folder, values, variables, **options)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        PRE_NORM,
        {**PRE_NORM, "num_encoder_layers": 3, "num_decoder_layers": 1},
        {"shared_embedding_and_softmax_weights": False},
        {**PRE_NORM, "pos": "emb", "max_length": 11},
        {"use_target_space_embedding": False, "pos": None},
        {**PRE_NORM, "hidden_size": 9, "num_heads": 3, "norm_epsilon": 0.01},
        {"vocab_divisor": 16, "multiply_embedding_mode": "none"},
        {"attention_key_channels": 4, "attention_value_channels": 12},
        {
            **PRE_NORM,
            "self_attention_type": "dot_product_relative",
            "max_relative_position": 2,
            "pos": None,
        },
    ],
    ids=lambda changes: ",".join(map(str, changes.values())) or "base_v1",
)
def test_imported_model_has_the_logits_of_its_variables(tmp_path, changes):
    values = {**VALUES, **changes}
    variables = variables_of(values, len(PIECES))
    folder, vocabulary = write(tmp_path, values, variables)
    run, _ = import_folder(folder, tmp_path / "run", vocabulary, target_space=3)
    model, found = Run.open(run.output_dir).load_model()
    ours = model({"inputs": IDS, "targets": TARGETS}).numpy()
    expected = reference_logits(
        variables, {**DEFAULTS, **values}, IDS, TARGETS, space=3
    )
    real = TARGETS != 0
    np.testing.assert_allclose(ours[real], expected[real], atol=2e-5)
    assert found.step == 7


def test_import_restores_the_state_of_adam(tmp_path):
    values = {**VALUES, "optimizer_adam_beta2": 0.98}
    variables = variables_of(values, len(PIECES))
    everything = {**variables, **slots_of(variables, space=5)}
    # The number of updates of Adam may differ from the global step.
    everything |= {**counters_of(step=40), "global_step": np.int64(1000)}
    folder, vocabulary = write(tmp_path, values, everything, step=1000)
    run, _ = import_folder(folder, tmp_path / "run", vocabulary)
    assert run.config["imported_from"]["target_space"] == 5
    run = Run.open(run.output_dir)
    state = Trainer(run, TrainingOptions(), choose_strategy())
    state.restore()
    adam = state.updater.optimizer
    assert (state.step, int(adam.applied)) == (1000, 40)
    names = [weight.path for weight in state.model.trainable_variables]
    theirs = "transformer/body/encoder/layer_1/ffn/conv1/kernel"
    index = names.index(
        "transformer/encoder_layer_1/feed_forward/hidden_kernel"
    )
    for part, slot in (("mean", "Adam"), ("square", "Adam_1")):
        kept = [state[part] for state in adam.state]
        expected = everything[f"training/{theirs}/{slot}"]
        np.testing.assert_array_equal(kept[index].numpy(), expected)
        vector = names.index("transformer/target_space_embedding/vector")
        space = everything[
            f"training/transformer/body/target_space_embedding/kernel/{slot}"
        ][5]
        np.testing.assert_array_equal(kept[vector].numpy(), space)


BIAS = "transformer/body/encoder/layer_0/ffn/conv1/bias"


def flip_bits(data):
    content = bytearray(data.read_bytes())
    content[1000] ^= 255
    data.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "value", "damage", "message"),
    [
        (BIAS.replace("ffn", "moe"), np.zeros(3, "f4"), None, "moe"),
        (BIAS, None, None, "hidden_bias"),
        (BIAS, np.zeros(5, "f4"), None, r"hidden_bias \(5,\)"),
        (BIAS, np.full(12, np.nan, "f4"), None, "not finite"),
        (BIAS, np.ones(12, "f4"), flip_bits, "damaged"),
        (BIAS, np.ones(12, "f4"), pathlib.Path.unlink, "damaged"),
    ],
)
def test_invalid_checkpoint_is_one_error_and_nothing_is_written(
    tmp_path, name, value, damage, message
):
    variables = {**variables_of(VALUES, len(PIECES)), name: value}
    variables = {n: v for n, v in variables.items() if v is not None}
    folder, vocabulary = write(tmp_path, VALUES, variables)
    if damage:
        damage(*folder.glob("*.data-*"))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(T2TLiteError, match=message) as raised:
        import_folder(folder, tmp_path / "run", vocabulary)
    assert "\n" not in str(raised.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_nonempty_output_dir_is_rejected(tmp_path):
    variables = variables_of(VALUES, len(PIECES))
    folder, vocabulary = write(tmp_path, VALUES, variables)
    with pytest.raises(UsageError, match="output_dir"):
        import_folder(folder, folder, vocabulary)


def test_untrained_target_space_gives_a_warning(tmp_path):
    variables = variables_of(VALUES, len(PIECES))
    everything = {**variables, **slots_of(variables, space=5)}
    folder, vocabulary = write(tmp_path, VALUES, everything)
    run, remarks = import_folder(
        folder, tmp_path / "run", vocabulary, target_space=4
    )
    assert "warning" in remarks[0] and "5" in remarks[0]
    model, _ = run.load_model()
    (vector,) = (w for w in model.weights if "target_space_embedding" in w.path)
    table = variables["transformer/body/target_space_embedding/kernel"]
    np.testing.assert_array_equal(vector, table[4])


@needs_recordings
@pytest.mark.parametrize(
    ("case", "space"), [("tiny", 0), ("base_v3_small", 8), ("relative", 0)]
)
def test_logits_are_the_recorded_ones(tmp_path, case, space):
    """Compare with tensor2tensor; see the README of the recordings."""
    forward = RECORDED / "forward"
    with np.load(forward / f"{case}.variables.npz") as arrays:
        t2t_train_dir.write_checkpoint(tmp_path / "model.ckpt-1", dict(arrays))
    run, _ = import_folder(
        tmp_path,
        tmp_path / "run",
        VOCABULARY,
        hparams=forward / f"{case}.hparams.json",
        target_space=space,
    )
    model, _ = run.load_model()
    compared = 0
    with np.load(forward / f"{case}.io.npz") as arrays:
        for number in range(3):
            inputs, targets, logits = (
                arrays[f"{name}_{number}"]
                for name in ("inputs", "targets", "logits")
            )
            ours = model({"inputs": inputs, "targets": targets}).numpy()
            real = targets != 0
            np.testing.assert_allclose(ours[real], logits[real], atol=1e-5)
            compared += 1
    assert compared == 3


@needs_recordings
def test_decodes_are_the_recorded_ones(tmp_path):
    """Decode a model that tensor2tensor trained, greedily and with a beam."""
    decode = RECORDED / "decode"
    meta = json.loads((decode / "meta.json").read_text("utf-8"))
    assert meta["config"] == "base_v3_small"
    run, _ = import_folder(
        decode / "ckpt",
        tmp_path / "run",
        VOCABULARY,
        hparams=RECORDED / "forward/base_v3_small.hparams.json",
    )
    assert run.progress.step == 1200
    encoder = run.encoders["inputs"]
    model, _ = run.load_model()
    with np.load(decode / "decodes.npz") as arrays:
        sources = encoder.decode_tf(
            tf.ragged.constant(
                [row[row > 1].tolist() for row in arrays["inputs"]], tf.int32
            )
        )
        for name, options in (
            ("greedy_len50", {"beam_size": 1}),
            ("beam4_a0.6_top1_len50", {"beam_size": 4, "alpha": 0.6}),
        ):
            found = run.translator(model, **options).translate(sources)
            ours = found["tokens"].numpy()[:, 0]
            for own, recorded in zip(ours, arrays[f"{name}.ids"], strict=True):
                assert own[own > 1].tolist() == recorded[recorded > 1].tolist()
            texts = [text.decode() for text in found["outputs"].numpy()[:, 0]]
            assert texts == meta[f"{name}.text"]


@needs_recordings
def test_twelve_updates_are_the_recorded_ones(tmp_path):
    """Train from tensor2tensor's initial weights, on its batches."""
    trace = json.loads((RECORDED / "train/adam_v3.trace.json").read_text())
    with np.load(RECORDED / "train/adam_v3.init.npz") as arrays:
        variables = dict(arrays)
    # One input of a ReLU is -1.5e-7 in the original, so its sign depends on
    # rounding; see the README of the recordings.
    bias = "transformer/body/decoder/layer_0/ffn/conv1/bias"
    variables[bias][191] += 3e-7
    t2t_train_dir.write_checkpoint(tmp_path / "model.ckpt-0", variables)
    (tmp_path / "hparams.json").write_text(json.dumps(trace["hparams"]))
    run, _ = import_folder(tmp_path, tmp_path / "run", VOCABULARY)
    state = Trainer(run, TrainingOptions(), choose_strategy())
    state.restore()
    vocab_size, low = 1000, 0.1 / 999
    entropy = -0.9 * math.log(0.9) - (vocab_size - 1) * low * math.log(low)
    with np.load(RECORDED / "train/batches.npz") as arrays:
        for update, loss in enumerate(trace["loss"]):
            batch = {
                name: tf.constant(arrays[f"{name}_{update % 6}"], tf.int32)
                for name in ("inputs", "targets")
            }
            stats = state.updater.update([batch], update + 1).read()
            # tensor2tensor subtracts the entropy of the smoothed targets.
            ours = stats.loss_sum / stats.target_tokens - entropy
            assert ours == pytest.approx(loss, abs=2e-6), update
            rate = trace["lr_before_step"][update]
            assert stats.learning_rate == pytest.approx(rate, rel=1e-6)
    with np.load(RECORDED / "train/adam_v3.final.npz") as arrays:
        kernel = "transformer/body/encoder/layer_2/ffn/conv2/kernel"
        weights = {w.path: w.numpy() for w in state.model.weights}
        ours = weights["transformer/encoder_layer_2/feed_forward/output_kernel"]
        np.testing.assert_allclose(ours, arrays[kernel], atol=2e-5)
