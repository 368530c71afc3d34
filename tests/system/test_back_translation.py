"""The back-translation recipe of docs/your-text.md, run as documented."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from support.places import ROOT

pytestmark = pytest.mark.slow

_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
WORDS = "eins zwei drei vier".split()


def pairs(start, count):
    """Yield pairs of digits and their names."""
    for number in range(start, start + count):
        digits = [str(int(d) % 4) for d in f"{number * 37 + 5}"]
        yield " ".join(digits), " ".join(WORDS[int(d)] for d in digits)


def test_every_command_of_the_recipe_works(tmp_path, tiny_usr_dir):
    for name, start, count in [
        ("real", 0, 60),
        ("dev", 60, 4),
        ("test", 64, 4),
    ]:
        lines = [
            f"{source}\t{target}\n" for source, target in pairs(start, count)
        ]
        (tmp_path / f"{name}.tsv").write_text("".join(lines))
    mono = [target for _, target in pairs(100, 200)]
    mono[7] = mono[7].replace(" ", "\t", 1)
    (tmp_path / "mono.txt").write_text("".join(f"{t}\n" for t in mono))
    document = (ROOT / "docs" / "your-text.md").read_text("utf-8")
    (commands,) = [b for b in _BLOCK.findall(document) if "BACKWARD" in b]
    # Small hparams and vocabularies; the second vocabulary has all characters
    # that a poor model writes.
    small = f"--hparams=tiny_digits_set --usr_dir={tiny_usr_dir}"
    for size in (280, 340):
        commands = commands.replace(
            "--hparams=transformer_base",
            f"{small} --train_steps=60 --vocab_size={size}",
            1,
        )
    scripts = str(pathlib.Path(sys.executable).parent)
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", commands],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "bleu " in done.stdout
    # Only "\n" ends a line, whatever characters a poor model writes.
    synthetic = (tmp_path / "synthetic.tsv").read_text().split("\n")[:-1]
    targets = [line.split("\t")[1] for line in synthetic]
    assert targets == [text.replace("\t", " ") for text in mono]
    assert len({line.split("\t")[0] for line in synthetic}) > 20  # samples
    manifest = json.loads((tmp_path / "DATA/both.manifest.json").read_text())
    real, written = manifest["corpora"]
    assert real["copies"] == written["copies"] == written["pairs"]
    assert (real["pairs"], real["tag"], written["tag"]) == (60, "", "<bt>")
    # Evaluated texts have no tag.
    report = json.loads(
        (tmp_path / "FORWARD/evaluations.jsonl").read_text().splitlines()[-1]
    )
    assert report["by_tag"].keys() == {"no tag"}
