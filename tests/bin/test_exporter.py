"""Exports: versions, contents, and a client that needs only TensorFlow."""

import io
import json
import os
import runpy
import subprocess
import sys

import pytest

import t2t_lite
from support.places import ROOT
from t2t_lite.errors import T2TLiteError

CLIENT = ROOT / "examples" / "ask_export.py"
TEXTS = ["1 2 3", "", "9"]


@pytest.mark.slow
def test_versions_count_up_and_old_ones_are_removed(
    run_command, tiny_run, tmp_path
):
    folder = tmp_path / "e"
    flags = [f"--output_dir={tiny_run}", f"--export_dir={folder}"]
    for version in ("1", "2"):
        code, out, err = run_command("exporter", *flags)
        assert (code, out) == (0, f"{folder / version}\n")
        assert "average of 2" in err
    assert (folder / "1" / "saved_model.pb").is_file()
    code, out, err = run_command("exporter", *flags, "--keep=2", "--warmup=99")
    assert (code, out) == (0, f"{folder / '3'}\n")
    assert str(folder / "1") in err.splitlines()[-1]
    assert {path.name for path in folder.iterdir()} == {"2", "3"}


@pytest.mark.slow
def test_an_export_is_verified_and_contains_its_description(
    run_command, tiny_run, tmp_path
):
    flags = [f"--output_dir={tiny_run}", f"--export_dir={tmp_path}"]
    code, out, err = run_command("exporter", *flags, "--verify")
    assert (code, out) == (0, f"{tmp_path / '1'}\n")
    # Four lengths, a batch and an empty batch, for each of 3 signatures.
    assert "18 results of 3 signatures" in err
    extra = tmp_path / "1" / "assets.extra"
    assert {file.name for file in extra.iterdir()} == {
        "card.md",
        "t2t-lite.json",
        "tf_serving_warmup_requests",
    }
    text = (extra / "t2t-lite.json").read_text()
    assert str(tiny_run) not in text and str(tmp_path) not in text
    description = json.loads(text)
    assert description["problem"] == "tiny_digits"
    assert (description["step"], description["averaged"]) == (4, 2)
    assert description["training"]["devices"] == 1
    score = description["scores"][0]  # the score logged in training
    assert (score["split"], score["metric"]) == ("dev", "bleu")
    metrics = (tiny_run / "metrics.jsonl").read_text().splitlines()
    assert score["score"] == json.loads(metrics[-1])["dev_bleu"]


@pytest.mark.slow
def test_two_exports_of_a_run_are_bitwise_identical(
    run_process, tiny_run, tmp_path
):
    contents = []
    for seed in "12":  # seeds of the order of sets
        folder = tmp_path / seed
        flags = [f"--output_dir={tiny_run}", f"--export_dir={folder}"]
        flags.append("--attention")
        environ = {**os.environ, "PYTHONHASHSEED": seed}
        done = run_process("exporter", *flags, env=environ)
        assert done.returncode == 0, done.stderr
        contents.append(
            {
                str(file.relative_to(folder)): file.read_bytes()
                for file in folder.rglob("*")
                if file.is_file() and file.name != "fingerprint.pb"
            }
        )
    assert contents[0] == contents[1]
    assert "1/saved_model.pb" in contents[0]


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--format=ctranslate2", "--attention"], 2, ["--attention"]),
        (["--format=ctranslate2", "--verify"], 2, ["--verify"]),
        (["--format=keras_hub", "--beam_size=2"], 2, ["--beam_size"]),
        (["--format=huggingface", "--alpha=1", "--sample"], 2, ["--sample"]),
        (["--warmup=251"], 2, ["--warmup", "250"]),
        (["--keep=0"], 2, ["--keep", "'0'"]),
        (["--export_dir=/proc/export"], 1, ["/proc/export"]),
    ],
)
def test_bad_requests_are_one_line(
    run_command, tiny_run, tmp_path, flags, code, words
):
    folder = tmp_path / "e"
    flags = [f"--output_dir={tiny_run}", f"--export_dir={folder}", *flags]
    got, out, err = run_command("exporter", *flags)
    assert (got, out) == (code, "")
    assert all(word in err.splitlines()[-1] for word in words)
    assert not folder.exists()


@pytest.mark.slow
def test_a_client_without_this_package_equals_the_decoder(
    decode, tiny_export, tmp_path
):
    _, expected, _ = decode(TEXTS)
    code = (
        "import runpy, sys\n"
        "sys.modules['t2t_lite'] = None  # it cannot be imported\n"
        f"sys.argv = [{str(CLIENT)!r}, {str(tiny_export)!r}, *{TEXTS!r}]\n"
        f"runpy.run_path({str(CLIENT)!r}, run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:-1] == expected


@pytest.fixture
def run_client(monkeypatch, capsys):
    """Run the client in this process: `(exit code or message, stdout)`."""

    def run(*argv, stdin=""):
        monkeypatch.setattr(sys, "argv", [str(CLIENT), *map(str, argv)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        code = 0
        try:
            runpy.run_path(str(CLIENT), run_name="__main__")
        except SystemExit as end:
            code = end.code  # Python prints a text to stderr and exits with 1
        return code, capsys.readouterr().out

    return run


def test_the_client_accepts_a_version_or_a_folder_of_them(
    run_client, tiny_export, tmp_path
):
    code, out = run_client(tiny_export, *TEXTS)  # has other folders, too
    assert (code, out.count("\n")) == (0, len(TEXTS))
    assert run_client(tiny_export / "2", stdin="\n".join(TEXTS)) == (0, out)
    assert run_client(tiny_export) == (0, "")
    (tmp_path / "saved_model.pb").write_text("no export")
    for folder in (tmp_path / "missing", tmp_path):
        message, out = run_client(folder, "1")
        assert str(folder) in message
        assert "\n" not in message + out


@pytest.mark.slow
def test_a_keras_hub_preset_generates_the_greedy_translation(
    run_command, decode, tiny_run, tmp_path
):
    from t2t_lite.keras_hub import T2TSeq2SeqLM

    flags = [f"--output_dir={tiny_run}", f"--export_dir={tmp_path}"]
    code, out, err = run_command("exporter", *flags, "--format=keras_hub")
    assert (code, out) == (0, f"{tmp_path / '1'}\n")
    assert "average of 2" in err
    model = T2TSeq2SeqLM.from_preset(str(tmp_path / "1"))
    model.compile(sampler="greedy", run_eagerly=True)
    lines = ["1 2 3", "9"]
    limit = "--max_new_tokens=6"
    _, expected, _ = decode(lines, "--beam_size=1", limit)
    found = model.generate(lines, max_length=7)  # with the start token
    assert [" ".join(text.splitlines()) for text in found] == expected
    code, _, err = run_command("exporter", *flags)
    assert code == 1 and "task.json" in err
    with pytest.raises(T2TLiteError, match="path must be"):
        t2t_lite.load(tmp_path)
