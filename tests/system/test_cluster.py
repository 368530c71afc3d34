"""Training with several workers: equal results, and lost workers."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import uuid

import pytest

from support.lines import last_of_each
from support.places import ROOT
from support.tiny_training import require_same, tensors_of

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "t2t_lite.bin.main", "trainer"]
# Five micro-batches do not divide evenly among workers.
HPARAMS = "gradient_accumulation_steps=5,learning_rate=0.05,train_steps="
OPTIONS = {"eval_steps_every": 10, "save_steps": 10, "log_steps": 1}
ENDLESS = ["--train_steps=1000000", "--eval_steps_every=1000000"]


def flags_of(options):
    return [f"--{name}={value}" for name, value in options.items()]


def free_addresses(count):
    with contextlib.ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            for _ in range(count)
        ]
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]


def by_flags(addresses, number):
    return [f"--workers={','.join(addresses)}", f"--worker={number}"], {}


def by_tf_config(addresses, number):
    cluster = {"chief": addresses[:1], "worker": addresses[1:]}
    task = {"type": "worker", "index": number - 1}
    if number == 0:
        task = {"type": "chief", "index": 0}
    return [], {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}


def by_slurm(addresses, number):
    return [], {
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_PROCID": str(number),
        "SLURM_STEP_NUM_TASKS": str(len(addresses)),
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_STEP_TASKS_PER_NODE": str(len(addresses)),
    }


class Workers:
    """Processes that train together; their stderr goes to files."""

    def __init__(self, folder, flags, addresses, own=None, start=by_flags):
        self.addresses = addresses
        self.logs, self.processes = [], []
        for number in range(len(addresses)):
            if own is not None and own.get(number) is None:
                continue  # this worker is not started
            words, environment = start(addresses, number)
            self.logs.append(folder / f"worker{number}.log")
            with open(self.logs[-1], "w") as log:
                words = [*flags, *words, *(own or {}).get(number, [])]
                process = subprocess.Popen(
                    [*COMMAND, *last_of_each(words)],
                    env={**os.environ, **environment},
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                )
            self.processes.append(process)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for process in self.processes:
            process.kill()
            process.wait()

    def last_lines(self):
        return [log.read_text().splitlines()[-1] for log in self.logs]

    def exit_codes(self, timeout=180):
        return [process.wait(timeout) for process in self.processes]

    def wait_for(self, text, timeout=120):
        deadline = time.monotonic() + timeout
        while text not in (log := self.logs[0].read_text()):
            assert self.processes[0].poll() is None, log
            assert time.monotonic() < deadline, log
            time.sleep(0.05)


@pytest.fixture
def start(tiny_flags, tmp_path):
    """Return a function that starts the workers of a run."""

    def start_workers(*flags, count=2, **options):
        flags = [
            *tiny_flags,
            *flags_of(OPTIONS),
            f"--output_dir={tmp_path / 'run'}",
            *flags,
        ]
        return Workers(tmp_path, flags, free_addresses(count), **options)

    return start_workers


def train_alone(tiny_flags, run, steps):
    flags = [*tiny_flags, *flags_of(OPTIONS), f"--output_dir={run}"]
    flags.append(f"--hparams_override={HPARAMS}{steps}")
    subprocess.run([*COMMAND, *last_of_each(flags)], check=True, timeout=180)
    return run


@pytest.fixture(scope="session")
def one_device(tiny_flags, tmp_path_factory):
    """A run that one process trained on one device."""
    run = tmp_path_factory.mktemp("one_device") / "run"
    return train_alone(tiny_flags, run, 20)


def assert_equal_weights(ours, theirs, step=20):
    name = f"checkpoints/step-{step:08d}"
    require_same(tensors_of(ours / name), tensors_of(theirs / name), 1e-5)


def scores(run):
    """Return the loss of each update, and dev loss and BLEU by update."""
    records = map(json.loads, open(run / "metrics.jsonl"))
    return {
        (record["step"], record.get("weights"), key): record[key]
        for record in records
        for key in ("loss", "dev_loss", "dev_bleu")
        if key in record
    }


def test_two_workers_give_the_weights_and_scores_of_one_device(
    start, tmp_path, one_device
):
    with start(f"--hparams_override={HPARAMS}20") as workers:
        assert workers.exit_codes() == [0, 0], workers.last_lines()
    run = tmp_path / "run"
    assert_equal_weights(run, one_device)
    assert scores(run) == pytest.approx(scores(one_device), rel=1e-4, abs=1e-4)
    config = json.loads((run / "config.json").read_text())
    assert config["training_cost"]["devices"] == 2


def test_a_run_resumes_with_another_number_of_workers(
    start, tmp_path, tiny_flags, one_device
):
    run = tmp_path / "run"
    override = f"--hparams_override={HPARAMS}20"
    steps = [override, "--train_steps=8"]
    with start(*steps, start=by_tf_config) as workers:
        assert workers.exit_codes() == [0, 0], workers.last_lines()
    train_alone([*tiny_flags, "--train_steps=13"], run, 20)
    with start(override, count=3, start=by_slurm) as workers:
        assert workers.exit_codes() == [0, 0, 0], workers.last_lines()
    assert "update 13" in workers.logs[0].read_text()
    assert_equal_weights(run, one_device)


def test_sigterm_to_one_worker_saves_once_and_all_exit_with_75(start, tmp_path):
    with start(*ENDLESS) as workers:
        workers.wait_for("step 15/")
        workers.processes[1].send_signal(signal.SIGTERM)
        assert workers.exit_codes(60) == [75, 75], workers.last_lines()
    saved = {
        re.search(r"update (\d+)", line)[1] for line in workers.last_lines()
    }
    (step,) = map(int, saved)
    assert (tmp_path / "run" / "checkpoints" / f"step-{step:08d}").is_dir()


@pytest.mark.parametrize(
    "number, lost",
    [(signal.SIGKILL, 0), (signal.SIGKILL, 1), (signal.SIGSTOP, 1)],
)
def test_lost_worker_is_named_by_the_others_which_exit(start, number, lost):
    with start(*ENDLESS, count=3) as workers:
        workers.wait_for("step 15/")
        workers.processes[lost].send_signal(number)
        began = time.monotonic()
        others = {0, 1, 2} - {lost}
        assert [workers.processes[n].wait(60) for n in others] == [1, 1]
        seconds = time.monotonic() - began  # quoted in docs/clusters.md
        print(f"{number.name} to worker {lost}: {seconds:.1f} s")
        for other in others:
            assert workers.addresses[lost] in workers.last_lines()[other]
            assert "Traceback" not in workers.logs[other].read_text()


def test_a_worker_that_never_starts_is_named_after_cluster_timeout(start):
    with start("--cluster_timeout=3", own={0: []}) as workers:
        assert workers.exit_codes(60) == [1]
    assert workers.addresses[1] in workers.last_lines()[0]


def test_different_hparams_of_workers_are_an_error(start, tmp_path):
    own = {0: [], 1: ["--hparams_override=residual_dropout=0.3"]}
    with start(own=own) as workers:
        assert workers.exit_codes() == [1, 1]
    for line in workers.last_lines():
        assert "residual_dropout" in line and workers.addresses[1] in line
    assert not (tmp_path / "run").exists()


def test_different_data_of_workers_is_an_error_before_a_run_exists(
    start, tmp_path, tiny_usr_dir
):
    # The problem is the same, but reads a different file on each worker.
    code = (tiny_usr_dir / "tiny_digits.py").read_text()
    assert "37 + 1" in code
    code = code.replace("37 + 1", "37 + int(open(SHIFT).read())")
    own = {}
    for number in range(2):
        usr = tmp_path / f"usr{number}"
        usr.mkdir()
        (usr / "shift").write_text(str(number))
        (usr / "tiny_digits.py").write_text(
            f"{code}\nSHIFT = __file__[:-14] + 'shift'\n"
        )
        data = f"--data_dir={tmp_path / f'data{number}'}"
        own[number] = [f"--usr_dir={usr}", data]
    with start(own=own) as workers:
        assert workers.exit_codes() == [1, 1]
    for line in workers.last_lines():
        assert "data" in line and workers.addresses[1] in line
    assert not (tmp_path / "run").exists()


def processes_with(title, mark):
    """Return the ids of processes with a title and environment variable."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            named = title in (folder / "cmdline").read_text()
            if named and mark in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found


def test_ray_train_restarts_a_killed_worker_and_the_weights_stay_equal(
    tiny_flags, tmp_path
):
    pytest.importorskip("ray.train")
    run, log = tmp_path / "run", tmp_path / "log"
    flags = dict(flag.removeprefix("--").split("=") for flag in tiny_flags)
    options = flags | OPTIONS | {"output_dir": str(run)}
    options["hparams_override"] = f"{HPARAMS}60"
    mark = f"T2T_LITE_TEST={uuid.uuid4()}"
    script = ROOT / "examples" / "clusters" / "ray_train.py"
    environment = {"RAY_DEDUP_LOGS": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    environment |= dict([mark.split("=")])
    with open(log, "w") as output:
        process = subprocess.Popen(
            [sys.executable, script, "--num_workers=2", json.dumps(options)],
            env={**os.environ, **environment},
            stdout=output,
            stderr=output,
        )
    try:
        saved = run / "checkpoints" / "step-00000020"
        while not saved.is_dir():
            assert process.poll() is None, log.read_text()
            time.sleep(0.01)
        os.kill(processes_with("RayTrainWorker", mark.encode())[0], 9)
        assert process.wait(300) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    assert "from update" in log.read_text()
    alone = train_alone(tiny_flags, tmp_path / "alone", 60)
    assert_equal_weights(run, alone, 60)
