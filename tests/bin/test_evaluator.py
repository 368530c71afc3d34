import json
import shutil

import pytest


def test_report_has_both_ways_of_counting(run_command, tiny_run):
    code, out, err = run_command(
        "evaluator", f"--output_dir={tiny_run}", "--split=test", "--json"
    )
    assert (code, out.count("\n")) == (0, 1)
    report = json.loads(out)
    assert (report["metric"], report["sentences"]) == ("bleu", 4)
    assert 0 <= report["score"] <= 100
    assert "case:mixed" in report["signature"]
    assert "case:lc" in report["signature_lowercase"]
    assert report["score_lowercase"] >= report["score"] - 1e-9
    assert (report["split"], report["beam_size"]) == ("test", 4)
    assert err.startswith("Weights: ")


def test_a_report_is_kept_for_exports_of_these_weights(
    run_command, tiny_run, tmp_path
):
    from t2t_lite.serving.about import about_run
    from t2t_lite.training.checkpoints import checkpoint_choice
    from t2t_lite.training.run import Run

    copy = shutil.copytree(tiny_run, tmp_path / "run")
    (copy / "evaluations.jsonl").unlink(missing_ok=True)
    flags = [f"--output_dir={copy}", "--split=test", "--json"]
    for _ in range(2):
        code, out, err = run_command("evaluator", *flags, "--beam_size=1")
        assert code == 0, err
    run = Run.open(copy)
    scores = {
        which: about_run(
            run, [checkpoint_choice.resolve(run.checkpoints_dir, which)]
        )["scores"]
        for which in ("default", 4, 2)
    }
    assert scores["default"][1:] == [json.loads(out)]
    assert [each["split"] for each in scores[4]] == ["dev"]
    assert scores[2] == []


def test_flags_of_the_search_reach_it(run_command, tiny_run):
    _, out, _ = run_command(
        "evaluator",
        f"--output_dir={tiny_run}",
        "--beam_size=1",
        "--alpha=0",
        "--json",
    )
    report = json.loads(out)
    assert (report["beam_size"], report["alpha"]) == (1, 0)


def test_without_json_the_report_is_for_people(run_command, tiny_run):
    _, out, _ = run_command("evaluator", f"--output_dir={tiny_run}")
    assert out.startswith("bleu ")
    assert "\n  signature: " in out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--split=tset"], "has the splits train, dev, test; got 'tset'"),
        (["--data_dir=/no/where"], "holds no data of tiny_digits"),
    ],
)
def test_bad_requests_are_one_line(run_command, tiny_run, flags, message):
    code, out, err = run_command(
        "evaluator", f"--output_dir={tiny_run}", *flags
    )
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert message in err


def test_tokenized_bleu_stands_beside_the_other(
    run_command, tiny_run, monkeypatch
):
    from t2t_lite import Text2TextProblem

    flags = [f"--output_dir={tiny_run}", "--beam_size=1"]
    _, out, _ = run_command("evaluator", *flags, "--json")
    assert "tokenized_bleu" not in json.loads(out)  # it has no languages
    sides = property(lambda problem: ("", "en"))
    monkeypatch.setattr(Text2TextProblem, "languages", sides)
    _, out, _ = run_command("evaluator", *flags, "--json")
    report = json.loads(out)
    assert 0 <= report["tokenized_bleu"] <= 100
    assert "language en" in report["tokenized_bleu_procedure"]
    assert "tok:13a" in report["signature"]
    _, out, _ = run_command("evaluator", *flags)
    assert "\n  tokenized_bleu: " in out
    assert "\n  tokenized_bleu_procedure: Moses tokens" in out
