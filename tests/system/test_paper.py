"""`make paper`: the set of each row, the table and the plot."""

import gzip
import random
import runpy
import subprocess
import sys

import pytest

from support.places import ROOT
from t2t_lite import plugins, registry

SCRIPT = ROOT / "examples" / "paper" / "run.py"


def test_every_row_has_a_registered_set_and_equal_updates():
    plugins.load_plugins()
    names = [name for name, *_ in runpy.run_path(SCRIPT)["ROWS"]]
    sets = [registry.hparams(f"{name}_quarter") for name in names]
    assert len({(s.train_steps, s.batch_tokens) for s in sets}) == 1
    base = sets[names.index("transformer_base")]
    assert (base.hidden_size, base.filter_size) == (128, 512)
    assert (base.num_heads, base.num_layers) == (8, (3, 3))
    narrow = sets[names.index("transformer_k16")]
    assert (narrow.key_depth, narrow.value_depth) == (4, None)


@pytest.fixture
def raw_dir(tmp_path):
    """A tiny corpus with the file names of Multi30k."""
    folder, numbers = tmp_path / "raw", random.Random(0)
    folder.mkdir()
    for split, count in ("train", 400), ("val", 4), ("test_2016_flickr", 4):
        # Enough words for a vocabulary of 8,000 pieces.
        lines = [
            " ".join(
                "".join(numbers.choices("aeinrst", k=6)) for _ in range(20)
            )
            for _ in range(count)
        ]
        text = gzip.compress("\n".join([*lines, ""]).encode())
        for language in ("en", "de"):
            (folder / f"{split}.{language}.gz").write_bytes(text)
    return folder


@pytest.mark.slow
def test_rows_are_trained_once_and_a_failed_row_leaves_the_others(
    raw_dir, tmp_path
):
    out = tmp_path / "out"

    def run(rows):
        command = [sys.executable, SCRIPT, f"--output_dir={out}"]
        command += [f"--raw_dir={raw_dir}", f"--rows={rows}", "--train_steps=2"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert (out / "plot.png").read_bytes().startswith(b"\x89PNG")
        (out / "plot.png").unlink()
        assert done.stdout.strip() == (out / "table.md").read_text().strip()
        table = done.stdout.strip().splitlines()[2:]
        return done, [row.split("|")[1].strip() for row in table]

    done, rows = run("transformer_additive")
    assert (done.returncode, rows) == (0, ["base", "additive attention"])
    damaged = out / "transformer_h1-1"
    damaged.mkdir()
    (damaged / "config.json").write_text("no JSON")
    finished = out / "transformer_additive-1" / "metrics.jsonl"
    before = finished.stat().st_mtime_ns
    done, rows = run("transformer_h1,transformer_additive")
    assert (done.returncode, rows) == (1, ["base", "additive attention"])
    assert "transformer_h1" in done.stderr
    assert finished.stat().st_mtime_ns == before  # not trained again
