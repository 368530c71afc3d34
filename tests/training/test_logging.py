import io
import json
import math

import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import (
    EventAccumulator,
)

from support.full_disk import full_disk
from t2t_lite.errors import T2TLiteError
from t2t_lite.training import logging
from t2t_lite.training.config import read_metrics
from t2t_lite.training.update import UpdateStats


def _record(step, **more):
    return {
        "step": step,
        "loss": 1.5,
        "learning_rate": 1e-3,
        "tokens_per_second": 1234.5,
        "epoch": 0,
        **more,
    }


def _records(path):
    lines = path.read_text().splitlines()
    return [json.loads(line) for line in lines if line]


def test_resumed_run_appends_and_the_last_record_counts(tmp_path):
    path = tmp_path / "metrics.jsonl"
    metrics = logging.MetricsFile(path, 0)
    for step in (1, 2, 3):
        metrics.write({"step": step, "loss": 1.0})
        metrics.write({"step": step, "dev_loss": 2.0})
    metrics.write({"step": 2, "dev_loss": 2.0, "weights": "ema"})
    before = path.read_bytes()
    metrics = logging.MetricsFile(path, 2)
    assert list(metrics.evaluated) == [(1, None), (2, None), (2, "ema")]
    metrics.write({"step": 3, "loss": 0.5})
    assert path.read_bytes().startswith(before)
    records = read_metrics(tmp_path)
    losses = {r["step"]: r["loss"] for r in records if "loss" in r}
    assert losses == {1: 1.0, 2: 1.0, 3: 0.5}


def test_damaged_lines_are_skipped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    damaged = [
        b'{"step": 1, "lo\xff',
        b"[1]",
        b'{"loss": 1.0}',
        b'{"step": "2"}',
        b'{"step": 2, "dev_loss": 1.0, "weights": []}',
        b"[" * 100_000,
    ]
    sound = b'{"step": 2, "dev_loss": 2.0}'
    truncated = b'{"step": 2, "lo'  # by a crash
    path.write_bytes(b"\n".join([*damaged, sound, truncated]))
    metrics = logging.MetricsFile(path, 2)
    assert list(metrics.evaluated) == [(2, None)]
    metrics.write({"step": 3})
    assert [r["step"] for r in read_metrics(tmp_path)] == [2, 3]
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_unreadable_metrics_are_named_in_the_error(tmp_path):
    with pytest.raises(T2TLiteError, match=f"{tmp_path} cannot be"):
        logging.MetricsFile(tmp_path, 0)


def test_metrics_are_strict_json(tmp_path):
    metrics = logging.MetricsFile(tmp_path / "metrics.jsonl", 0)
    metrics.write({"step": 1, "loss": math.nan, "dev_perplexity": math.inf})
    line = (tmp_path / "metrics.jsonl").read_text()
    assert line == '{"step": 1, "loss": null, "dev_perplexity": null}\n'


def test_failed_write_of_a_record_is_a_warning(tmp_path, capsys):
    metrics = logging.MetricsFile(tmp_path / "metrics.jsonl", 0)
    with full_disk(20):
        metrics.write({"step": 1, "loss": 1.0})
    metrics.write({"step": 2, "loss": 1.0})
    assert "Cannot write to" in capsys.readouterr().err
    assert [each["step"] for each in read_metrics(tmp_path)] == [2]


def test_log_without_a_terminal_has_a_line_per_record(tmp_path, clock):
    stream = io.StringIO()
    with logging.TrainingLog(tmp_path, 0, 5000, stream) as log:
        log.show_progress(_record(7))
        clock.seconds = 27.9  # 93 updates in 27.9 seconds: 0.3 each
        log.record_updates(_record(100))
        log.record_evaluation({"step": 100, "dev_loss": 2.0, "dev_bleu": 31.25})
    assert stream.getvalue().splitlines() == [
        "step 100/5000  loss 1.500  1,234 tokens/s  rate 1.00e-03  epoch 0  "
        "ETA 0:24:30",
        "step 100 on dev:  loss 2  bleu 31.25",
    ]


def _samples(*translations):
    sample = {"source": "Two dogs.", "reference": "Hunde."}
    return [{**sample, "translation": text} for text in translations]


def test_evaluation_log_shows_the_middle_sample(tmp_path):
    stream = io.StringIO()
    with logging.TrainingLog(tmp_path, 0, 10, stream) as log:
        samples = _samples("H", "Hünd" * 126, "Hund und")
        log.record_evaluation({"step": 5, "dev_loss": 2.0}, samples)
        log.record_evaluation({"step": 8, "dev_loss": 2.0})  # no samples
        scores = {"step": 9, "dev_loss": 1.0, "weights": "average"}
        log.record_evaluation(scores, _samples("Hund"))
    shown = stream.getvalue().splitlines()
    assert shown[1:4] == [
        "  source:      Two dogs.",
        "  reference:   Hunde.",
        f"  translation: {'Hünd' * 125} ...",  # 500 characters
    ]
    # The file has all samples in full.
    five, nine = _records(tmp_path / "samples.jsonl")
    assert five == {"step": 5, "samples": samples}
    assert (nine["step"], nine["weights"]) == (9, "average")


def test_tensorboard_has_the_same_tags_in_every_run(tmp_path):
    scores = {"step": 5, "dev_loss": 2.0, "dev_bleu": 31.25}
    with logging.TrainingLog(tmp_path, 0, 10, io.StringIO()) as log:
        log.record_updates(_record(5))
        log.record_evaluation(scores)
        log.record_evaluation({**scores, "weights": "average-3-step-00000005"})
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert set(events.Tags()["tensors"]) == {
        "train/smoothed_loss",
        "train/learning_rate",
        "train/tokens_per_second",
        "train/epoch",
        "dev/loss",
        "dev/bleu",
        "averaged/loss",
        "averaged/bleu",
    }
    assert events.Tensors("dev/bleu")[0].step == 5


def test_meter_excludes_skipped_updates_from_the_loss():
    meter = logging.Meter(logging.Totals(skipped=5))
    # The loss is 2 per token; an update has 22 tokens.
    good, bad = (20.0, 3.0, 0.0), (math.nan, math.nan, 1.0)
    for loss, norm, skipped in (good, bad, bad):
        sums = map(tf.constant, (loss, 10.0, 12.0, norm, skipped))
        meter.add(UpdateStats(1e-3, *sums, positions=40))
    meter.read()
    meter.totals.seconds = 2.0
    record = meter.record()
    assert (record["loss"], record["gradient_norm"]) == (2.0, 3.0)
    assert record["learning_rate"] == 1e-3
    assert record["tokens_per_second"] == 3 * 22 / 2
    assert record["padding"] == 0.45
    assert record["skipped"] == 7
