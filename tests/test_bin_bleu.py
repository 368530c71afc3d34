import json

import pytest


@pytest.fixture
def files(tmp_path):
    def write(hypotheses, references):
        paths = tmp_path / "hypotheses", tmp_path / "references"
        for path, lines in zip(paths, (hypotheses, references), strict=True):
            path.write_bytes("".join(f"{x}\n" for x in lines).encode())
        return [f"--hypothesis={paths[0]}", f"--reference={paths[1]}"]

    return write


def test_identical_files_score_100(run_command, files):
    lines = ["Zwei Hunde spielen im Schnee .", "Ein Mann fährt ein rotes Rad ."]
    code, out, err = run_command("bleu", *files(lines, lines), "--json")
    report = json.loads(out)
    assert (code, err, out.count("\n")) == (0, "", 1)
    assert report["metric"] == "bleu"
    assert report["score"] == pytest.approx(100)
    assert report["sentences"] == 2
    assert "case:mixed" in report["signature"]
    assert "tok:13a" in report["signature"]


def test_lowercase_forgives_case(run_command, files):
    flags = files(["EIN KLEINES ROTES HAUS"], ["ein kleines rotes haus"])
    _, cased, _ = run_command("bleu", *flags, "--json")
    _, lower, _ = run_command("bleu", *flags, "--json", "--lowercase")
    assert json.loads(cased)["score"] == 0
    assert json.loads(lower)["score"] == pytest.approx(100)


def test_without_json_the_score_is_for_people(run_command, files):
    code, out, _ = run_command("bleu", *files(["a b c d"], ["a b c d"]))
    assert code == 0
    assert out.startswith("bleu 100.00\n  signature: ")


def test_line_separators_of_unicode_do_not_split_lines(run_command, files):
    lines = ["one\u2028still one\x0bstill\r", "", "three"]
    code, out, _ = run_command("bleu", *files(lines, lines), "--json")
    assert code == 0
    assert json.loads(out)["sentences"] == 3


def test_unequal_files_are_refused_with_both_counts(run_command, files):
    code, out, err = run_command("bleu", *files(["a"], ["a", "b"]))
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "hypotheses has 1" in err
    assert "references has 2" in err


def test_missing_and_empty_files_are_said(run_command, files, tmp_path):
    flags = files([], [])
    code, _, err = run_command("bleu", *flags)
    assert code == 1 and "has no lines to score" in err
    code, _, err = run_command("bleu", f"--hypothesis={tmp_path}/no", flags[1])
    assert code == 1 and f"Cannot read {tmp_path}/no: No such file" in err


def test_flags_that_are_needed_are_named(run_command):
    code, _, err = run_command("bleu")
    assert (code, err) == (2, "t2t-lite-bleu: --hypothesis is needed.\n")
