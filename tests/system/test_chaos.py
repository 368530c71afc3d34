"""Random damage and kills: no silent errors and no lost data.

A seed, which is printed, determines what happens. For a long test:

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
    """Return the content of each file by its path in the folder."""
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
def fresh_copies(tiny_flags, tiny_run, tiny_usr_dir, tmp_path):
    """Return a function that makes fresh copies of the run and its data."""
    data_dir = tiny_usr_dir.parent / "data"

    def copy():
        for name, source in (("run", tiny_run), ("data", data_dir)):
            shutil.rmtree(tmp_path / name, ignore_errors=True)
            shutil.copytree(source, tmp_path / name)
        return tmp_path / "run", tmp_path / "data"

    return copy


GROWING = ("config.json", "metrics.jsonl", "samples.jsonl")


def test_damage_of_a_run_or_its_data_is_never_silent(
    run_command, tiny_usr_dir, fresh_copies, tmp_path, rounds, chance
):
    lines = tmp_path / "lines"
    lines.write_text("1 2 3\n\n4\n")

    def decode(run, data):
        return "decoder", f"--output_dir={run}", f"--decode_from_file={lines}"

    def evaluate(run, data):
        return "evaluator", f"--output_dir={run}", f"--data_dir={data}"

    def resume(run, data):
        return (
            "trainer",
            "--problem=tiny_digits",
            "--hparams=tiny_digits_set",
            f"--usr_dir={tiny_usr_dir}",
            f"--data_dir={data}",
            f"--output_dir={run}",
            "--train_steps=6",
        )

    intact = {
        command: run_command(*command(*fresh_copies()))
        for command in (decode, evaluate, resume)
    }
    counts = collections.Counter()
    intact_run = contents(fresh_copies()[0])
    for number in range(rounds):
        run, data = fresh_copies()
        damaged = chance.choice([*files_under(run), *files_under(data)])
        damage = chance.choice(DAMAGES)
        command = chance.choice([decode, evaluate, resume])
        if damage in (truncate, flip) and not damaged.stat().st_size:
            continue
        case = f"{number}: {damage.__name__} {damaged}, {command.__name__}"
        damage(damaged, chance)
        before = contents(run), contents(data)
        code, out, err = run_command(*command(run, data))
        assert "Traceback" not in err, f"{case}\n{err}"
        assert code in (0, 1, 2), f"{case}\n{err}"
        if code:
            assert err.strip(), case
        elif command is resume:
            assert "step: 6\n" in out, f"{case}\n{out}"
        elif damaged.name != "config.json":  # may still be valid
            assert out == intact[command][1], f"{case}\n{err}"
        assert not _lost(before[1], contents(data)), case
        lost = _lost(before[0], contents(run))
        after = contents(run)
        # Some commands rewrite the model card, and the trainer copies the
        # vocabulary from the data again.
        lost = {
            path
            for path in lost
            if path.stem != "card" and after.get(path) != intact_run[path]
        }
        if command is resume:
            # A trainer renames a damaged checkpoint and writes its logs.
            lost = {
                path
                for path in lost
                if path.parts[0] != "tensorboard"
                and path.name not in GROWING
                and not _set_aside(run, path, before[0][path])
            }
        assert not lost, f"{case}\n{err}"
        counts[command.__name__, "refused" if code else "done"] += 1
    print(json.dumps({" ".join(key): n for key, n in sorted(counts.items())}))


def _lost(before, after):
    return {path for path in before if after.get(path) != before[path]}


def _set_aside(run, path, content):
    moved = run.glob(f"{path.parent}.damaged*/{path.name}")
    return path.name == "best.json" or any(
        other.is_file() and other.read_bytes() == content for other in moved
    )


def run_killed(words, chance, seconds):
    """Run a command, kill it at a random time; return its exit code."""
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


def require_recent_checkpoint(run):
    """Assert that a killed trainer lost at most the updates of an interval."""
    saved = sorted((run / "checkpoints").glob("step-????????"))
    lines = (run / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines if line[-1:] == "}"]
    newest = int(saved[-1].name.removeprefix("step-"))
    assert steps[-1] - newest <= SAVE_STEPS


@pytest.mark.parametrize(
    "command", ["datagen", "trainer", "decoder", "exporter"]
)
def test_a_killed_command_ends_as_if_it_had_not_been(
    command, tiny_usr_dir, fresh_copies, tmp_path, rounds, chance
):
    lines = tmp_path / "lines"
    lines.write_text("1 2 3\n4 5\n" * 200)
    usr_dir = f"--usr_dir={tiny_usr_dir}"
    problem = ["--problem=tiny_digits", usr_dir]

    def flags(run, data, out_dir):
        """Return the arguments, and a pattern of the files to compare."""
        of_run = [f"--output_dir={run}"]
        return {
            "datagen": ([*problem, f"--data_dir={out_dir}"], "tiny_digits*"),
            "trainer": (
                [*problem, *of_run, "--hparams=tiny_digits_set"]
                + [f"--data_dir={data}", "--train_steps=40", "--log_steps=1"]
                + [f"--save_steps={SAVE_STEPS}", "--deterministic"],
                "checkpoints/step-00000040/tensors.index",
            ),
            "decoder": (
                [*of_run, usr_dir, f"--decode_from_file={lines}"]
                + [f"--decode_to_file={out_dir / 'out'}"],
                "out",
            ),
            "exporter": (
                [*of_run, usr_dir, f"--export_dir={out_dir}"],
                "*/variables/variables.data*",
            ),
        }[command]

    def outcome(killed):
        run, data = fresh_copies()
        out_dir = tmp_path / "made"
        shutil.rmtree(out_dir, ignore_errors=True)
        out_dir.mkdir()
        argv, pattern = flags(run, data, out_dir)
        words = [sys.executable, "-m", "t2t_lite.bin.main", command, *argv]
        for _ in range(killed):
            run_killed(words, chance, seconds)
            if command == "trainer":
                require_recent_checkpoint(run)
        start = time.monotonic()
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        left = [*out_dir.rglob(".*.tmp"), *run.rglob(".*.tmp")]
        assert not left, "what was killed is left"
        results = sorted([*out_dir.glob(pattern), *run.glob(pattern)])
        assert results
        # A set, because an exporter killed at its end exports a second time.
        found = {path.read_bytes() for path in results}
        if command == "trainer":  # its state has run times
            tensors = tensors_of(results[0].parent)
            found = {name: each.tobytes() for name, each in tensors.items()}
        return found, time.monotonic() - start

    expected, seconds = outcome(killed=0)
    for _ in range(max(1, rounds // 20)):
        assert outcome(killed=2)[0] == expected
