import json
import shutil
import subprocess
import sys

import pytest

from support.places import ROOT

ASK = ROOT / "examples" / "ask_export.py"
TEXTS = ["1 2 3", "", "9"]


@pytest.fixture(scope="module")
def export(tiny_run, tmp_path_factory):
    """An export in a folder it was not made in."""
    from t2t_lite.bin import exporter

    folder = tmp_path_factory.mktemp("export")
    flags = [f"--output_dir={tiny_run}", f"--export_dir={folder / 'made'}"]
    assert exporter.main(flags) == 0
    shutil.move(folder / "made", folder / "moved")
    return folder / "moved"


def test_versions_count_up_and_nothing_else_is_left(
    run_command, tiny_run, tmp_path
):
    flags = [f"--output_dir={tiny_run}", f"--export_dir={tmp_path / 'e'}"]
    for version in ("1", "2"):
        code, out, err = run_command("exporter", *flags)
        assert code == 0
        assert out == f"{tmp_path / 'e' / version}\n"
        assert err.startswith("Weights: the average of 2")
    assert {p.name for p in (tmp_path / "e").iterdir()} == {"1", "2"}
    assert (tmp_path / "e" / "1" / "saved_model.pb").is_file()


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
    assert scores == pytest.approx([e["score"] for e in expected], abs=1e-5)


def test_folder_that_cannot_be_written_is_named(run_command, tiny_run):
    code, out, err = run_command(
        "exporter", f"--output_dir={tiny_run}", "--export_dir=/proc/export"
    )
    assert (code, out) == (1, "")
    assert "Cannot write the export to /proc/export" in err
