"""The command gives the scores of EVALB."""

import functools
import gzip
import json

import pytest

from support.lines import two_files

GOLD = "(S (NP (X a)) (VP (X b) (X c)))"
TEST = "(S (NP (X a) (X b)) (VP (X c)))"


@pytest.fixture
def files(tmp_path):
    return functools.partial(two_files, tmp_path, ["gold", "test"])


@pytest.fixture
def score(run_command):
    """Return a function that runs the command: (JSON report, stderr)."""

    def score(*flags):
        code, out, err = run_command("bracket_f1", *flags, "--json")
        assert (code, out.count("\n")) == (0, 1)
        return json.loads(out), err

    return score


def test_json_report_is_one_object_with_the_documented_keys(score, files):
    report, err = score(*files([GOLD], [TEST]))
    assert err == ""
    assert report["metric"] == "bracket_f1"
    assert report["score"] == report["f1"] == pytest.approx(100 / 3)
    assert report["recall"] == report["precision"] == pytest.approx(100 / 3)
    assert report["complete_match"] == 0
    assert (report["sentences"], report["errors"]) == (1, 0)
    assert "per_sentence" not in report


def test_compressed_lines_are_read(score, tmp_path):
    lines = tmp_path / "lines.gz"
    lines.write_bytes(gzip.compress(f"{GOLD}\n".encode()))
    report, _ = score(f"--gold={lines}", f"--test={lines}")
    assert (report["f1"], report["sentences"]) == (100, 1)


def test_the_table_has_columns_for_all_and_short_sentences(run_command, files):
    long = "(S " + "(X a) " * 41 + ")"
    code, out, err = run_command(
        "bracket_f1", *files([GOLD, long], [TEST, long])
    )
    assert (code, err) == (0, "")
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == "all length <= 40".split()
    assert rows[1] == ["sentences", "2", "1"]
    # 1 of 3 brackets match, 2 of 4 with the long sentence.
    assert ["f1", "50.00", "33.33"] in rows


def test_sentences_are_shown_one_by_one(run_command, score, files):
    flags = [*files([GOLD, GOLD], [TEST, ""]), "--sentences"]
    first, second = score(*flags)[0]["per_sentence"]
    assert (first["matched"], first["gold"], first["crossing"]) == (1, 3, 1)
    assert (second["status"], second["length"]) == (2, 3)
    _, out, _ = run_command("bracket_f1", *flags)
    assert out.splitlines()[1].split()[:3] == ["1", "0", "3"]


def test_damaged_lines_are_counted_and_affect_no_other(score, files):
    # The line after the damaged one looks like its continuation.
    gold = [GOLD] * 15
    test = [GOLD[:-1], f" {GOLD}", "", *["(S (X a))"] * 12]
    report, err = score(*files(gold, test))
    assert (report["f1"], report["errors"], report["skipped"]) == (100, 13, 1)
    assert "14 of 15" in err and "line 1 of" in err


def test_parameters_are_read_from_a_file(score, files, tmp_path):
    parameters = tmp_path / "a.prm"
    parameters.write_text("LABELED 1\nDELETE_LABEL S\nCUTOFF_LEN 2\n")
    flags = [*files([GOLD], [TEST]), f"--parameters={parameters}"]
    report, _ = score(*flags)
    assert (report["f1"], report["gold_brackets"]) == (0, 2)
    assert report["cutoff_length"] == 2


@pytest.mark.parametrize(
    ("gold", "test", "words"),
    [
        ([GOLD], [GOLD, GOLD], ["1 lines", "2 in"]),
        ([], [], ["gold"]),
        ([GOLD, "(S ("], ["", ""], ["gold, line 2, column 1"]),
        ([GOLD], ["(S (X \udce9))"], ["test", "line 1", "UTF-8"]),
    ],
)
def test_bad_files_are_named_in_one_line(
    run_command, files, tmp_path, gold, test, words
):
    flags = files(gold, [""] * len(test))
    text = "".join(f"{line}\n" for line in test)
    (tmp_path / "test").write_bytes(text.encode("utf-8", "surrogateescape"))
    code, out, err = run_command("bracket_f1", *flags)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert all(word in err for word in words)
