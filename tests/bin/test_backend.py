"""`--backend=ctranslate2` and `--format=ctranslate2`, from the command line."""

import json
import os
import sys

import pytest

from support.lines import records
from support.rounding import approx_score

LINES = ["1 2 3", "", "   ", "9"]
BACKEND = "--backend=ctranslate2"


@pytest.fixture(scope="module")
def ctranslate2():
    pytest.importorskip(
        "ctranslate2", reason="needs pip install 't2t-lite[ctranslate2]'"
    )


def test_both_engines_give_the_same_translations(decode, ctranslate2):
    _, wanted, _ = decode(LINES, "--beam_size=1")
    code, out, err = decode(LINES, "--beam_size=1", BACKEND)
    assert (code, out) == (0, wanted)
    assert "average of 2" in err
    code, out, _ = decode(LINES, BACKEND, "--quantization=int8", "--nbest=2")
    texts = [line.split("\t") for line in out]
    assert (code, max(map(len, texts))) == (0, 2)
    assert all(len(set(each)) == len(each) for each in texts)


def test_both_engines_give_pairs_the_same_scores(decode, ctranslate2):
    pairs = ["1 2\tone two", "3\tseven"]
    flags = ["--score", "--format=json"]
    _, wanted, _ = decode(pairs, *flags)
    code, out, _ = decode(pairs, *flags, BACKEND)
    assert code == 0
    for ours, theirs in zip(records(wanted), records(out), strict=True):
        assert theirs["pieces"] == ours["pieces"]
        for name in ("score", "token_log_probabilities"):
            assert theirs[name] == approx_score(ours[name])


def test_the_evaluator_names_the_engine(run_command, tiny_run, ctranslate2):
    flags = [f"--output_dir={tiny_run}", BACKEND, "--quantization=int8"]
    code, out, _ = run_command("evaluator", *flags, "--json")
    report = json.loads(out)
    assert (code, report["sentences"]) == (0, 4)
    assert report["backend"] == "ctranslate2"
    assert report["quantization"] == "int8"


@pytest.mark.slow
def test_a_folder_of_exports_has_one_format(
    run_command, tiny_run, ctranslate2, tmp_path
):
    flags = [f"--output_dir={tiny_run}", f"--export_dir={tmp_path}"]
    more = ["--format=ctranslate2", "--quantization=int8", "--keep=1"]
    for version in ("1", "2"):
        code, out, err = run_command("exporter", *flags, *more)
        assert (code, out) == (0, f"{tmp_path / version}\n"), err
    assert os.listdir(tmp_path) == ["2"]
    assert {"model.bin", "config.json", "t2t-lite.json"} < {
        path.name for path in (tmp_path / "2").iterdir()
    }
    code, out, err = run_command("exporter", *flags)
    assert (code, out) == (1, "")
    assert "model.bin" in err


def test_an_option_that_the_engine_does_not_support_is_refused(
    decode, run_command, tiny_run, ctranslate2, tmp_path
):
    option = "--no_repeat_ngram_size=2"
    export = [f"--output_dir={tiny_run}", f"--export_dir={tmp_path / 'e'}"]
    for code, _, err in (
        decode([], BACKEND, option),
        run_command("exporter", *export, "--format=ctranslate2", option),
    ):
        assert code == 2 and "no_repeat_ngram_size" in err
    assert not (tmp_path / "e").exists()


def test_the_error_for_a_missing_package_names_the_extra(
    decode, run_command, tiny_run, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    export = [f"--output_dir={tiny_run}", f"--export_dir={tmp_path / 'e'}"]
    for code, _, err in (
        decode([], BACKEND),
        run_command("exporter", *export, "--format=ctranslate2"),
    ):
        assert code == 1 and "t2t-lite[ctranslate2]" in err
    assert not (tmp_path / "e").exists()
