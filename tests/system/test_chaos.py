"""Damage and kills at random: nothing breaks in silence, nothing gets lost.

What is tried follows from a seed, which is printed. For a long night:

    pytest -m slow tests/system/test_chaos.py --rounds=2000 --chaos_seed=7 -s
"""

import collections
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from support.tiny_training import tensors_of

pytestmark = pytest.mark.slow


def truncate(path, chance):
    content = path.read_bytes()
    path.write_bytes(content[: chance.randrange(len(content))])


def flip(path, chance):
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= chance.randrange(1, 256)
    path.write_bytes(content)


def empty(path, chance):
    path.write_bytes(b"")


def delete(path, chance):
    path.unlink()


def put_folder(path, chance):
    path.unlink()
    path.mkdir()


def put_dangling_link(path, chance):
    path.unlink()
    path.symlink_to(path.with_name("gone"))


DAMAGES = (truncate, flip, empty, delete, put_folder, put_dangling_link)


def files_under(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def contents(folder):
    """What each file holds, by its path in the folder."""
    return {
        path.relative_to(folder): path.read_bytes()
        for path in files_under(folder)
    }


@pytest.fixture
def rounds(request):
    return request.config.getoption("--rounds")


@pytest.fixture
def chance(request):
    seed = request.config.getoption("--chaos_seed")
    print(f"\n{request.node.name}: --chaos_seed={seed}")
    return random.Random(f"{request.node.name} {seed}")


@pytest.fixture
def places(tiny_flags, tiny_run, tiny_usr_dir, tmp_path):
    """A function that makes fresh copies of the run and of its data."""
    data_dir = tiny_usr_dir.parent / "data"

    def copy():
        for name, source in (("run", tiny_run), ("data", data_dir)):
            shutil.rmtree(tmp_path / name, ignore_errors=True)
            shutil.copytree(source, tmp_path / name)
        return tmp_path / "run", tmp_path / "data"

    return copy


GROWING = ("config.json", "metrics.jsonl", "samples.jsonl")


def test_damage_of_a_run_or_its_data_is_never_silent(
    run_command, tiny_usr_dir, places, tmp_path, rounds, chance
):
    lines = tmp_path / "lines"
    lines.write_text("1 2 3\n\n4\n")

    def decode(run, data):
        return "decoder", f"--output_dir={run}", f"--decode_from_file={lines}"

    def evaluate(run, data):
        return "evaluator", f"--output_dir={run}", f"--data_dir={data}"

    def go_on(run, data):
        return (
            "trainer",
            "--problem=tiny_digits",
            "--hparams=tiny_digits_set",
            f"--usr_dir={tiny_usr_dir}",
            f"--data_dir={data}",
            f"--output_dir={run}",
            "--train_steps=6",
        )

    sound = {
        command: run_command(*command(*places()))
        for command in (decode, evaluate, go_on)
    }
    counts = collections.Counter()
    sound_run = contents(places()[0])
    for number in range(rounds):
        run, data = places()
        damaged = chance.choice([*files_under(run), *files_under(data)])
        damage = chance.choice(DAMAGES)
        command = chance.choice([decode, evaluate, go_on])
        if damage in (truncate, flip) and not damaged.stat().st_size:
            continue
        told = f"{number}: {damage.__name__} {damaged}, {command.__name__}"
        damage(damaged, chance)
        before = contents(run), contents(data)
        code, out, err = run_command(*command(run, data))
        assert "Traceback" not in err, f"{told}\n{err}"
        assert code in (0, 1, 2), f"{told}\n{err}"
        if code:
            assert err.strip(), told
        elif command is go_on:
            assert "step: 6\n" in out, f"{told}\n{out}"
        elif damaged.name != "config.json":  # a valid one asks for something
            assert out == sound[command][1], f"{told}\n{err}"
        assert not _lost(before[1], contents(data)), told
        lost = _lost(before[0], contents(run))
        after = contents(run)
        # The card tells of the newest state. A trainer copies the vocabulary
        # of the data again.
        lost = {
            path
            for path in lost
            if path.stem != "card" and after.get(path) != sound_run[path]
        }
        if command is go_on:
            # A trainer renames a damaged checkpoint and writes its logs.
            lost = {
                path
                for path in lost
                if path.parts[0] != "tensorboard"
                and path.name not in GROWING
                and not _set_aside(run, path, before[0][path])
            }
        assert not lost, f"{told}\n{err}"
        counts[command.__name__, "refused" if code else "done"] += 1
    print(json.dumps({" ".join(key): n for key, n in sorted(counts.items())}))


def _lost(before, after):
    """The files that are gone or hold something else."""
    return {path for path in before if after.get(path) != before[path]}


def _set_aside(run, path, content):
    """Whether a checkpoint's file was moved, whole, or a new best marked."""
    moved = run.glob(f"{path.parent}.damaged*/{path.name}")
    return path.name == "best.json" or any(
        other.is_file() and other.read_bytes() == content for other in moved
    )


def run_killed(words, chance, seconds):
    """Runs a command and kills it within so many seconds; its exit code."""
    process = subprocess.Popen(
        words,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        process.wait(timeout=chance.uniform(0, seconds))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    assert b"Traceback" not in err, err.decode()
    return process.returncode


SAVE_STEPS = 5


def require_a_late_checkpoint(run):
    """A killed trainer has lost the updates of one interval at most."""
    saved = sorted((run / "checkpoints").glob("step-????????"))
    lines = (run / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines if line[-1:] == "}"]
    newest = int(saved[-1].name.removeprefix("step-"))
    assert steps[-1] - newest <= SAVE_STEPS


@pytest.mark.parametrize(
    "command", ["datagen", "trainer", "average", "decoder", "exporter"]
)
def test_a_killed_command_ends_as_if_it_had_not_been(
    command, tiny_usr_dir, places, tmp_path, rounds, chance
):
    lines = tmp_path / "lines"
    lines.write_text("1 2 3\n4 5\n" * 200)
    usr_dir = f"--usr_dir={tiny_usr_dir}"
    problem = ["--problem=tiny_digits", usr_dir]

    def flags(run, data, made):
        """The command, and which files to compare of what it makes."""
        of_run = [f"--output_dir={run}"]
        return {
            "datagen": ([*problem, f"--data_dir={made}"], "tiny_digits*"),
            "trainer": (
                [*problem, *of_run, "--hparams=tiny_digits_set"]
                + [f"--data_dir={data}", "--train_steps=40", "--log_steps=1"]
                + [f"--save_steps={SAVE_STEPS}", "--deterministic"],
                "checkpoints/step-00000040/tensors.index",
            ),
            "average": (
                [*of_run, "--num_checkpoints=2"],
                "checkpoints/average-2-*/tensors*",
            ),
            "decoder": (
                [*of_run, usr_dir, f"--decode_from_file={lines}"]
                + [f"--decode_to_file={made / 'out'}"],
                "out",
            ),
            "exporter": (
                [*of_run, usr_dir, f"--export_dir={made}"],
                "*/variables/variables.data*",
            ),
        }[command]

    def outcome(killed):
        run, data = places()
        made = tmp_path / "made"
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir()
        argv, pattern = flags(run, data, made)
        words = [sys.executable, "-m", "t2t_lite.bin.main", command, *argv]
        for _ in range(killed):
            run_killed(words, chance, seconds)
            if command == "trainer":
                require_a_late_checkpoint(run)
        start = time.monotonic()
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        left = [*made.rglob(".*.tmp"), *run.rglob(".*.tmp")]
        assert not left, "what was killed is left"
        results = sorted([*made.glob(pattern), *run.glob(pattern)])
        assert results
        # A set: an exporter killed when it was done exports once more.
        found = {path.read_bytes() for path in results}
        if command == "trainer":  # its state has the seconds
            tensors = tensors_of(results[0].parent)
            found = {name: each.tobytes() for name, each in tensors.items()}
        return found, time.monotonic() - start

    expected, seconds = outcome(killed=0)
    for _ in range(max(1, rounds // 20)):
        assert outcome(killed=2)[0] == expected
