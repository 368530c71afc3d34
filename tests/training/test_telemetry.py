import io
import json
import math
import time
from types import SimpleNamespace

import pytest
from tensorboard.backend.event_processing.event_accumulator import (
    EventAccumulator,
)

from t2t_lite.errors import T2TLiteError
from t2t_lite.training.telemetry import MetricsFile, Telemetry
from t2t_lite.training.validation import Sample


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


def test_metrics_of_updates_that_are_made_again_are_kept_aside(
    tmp_path, capsys
):
    path = tmp_path / "metrics.jsonl"
    metrics = MetricsFile(path, 0)
    for step in (1, 2, 3):
        metrics.write({"step": step, "loss": 1.0})
    metrics.write({"step": 2, "dev_loss": 2.0})
    metrics.write({"step": 3, "dev_loss": 2.0})
    metrics.close()
    metrics = MetricsFile(path, 2)
    metrics.write({"step": 4, "loss": 0.5})
    metrics.close()
    assert [record["step"] for record in _records(path)] == [1, 2, 2, 4]
    assert metrics.has_evaluation(2)
    assert not metrics.has_evaluation(3)
    superseded = tmp_path / "metrics.jsonl.superseded"
    assert [record["step"] for record in _records(superseded)] == [3, 3]
    MetricsFile(path, 1).close()
    # More of them come after those that are there.
    steps = [record["step"] for record in _records(superseded)]
    assert steps == [3, 3, 2, 2, 4]
    assert (
        f"{path}: 3 line(s) about updates after 1, which are made again, are "
        f"in {superseded.name} now.\n" in capsys.readouterr().err
    )


def test_damaged_metrics_are_named_and_kept_aside(tmp_path, capsys):
    path = tmp_path / "metrics.jsonl"
    sound = [b'{"step": 1, "loss": 1.0}', b'{"step": 2, "dev_loss": 2.0}']
    damaged = [
        b'{"step": 1, "lo\xff',
        b'{"step": 2, "lo',
        b"[1]",
        b'{"loss": 1.0}',
        b'{"step": "2"}',
        b'{"step": 2, "dev_loss": 1.0, "weights": []}',
        b"[" * 100_000,
        b'{"step": 2, "lo',  # where a crash cut it off
    ]
    path.write_bytes(b"\n".join([sound[0], *damaged[:4], sound[1]]))
    with open(path, "ab") as file:
        file.write(b"\n" + b"\n".join(damaged[4:]))
    metrics = MetricsFile(path, 2)
    metrics.close()
    assert metrics.has_evaluation(2)
    assert path.read_bytes().splitlines() == sound
    aside = tmp_path / "metrics.jsonl.damaged"
    assert aside.read_bytes().splitlines() == damaged
    assert capsys.readouterr().err == (
        f"Warning: {path} is damaged in line(s) 2, 3, 4, 5, 7, 8, 9, 10, which "
        f"are in {aside.name} now.\n"
    )


def test_sound_metrics_are_left_as_they_are(tmp_path, capsys):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n\n{"step":2}')
    metrics = MetricsFile(path, 2)
    metrics.write({"step": 3})
    metrics.close()
    assert [record["step"] for record in _records(path)] == [1, 2, 3]
    MetricsFile(path, 3).close()
    assert capsys.readouterr().err == ""
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_metrics_that_cannot_be_read_are_named(tmp_path, kind):
    path = tmp_path / "metrics.jsonl"
    if kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("not/mounted")
    with pytest.raises(T2TLiteError, match=f"{path} cannot be read: "):
        MetricsFile(path, 0)


def test_metrics_know_evaluations_of_other_weights(tmp_path):
    metrics = MetricsFile(tmp_path / "metrics.jsonl", 0)
    metrics.write({"step": 2, "dev_loss": 2.0, "weights": "average"})
    metrics.close()
    metrics = MetricsFile(tmp_path / "metrics.jsonl", 2)
    metrics.close()
    assert metrics.has_evaluation(2, "average")
    assert not metrics.has_evaluation(2)


def test_metrics_are_strict_json(tmp_path):
    metrics = MetricsFile(tmp_path / "metrics.jsonl", 0)
    metrics.write({"step": 1, "loss": math.nan, "dev_perplexity": math.inf})
    metrics.close()
    line = (tmp_path / "metrics.jsonl").read_text()
    assert line == '{"step": 1, "loss": null, "dev_perplexity": null}\n'


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test sets."""
    clock = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(time, "monotonic", lambda: clock.seconds)
    return clock


def test_without_a_terminal_there_is_a_line_for_every_record(tmp_path, clock):
    stream = io.StringIO()
    with Telemetry(tmp_path, 0, 5000, stream) as telemetry:
        telemetry.progress(_record(7))
        clock.seconds = 27.9  # 93 updates in 27.9 seconds: 0.3 each
        telemetry.training(_record(100))
        telemetry.evaluation({"step": 100, "dev_loss": 2.0, "dev_bleu": 31.25})
    assert stream.getvalue().splitlines() == [
        "step 100/5000  loss 1.500  1,234 tokens/s  rate 1.00e-03  epoch 0  "
        "ETA 0:24:30",
        "step 100 on dev:  loss 2  bleu 31.25",
    ]


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def test_on_a_terminal_there_is_a_live_bar(tmp_path, monkeypatch, clock):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    stream = _Terminal()
    with Telemetry(tmp_path, 50, 200, stream) as telemetry:
        telemetry.progress(_record(60))
        clock.seconds = 4.0
        telemetry.training(_record(100))
    shown = stream.getvalue()
    assert "100/200" in shown
    for part in (
        "loss 1.500",
        "1,234 tokens/s",
        "rate 1.00e-03",
        "ETA",
        "0:00:10",
    ):
        assert part in shown


def _samples(*translations):
    return [Sample("Two dogs.", text, "Hunde.") for text in translations]


def test_an_evaluation_shows_a_sentence_of_middling_length(tmp_path):
    stream = io.StringIO()
    with Telemetry(tmp_path, 0, 10, stream) as telemetry:
        telemetry.evaluation(
            {"step": 5, "dev_loss": 2.0}, _samples("H", "Hund.", "Hund und")
        )
    assert stream.getvalue().splitlines()[1:] == [
        "  source:      Two dogs.",
        "  translation: Hund.",
        "  reference:   Hunde.",
    ]


def test_a_text_without_end_does_not_fill_the_terminal(tmp_path):
    stream = io.StringIO()
    with Telemetry(tmp_path, 0, 10, stream) as telemetry:
        telemetry.evaluation({"step": 5, "dev_loss": 2.0}, _samples("a" * 501))
    shown = f"  translation: {'a' * 500} ..."
    assert stream.getvalue().splitlines()[2] == shown
    (record,) = _records(tmp_path / "samples.jsonl")
    assert record["samples"][0]["translation"] == "a" * 501


def test_samples_of_evaluations_are_kept_and_superseded_as_metrics_are(
    tmp_path,
):
    with Telemetry(tmp_path, 0, 10, io.StringIO()) as telemetry:
        telemetry.evaluation({"step": 5, "dev_loss": 2.0}, _samples("Hünd"))
        telemetry.evaluation({"step": 8, "dev_loss": 2.0})  # has none
        scores = {"step": 9, "dev_loss": 1.0, "weights": "average"}
        telemetry.evaluation(scores, _samples("Hund"))
    five, nine = _records(tmp_path / "samples.jsonl")
    sample = {"source": "Two dogs.", "reference": "Hunde."}
    assert five == {"step": 5, "samples": [{**sample, "translation": "Hünd"}]}
    assert (nine["step"], nine["weights"]) == (9, "average")
    Telemetry(tmp_path, 7, 10, io.StringIO()).__exit__()
    assert _records(tmp_path / "samples.jsonl") == [five]
    assert _records(tmp_path / "samples.jsonl.superseded") == [nine]


def test_tensorboard_has_the_same_tags_in_every_run(tmp_path):
    scores = {"step": 5, "dev_loss": 2.0, "dev_bleu": 31.25}
    with Telemetry(tmp_path, 0, 10, io.StringIO()) as telemetry:
        telemetry.training(_record(5))
        telemetry.evaluation(scores)
        telemetry.evaluation({**scores, "weights": "average-3-step-00000005"})
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
