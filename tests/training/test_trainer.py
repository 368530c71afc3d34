import functools
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from support.places import TESTS
from support.rounding import requires_bfloat16
from support.tiny_run import (
    VOCAB_SIZE,
    TinyRun,
    ToyModel,
    batch,
    tiny_hparams,
)
from support.tiny_training import metrics as _metrics
from support.tiny_training import require_same
from support.tiny_training import steps as _steps
from support.tiny_training import train as _train
from support.tiny_training import weights as _weights
from t2t_lite.errors import Interrupted, T2TLiteError, UsageError
from t2t_lite.model.costs import count_parameters
from t2t_lite.model.transformer import Transformer
from t2t_lite.training import trainer
from t2t_lite.training.checkpoints import checkpoint, checkpoint_choice
from t2t_lite.training.distribute import choose_strategy
from t2t_lite.training.faults.deadline import process_seconds
from t2t_lite.training.fit.dry_run import try_update
from t2t_lite.training.optimizer.updates import (
    Updater,
    UpdateStats,
    dropout_seed,
)
from t2t_lite.training.options import TrainingOptions
from t2t_lite.training.state import TrainingState, prepare
from t2t_lite.training.validation import DevEvaluation

# Before anything runs on TensorFlow's devices, for the tests of replicas.
choose_strategy(replicas=3)


@pytest.fixture(scope="module")
def updated(tmp_path_factory):
    """The weights and the sums of ten updates on so many replicas."""

    @functools.cache
    def make(replicas, **changes):
        folder = tmp_path_factory.mktemp("run")
        run = TinyRun(folder, make_model=Transformer, **changes)
        prepare(run.seed, deterministic=False)
        state = TrainingState(run, choose_strategy(replicas))
        for _ in range(10):
            state.update(between_passes=lambda: None)
        meter = state.meter
        meter.read()
        tensors = checkpoint.model_tensors(state.model)
        weights = {name: v.numpy() for name, v in tensors.items()}
        tokens = meter.source_tokens, meter.target_tokens
        return weights, (meter.loss, meter.gradient_norm, *tokens)

    return make


@pytest.mark.slow
@pytest.mark.parametrize(
    "replicas, dropout",
    [
        pytest.param(2, 0.0, marks=pytest.mark.slow),
        pytest.param(2, 0.3, marks=pytest.mark.slow),
        (3, 0.3),
    ],
)
def test_updates_on_replicas_equal_updates_on_one(updated, replicas, dropout):
    # Three micro-batches of different token counts: two replicas get two and
    # one; dropout follows the micro-batch, not the replica.
    changes = {"residual_dropout": dropout, "relu_dropout": dropout}
    one, sums_of_one = updated(1, **changes)
    many, sums_of_many = updated(replicas, **changes)
    require_same(many, one, within=1e-5)
    np.testing.assert_allclose(sums_of_many, sums_of_one, rtol=1e-4)


def test_packed_updates_on_replicas_equal_those_of_rows_of_one_pair(updated):
    one, sums_of_one = updated(1, residual_dropout=0.0, relu_dropout=0.0)
    packed, sums = updated(2, packing=True)
    require_same(packed, one, within=1e-5)
    np.testing.assert_allclose(sums, sums_of_one, rtol=1e-4)


def test_packed_training_goes_on_as_if_it_had_not_stopped(tmp_path):
    changes = {"packing": True, "residual_dropout": 0.3}
    whole = TinyRun(tmp_path / "whole", **changes)
    _train(whole, train_steps=6)
    halves = TinyRun(tmp_path / "halves", **changes)
    _train(halves, train_steps=3)
    _train(halves, train_steps=6)
    require_same(_weights(halves, 6), _weights(whole, 6))


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "adamw", "weight_decay": 0.1, "clip_norm": 0.05},
        {"optimizer": "adafactor", "schedule": "cosine", "warmup_steps": 2},
    ],
)
def test_another_optimizer_goes_on_as_if_it_had_not_stopped(tmp_path, changes):
    changes = {"learning_rate": 0.05, **changes}
    whole = TinyRun(tmp_path / "whole", **changes)
    _train(whole, train_steps=6)
    halves = TinyRun(tmp_path / "halves", **changes)
    _train(halves, train_steps=3)
    _train(halves, train_steps=6, replicas=2)
    require_same(_weights(halves, 6), _weights(whole, 6))


def test_how_an_update_is_cut_does_not_change_it(tmp_path):
    source = np.random.default_rng(0).integers(2, 16, (4, 5))
    whole = {"inputs": tf.constant(source, tf.int32)}
    whole["targets"] = tf.constant(
        [[3, 4, 5, 6, 1], [3, 1, 0, 0, 0], [9, 9, 1, 0, 0], [1, 0, 0, 0, 0]]
    )
    parts = [{k: v[:1] for k, v in whole.items()}]
    parts.append({k: v[1:] for k, v in whole.items()})
    results = []
    for batches in ([whole], parts):
        run = TinyRun(tmp_path)
        prepare(1, deterministic=False)
        state = TrainingState(run, choose_strategy(1))
        stats = state.updater.update(batches, 1).read()
        results.append((state.model.get_weights(), stats))
    (weights, stats), (weights_of_parts, stats_of_parts) = results
    np.testing.assert_allclose(stats_of_parts, stats, rtol=1e-5)
    assert stats.target_tokens == 11
    assert stats.source_tokens == 20
    for a, b in zip(weights, weights_of_parts, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)


def test_dropout_seeds_are_a_function_of_run_update_and_micro_batch():
    seeds = {
        tuple(dropout_seed(run, update, micro_batch))
        for run in range(3)
        for update in range(3)
        for micro_batch in range(3)
    }
    assert len(seeds) == 27
    assert tuple(dropout_seed(1, 2, 3)) == tuple(dropout_seed(1, 2, 3))
    assert dropout_seed(1, 2, 3).dtype == np.int32


# Runs in processes of its own, as a restart does.
_RESTART = """
import pathlib, sys
from support.tiny_run import TinyRun
from t2t_lite.training import trainer
from t2t_lite.training.options import TrainingOptions
from t2t_lite.model.transformer import Transformer

folder, runs = sys.argv[1], sys.argv[2:]
for name, steps in (run.split(":") for run in runs):
    run = TinyRun(
        pathlib.Path(folder) / name,
        make_model=Transformer,
        residual_dropout=0.3,
    )
    options = TrainingOptions(
        train_steps=int(steps),
        eval_steps_every=7,
        save_steps=1000,
        deterministic=True,
    )
    trainer.train(run, options, evaluate_text=lambda: {})
"""


def _process(script, *argv, **options):
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, argv)],
        cwd=TESTS,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


@pytest.mark.slow
def test_a_restart_in_mid_epoch_changes_no_bit(tmp_path):
    # 3 micro-batches an update, 40 an epoch: update 25 ends within the second.
    for runs in (["whole:50", "halves:25"], ["halves:50"]):
        process = _process(_RESTART, tmp_path, *runs)
        assert process.wait() == 0, process.stderr.read()
    whole = _weights(TinyRun(tmp_path / "whole"), 50)
    halves = _weights(TinyRun(tmp_path / "halves"), 50)
    require_same(whole, halves, within=0)
    assert _steps(TinyRun(tmp_path / "halves"))[-1] == 50


def test_training_lowers_the_loss_and_tells_about_it(tmp_path):
    run = TinyRun(tmp_path, train_steps=60, learning_rate=2.0)
    _train(run, log_steps=20, eval_steps_every=30)
    records = _metrics(run)
    training = [record for record in records if "loss" in record]
    dev = [record for record in records if "dev_loss" in record]
    assert [record["step"] for record in training] == [1, 20, 40, 60]
    assert training[-1]["loss"] < training[0]["loss"]
    assert {
        "learning_rate",
        "tokens_per_second",
        "gradient_norm",
        "padding",
        "skipped",
        "epoch",
        "seconds",
    } <= training[0].keys()
    ids = [batch(run.seed, 0, number)["inputs"].numpy() for number in range(3)]
    real = sum(np.count_nonzero(rows) for rows in ids)
    positions = sum(rows.size for rows in ids)
    assert training[0]["padding"] == round(1 - real / positions, 4) > 0
    assert training[-1]["epoch"] == 60 * 3 // 40
    assert [record["step"] for record in dev] == [30, 60]
    assert dev[1]["dev_perplexity"] == pytest.approx(np.exp(dev[1]["dev_loss"]))
    assert _steps(run)[-1] == 60
    assert list((tmp_path / "tensorboard").glob("events*"))


def test_the_best_on_dev_is_marked_and_kept(tmp_path):
    scores = iter([10.0, 30.0, 20.0, 25.0, 5.0])
    run = TinyRun(tmp_path, train_steps=10)
    _train(
        run,
        eval_steps_every=2,
        save_steps=2,
        keep_checkpoints=2,
        evaluate_text=lambda: {"metric": "bleu", "score": next(scores)},
    )
    best = {"step": 4, "metric": "dev_bleu", "value": 30.0}
    assert checkpoint_choice.read_best(run.checkpoints_dir) == best
    assert _steps(run) == [4, 8, 10]
    bleu = [r["dev_bleu"] for r in _metrics(run) if "dev_bleu" in r]
    assert bleu == [10.0, 30.0, 20.0, 25.0, 5.0]


def _best(tmp_path, losses_and_scores, best_metric):
    """The update that is marked as best, one evaluation an update."""
    run = TinyRun(tmp_path, train_steps=len(losses_and_scores))
    evaluation = DevEvaluation(run, ToyModel(8, 0.0), best_metric=best_metric)
    best = {}
    for step, (loss, score) in enumerate(losses_and_scores, start=1):
        scores = {"dev_loss": loss, "dev_bleu": score}
        metric, value = evaluation.judge(scores, best)
        if best.get("metric") != metric or value > best["value"]:
            best = {"step": step, "metric": metric, "value": value}
    return best["step"]


@pytest.mark.parametrize(
    ("best_metric", "evaluations", "step"),
    [
        # BLEU of 0.03 is noise: the loss decides.
        ("auto", [(7.0, 0.03), (6.0, 0.0)], 2),
        # From one point on the score decides,
        ("auto", [(6.0, 0.0), (3.0, 8.0), (2.0, 7.0)], 2),
        # also if it falls below again.
        ("auto", [(3.0, 8.0), (2.0, 0.5)], 1),
        ("loss", [(3.0, 8.0), (2.0, 7.0)], 2),
        ("bleu", [(7.0, 0.03), (6.0, 0.0)], 1),
    ],
)
def test_the_metric_of_the_best_checkpoint(
    tmp_path, best_metric, evaluations, step
):
    assert _best(tmp_path, evaluations, best_metric) == step


def test_training_names_what_it_does(tmp_path, capsys):
    _train(TinyRun(tmp_path, train_steps=1))
    lines = capsys.readouterr().err.splitlines()
    assert lines[:5] == [
        "Building the model.",
        "Checking the data.",
        "made-up data",
        "Trying the largest batch.",
        "The first update makes the graphs.",
    ]


def test_without_a_metric_the_lowest_dev_loss_is_best(tmp_path):
    run = TinyRun(tmp_path, train_steps=4)
    _train(run, eval_steps_every=2)
    losses = {
        r["step"]: r["dev_loss"] for r in _metrics(run) if "dev_loss" in r
    }
    best = checkpoint_choice.read_best(run.checkpoints_dir)
    assert best["step"] == min(losses, key=losses.get)


def test_the_last_checkpoints_are_averaged_at_the_end(tmp_path):
    run = TinyRun(tmp_path, train_steps=5, average_checkpoints=3)
    _train(run, save_steps=1)
    name = "model/toy/softmax"
    mean = np.mean([_weights(run, step)[name] for step in (3, 4, 5)], axis=0)
    averaged = _weights(run, "average")
    np.testing.assert_allclose(averaged[name], mean, rtol=1e-6)
    assert not any(key.startswith("adam") for key in averaged)
    last = _metrics(run)[-1]
    assert last["weights"] == "average-3-step-00000005"
    assert "dev_loss" in last


def test_a_run_that_is_done_is_left_alone(tmp_path):
    run = TinyRun(tmp_path, train_steps=4, average_checkpoints=2)
    first = _train(run, save_steps=2)
    before = _metrics(run)
    assert _train(run, save_steps=2) == first
    assert _metrics(run) == before


def test_more_updates_go_on_from_the_last_checkpoint(tmp_path):
    run = TinyRun(tmp_path)
    _train(run, train_steps=3)
    _train(run, train_steps=5)
    assert _steps(run) == [3, 5]
    steps = [r["step"] for r in _metrics(run) if "loss" in r]
    assert steps == sorted(set(steps))


def test_a_rate_that_fell_to_0_trains_no_further(tmp_path):
    run = TinyRun(tmp_path, train_steps=4, cooldown=0.5)
    _train(run)
    with pytest.raises(UsageError, match="train_steps=6, or with cooldown=0"):
        _train(run, train_steps=6)
    assert _steps(run) == [4]


def test_replicas_may_change_between_restarts(tmp_path):
    whole = TinyRun(tmp_path / "whole", residual_dropout=0.3)
    _train(whole, train_steps=6, replicas=1)
    parts = TinyRun(tmp_path / "parts", residual_dropout=0.3)
    _train(parts, train_steps=2, replicas=2)
    _train(parts, train_steps=4, replicas=1)
    _train(parts, train_steps=6, replicas=2)
    require_same(_weights(parts, 6), _weights(whole, 6), within=1e-5)


def test_a_best_checkpoint_that_was_removed_is_not_the_best(tmp_path):
    run = TinyRun(tmp_path)
    report = {"metric": "bleu", "score": 30.0}
    _train(run, train_steps=2, evaluate_text=lambda: report)
    mark = {"step": 1, "metric": "dev_bleu", "value": 99.0}
    checkpoint_choice.mark_best(run.checkpoints_dir, [mark])
    _train(run, train_steps=4, evaluate_text=lambda: report)
    best = {"step": 4, "metric": "dev_bleu", "value": 30.0}
    assert checkpoint_choice.read_best(run.checkpoints_dir) == best


class _Stumbling(ToyModel):
    """Its loss is not a number when the source's first token is 13."""

    def loss_sum(self, features, label_smoothing=0.0, seed=None):
        loss, tokens = super().loss_sum(features, label_smoothing, seed)
        bad = features["inputs"][0, 0] == 13
        return loss * tf.where(bad, np.nan, 1.0), tokens


def _stumble_at(run, steps):
    def batches(position=(0, 0, 0)):
        number = int(position[2])
        while True:
            step = number // run.hparams.micro_batches + 1
            ids = tf.constant([[13 if step in steps else 5, 6, 1]])
            number += 1
            position = tf.constant([0, 0, number])
            yield {"inputs": ids, "targets": ids, "position": position}

    run.data.training_batches = batches


def test_an_update_that_is_not_finite_is_skipped_and_counted(tmp_path):
    run = TinyRun(tmp_path, make_model=_Stumbling, train_steps=5)
    _stumble_at(run, {3, 4})
    _train(run, save_steps=1)
    require_same(_weights(run, 2), _weights(run, 4), within=0)
    assert _weights(run, 5)["adam/applied"] == 3
    assert not np.array_equal(
        _weights(run, 5)["model/toy/softmax"],
        _weights(run, 4)["model/toy/softmax"],
    )
    training = [r for r in _metrics(run) if "loss" in r]
    assert [r["skipped"] for r in training] == [0, 0, 2, 2]
    assert all(np.isfinite(r["loss"]) for r in training if r["step"] != 4)


def test_ten_in_a_row_stop_training_with_the_weights_sound(tmp_path):
    run = TinyRun(tmp_path, make_model=_Stumbling, train_steps=50)
    _stumble_at(run, set(range(4, 50)))
    with pytest.raises(T2TLiteError) as caught:
        _train(run, save_steps=3, keep_checkpoints=3)
    assert "gradients of 10 updates in a row" in str(caught.value)
    assert "learning_rate" in str(caught.value)
    for values in _weights(run, "latest").values():
        assert np.all(np.isfinite(values))


_CHECK_NUMERICS = """
import sys
import tensorflow as tf
from support.tiny_run import TinyRun, ToyModel
from t2t_lite.training import trainer
from t2t_lite.training.options import TrainingOptions

class Overflowing(ToyModel):
    def loss_sum(self, features, label_smoothing=0.0, seed=None):
        loss, tokens = super().loss_sum(features, label_smoothing, seed)
        return loss + tf.math.log(loss * 0.0), tokens

run = TinyRun(sys.argv[1], make_model=Overflowing)
options = TrainingOptions(check_numerics=True)
trainer.train(run, options, evaluate_text=lambda: {})
"""


def test_check_numerics_names_the_operation_of_the_first_infinity(tmp_path):
    process = _process(_CHECK_NUMERICS, tmp_path)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "-Inf" in err and '"Log"' in err


def test_skipped_updates_are_counted_across_a_restart(tmp_path):
    run = TinyRun(tmp_path, make_model=_Stumbling)
    _stumble_at(run, {2, 4})
    _train(run, train_steps=3)
    _train(run, train_steps=5)
    assert _metrics(run)[-2]["skipped"] == 2


@pytest.mark.own_process
def test_a_signal_saves_and_the_same_command_goes_on(tmp_path):
    whole = TinyRun(tmp_path / "whole", residual_dropout=0.3)
    _train(whole, train_steps=6)
    run = TinyRun(tmp_path / "stopped", residual_dropout=0.3)

    def stop(epoch, number):
        if (epoch, number) == (0, 10):  # within update 4
            os.kill(os.getpid(), signal.SIGTERM)

    run.data.before_batch = stop
    with pytest.raises(Interrupted) as caught:
        _train(run, train_steps=6)
    assert "Stopped by SIGTERM: update 3 is saved" in str(caught.value)
    assert caught.value.exit_code == 75
    assert _steps(run) == [3]
    # The handlers are those of before.
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    run.data.before_batch = lambda epoch, number: None
    _train(run, train_steps=6)
    require_same(_weights(run, 6), _weights(whole, 6))


@pytest.mark.own_process
def test_a_signal_during_an_evaluation_breaks_it_off(tmp_path):
    run = TinyRun(tmp_path)
    evaluations = []

    def evaluate():
        evaluations.append("begun")
        if len(evaluations) == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        evaluations.append("ended")
        return {"metric": "bleu", "score": 1.0}

    with pytest.raises(Interrupted, match="update 2 is saved"):
        _train(run, eval_steps_every=2, evaluate_text=evaluate)
    assert evaluations == ["begun"]
    # It is made up for.
    _train(run, train_steps=2, eval_steps_every=2, evaluate_text=evaluate)
    assert [r["step"] for r in _metrics(run) if "dev_bleu" in r] == [2]


@pytest.mark.own_process
def test_a_signal_before_the_first_update_is_clean(tmp_path):
    run = TinyRun(tmp_path)

    def stop(epoch, number):
        if number == 0:
            os.kill(os.getpid(), signal.SIGINT)

    run.data.before_batch = stop
    with pytest.raises(Interrupted, match="nothing trained yet"):
        _train(run)
    assert _steps(run) == []


@pytest.mark.own_process
def test_a_second_signal_does_at_once_what_it_did_before(tmp_path):
    run = TinyRun(tmp_path)

    def insist(epoch, batch):
        if batch == 7:  # within update 3
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)

    run.data.before_batch = insist
    with pytest.raises(KeyboardInterrupt):
        _train(run, save_steps=1)
    # What was saved is whole.
    assert _steps(run) == [1, 2]
    run.data.before_batch = lambda epoch, batch: None
    _train(run, train_steps=3)
    assert _steps(run)[-1] == 3


@pytest.mark.own_process
def test_sigusr1_saves_and_training_goes_on(tmp_path, capfd):
    run = TinyRun(tmp_path)

    def ask(epoch, number):
        if number in (7, 10):  # within updates 3 and 4
            os.kill(os.getpid(), signal.SIGUSR1)

    run.data.before_batch = ask
    _train(run, train_steps=6)
    assert _steps(run) == [3, 4, 6]
    assert capfd.readouterr().err.count("SIGUSR1: saving after this") == 2


def _minutes_left(seconds):
    return (process_seconds() + seconds) / 60


def test_a_limit_of_minutes_saves_before_and_the_same_command_goes_on(tmp_path):
    whole = TinyRun(tmp_path / "whole", residual_dropout=0.3)
    _train(whole, train_steps=9)
    run = TinyRun(tmp_path / "run", residual_dropout=0.3)
    run.data.before_batch = lambda epoch, number: time.sleep(0.2)
    limit = _minutes_left(seconds=9)
    with pytest.raises(Interrupted, match="Stopped by --max_minutes=") as stop:
        _train(run, train_steps=1000, max_minutes=limit)
    assert process_seconds() / 60 < limit
    assert stop.value.exit_code == 75
    (step,) = _steps(run)
    assert f"update {step} is saved" in str(stop.value)
    run.data.before_batch = lambda epoch, number: None
    _train(run, train_steps=9)
    require_same(_weights(run, 9), _weights(whole, 9))


def test_a_limit_of_minutes_breaks_an_evaluation_off(tmp_path):
    run = TinyRun(tmp_path)
    limit = _minutes_left(seconds=9)
    with pytest.raises(Interrupted, match="--max_minutes=.* update 2 is saved"):
        _train(
            run,
            eval_steps_every=2,
            max_minutes=limit,
            evaluate_text=lambda: time.sleep(100),
        )
    assert process_seconds() / 60 < limit


def test_a_limit_that_is_over_trains_nothing(tmp_path):
    run = TinyRun(tmp_path)
    with pytest.raises(Interrupted, match="nothing trained yet"):
        _train(run, max_minutes=0.01)
    assert _steps(run) == []


_KILLED = """
import os, signal, sys
from support.tiny_run import TinyRun
from t2t_lite.training import trainer
from t2t_lite.training.options import TrainingOptions

def kill(epoch, number):
    if number == 7:
        os.kill(os.getpid(), signal.SIGKILL)

run = TinyRun(sys.argv[1])
run.data.before_batch = kill
trainer.train(run, TrainingOptions(save_steps=1), evaluate_text=lambda: {})
"""


def test_a_killed_process_costs_only_what_was_not_saved(tmp_path):
    assert _process(_KILLED, tmp_path).wait() == -signal.SIGKILL
    run = TinyRun(tmp_path)
    _train(run, train_steps=3)
    assert _steps(run) == [1, 2, 3]


def _damage(run, *steps):
    for step in steps:
        path = checkpoint_choice.resolve(run.checkpoints_dir, step).path
        data = path / "tensors.data-00000-of-00001"
        content = bytearray(data.read_bytes())
        content[len(content) // 2] ^= 4
        data.write_bytes(content)


def test_damaged_checkpoints_are_set_aside_for_the_one_before(tmp_path, capsys):
    run = TinyRun(tmp_path)
    _train(run, train_steps=6, save_steps=2)
    sound = _weights(run, 6)
    _damage(run, 4, 6)
    _train(run, train_steps=6, save_steps=2)
    assert _steps(run) == [2, 4, 6]
    for name, value in _weights(run, 6).items():
        np.testing.assert_allclose(value, sound[name], rtol=0, atol=1e-6)
    folder = run.checkpoints_dir
    for step in (4, 6):
        assert (folder / f"step-0000000{step}.damaged").is_dir()
    told = f"WARNING: {folder / 'step-00000006'} is damaged ("
    err = capsys.readouterr().err
    assert told in err
    assert "It is step-00000006.damaged now, and training goes on from" in err
    assert "from update 2.\n" in err
    # The next damage of the same step finds another name.
    _damage(run, 6)
    _train(run, train_steps=6, save_steps=2)
    assert (folder / "step-00000006.damaged2").is_dir()
    assert _steps(run) == [2, 4, 6]


def test_a_damaged_mark_of_the_best_is_set_aside(tmp_path, capsys):
    run = TinyRun(tmp_path)
    _train(run, train_steps=2)
    mark = run.checkpoints_dir / "best.json"
    mark.write_text("{")
    with pytest.raises(T2TLiteError, match="best.json is damaged"):
        _train(run, train_steps=4, strict_checkpoints=True)
    _train(run, train_steps=4)
    assert checkpoint_choice.read_best(run.checkpoints_dir)["step"] == 4
    assert mark.with_name("best.json.damaged").read_text() == "{"
    assert f"WARNING: {mark} is damaged (" in capsys.readouterr().err


def test_a_damaged_checkpoint_is_refused_if_the_user_says_so(tmp_path):
    run = TinyRun(tmp_path)
    _train(run, train_steps=4, save_steps=2)
    _damage(run, 4)
    with pytest.raises(T2TLiteError, match="go on from step 2"):
        _train(run, train_steps=6, strict_checkpoints=True)
    assert _steps(run) == [2, 4]


@pytest.mark.parametrize("count", [1, 2])
def test_nothing_is_set_aside_where_all_checkpoints_are_damaged(
    tmp_path, count
):
    run = TinyRun(tmp_path)
    _train(run, train_steps=2 * count, save_steps=2)
    _damage(run, *_steps(run))
    told = "it is the only one" if count == 1 else "All 2 checkpoints in .* are"
    with pytest.raises(T2TLiteError, match=told):
        _train(run, train_steps=6)
    assert _steps(run) == [2, 4][:count]


def test_a_checkpoint_that_may_be_sound_is_never_set_aside(
    tmp_path, monkeypatch
):
    run = TinyRun(tmp_path)
    _train(run, train_steps=4, save_steps=2)

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("pathlib.Path.read_bytes", refuse)
    with pytest.raises(T2TLiteError, match="step-00000004 cannot be read: Per"):
        _train(run, train_steps=6)
    assert _steps(run) == [2, 4]


@pytest.mark.parametrize("left", ["nothing", "a link", "a folder", "a file"])
def test_lost_checkpoints_do_not_start_the_run_over(tmp_path, left):
    run = TinyRun(tmp_path / "run")
    _train(run, train_steps=2)
    metrics = (run.output_dir / "metrics.jsonl").read_bytes()
    run.checkpoints_dir.rename(tmp_path / "moved")
    if left == "a link":
        run.checkpoints_dir.symlink_to("not/mounted")
    elif left == "a folder":
        run.checkpoints_dir.mkdir()
    elif left == "a file":
        run.checkpoints_dir.touch()
    with pytest.raises(T2TLiteError, match="no checkpoint to go on from: put"):
        _train(run, train_steps=4)
    assert (run.output_dir / "metrics.jsonl").read_bytes() == metrics
    if left == "nothing":
        (tmp_path / "moved").rename(run.checkpoints_dir)
        _train(run, train_steps=4)


def test_a_run_that_saved_nothing_starts_over_and_keeps_its_metrics(tmp_path):
    run = TinyRun(tmp_path)

    def fail(epoch, number):
        if number == 9:
            raise RuntimeError("a crash")

    run.data.before_batch = fail
    with pytest.raises(RuntimeError, match="a crash"):
        _train(run)
    assert [record["step"] for record in _metrics(run)] == [1, 2]
    run.data.before_batch = lambda epoch, number: None
    _train(run, train_steps=1)
    steps = [record["step"] for record in _metrics(run)]
    assert (steps[:2], set(steps[2:])) == ([1, 2], {1})  # appended


@requires_bfloat16
def test_bfloat16_trains_float32_weights(tmp_path):
    run = TinyRun(tmp_path, make_model=Transformer, precision="bfloat16")
    _train(run, train_steps=2)
    for name, values in _weights(run, 2).items():
        if name != "adam/applied":
            assert values.dtype == np.float32, name


@pytest.mark.parametrize("packing", [False, True])
def test_a_dry_run_measures_the_largest_batch(packing):
    hparams = tiny_hparams(max_length=16, packing=packing)
    sizes = (VOCAB_SIZE, VOCAB_SIZE)
    done = try_update(hparams, sizes, train_steps=6)
    assert done.micro_batch == (2, 16)
    assert done.parameters == sum(count_parameters(hparams, *sizes).values())
    assert done.peak_memory_bytes > 2**20
    assert done.seconds_per_update > 0
    assert done.replicas == 1
    assert np.isfinite(done.loss)
    assert "largest batch: 3 x 2 sentences of 16 tokens a side" in str(done)


def test_a_dry_run_makes_one_full_pass_and_multiplies(monkeypatch):
    clock, made = [0.0], []

    def update(updater, batches, step):
        rows, columns = batches[0]["inputs"].shape
        made.append((len(batches), rows * columns))
        # Making graphs; 5 s for the optimizer; 100 s for each full pass.
        clock[0] += {1: 60, 2: 5, 3: 5 + 100 * len(batches)}[step]
        stats = UpdateStats(0.1, 1.0, 1.0, 1.0, 1.0, 0.0, 1)
        return SimpleNamespace(read=lambda: stats)

    monkeypatch.setattr(Updater, "update", update)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    hparams = tiny_hparams(max_length=16)
    done = try_update(hparams, (VOCAB_SIZE, VOCAB_SIZE), train_steps=1000)
    assert made == [(1, 1), (1, 1), (1, 2 * 16)]
    assert done.seconds_per_update == 5 + hparams.micro_batches * 100
    assert "time for 1,000 updates: 3 days 12 h" in str(done)


def test_replicas_need_a_process_that_did_not_start_with_fewer():
    with pytest.raises(T2TLiteError, match="replicas=8 .* fresh process"):
        choose_strategy(replicas=8)


def test_each_checkpoint_is_told_of(tmp_path):
    run = TinyRun(tmp_path)
    told = []
    trainer.train(
        run,
        TrainingOptions(save_steps=2),
        evaluate_text=lambda: {},
        saved=lambda: told.append(_steps(run)[-1]),
    )
    assert told == [2, 4, 6]
