import gzip
import json

import pytest

from support.places import SHARED_DATA

EVALB = SHARED_DATA / "evalb"
GOLD = "(S (NP (X a)) (VP (X b) (X c)))"
TEST = "(S (NP (X a) (X b)) (VP (X c)))"


@pytest.fixture
def files(tmp_path):
    def write(gold, test):
        paths = tmp_path / "gold", tmp_path / "test"
        for path, lines in zip(paths, (gold, test), strict=True):
            path.write_bytes("".join(f"{x}\n" for x in lines).encode())
        return [f"--gold={paths[0]}", f"--test={paths[1]}"]

    return write


def test_json_is_one_object_with_the_keys_of_the_contract(run_command, files):
    code, out, err = run_command("bracket_f1", *files([GOLD], [TEST]), "--json")
    report = json.loads(out)
    assert (code, err, out.count("\n")) == (0, "", 1)
    assert report["metric"] == "bracket_f1"
    assert report["score"] == report["f1"] == pytest.approx(100 / 3)
    assert report["recall"] == report["precision"] == pytest.approx(100 / 3)
    assert report["complete_match"] == 0
    assert (report["sentences"], report["errors"]) == (1, 0)
    assert "per_sentence" not in report


def test_treebank_files_are_read_as_they_are(run_command, tmp_path):
    gold = tmp_path / "wsj_0001.mrg"
    gold.write_text(
        "\n( (S \n    (NP-SBJ (X a) )\n    (VP (X b) \n      (X c) )))\n"
        "( (S \n  (NP (X a))\n  (VP (X b) (X c)) ))\n"
    )
    lines = tmp_path / "lines"
    lines.write_text(f"{GOLD}\n\n")
    for test, skipped in ((gold, 0), (lines, 1)):
        code, out, _ = run_command(
            "bracket_f1", f"--gold={gold}", f"--test={test}", "--json"
        )
        report = json.loads(out)
        assert (code, report["f1"], report["sentences"]) == (0, 100, 2)
        assert report["skipped"] == skipped
        # S, NP and VP: the bracket around a treebank's tree is none.
        assert report["gold_brackets"] == 3 * (2 - skipped)


def test_the_bracket_around_a_treebanks_tree_counts_on_both_sides_or_none(
    run_command, files, tmp_path
):
    wrapped = f"( {GOLD} )"
    treebank = tmp_path / "wsj.mrg"
    treebank.write_text(f"( (S\n  {GOLD[3:]} )\n")
    lines = files([wrapped], [wrapped])[0].removeprefix("--gold=")
    for gold, test, brackets in (
        (lines, lines, 4),  # EVALB counts it
        (treebank, lines, 3),
        (lines, treebank, 3),
    ):
        _, out, _ = run_command(
            "bracket_f1", f"--gold={gold}", f"--test={test}", "--json"
        )
        report = json.loads(out)
        assert (report["f1"], report["gold_brackets"]) == (100, brackets)


def test_a_damaged_line_costs_no_other(run_command, files):
    # With a line behind it that looks like its end.
    flags = files([GOLD, GOLD], [GOLD[:-1], f" {GOLD}"])
    code, out, _ = run_command("bracket_f1", *flags, "--json")
    report = json.loads(out)
    assert (code, report["f1"], report["errors"]) == (0, 100, 1)


def test_labels_are_scored_one_by_one(run_command, files):
    flags = [*files([GOLD, GOLD], [GOLD, TEST]), "--labels"]
    _, out, _ = run_command("bracket_f1", *flags, "--json")
    labels = json.loads(out)["labels"]
    assert list(labels) == ["NP", "S", "VP"]
    assert labels["S"]["f1"] == 100
    assert labels["NP"] == {
        "gold": 2,
        "test": 2,
        "matched": 1,
        "recall": 50,
        "precision": 50,
        "f1": 50,
    }
    _, out, _ = run_command("bracket_f1", *flags)
    assert out.splitlines()[-1].split() == "VP 2 2 50.00 50.00 50.00".split()


def test_trees_come_from_a_file_or_from_a_model(run_command, files):
    gold, test = files([GOLD], [TEST])
    for flags, message in (
        ([gold], "Give --test, or a model by --output_dir"),
        ([gold, test, "--output_dir=x"], "Give --test, or a model"),
        ([gold, test, "--text=x"], "--text is for a model: leave --test out."),
    ):
        code, _, err = run_command("bracket_f1", *flags)
        assert code == 2
        assert message in err


def test_the_table_has_all_and_the_short_sentences(run_command, files):
    long = "(S " + "(X a) " * 41 + ")"
    code, out, err = run_command(
        "bracket_f1", *files([GOLD, long], [TEST, long])
    )
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == "all length <= 40".split()
    assert lines[1].split() == ["sentences", "2", "1"]
    # 1 of 3 brackets; with the long sentence 2 of 4.
    assert "bracketing F1                50.00           33.33" in lines
    assert len(lines) == 13


def test_sentences_are_shown_as_evalb_shows_them(run_command, files):
    code, out, _ = run_command(
        "bracket_f1", *files([GOLD, GOLD], [TEST, GOLD]), "--sentences"
    )
    row = "   2    3    0  100.00 100.00     3      3    3      0      3     3"
    assert code == 0
    assert out.splitlines()[4] == f"{row}   100.00"
    assert out.splitlines()[5] == "=" * 76


def test_sentences_come_as_json_too(run_command, files):
    flags = files([GOLD, GOLD], [TEST, ""])
    _, out, _ = run_command("bracket_f1", *flags, "--sentences", "--json")
    first, second = json.loads(out)["per_sentence"]
    assert (first["matched"], first["gold"], first["crossing"]) == (1, 3, 1)
    assert (second["status"], second["length"]) == (2, 3)


def test_what_is_left_out_is_noted_on_stderr(run_command, files):
    bad = "(S (X a))"
    code, out, err = run_command(
        "bracket_f1", *files([GOLD] * 14, [GOLD, ""] + [bad] * 12), "--json"
    )
    assert code == 0
    assert json.loads(out)["errors"] == 12
    first, second = err.splitlines()
    assert first.startswith("13 of 14 sentences are left out of the scores")
    assert first.endswith("test: no words.")
    assert second == "EVALB itself would stop after 10 error sentences."


def test_parameters_are_read_from_a_file(run_command, files, tmp_path):
    parameters = tmp_path / "a.prm"
    parameters.write_text("LABELED 1\nDELETE_LABEL S\nCUTOFF_LEN 2\n")
    flags = [*files([GOLD], [TEST]), f"--parameters={parameters}"]
    code, out, _ = run_command("bracket_f1", *flags, "--json")
    report = json.loads(out)
    assert code == 0
    assert (report["f1"], report["gold_brackets"]) == (0, 2)
    assert report["cutoff_length"] == 2
    parameters.write_text("LABELS 1\n")
    code, out, err = run_command("bracket_f1", *flags)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "a.prm, line 1: unknown key LABELS. Did you mean LABELED" in err


def test_packed_files_are_read(run_command, tmp_path):
    path = tmp_path / "trees.gz"
    path.write_bytes(gzip.compress(f"{GOLD}\n".encode()))
    code, out, _ = run_command(
        "bracket_f1", "--gold", path, "--test", path, "--json"
    )
    assert (code, json.loads(out)["f1"]) == (0, 100)


def test_unequal_files_are_refused_with_both_counts(run_command, files):
    code, out, err = run_command("bracket_f1", *files([GOLD], [GOLD, GOLD]))
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "one tree a line; got 1 lines in" in err
    assert "gold and 2 in" in err


def test_empty_and_missing_files_are_said(run_command, files, tmp_path):
    flags = files([], [])
    code, _, err = run_command("bracket_f1", *flags)
    assert code == 1 and "gold: there must be a tree; got none." in err
    code, _, err = run_command("bracket_f1", f"--gold={tmp_path}/no", flags[1])
    assert code == 1 and f"Cannot read {tmp_path}/no: No such file" in err


def test_a_damaged_gold_file_is_refused_at_its_column(run_command, files):
    code, out, err = run_command("bracket_f1", *files([GOLD, "(S ("], [""] * 2))
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "gold, line 2, column 1: each opening bracket must be closed" in err


def test_another_encoding_is_refused(run_command, files, tmp_path):
    flags = files([GOLD], [GOLD])
    (tmp_path / "test").write_bytes("(S (X é))\n".encode("latin1"))
    code, _, err = run_command("bracket_f1", *flags)
    assert code == 1 and "test, line 1, column 7: trees must be UTF-8" in err


def test_the_sample_is_printed_as_evalb_prints_it(run_command):
    if not EVALB.exists():
        pytest.skip("EVALB's verdict is not in ../shared/data/evalb")
    code, out, err = run_command(
        "bracket_f1",
        f"--gold={EVALB}/sample.gold",
        f"--test={EVALB}/sample.test",
        "--sentences",
    )
    printed = (EVALB / "sample.evalb").read_text(encoding="utf-8")
    table = printed.split("=== Summary")[0]
    assert (code, err) == (0, "")
    assert out.startswith(table)
