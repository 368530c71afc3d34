"""The trainer as a separate process: replicas, a usr_dir, Ctrl-C."""

import json
import re
import signal
import subprocess

import pytest

from support.lines import command_line
from support.places import ROOT

pytestmark = pytest.mark.slow


def test_trainer_runs_with_two_replicas(tiny_flags, tmp_path, run_process):
    done = run_process(
        "trainer", *tiny_flags, f"--output_dir={tmp_path}", "--replicas=2"
    )
    assert done.returncode == 0, done.stderr
    assert "step: 4\n" in done.stdout
    assert "cudart" not in done.stderr


def test_roman_numerals_train_from_their_usr_dir(tmp_path, run_process):
    run = [
        f"--output_dir={tmp_path / 'run'}",
        f"--usr_dir={ROOT / 'examples' / 'roman_numerals'}",
    ]
    flags = [
        "--problem=roman_numerals",
        "--hparams=transformer_roman",
        "--hparams_override=train_steps=8",
        f"--data_dir={tmp_path / 'data'}",
    ]
    done = run_process("trainer", *run, *flags)
    assert done.returncode == 0, done.stderr
    assert "step: 8\n" in done.stdout
    assert f"t2t-lite-evaluator {' '.join(run)}" in done.stderr
    done = run_process("evaluator", *run, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["sentences"] == 200


def test_sigterm_saves_and_the_same_command_resumes(
    tiny_flags, tmp_path, run_process
):
    flags = [*tiny_flags, f"--output_dir={tmp_path}", "--log_steps=1"]
    flags += ["--train_steps=1000000", "--eval_steps_every=1000000"]
    with subprocess.Popen(
        [*command_line("trainer"), *flags], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            next(line for line in process.stderr if "step 5/" in line)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 75, err
    step = int(re.search(r"update (\d+) is saved", err)[1])
    done = run_process("trainer", *flags, f"--train_steps={step + 1}")
    assert done.returncode == 0, done.stderr
    assert f"from update {step} in" in done.stderr


def test_ctrl_c_during_data_generation_leaves_no_partial_data(tmp_path):
    usr_dir = tmp_path / "usr"
    usr_dir.mkdir()
    (usr_dir / "usr_slow.py").write_text(
        "import time\n"
        "from t2t_lite import Text2TextProblem\n"
        "from t2t_lite.registry import register_problem\n"
        "@register_problem('usr_slow')\n"
        "class UsrSlow(Text2TextProblem):\n"
        "    vocab_size = 280\n"
        "    def samples(self, split, raw):\n"
        "        print('sampling', flush=True)\n"
        "        while True:\n"
        "            time.sleep(0.01)\n"
        "            yield 'a b', 'c d'\n"
    )
    flags = [
        "--problem=usr_slow",
        "--hparams=transformer_toy",
        f"--usr_dir={usr_dir}",
        f"--data_dir={tmp_path / 'data'}",
        f"--output_dir={tmp_path / 'run'}",
    ]
    process = subprocess.Popen(
        [*command_line("trainer"), *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "sampling\n"
    process.send_signal(signal.SIGUSR1)  # has no effect before training
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == "t2t-lite-trainer: stopped by Ctrl-C."
    assert "Traceback" not in err
    assert not list(tmp_path.glob("data/*manifest*"))
    assert not (tmp_path / "run").exists()
