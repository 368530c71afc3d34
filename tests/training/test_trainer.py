"""Training of a run: resuming, evaluation, averages, damage and loss."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from support.full_disk import full_disk
from support.rounding import requires_bfloat16
from support.tiny_run import VOCAB_SIZE, TinyRun, ToyModel, batch, tiny_hparams
from support.tiny_training import (
    make_trainer,
    metrics,
    require_same,
    steps,
    train,
    weights,
)
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.model.flops import count_parameters
from t2t_lite.model.transformer import Transformer
from t2t_lite.training import checkpoints
from t2t_lite.training.evaluation import DevEvaluation
from t2t_lite.training.memory import measure_update
from t2t_lite.training.options import TrainingOptions


def _five_updates(folder, replicas, **changes):
    run = TinyRun(folder, make_model=Transformer, **changes)
    training = make_trainer(run, replicas)
    for _ in range(5):
        training.update()
    tensors = checkpoints.model_tensors(training.model)
    return {name: v.numpy() for name, v in tensors.items()}


@pytest.mark.slow
def test_packed_updates_on_replicas_equal_unpacked_updates(tmp_path):
    one = _five_updates(tmp_path, 1)
    packed = _five_updates(tmp_path, 2, packing=True)
    require_same(packed, one, within=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {"packing": True, "residual_dropout": 0.3},
        {"optimizer": "adamw", "weight_decay": 0.1, "clip_norm": 0.05},
        {"optimizer": "adafactor", "schedule": "cosine", "warmup_steps": 2},
    ],
)
def test_resumed_training_equals_uninterrupted_training(tmp_path, changes):
    changes = {"learning_rate": 0.05, **changes}
    whole = TinyRun(tmp_path / "whole", **changes)
    train(whole, train_steps=6)
    halves = TinyRun(tmp_path / "halves", **changes)
    train(halves, train_steps=3, replicas=2)
    train(halves, train_steps=5, replicas=1)
    train(halves, train_steps=6, replicas=2)
    require_same(weights(halves, 6), weights(whole, 6), within=1e-5)


@pytest.mark.slow
@pytest.mark.own_process("TensorFlow stays deterministic")
def test_restart_within_an_epoch_changes_no_bit(tmp_path):
    changes = {"make_model": Transformer, "residual_dropout": 0.3}
    options = {"eval_steps_every": 7, "save_steps": 1000, "deterministic": True}
    whole = TinyRun(tmp_path / "whole", **changes)
    train(whole, train_steps=50, **options)
    halves = TinyRun(tmp_path / "halves", **changes)
    # 3 micro-batches per update, 40 per epoch: update 25 is in the second.
    train(halves, train_steps=25, **options)
    train(halves, train_steps=50, **options)
    require_same(weights(whole, 50), weights(halves, 50), within=0)


def test_training_lowers_the_loss_and_records_it(tmp_path):
    run = TinyRun(tmp_path, train_steps=60, learning_rate=2.0)
    train(run, log_steps=20, eval_steps_every=30)
    training = [record for record in metrics(run) if "loss" in record]
    dev = [record for record in metrics(run) if "dev_loss" in record]
    assert [record["step"] for record in training] == [1, 20, 40, 60]
    assert training[-1]["loss"] < training[0]["loss"]
    rates = {"learning_rate", "tokens_per_second", "gradient_norm"}
    counts = {"padding", "skipped", "epoch", "seconds"}
    assert rates | counts <= training[0].keys()
    ids = [batch(run.seed, 0, number)["inputs"].numpy() for number in range(3)]
    real = sum(np.count_nonzero(rows) for rows in ids)
    positions = sum(rows.size for rows in ids)
    assert training[0]["padding"] == round(1 - real / positions, 4) > 0
    assert training[-1]["epoch"] == 60 * 3 // 40
    assert [record["step"] for record in dev] == [30, 60]
    assert dev[1]["dev_perplexity"] == pytest.approx(np.exp(dev[1]["dev_loss"]))
    assert list((tmp_path / "tensorboard").glob("events*"))


@pytest.mark.parametrize(
    ("best_metric", "evaluations", "step"),
    [
        ("auto", [(7.0, None), (6.0, None)], 2),
        # BLEU of 0.03 is noise: the loss decides.
        ("auto", [(7.0, 0.03), (6.0, 0.0)], 2),
        # From a score of 1 the score decides,
        ("auto", [(6.0, 0.0), (3.0, 8.0), (2.0, 7.0)], 2),
        # even if it falls below 1 again.
        ("auto", [(3.0, 8.0), (2.0, 0.5)], 1),
        ("loss", [(3.0, 8.0), (2.0, 7.0)], 2),
        ("bleu", [(7.0, 0.03), (6.0, 0.0)], 1),
        ("chrf", [(7.0, 9.0), (6.0, 8.0)], 2),
    ],
)
def test_best_metric_ranks_checkpoints(
    tmp_path, best_metric, evaluations, step
):
    run = TinyRun(tmp_path)
    evaluation = DevEvaluation(run, ToyModel(8, 0.0), best_metric=best_metric)
    best = {}
    for number, (loss, score) in enumerate(evaluations, start=1):
        scores = {"dev_loss": loss, "dev_bleu": score, "dev_chrf": 50 - loss}
        metric, value = evaluation.select_metric(scores, best)
        if best.get("metric") != metric or value > best["value"]:
            best = {"step": number, "metric": metric, "value": value}
    assert best["step"] == step


def test_last_checkpoints_are_averaged_at_the_end(tmp_path):
    run = TinyRun(tmp_path, train_steps=5, average_checkpoints=3)
    train(run, save_steps=1)
    name = "model/toy/softmax"
    mean = np.mean([weights(run, step)[name] for step in (3, 4, 5)], axis=0)
    averaged = weights(run, "average")
    np.testing.assert_allclose(averaged[name], mean, rtol=1e-6)
    assert not any(key.startswith("adam") for key in averaged)
    last = metrics(run)[-1]
    assert last["weights"] == "average-3-step-00000005"
    assert "dev_loss" in last


def test_run_whose_rate_fell_to_0_is_not_resumed(tmp_path):
    run = TinyRun(tmp_path, train_steps=4, cooldown=0.5)
    train(run)
    with pytest.raises(UsageError, match="train_steps=6.*cooldown=0"):
        train(run, train_steps=6)
    assert steps(run) == [4]


def test_mark_of_a_removed_checkpoint_is_ignored(tmp_path):
    run = TinyRun(tmp_path)
    report = {"metric": "bleu", "score": 30.0}
    train(run, train_steps=2, evaluate_text=lambda: report)
    mark = {"step": 1, "metric": "dev_bleu", "value": 99.0}
    checkpoints.mark_best(run.checkpoints_dir, [mark])
    train(run, train_steps=4, evaluate_text=lambda: report)
    best = {"step": 4, "metric": "dev_bleu", "value": 30.0}
    assert checkpoints.read_marks(run.checkpoints_dir) == [best]


class _ModelWithNaN(ToyModel):
    """Model whose loss is NaN if the first source token is 13."""

    def loss_sum(self, features, label_smoothing=0.0, seed=None):
        loss, tokens = super().loss_sum(features, label_smoothing, seed)
        bad = features["inputs"][0, 0] == 13
        return loss * tf.where(bad, np.nan, 1.0), tokens


def _use_nan_at(run, steps):
    def batches(position=(0, 0, 0)):
        number = int(position[2])
        while True:
            step = number // run.hparams.gradient_accumulation_steps + 1
            ids = tf.constant([[13 if step in steps else 5, 6, 1]])
            number += 1
            position = tf.constant([0, 0, number])
            yield {"inputs": ids, "targets": ids, "position": position}

    run.data.training_batches = batches


def test_non_finite_update_is_skipped_and_counted(tmp_path):
    run = TinyRun(tmp_path, make_model=_ModelWithNaN)
    _use_nan_at(run, {3, 4})
    train(run, train_steps=3, save_steps=1)
    train(run, train_steps=5, save_steps=1)
    require_same(weights(run, 2), weights(run, 4), within=0)
    assert weights(run, 5)["adam/applied"] == 3
    assert not np.array_equal(
        weights(run, 5)["model/toy/softmax"],
        weights(run, 4)["model/toy/softmax"],
    )
    training = {r["step"]: r for r in metrics(run) if "loss" in r}
    assert [training[n]["skipped"] for n in (1, 2, 3, 5)] == [0, 0, 1, 2]
    assert np.isfinite(training[5]["loss"])


def test_ten_skipped_updates_stop_training_with_finite_weights(tmp_path):
    run = TinyRun(tmp_path, make_model=_ModelWithNaN, train_steps=50)
    _use_nan_at(run, set(range(4, 50)))
    with pytest.raises(T2TLiteError, match="10 updates .* learning_rate"):
        train(run, save_steps=3, keep_checkpoints=3)
    for values in weights(run, "latest").values():
        assert np.all(np.isfinite(values))


class _Overflowing(ToyModel):
    """Model whose loss of a real token contains the logarithm of 0."""

    def loss_sum(self, features, label_smoothing=0.0, seed=None):
        loss, tokens = super().loss_sum(features, label_smoothing, seed)
        return loss + tf.math.log(tf.cast(tokens == 0, loss.dtype)), tokens


@pytest.mark.slow
@pytest.mark.own_process("TensorFlow continues to check all operations")
def test_check_numerics_names_the_operation_of_the_first_infinity(tmp_path):
    run = TinyRun(tmp_path, make_model=_Overflowing)
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        train(run, check_numerics=True)
    assert "-Inf" in str(caught.value) and '"Log"' in str(caught.value)


def _damage(run, *steps):
    for step in steps:
        path = checkpoints.resolve(run.checkpoints_dir, step).path
        data = path / "tensors.data-00000-of-00001"
        content = bytearray(data.read_bytes())
        content[len(content) // 2] ^= 4
        data.write_bytes(content)


def test_training_resumes_before_damaged_checkpoints(tmp_path, capsys):
    run = TinyRun(tmp_path)
    train(run, train_steps=6, save_steps=2)
    sound = weights(run, 6)
    _damage(run, 4, 6)
    train(run, train_steps=6, save_steps=2)
    assert steps(run) == [2, 4, 6]
    require_same(weights(run, 6), sound)
    folder = run.checkpoints_dir
    err = capsys.readouterr().err
    for step in (4, 6):
        assert (folder / f"step-0000000{step}.damaged").is_dir()
        assert f"WARNING: {folder / f'step-0000000{step}'} is damaged (" in err
    assert "from update 2.\n" in err


def test_no_checkpoint_is_set_aside_if_all_are_damaged(tmp_path):
    run = TinyRun(tmp_path)
    train(run, train_steps=4, save_steps=2)
    _damage(run, 2, 4)
    with pytest.raises(T2TLiteError, match="damaged"):
        train(run, train_steps=6)
    assert steps(run) == [2, 4]


def test_unreadable_checkpoint_is_not_set_aside(tmp_path, monkeypatch):
    run = TinyRun(tmp_path)
    train(run, train_steps=4, save_steps=2)

    def refuse(path):
        raise tf.errors.PermissionDeniedError(None, None, f"{path}; denied")

    monkeypatch.setattr(tf.train, "load_checkpoint", refuse)
    with pytest.raises(T2TLiteError, match="step-00000004 cannot be read"):
        train(run, train_steps=6)
    assert steps(run) == [2, 4]


@pytest.mark.parametrize("left", ["nothing", "a link", "a folder"])
def test_run_with_lost_checkpoints_does_not_start_over(tmp_path, left):
    run = TinyRun(tmp_path / "run")
    train(run, train_steps=2)
    before = metrics(run)
    run.checkpoints_dir.rename(tmp_path / "moved")
    if left == "a link":
        run.checkpoints_dir.symlink_to("not/mounted")
    elif left == "a folder":
        run.checkpoints_dir.mkdir()
    with pytest.raises(T2TLiteError, match="no checkpoint"):
        train(run, train_steps=4)
    assert metrics(run) == before


def test_run_without_checkpoints_starts_over_and_keeps_metrics(tmp_path):
    run = TinyRun(tmp_path)

    def fail(epoch, number):
        if number == 9:
            raise RuntimeError("a crash")

    run.data.before_batch = fail
    with pytest.raises(RuntimeError, match="a crash"):
        train(run)
    assert [record["step"] for record in metrics(run)] == [1, 2]
    run.data.before_batch = lambda epoch, number: None
    train(run, train_steps=1)
    recorded = [record["step"] for record in metrics(run)]
    assert (recorded[:2], set(recorded[2:])) == ([1, 2], {1})  # appended


def test_full_disk_ends_training_and_keeps_checkpoints(tmp_path):
    run = TinyRun(tmp_path)
    with contextlib.ExitStack() as stack:

        def fill_disk(epoch, number):
            if number == 7:  # within update 3
                stack.enter_context(full_disk(4096))

        run.data.before_batch = fill_disk
        with pytest.raises(T2TLiteError, match="step-00000003 cannot be sav"):
            train(run, train_steps=8, save_steps=1, log_steps=1)
    saved = sorted(path.name for path in run.checkpoints_dir.iterdir())
    assert saved == ["step-00000001", "step-00000002"]
    run.data.before_batch = lambda epoch, number: None
    train(run, train_steps=4, save_steps=1, log_steps=1)
    assert steps(run) == [1, 2, 3, 4]
    assert [record["step"] for record in metrics(run)][-3:] == [3, 4, 4]


@pytest.mark.slow
@requires_bfloat16
def test_bfloat16_trains_float32_weights(tmp_path):
    run = TinyRun(tmp_path, make_model=Transformer, precision="bfloat16")
    train(run, train_steps=2)
    for name, values in weights(run, 2).items():
        if name != "adam/applied":
            assert values.dtype == np.float32, name


def test_dry_run_measures_the_largest_packed_batch():
    hparams = tiny_hparams(max_length=16, packing=True)
    sizes = (VOCAB_SIZE, VOCAB_SIZE)
    report = measure_update(hparams, sizes, TrainingOptions(train_steps=6))
    found = dict(line.split(": ") for line in report.splitlines())
    parameters = sum(count_parameters(hparams, *sizes).values())
    assert found["parameters"] == f"{parameters:,}"
    assert found["largest batch"] == "3 x 2 sentences of 16 tokens per side"
    assert np.isfinite(float(found["loss"]))
