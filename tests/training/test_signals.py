"""Signals, the time limit and the hang watchdog of a run."""

import os
import signal
import time

import pytest

from support.tiny_run import TinyRun
from support.tiny_training import metrics, require_same, steps, train, weights
from t2t_lite.decoding.translator import Translator
from t2t_lite.errors import Interrupted
from t2t_lite.training.evaluation import DevEvaluation
from t2t_lite.training.options import TrainingOptions
from t2t_lite.training.run import Run, RunData
from t2t_lite.training.signals import (
    Requests,
    StopRequested,
    process_seconds,
)


def _raise_at(run, number, *signals):
    """Send signals to this process before a micro-batch (3 per update)."""

    def before_batch(epoch, batch):
        if batch == number:
            for each in signals:
                os.kill(os.getpid(), each)

    run.data.before_batch = before_batch


@pytest.mark.own_process
def test_signal_saves_and_the_same_command_resumes(tmp_path):
    whole = TinyRun(tmp_path / "whole", residual_dropout=0.3)
    train(whole, train_steps=6)
    run = TinyRun(tmp_path / "stopped", residual_dropout=0.3)
    _raise_at(run, 10, signal.SIGTERM)
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    handlers = [signal.getsignal(number) for number in numbers]
    with pytest.raises(Interrupted, match="SIGTERM: update 3 is") as caught:
        train(run, train_steps=6)
    assert caught.value.exit_code == 75
    assert steps(run) == [3]
    assert [signal.getsignal(number) for number in numbers] == handlers
    _raise_at(run, -1)
    train(run, train_steps=6)
    require_same(weights(run, 6), weights(whole, 6))


def test_stop_ends_an_evaluation_between_two_batches(tiny_run, monkeypatch):
    texts = ["1 2"] * 640, ["one two"] * 640
    monkeypatch.setattr(RunData, "texts", lambda self, split: texts)
    translate, sizes, checks = Translator.translate, [], iter(range(3))

    def counting(self, lines, *more):
        sizes.append(len(lines))
        return translate(self, lines, *more)

    def check():
        if next(checks, None) is None:
            raise StopRequested("SIGTERM")

    monkeypatch.setattr(Translator, "translate", counting)
    run = Run.open(tiny_run)
    with pytest.raises(StopRequested):
        DevEvaluation(run, run.load_model()[0], check=check).evaluate_shard()
    assert len(sizes) == 2  # one check was for the loss


@pytest.mark.own_process
def test_interrupted_evaluation_is_repeated(tmp_path):
    run = TinyRun(tmp_path)
    batches, read = run.data.batches, []

    def interrupted(split):
        for each in batches(split):
            read.append(each)
            os.kill(os.getpid(), signal.SIGTERM)
            yield each

    run.data.batches = interrupted
    with pytest.raises(Interrupted, match="update 2 is saved"):
        train(run, eval_steps_every=2)
    assert len(read) == 1
    run.data.batches = batches
    train(run, train_steps=2, eval_steps_every=2)
    assert [r["step"] for r in metrics(run) if "dev_loss" in r] == [2]


@pytest.mark.own_process
def test_signal_before_the_first_update_saves_nothing(tmp_path):
    run = TinyRun(tmp_path)
    _raise_at(run, 0, signal.SIGINT)
    with pytest.raises(Interrupted, match="nothing trained yet"):
        train(run)
    assert steps(run) == []


@pytest.mark.own_process
def test_second_signal_acts_immediately(tmp_path):
    run = TinyRun(tmp_path)
    _raise_at(run, 7, signal.SIGINT, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train(run, save_steps=1)
    assert steps(run) == [1, 2]
    _raise_at(run, -1)
    train(run, train_steps=3)  # the checkpoints are complete
    assert steps(run)[-1] == 3


@pytest.mark.own_process
def test_a_signal_that_also_ends_the_reader_of_stderr_stops_training():
    stderr = os.dup(2)
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 2)
    try:
        with Requests(TrainingOptions()) as requests:
            os.kill(os.getpid(), signal.SIGINT)
            with pytest.raises(StopRequested, match="SIGINT"):
                requests.check()
            os.write(2, b"ignored")
    finally:
        os.dup2(stderr, 2)
        for each in (stderr, writer):
            os.close(each)


@pytest.mark.own_process
def test_sigusr1_saves_and_training_continues(tmp_path):
    run = TinyRun(tmp_path)
    _raise_at(run, 7, signal.SIGUSR1)  # within update 3
    train(run, train_steps=6)
    assert steps(run) == [3, 6]


def _minutes_left(seconds):
    return (process_seconds() + seconds) / 60


def test_time_limit_saves_in_time(tmp_path, clock):
    run = TinyRun(tmp_path)

    def wait(epoch, number):
        clock.seconds += 2

    run.data.before_batch = wait
    with pytest.raises(Interrupted, match="`max_minutes=") as stop:
        train(run, train_steps=1000, max_minutes=_minutes_left(seconds=60))
    assert clock.seconds < 60
    assert stop.value.exit_code == 75
    (step,) = steps(run)
    assert f"update {step} is saved" in str(stop.value)


def test_save_minutes_count_from_the_last_save(clock):
    requests = Requests(TrainingOptions(save_minutes=1))
    clock.seconds = 59.0
    assert not requests.decide(1).save
    clock.seconds = 60.0
    assert requests.decide(2).save
    with requests.timing_save():
        clock.seconds = 70.0
    clock.seconds = 129.0
    assert not requests.decide(3).save


def test_hang_prints_stacks_and_training_continues(tmp_path, capfd):
    def hang_in_the_data(epoch, number):
        if number == 7:
            time.sleep(2)

    for minutes in (0, 1 / 60):
        run = TinyRun(tmp_path / str(minutes))
        run.data.before_batch = hang_in_the_data
        train(run, train_steps=4, hang_timeout_minutes=minutes)
        err = capfd.readouterr().err
        assert ("hang_in_the_data" in err) == (minutes > 0)
        assert steps(run) == [4]
