"""The report command compares runs in a table and plots their curves."""

import json
import shutil

import pytest

from t2t_lite import files
from t2t_lite.training.config import add_evaluation, read_config


@pytest.fixture
def two_runs(tiny_run, tmp_path):
    """Two copies of a run with different dropout and test scores."""
    folders = []
    for dropout in (0.1, 0.2):
        folder = shutil.copytree(tiny_run, tmp_path / f"dropout-{dropout}")
        (folder / "evaluations.jsonl").unlink(missing_ok=True)
        config = read_config(folder)
        config["hparams"]["residual_dropout"] = dropout
        files.write_json(folder / "config.json", config)
        report = {"split": "test", "metric": "bleu", "score": 100 * dropout}
        add_evaluation(folder, 4, "checksum", report)
        folders.append(folder)
    return folders


def test_a_report_compares_scores_cost_and_differing_settings(
    run_command, two_runs
):
    code, out, err = run_command("report", *two_runs, "--json")
    assert (code, err) == (0, "")
    first, second = json.loads(out)["runs"]
    assert first["run"] == str(two_runs[0])
    assert (first["step"], first["train_steps"]) == (4, 4)
    assert first["parameters"] > 1000
    assert (first["test bleu"], second["test bleu"]) == (10, 20)
    assert first["residual_dropout"] == 0.1
    assert second["residual_dropout"] == 0.2
    assert "hidden_size" not in first  # the same in both


def test_the_table_has_a_column_for_each_run(run_command, two_runs):
    _, out, _ = run_command("report", *two_runs)
    rows = [line.split() for line in out.splitlines()]
    assert ["/".join(run.parts[-2:]) for run in two_runs] in rows
    assert ["residual", "dropout", "0.1", "0.2"] in rows
    assert ["best", "dev", "loss"] in [row[:3] for row in rows]


def test_curves_are_plotted(run_command, two_runs, tmp_path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "curves.png"
    code, _, err = run_command("report", *two_runs, f"--png={picture}")
    assert code == 0, err
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_folder_without_a_run_is_an_error(run_command, tmp_path):
    code, out, err = run_command("report", tmp_path)
    assert (code, out) == (1, "")
    assert str(tmp_path) in err
