"""A day of training, by many short rounds: nothing grows."""

import json
import subprocess
import sys

import pytest

from support.places import ROOT


@pytest.mark.slow
def test_memory_files_and_threads_stay_as_they_are():
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "long_run.py", "--rounds=100"],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    grown = json.loads(done.stdout.splitlines()[-1])
    before, after = grown["megabytes"]
    assert after <= before * 1.05
    for name in ("files", "threads", "python_threads"):
        before, after = grown[name]
        assert after <= before, name
