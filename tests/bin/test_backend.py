"""`--backend=ctranslate2` and `--format=ctranslate2`, from the command line."""

import json
import os
import sys

import pytest

from support.rounding import approx_score

LINES = "1 2 3\n\n   \n9\n"


@pytest.fixture(scope="module")
def ctranslate2():
    pytest.importorskip(
        "ctranslate2", reason="needs pip install 't2t-lite[ctranslate2]'"
    )


@pytest.fixture
def decode(run_command, tiny_run, tmp_path):
    source = tmp_path / "in"
    source.write_text(LINES)

    def run(*flags):
        return run_command(
            "decoder",
            f"--output_dir={tiny_run}",
            f"--decode_from_file={source}",
            *flags,
        )

    return run


def test_the_decoder_answers_alike_in_either_engine(decode, ctranslate2):
    _, wanted, _ = decode("--beam_size=1")
    code, out, err = decode("--beam_size=1", "--backend=ctranslate2")
    assert (code, out) == (0, wanted)
    assert err.startswith("Weights: the average of 2")
    code, out, _ = decode(
        "--backend=ctranslate2", "--quantization=int8", "--nbest=2"
    )
    assert code == 0
    assert [line.count("\t") for line in out.splitlines()] == [1] * 4


def test_pairs_are_scored_alike_in_either_engine(
    run_command, tiny_run, ctranslate2, tmp_path
):
    pairs = tmp_path / "pairs"
    pairs.write_text("1 2\tone two\n3\tseven\n")
    flags = [f"--output_dir={tiny_run}", f"--decode_from_file={pairs}"]
    flags += ["--score", "--format=json"]
    (_, wanted, _), (code, out, _) = (
        run_command("decoder", *flags, f"--backend={backend}")
        for backend in ("tensorflow", "ctranslate2")
    )
    assert code == 0
    for ours, theirs in zip(wanted.splitlines(), out.splitlines(), strict=True):
        ours, theirs = json.loads(ours), json.loads(theirs)
        assert theirs["pieces"] == ours["pieces"]
        for name in ("score", "token_log_probabilities"):
            assert theirs[name] == approx_score(ours[name])


def test_the_evaluator_names_the_engine(run_command, tiny_run, ctranslate2):
    code, out, _ = run_command(
        "evaluator",
        f"--output_dir={tiny_run}",
        "--backend=ctranslate2",
        "--quantization=int8",
        "--json",
    )
    report = json.loads(out)
    assert (code, report["sentences"]) == (0, 4)
    assert (report["backend"], report["quantization"]) == (
        "ctranslate2",
        "int8",
    )


def test_the_exporter_writes_versions_in_a_place_of_their_own(
    run_command, tiny_run, ctranslate2, tmp_path
):
    flags = [f"--output_dir={tiny_run}", f"--export_dir={tmp_path}"]
    for version in ("1", "2"):
        code, out, err = run_command(
            "exporter",
            *flags,
            "--format=ctranslate2",
            "--quantization=int8",
            "--keep=1",
        )
        assert (code, out) == (0, f"{tmp_path / version}\n"), err
    assert os.listdir(tmp_path) == ["2"]
    assert {"model.bin", "config.json", "t2t-lite.json"} < {
        path.name for path in (tmp_path / "2").iterdir()
    }
    code, out, err = run_command("exporter", *flags)
    assert (code, out) == (1, "")
    assert "A folder of exports has one format" in err


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--quantization=int8"], "--quantization goes with --backend="),
        (["--backend=ctranslate2", "--replicas=2"], "--replicas needs"),
        (["--backend=ctranslate2", "--jit"], "--jit needs"),
        (
            ["--backend=ctranslate2", "--alignment=words"],
            "--alignment needs --backend=tensorflow; got --backend=ctranslate2",
        ),
    ],
)
def test_what_the_engine_cannot_do_is_refused_by_name(decode, flags, message):
    code, out, err = decode(*flags)
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.parametrize(
    "command, flag",
    [
        ("decoder", "--backend=ctranslate2"),
        ("exporter", "--format=ctranslate2"),
    ],
)
def test_an_option_that_the_engine_would_not_follow_is_refused(
    run_command, tiny_run, ctranslate2, tmp_path, command, flag
):
    where = {
        "decoder": "--decode_from_file=/dev/null",
        "exporter": f"--export_dir={tmp_path / 'e'}",
    }[command]
    code, out, err = run_command(
        command,
        f"--output_dir={tiny_run}",
        flag,
        "--no_repeat_ngram_size=2",
        where,
    )
    assert (code, out) == (2, "")
    assert "CTranslate2 searches without no_repeat_ngram_size here." in err
    assert not (tmp_path / "e").exists()


def test_without_the_package_one_line_says_what_to_type(
    decode, run_command, tiny_run, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    export = [
        f"--output_dir={tiny_run}",
        f"--export_dir={tmp_path / 'e'}",
        "--format=ctranslate2",
    ]
    for code, out, err in (
        decode("--backend=ctranslate2"),
        run_command("exporter", *export),
    ):
        assert (code, out) == (1, "")
        assert "pip install 't2t-lite[ctranslate2]'" in err
    assert not (tmp_path / "e").exists()
