"""Several processes train one run: the arithmetic, and what goes wrong."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from t2t_lite.training.cluster.local_workers import free_ports

pytestmark = pytest.mark.slow

# Five micro-batches are uneven for any number of workers here.
CUT = "--hparams_override=micro_batches=5,train_steps=20,learning_rate=0.05"
STEPS = ["--eval_steps_every=10", "--save_steps=10", "--log_steps=1"]
COMMAND = [sys.executable, "-m", "t2t_lite.bin.trainer"]


def addresses(count):
    return ",".join(f"127.0.0.1:{port}" for port in free_ports(count))


class Cluster:
    """Processes that train together; their stderr is in files."""

    def __init__(
        self,
        folder,
        flags,
        workers,
        prefixes=(),
        only=None,
        commands=None,
        by_tf_config=False,
    ):
        self.count = workers.count(",") + 1
        self.logs = [folder / f"worker{n}.log" for n in range(self.count)]
        self.processes = []
        for number in only or range(self.count):
            with open(self.logs[number], "w") as log:
                prefix = prefixes[number] if prefixes else []
                who = [f"--workers={workers}", f"--worker={number}"]
                environment = dict(os.environ)
                if by_tf_config:  # as a training operator says it
                    who = []
                    cluster = {"worker": workers.split(",")}
                    task = {"type": "worker", "index": number}
                    environment["TF_CONFIG"] = json.dumps(
                        {"cluster": cluster, "task": task}
                    )
                self.processes.append(
                    subprocess.Popen(
                        [
                            *prefix,
                            *(commands or {}).get(number, COMMAND),
                            *(flag.format(worker=number) for flag in flags),
                            *who,
                        ],
                        env=environment,
                        stdout=subprocess.DEVNULL,
                        stderr=log,
                    )
                )

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()

    def log(self, number):
        return self.logs[number].read_text()

    def wait(self, timeout=180):
        deadline = time.monotonic() + timeout
        return [
            process.wait(max(deadline - time.monotonic(), 0.1))
            for process in self.processes
        ]

    def until(self, pattern, timeout=120):
        """Waits until the chief's log has a line."""
        deadline = time.monotonic() + timeout
        while not re.search(pattern, self.log(0)):
            assert self.processes[0].poll() is None, self.log(0)
            assert time.monotonic() < deadline, self.log(0)
            time.sleep(0.05)


@pytest.fixture
def train(tiny_flags, tmp_path):
    """A function that starts a cluster, or one process, on a run."""

    def start(run, *flags, workers=None, **options):
        flags = [*tiny_flags, *STEPS, f"--output_dir={run}", *flags]
        if workers is None:
            return subprocess.run([*COMMAND, *flags], check=True, timeout=180)
        return Cluster(tmp_path, flags, workers, **options)

    return start


def weights(run, step, part="."):
    import tensorflow as tf

    path = run / "checkpoints" / f"step-{step:08d}" / part / "tensors"
    reader = tf.train.load_checkpoint(str(path))
    names = reader.get_variable_to_shape_map()
    return {
        name: reader.get_tensor(name)
        for name in names
        if name.startswith("model/")
    }


def losses(run):
    """The line of each update, and the dev evaluations."""
    records = [json.loads(line) for line in open(run / "metrics.jsonl")]
    trained = {r["step"]: r["loss"] for r in records if "loss" in r}
    judged = [
        [r["step"], r["dev_loss"], r["dev_bleu"]]
        for r in records
        if "dev_loss" in r
    ]
    return trained, judged


def assert_equal_runs(ours, theirs, step=20):
    mine, others = weights(ours, step), weights(theirs, step)
    assert mine.keys() == others.keys()
    for name in mine:
        np.testing.assert_allclose(
            mine[name], others[name], rtol=0, atol=1e-5, err_msg=name
        )
    (trained, judged), (trained_alone, judged_alone) = map(
        losses, (ours, theirs)
    )
    assert trained == pytest.approx(trained_alone, rel=1e-4)
    np.testing.assert_allclose(judged, judged_alone, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="session")
def one_process(tiny_flags, tmp_path_factory):
    """The run that one process trains on one device."""
    run = tmp_path_factory.mktemp("one") / "run"
    flags = [*tiny_flags, *STEPS, CUT, f"--output_dir={run}"]
    subprocess.run([*COMMAND, *flags], check=True, timeout=180)
    return run


@pytest.mark.parametrize("workers, replicas", [(2, 2), (3, 1)])
def test_workers_and_replicas_give_the_weights_of_one_device(
    train, tmp_path, one_process, workers, replicas
):
    run = tmp_path / "run"
    together = addresses(workers)
    with train(run, CUT, f"--replicas={replicas}", workers=together) as cluster:
        assert cluster.wait() == [0] * workers, cluster.log(0)
    assert_equal_runs(run, one_process)
    config = json.loads((run / "config.json").read_text())
    assert config["training_cost"]["devices"] == workers * replicas


def test_tf_config_says_who_trains_and_each_may_have_its_own_data(
    train, tmp_path, one_process
):
    run = tmp_path / "run"
    flags = (CUT, f"--data_dir={tmp_path}/data{{worker}}")
    together = addresses(2)
    with train(run, *flags, workers=together, by_tf_config=True) as cluster:
        assert cluster.wait() == [0, 0], cluster.log(0)
    assert (tmp_path / "data0").is_dir() and (tmp_path / "data1").is_dir()
    assert_equal_runs(run, one_process)


def test_other_data_of_a_worker_is_named_before_the_run_is_made(
    train, tmp_path, tiny_usr_dir
):
    # The same problem, which makes other pairs of another file.
    for number in range(2):
        usr = tmp_path / f"usr{number}"
        shutil.copytree(tiny_usr_dir, usr)
        (usr / "shift").write_text(str(number))
        code = usr / "tiny_digits.py"
        content = code.read_text()
        assert "37 + 1" in content
        content = content.replace("37 + 1", "37 + int(open(SHIFT).read())")
        code.write_text(f"{content}\nSHIFT = __file__[:-14] + 'shift'\n")
    run = tmp_path / "run"
    flags = [
        f"--{kind}_dir={tmp_path}/{kind}{{worker}}" for kind in ("usr", "data")
    ]
    with train(run, *flags, workers=addresses(2)) as cluster:
        assert cluster.wait() == [1, 1]
        for number in range(2):
            log = cluster.log(number)
            assert "Give all workers the same data." in log, log
    assert not run.exists()


def test_workers_share_a_moving_average_adafactor_and_frozen_weights(
    train, tmp_path
):
    runs = alone, shared = tmp_path / "alone", tmp_path / "shared"
    cut = f"{CUT},optimizer=adafactor,ema_decay=0.9"
    flags = (cut, "--freeze=encoder")
    train(alone, *flags)
    with train(shared, *flags, workers=addresses(2)) as cluster:
        assert cluster.wait() == [0, 0], cluster.log(0)
    assert_equal_runs(shared, alone)
    mine, others = (weights(run, 20, part="ema") for run in runs)
    assert mine.keys() == others.keys() != set()
    for name in mine:
        np.testing.assert_allclose(mine[name], others[name], rtol=0, atol=1e-5)


def test_a_run_goes_on_with_another_number_of_workers(
    train, tmp_path, one_process
):
    run = tmp_path / "run"
    with train(run, CUT, "--train_steps=8", workers=addresses(2)) as cluster:
        assert cluster.wait() == [0, 0], cluster.log(0)
    train(run, CUT, "--train_steps=13")
    with train(run, CUT, workers=addresses(3)) as cluster:
        assert cluster.wait() == [0, 0, 0], cluster.log(0)
    assert "Going on from update 13" in cluster.log(0)
    mine, others = weights(run, 20), weights(one_process, 20)
    for name in mine:
        np.testing.assert_allclose(mine[name], others[name], rtol=0, atol=1e-5)
    ours, theirs = losses(run)[0], losses(one_process)[0]
    assert ours == pytest.approx(theirs, rel=1e-4)


FOREVER = ["--train_steps=1000000", "--eval_steps_every=1000000"]


def test_sigterm_to_one_saves_all_at_one_update_and_they_leave_with_75(
    train, tmp_path
):
    run = tmp_path / "run"
    with train(run, *FOREVER, workers=addresses(3)) as cluster:
        cluster.until("step 20/")
        cluster.processes[2].send_signal(signal.SIGTERM)
        assert cluster.wait(60) == [75] * 3, cluster.log(0)
    saved = {
        re.search(r"update (\d+) is saved", cluster.log(n))[1] for n in range(3)
    }
    assert len(saved) == 1
    step = int(saved.pop())
    assert (run / "checkpoints" / f"step-{step:08d}").is_dir()
    train(run, f"--train_steps={step + 1}")
    assert losses(run)[0].keys() == set(range(1, step + 2))


@pytest.mark.parametrize(
    "number, lost",
    [
        (signal.SIGKILL, 1),
        (signal.SIGKILL, 0),
        (signal.SIGSTOP, 1),
        (signal.SIGSTOP, 0),
    ],
)
def test_who_dies_or_hangs_is_named_and_the_others_stop_within_a_minute(
    train, tmp_path, number, lost
):
    run = tmp_path / "run"
    together = addresses(3)
    name = f"worker {lost} ({together.split(',')[lost]})"
    with train(run, *FOREVER, workers=together) as cluster:
        cluster.until("step 30/")
        began = time.monotonic()
        cluster.processes[lost].send_signal(number)
        others = [n for n in range(3) if n != lost]
        for other in others:
            assert cluster.processes[other].wait(60) == 1
        took = time.monotonic() - began
        for other in others:
            log = cluster.log(other)
            assert name in log.splitlines()[-1], log
            assert "Traceback" not in log
    print(f"\n{number.name} {name}: the others stopped after {took:.1f} s")
    # What is saved is sound: the same command goes on.
    step = max(int(p.name[5:]) for p in (run / "checkpoints").glob("step-*"))
    with train(
        run, f"--train_steps={step + 3}", workers=addresses(2)
    ) as cluster:
        assert cluster.wait() == [0, 0], cluster.log(0)
    assert f"Going on from update {step}" in cluster.log(0)


# A trainer that gets a signal where TensorFlow would join the workers.
LOST_AT_THE_JOIN = """
import os, sys
from t2t_lite.bin import trainer
from t2t_lite.training.cluster import machines
machines._enable_collectives = lambda *_: os.kill(os.getpid(), {number})
sys.exit(trainer.main())
"""


@pytest.mark.parametrize(
    "number, lost",
    [(signal.SIGKILL, 1), (signal.SIGKILL, 0), (signal.SIGSTOP, 0)],
)
def test_who_dies_or_hangs_while_they_join_is_named_within_a_minute(
    train, tmp_path, number, lost
):
    run = tmp_path / "run"
    together = addresses(3)
    name = f"worker {lost} ({together.split(',')[lost]})"
    commands = {
        lost: [
            sys.executable,
            "-c",
            LOST_AT_THE_JOIN.format(number=int(number)),
        ]
    }
    with train(run, workers=together, commands=commands) as cluster:
        others = [n for n in range(3) if n != lost]
        for other in others:
            assert cluster.processes[other].wait(90) == 1, cluster.log(other)
            log = cluster.log(other)
            assert name in log.splitlines()[-1], log
            assert "Traceback" not in log
    assert not run.exists()


# A trainer that never comes to where TensorFlow joins the workers.
NEVER_JOINS = """
import sys, time
from t2t_lite.bin import trainer
from t2t_lite.training.cluster import machines
def never(*_):
    print("waiting for ever", file=sys.stderr, flush=True)
    time.sleep(1000)
machines._enable_collectives = never
sys.exit(trainer.main())
"""


@pytest.mark.parametrize("stopped", [0, 1])
@pytest.mark.parametrize(
    "number, code, cause",
    [(signal.SIGINT, 130, "Ctrl-C"), (signal.SIGTERM, 75, "SIGTERM")],
)
def test_a_signal_while_they_join_ends_all_soon_in_one_line(
    train, tmp_path, number, code, cause, stopped
):
    run = tmp_path / "run"
    together = addresses(2)
    commands = {0: [sys.executable, "-c", NEVER_JOINS]}
    with train(run, workers=together, commands=commands) as cluster:
        cluster.until("waiting for ever")
        time.sleep(3)  # until TensorFlow waits in the other one
        before = [cluster.log(n) for n in range(2)]
        cluster.processes[stopped].send_signal(number)
        codes = cluster.wait(15)
    assert codes.pop(stopped) == code
    assert codes == [75]
    lines = [
        cluster.log(n).removeprefix(text).splitlines()
        for n, text in enumerate(before)
    ]
    (own,) = lines.pop(stopped)
    assert f"opped by {cause}." in own
    ((other,),) = lines
    name = f"worker {stopped} ({together.split(',')[stopped]})"
    assert f"{name} was stopped by {cause} before training began" in other
    assert not run.exists()


def test_a_different_command_is_named_before_anything_is_loaded(
    train, tmp_path
):
    run = tmp_path / "run"
    together = addresses(2)
    with (
        train(run, workers=together, only=[0]) as chief,
        train(run, "--seed=7", workers=together, only=[1]) as other,
    ):
        assert chief.wait() == [1]
        assert other.wait() == [1]
    for log in (chief.log(0), other.log(1)):
        assert "seed is 7 there and 1 on the chief" in log
        assert "Starting TensorFlow" not in log
    assert not run.exists()


def test_a_missing_worker_is_named(train, tmp_path):
    together = addresses(2)
    flags = ("--cluster_timeout=2",)
    with train(tmp_path / "run", *flags, workers=together, only=[0]) as chief:
        assert chief.wait() == [1]
    assert f"worker 1 ({together.split(',')[1]}) missing" in chief.log(0)


def test_local_workers_are_started_told_of_and_stopped_together(
    tiny_flags, tmp_path
):
    flags = [*tiny_flags, *FOREVER, f"--output_dir={tmp_path / 'run'}"]
    log = tmp_path / "log"
    with open(log, "w") as stderr:
        process = subprocess.Popen(
            [*COMMAND, *flags, "--log_steps=1", "--local_workers=2"],
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
    while "step 5/" not in log.read_text():
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[0] == b""
    assert process.returncode == 75, log.read_text()
    told = log.read_text()
    assert "[worker 1] " in told
    assert told.splitlines()[-1].endswith(
        "All workers have stopped. Run the same command to go on."
    )


def test_local_workers_left_before_they_train_end_as_ctrl_c_does(
    tiny_flags, tmp_path
):
    run = tmp_path / "run"
    process = subprocess.Popen(
        [*COMMAND, *tiny_flags, f"--output_dir={run}", "--local_workers=2"],
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in process.stderr:
        if "workers are here" in line:
            break
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == "t2t-lite-trainer: stopped by Ctrl-C."
    assert "Traceback" not in err
    assert not run.exists()


def test_max_minutes_stops_all_at_one_update_and_the_same_command_goes_on(
    tiny_flags, tmp_path, run_process
):
    run = tmp_path / "run"
    flags = [*tiny_flags, f"--output_dir={run}", "--log_steps=1"]
    # Time to start on a busy machine, and some updates.
    flags += ["--local_workers=2", "--max_minutes=1", *FOREVER[1:]]
    began = time.monotonic()
    done = run_process("trainer", *flags, FOREVER[0])
    assert time.monotonic() - began < 70
    assert done.returncode == 75, done.stderr
    # Both say so, the chief and the one whose lines bear its number.
    stops = re.findall(
        r"^(.*)t2t-lite-trainer: Stopped by --max_minutes=1: update (\d+) is "
        r"saved",
        done.stderr,
        re.MULTILINE,
    )
    assert sorted(who for who, _ in stops) == ["", "[worker 1] "], done.stderr
    (step,) = {int(step) for _, step in stops}
    saved = [path.name for path in (run / "checkpoints").glob("step-*")]
    assert f"step-{step:08d}" in saved

    again = run_process("trainer", *flags, f"--train_steps={step + 3}")
    assert again.returncode == 0, again.stderr
    assert f"Going on from update {step} in" in again.stderr
    assert f"step: {step + 3}\n" in again.stdout
    assert losses(run)[0].keys() == set(range(1, step + 4))


@pytest.fixture
def networks():
    """Two network namespaces with a link between; a function cuts it."""
    if os.geteuid() or not shutil.which("ip"):
        pytest.skip("needs root and the command ip")

    def ip(*words):
        subprocess.run(["ip", *words], check=True, capture_output=True)

    names = [f"t2t{os.getpid()}{side}" for side in "ab"]
    try:
        ip("netns", "add", names[0])
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespaces here: {error.stderr!r}")
    try:
        ip("netns", "add", names[1])
        ends = [f"{side}{os.getpid()}" for side in "ab"]
        ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for number, (name, end) in enumerate(zip(names, ends, strict=True)):
            ip("link", "set", end, "netns", name)
            there = ("-n", name)
            ip(*there, "addr", "add", f"10.77.0.{number + 1}/24", "dev", end)
            ip(*there, "link", "set", end, "up")
            ip(*there, "link", "set", "lo", "up")

        def cut():
            ip("-n", names[1], "link", "set", ends[1], "down")

        yield names, cut
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def test_a_cut_network_stops_both_sides_within_a_minute(
    train, tmp_path, networks
):
    names, cut = networks
    run = tmp_path / "run"
    together = "10.77.0.1:2222,10.77.0.2:2222"
    prefixes = [["ip", "netns", "exec", name] for name in names]
    with train(run, *FOREVER, workers=together, prefixes=prefixes) as cluster:
        cluster.until("step 30/")
        began = time.monotonic()
        cut()
        assert cluster.wait(60) == [1, 1], cluster.log(0) + cluster.log(1)
        took = time.monotonic() - began
    print(f"\nboth sides stopped {took:.1f} s after the cut")
    assert "worker 1 (10.77.0.2:2222)" in cluster.log(0).splitlines()[-1]
    assert "worker 0 (10.77.0.1:2222)" in cluster.log(1).splitlines()[-1]
    step = max(int(p.name[5:]) for p in (run / "checkpoints").glob("step-*"))
    train(run, f"--train_steps={step + 1}")
