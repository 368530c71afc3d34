"""The evaluator decodes a split, scores it and saves the report."""

import json

import pytest


@pytest.fixture
def evaluate(run_command, tiny_run):
    """Return a function that runs the command and parses its JSON."""

    def evaluate(*flags, run=tiny_run):
        code, out, err = run_command(
            "evaluator", f"--output_dir={run}", "--json", *flags
        )
        assert (code, out.count("\n")) == (0, 1), err
        return json.loads(out)

    return evaluate


def test_report_has_cased_and_lowercase_scores(evaluate, run_command, tiny_run):
    report = evaluate("--split=test")
    assert (report["metric"], report["sentences"]) == ("bleu", 4)
    assert 0 <= report["score"] <= 100
    assert "case:mixed" in report["signature"]
    assert "case:lc" in report["signature_lowercase"]
    assert report["score_lowercase"] >= report["score"] - 1e-9
    assert (report["split"], report["beam_size"]) == ("test", 4)
    _, out, _ = run_command("evaluator", f"--output_dir={tiny_run}")
    assert out.startswith("bleu ") and "\n  signature: " in out


@pytest.mark.slow
def test_a_report_is_saved_for_exports_of_these_weights(evaluate, run_copy):
    from t2t_lite.training import checkpoints
    from t2t_lite.training.model_card import scores_of
    from t2t_lite.training.run import Run

    for _ in range(2):
        flags = ["--split=test", "--beam_size=1", "--alpha=0"]
        report = evaluate(*flags, run=run_copy)
    assert (report["beam_size"], report["alpha"]) == (1, 0)
    run = Run.open(run_copy)
    scores = {
        which: scores_of(run, checkpoints.resolve(run.checkpoints_dir, which))
        for which in ("default", 4, 2)
    }
    assert scores["default"][1:] == [report]
    assert [each["split"] for each in scores[4]] == ["dev"]
    assert scores[2] == []
    card = (run_copy / "card.md").read_text()
    assert f"{report['score']:.2f} | `bleu` | `test` | `weights the av" in card


def test_references_and_metrics_may_be_given(evaluate, tmp_path):
    (tmp_path / "one").write_text("a\n" * 4)
    (tmp_path / "two").write_text("b\n" * 4)
    flags = ["--reference", tmp_path / "one", "--reference", tmp_path / "two"]
    report = evaluate(*flags, "--tokenize=char", "--metrics=chrf++,ter")
    assert {"chrf", "chrf++", "ter"} <= report.keys()
    assert "nrefs:2" in report["signature"] and "tok:char" in str(report)
    assert report["references"] == [f"{tmp_path}/one", f"{tmp_path}/two"]


@pytest.mark.parametrize(
    ("flag", "code", "word"),
    [
        ("--split=tset", 2, "'tset'"),
        ("--data_dir=/no/where", 1, "/no/where"),
        ("--constrained=true", 2, "trees"),
        ("--reference=/no/where", 1, "/no/where"),
        (f"--reference={__file__}", 1, "has 4"),
        ("--tokenize=ja-mecab", 1, "sacrebleu[ja]"),
    ],
)
def test_bad_requests_are_one_line(
    without_mecab, run_command, tiny_run, flag, code, word
):
    got, out, err = run_command("evaluator", f"--output_dir={tiny_run}", flag)
    assert (got, out) == (code, "")
    assert word in err.splitlines()[-1]
