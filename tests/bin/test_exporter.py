import io
import json
import os
import runpy
import shutil
import subprocess
import sys

import pytest

from support.places import ROOT
from support.rounding import approx_score

ASK = ROOT / "examples" / "ask_export.py"
TEXTS = ["1 2 3", "", "9"]


@pytest.fixture(scope="module")
def export(tiny_run, tmp_path_factory):
    """An export in a folder it was not made in."""
    from t2t_lite.bin import exporter

    folder = tmp_path_factory.mktemp("export")
    flags = [f"--output_dir={tiny_run}", f"--export_dir={folder / 'made'}"]
    assert exporter.main([*flags, "--noverify"]) == 0
    shutil.move(folder / "made", folder / "moved")
    return folder / "moved"


@pytest.mark.slow
def test_versions_count_up_and_nothing_else_is_left(
    run_command, tiny_run, tmp_path
):
    flags = [f"--output_dir={tiny_run}", f"--export_dir={tmp_path / 'e'}"]
    flags.append("--noverify")
    for version in ("1", "2"):
        code, out, err = run_command("exporter", *flags)
        assert code == 0
        assert out == f"{tmp_path / 'e' / version}\n"
        assert err.startswith("Weights: the average of 2")
    assert {p.name for p in (tmp_path / "e").iterdir()} == {"1", "2"}
    assert (tmp_path / "e" / "1" / "saved_model.pb").is_file()
    code, out, err = run_command("exporter", *flags, "--keep=2", "--warmup=99")
    assert (code, out) == (0, f"{tmp_path / 'e' / '3'}\n")
    assert err.endswith(f"\nRemoved {tmp_path / 'e' / '1'}.\n")
    assert {p.name for p in (tmp_path / "e").iterdir()} == {"2", "3"}


@pytest.mark.slow
def test_an_export_is_verified_and_says_what_it_is(
    run_command, tiny_run, tmp_path
):
    code, out, err = run_command(
        "exporter", f"--output_dir={tiny_run}", f"--export_dir={tmp_path}"
    )
    assert (code, out) == (0, f"{tmp_path / '1'}\n")
    # Four lengths, a batch and an empty one, of three signatures.
    said = "18 answers of 3 signatures are equal"
    assert said in err.splitlines()[1]
    extra = tmp_path / "1" / "assets.extra"
    assert {file.name for file in extra.iterdir()} == {
        "card.md",
        "t2t-lite.json",
        "tf_serving_warmup_requests",
    }
    text = (extra / "t2t-lite.json").read_text()
    assert not [place for place in (tiny_run, tmp_path) if str(place) in text]
    about = json.loads(text)
    assert about["problem"] == "tiny_digits"
    assert (about["step"], about["averaged"]) == (4, 2)
    assert about["training"]["devices"] == 1
    score = about["scores"][0]  # of training
    assert (score["split"], score["metric"]) == ("dev", "bleu")
    metrics = (tiny_run / "metrics.jsonl").read_text().splitlines()
    assert score["score"] == json.loads(metrics[-1])["dev_bleu"]


@pytest.mark.slow
def test_two_exports_of_a_run_are_the_same_bit_by_bit(
    run_process, tiny_run, tmp_path
):
    contents = []
    for seed in "12":  # of the order in sets
        folder = tmp_path / seed
        flags = [f"--output_dir={tiny_run}", f"--export_dir={folder}"]
        flags += ["--attention", "--noverify"]
        environ = {**os.environ, "PYTHONHASHSEED": seed}
        done = run_process("exporter", *flags, env=environ)
        assert done.returncode == 0, done.stderr
        contents.append(
            {
                str(file.relative_to(folder)): file.read_bytes()
                for file in folder.rglob("*")
                if file.is_file()
            }
        )
    assert contents[0] == contents[1]
    assert "1/fingerprint.pb" in contents[0]


def test_flags_of_a_saved_model_are_for_nothing_else(run_command, tiny_run):
    flags = [f"--output_dir={tiny_run}", "--format=ctranslate2"]
    for flag in ("--attention", "--warmup=0", "--verify", "--max_batch=3"):
        code, _, err = run_command("exporter", *flags, flag)
        assert code == 2
        name = flag.partition("=")[0]
        assert f"{name} is for --format=saved_model." in err


def test_too_many_warmup_requests_are_refused(run_command, tiny_run, tmp_path):
    flags = [f"--output_dir={tiny_run}", f"--export_dir={tmp_path / 'e'}"]
    code, out, err = run_command("exporter", *flags, "--warmup=334")
    assert (code, out) == (2, "")
    assert "--warmup" in err and "333" in err
    assert not (tmp_path / "e").exists()


def test_at_least_one_version_is_kept(run_command, tiny_run):
    code, _, err = run_command(
        "exporter", f"--output_dir={tiny_run}", "--keep=0"
    )
    assert code == 2
    assert "--keep: must be a whole number, at least 1; got '0'." in err


@pytest.mark.slow
def test_client_without_this_package_gets_the_decoders_answers(
    run_command, tiny_run, export, tmp_path, monkeypatch
):
    source = tmp_path / "in"
    source.write_text("".join(f"{text}\n" for text in TEXTS))
    _, expected, _ = run_command(
        "decoder", f"--output_dir={tiny_run}", f"--decode_from_file={source}"
    )
    code = (
        "import runpy, sys\n"
        "sys.modules['t2t_lite'] = None  # it cannot be imported\n"
        f"sys.argv = [{str(ASK)!r}, {str(export)!r}, *{TEXTS!r}]\n"
        f"runpy.run_path({str(ASK)!r}, run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected


@pytest.fixture
def ask(monkeypatch, capsys):
    """Runs the client in this process: `(exit code or message, stdout)`."""

    def run(*argv, stdin=""):
        monkeypatch.setattr(sys, "argv", [str(ASK), *map(str, argv)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        code = 0
        try:
            runpy.run_path(str(ASK), run_name="__main__")
        except SystemExit as end:
            code = end.code  # Python prints a text to stderr and exits with 1
        return code, capsys.readouterr().out

    return run


def test_client_takes_a_version_itself_and_passes_by_what_is_none(
    ask, export, tmp_path
):
    shutil.copytree(export / "1", tmp_path / "1")
    for none in ("1.bak", "2", "notes"):
        (tmp_path / none).mkdir()
    code, out = ask(tmp_path, *TEXTS)
    assert (code, out.count("\n")) == (0, len(TEXTS))
    assert ask(tmp_path / "1", stdin="\n".join(TEXTS)) == (0, out)


def test_client_without_an_export_says_so_in_a_line(ask, tmp_path):
    (tmp_path / "1.bak").mkdir()
    (tmp_path / "file").write_text("no export")
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "saved_model.pb").write_text("no export")
    for folder in (tmp_path / "missing", tmp_path, tmp_path / "file", damaged):
        message, out = ask(folder, "1")
        assert str(folder) in message
        assert "\n" not in message + out


def test_client_with_no_lines_on_stdin_prints_nothing(ask, export):
    assert ask(export) == (0, "")


def test_nbest_signature_gives_what_the_decoder_gives(
    run_command, tiny_run, export, tmp_path
):
    import tensorflow as tf

    source = tmp_path / "in"
    source.write_text("1 2 3\n")
    _, out, _ = run_command(
        "decoder",
        f"--output_dir={tiny_run}",
        f"--decode_from_file={source}",
        "--nbest=4",
        "--format=json",
    )
    expected = json.loads(out)["hypotheses"]
    model = tf.saved_model.load(str(export / "1"))
    answer = model.signatures["nbest"](inputs=tf.constant(["1 2 3"]))
    texts = [text.decode() for text in answer["outputs"].numpy()[0]]
    assert texts[: len(expected)] == [each["text"] for each in expected]
    scores = answer["scores"].numpy()[0][: len(expected)]
    assert scores == approx_score([e["score"] for e in expected])


def test_folder_that_cannot_be_written_is_named(run_command, tiny_run):
    code, out, err = run_command(
        "exporter", f"--output_dir={tiny_run}", "--export_dir=/proc/export"
    )
    assert (code, out) == (1, "")
    assert "Cannot write the export to /proc/export" in err
