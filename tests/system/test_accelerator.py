"""`benchmarks/accelerator.py` at tiny sizes, as a bare machine would run it."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from support.places import ROOT

TINY = (
    "--models=tiny --tokens=32 --length=16 --pair=8 --sentences=2 "
    "--vocab_size=50 --rounds=2 --updates=1 --peak_tflops=1"
)


@pytest.mark.slow  # a process for each task
@pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="JAX is not installed"
)
def test_core_trains_and_decodes_with_jax_and_keras_alone(tmp_path):
    for missing in ("tensorflow", "torch", "sentencepiece", "sacrebleu"):
        code = f"raise ImportError('no {missing}')"
        (tmp_path / f"{missing}.py").write_text(code)
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "accelerator.py", *TINY.split()],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert not done.returncode, done.stderr
    alone, *lines = done.stdout.splitlines()
    assert alone.endswith("has no PyTorch: ours alone.")
    train, greedy, beam = map(json.loads, lines)
    assert [line["task"] for line in (train, greedy, beam)] == [
        "train",
        "greedy",
        "beam",
    ]
    assert train["share_of_peak"] == train["tflops"]
    assert all(line["side"] == "t2t-lite" for line in (train, greedy, beam))
