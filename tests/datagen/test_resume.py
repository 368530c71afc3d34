"""Generation that is stopped goes on; what is finished is not done again."""

import collections
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from support.toy_problem import COMPLETE, Toy, files_in, make
from t2t_lite import files, plugins, registry
from t2t_lite.corpus import filters
from t2t_lite.corpus.parallel_lines import read_parallel
from t2t_lite.data.manifest import Manifest
from t2t_lite.datagen import chunks, split_job, split_writer, unfinished
from t2t_lite.datagen.generate import Generation
from t2t_lite.errors import T2TLiteError


class Files(Toy):
    """The toy problem with a corpus in files."""

    filters = {"duplicates": True}

    def samples(self, split, raw):
        return read_parallel(raw.path("a.txt"), raw.path("b.txt"))


@pytest.fixture
def raw_dir(tmp_path, monkeypatch):
    """A corpus of three chunks, three shards, and copies among them."""
    monkeypatch.setattr(chunks, "CHUNK_PAIRS", 10)
    monkeypatch.setattr(split_writer, "SHARD_EXAMPLES", 8)
    folder = tmp_path / "raw"
    folder.mkdir()
    lines = [f"line {i % 21}\n" for i in range(25)]
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text("".join(lines))
    return folder


def content(folder):
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.is_file()
    }


class Killed(BaseException):
    """Nothing handles it, as nothing handles kill -9."""


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_every_step_it_goes_on_to_the_same_bytes(
    raw_dir, tmp_path, monkeypatch, when
):
    make(Files(), tmp_path / "whole", raw_dir=raw_dir)
    done = collections.Counter()
    write, run = files.write_json, split_job.SplitJob.run
    allowed = 0

    def write_and_die(path, value):
        nonlocal allowed
        if when == "before" and not allowed:
            raise Killed
        write(path, value)
        done[path.name] += 1
        if when == "after" and not allowed:
            raise Killed
        allowed -= 1

    def count_run(job, encoders, chunk):
        done[job.split, chunk.number] += 1
        run(job, encoders, chunk)

    monkeypatch.setattr(files, "write_json", write_and_die)
    monkeypatch.setattr(split_job.SplitJob, "run", count_run)
    folder, attempts = tmp_path / "stopped", 0
    while not (folder / "toy.manifest.json").exists():
        allowed, attempts = 1 if when == "before" else 0, attempts + 1
        assert attempts < 60
        try:
            make(Files(), folder, raw_dir=raw_dir)
        except Killed:
            continue
    assert attempts > 20
    records = [name for name in done if str(name).startswith("finished-")]
    assert len(records) > 10
    # What was recorded once is not done again.
    assert all(done[name] == 1 for name in records)
    runs = [count for name, count in done.items() if isinstance(name, tuple)]
    assert len(runs) == 9
    assert max(runs) == (2 if when == "before" else 1)
    assert content(folder) == content(tmp_path / "whole")


def test_killed_while_it_renames_it_goes_on(raw_dir, tmp_path, monkeypatch):
    make(Files(), tmp_path / "whole", raw_dir=raw_dir)
    replace, allowed = os.replace, 0

    def replace_and_die(source, target):
        nonlocal allowed
        if pathlib.Path(target).parent == folder:
            if not allowed:
                raise Killed
            allowed -= 1
        replace(source, target)

    monkeypatch.setattr(os, "replace", replace_and_die)
    folder, attempts = tmp_path / "stopped", 0
    while not (folder / "toy.manifest.json").exists():
        allowed, attempts = 1, attempts + 1
        assert attempts < 30
        try:
            make(Files(), folder, raw_dir=raw_dir)
        except Killed:
            continue
    assert attempts > 9
    assert content(folder) == content(tmp_path / "whole")


def one_and_a_stop(pairs):
    """Yields a pair, then stops."""
    yield next(pairs)
    raise KeyboardInterrupt


class Interrupted(Files):
    """Stops when train is there."""

    def samples(self, split, raw):
        pairs = super().samples(split, raw)
        return one_and_a_stop(pairs) if split == "dev" else pairs


# What is known of a problem is its source; these two are to be equal.
Interrupted.definition = Files.definition


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "toy: continuing with what is finished"),
        ({"seed": 5}, "the seed differs: starting over"),
        ({"raw_dir": "copy"}, "--raw_dir differs: starting over"),
        ({"vocab_size": 7}, "the definition differs: starting over"),
        ({"code": "other"}, "the code differs: starting over"),
        ({"text": "other\n"}, "a.txt has changed: starting over"),
    ],
)
def test_other_work_is_not_gone_on_with(
    raw_dir, tmp_path, monkeypatch, capsys, change, message
):
    data_dir = tmp_path / "data"
    problem = Files()
    monkeypatch.setattr(
        Files,
        "definition",
        lambda self: {"attributes": {}, "vocab_size": self.vocab_size},
    )
    monkeypatch.setattr(Interrupted, "definition", Files.definition)
    with pytest.raises(KeyboardInterrupt):
        make(Interrupted(), data_dir, raw_dir=raw_dir)
    left = data_dir / ".toy.incomplete"
    marker = left / "finished-vocabulary.json"
    unfinished.write_record(marker, {"toy.vocab": {"kept": True}})
    monkeypatch.setattr("t2t_lite.datagen.generate._lines", str)
    if "text" in change:
        (raw_dir / "a.txt").write_text(change["text"] * 25)
    if "code" in change:
        monkeypatch.setattr(
            "t2t_lite.datagen.generate.code_version", lambda: change["code"]
        )
    problem.vocab_size = change.get("vocab_size", Files.vocab_size)
    seed = change.get("seed")
    if "raw_dir" in change:
        raw_dir = raw_dir.rename(tmp_path / "copy")
    manifest = Generation(problem, data_dir, raw_dir=raw_dir, seed=seed).run()
    assert message in capsys.readouterr().err
    kept = "kept" in manifest.vocabulary["toy.vocab"]
    assert kept == (not change)


def stop_at_dev(data_dir, raw_dir, monkeypatch):
    """Leaves unfinished work, of which train is done."""

    def samples(self, split, raw):
        pairs = read_parallel(raw.path("a.txt"), raw.path("b.txt"))
        return one_and_a_stop(pairs) if split == "dev" else pairs

    with monkeypatch.context() as patch:
        patch.setattr(Files, "samples", samples)
        with pytest.raises(KeyboardInterrupt):
            make(Files(), data_dir, raw_dir=raw_dir)


def _folder(path):
    path.unlink()
    (path / "something").mkdir(parents=True)


DAMAGE = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "empty": lambda path: path.write_bytes(b""),
    "not JSON": lambda path: path.write_bytes(b"\xff\0"),
    "deep": lambda path: path.write_text("[" * 100_000),
    "of another kind": lambda path: path.write_text("[1]"),
    "changed": lambda path: path.write_text(
        path.read_text().replace("e", "E", 1)
    ),
    "a folder": _folder,
    "a link to nothing": lambda path: (
        path.unlink(),
        path.symlink_to("nowhere"),
    ),
}


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *(("finished-vocabulary.json", damage) for damage in DAMAGE),
        ("work.json", "changed"),
        ("finished-train.json", "a folder"),
        ("dev/chunk-00001.json", "empty"),
    ],
)
def test_damaged_work_is_set_aside_and_all_starts_over(
    raw_dir, tmp_path, monkeypatch, capsys, name, damage
):
    make(Files(), tmp_path / "whole", raw_dir=raw_dir)
    data_dir = tmp_path / "data"
    stop_at_dev(data_dir, raw_dir, monkeypatch)
    left = data_dir / ".toy.incomplete"
    path = left / name
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        unfinished.write_record(path, {})
        path.with_suffix("").touch()
    DAMAGE[damage](path)
    Generation(Files(), data_dir, raw_dir=raw_dir).run()
    said = capsys.readouterr().err
    assert (
        f"there was unfinished data, but {path.name} is damaged (it is now in "
        ".toy.incomplete.damaged): starting over"
    ) in said
    assert content(data_dir) == content(tmp_path / "whole")
    assert not left.exists()


def test_a_chunk_that_is_gone_is_damage(raw_dir, tmp_path, monkeypatch, capsys):
    data_dir = tmp_path / "data"
    stop_at_dev(data_dir, raw_dir, monkeypatch)
    report = data_dir / ".toy.incomplete" / "dev" / "chunk-00000.json"
    report.parent.mkdir(exist_ok=True)
    unfinished.write_record(report, {})
    Generation(Files(), data_dir, raw_dir=raw_dir).run()
    assert "chunk-00000 is damaged" in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["a file", "a link to nothing"])
def test_what_is_no_folder_of_work_is_set_aside(raw_dir, tmp_path, damage):
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    left = data_dir / ".toy.incomplete"
    left.touch() if damage == "a file" else left.symlink_to("nowhere")
    make(Files(), data_dir, raw_dir=raw_dir)
    assert ".toy.incomplete.damaged" in files_in(data_dir)


def test_overwriting_starts_clean(raw_dir, tmp_path, monkeypatch, capsys):
    data_dir = tmp_path / "data"
    stop_at_dev(data_dir, raw_dir, monkeypatch)
    marker = data_dir / ".toy.incomplete" / "finished-vocabulary.json"
    marker.write_text("{")
    Generation(Files(), data_dir, raw_dir=raw_dir).run(overwrite=True)
    assert "unfinished" not in capsys.readouterr().err
    assert files_in(data_dir) >= {"toy.manifest.json", "toy.vocab"}
    assert not any("incomplete" in name for name in files_in(data_dir))


def test_data_that_fits_does_not_go_on_with_what_an_overwriting_left(
    raw_dir, tmp_path
):
    before = make(Files(), tmp_path, raw_dir=raw_dir)
    with pytest.raises(KeyboardInterrupt):
        make(Interrupted(), tmp_path, raw_dir=raw_dir, overwrite=True)
    assert make(Files(), tmp_path, raw_dir=raw_dir) == before
    make(Files(), tmp_path, raw_dir=raw_dir, overwrite=True)
    assert ".toy.incomplete" not in files_in(tmp_path)


def test_a_bad_corpus_leaves_nothing(raw_dir, tmp_path):
    data_dir = tmp_path / "data"
    with open(raw_dir / "b.txt", "a") as file:
        file.write("one more\n")
    with pytest.raises(T2TLiteError, match="got 25 lines in .* and 26 in"):
        make(Files(), data_dir, raw_dir=raw_dir)
    assert files_in(data_dir) == {".toy.lock"}


def test_a_corpus_must_not_change_while_it_is_read(raw_dir, tmp_path):
    class Changing(Files):
        def samples(self, split, raw):
            yield from super().samples(split, raw)
            if split == "test":
                (raw_dir / "a.txt").write_text("other")

    Changing.definition = Files.definition
    data_dir = tmp_path / "data"
    with pytest.raises(T2TLiteError, match="a.txt must not change while data"):
        make(Changing(), data_dir, raw_dir=raw_dir)
    assert files_in(data_dir) == {".toy.lock"}


def test_a_resumed_count_of_copies_is_the_same(raw_dir, tmp_path):
    manifest = make(Files(), tmp_path / "data", raw_dir=raw_dir)
    record = manifest.splits["train"]
    assert record.dropped == {filters.DUPLICATES: 4}
    assert record.dropped_samples[filters.DUPLICATES] == [
        {"pair": 22 + i, "source": f"line {i}", "target": f"line {i}"}
        for i in range(3)
    ]
    assert manifest.splits["dev"].dropped == {}
    assert manifest.splits["dev"].examples == 25


def test_the_code_has_a_version():
    assert len(unfinished.code_version()) == 64


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks at files of a run")
def test_killed_processes_go_on_to_the_same_bytes(tmp_path):
    """A real kill -9 of the command and its workers, twice."""
    with open(tmp_path / "all.tsv", "w", encoding="utf-8") as file:
        for i in range(400_000):
            file.write(f"source {i * 7919 % 100_003} {i}\tTarget {i}\n")
    command = [
        sys.executable,
        "-m",
        "t2t_lite.bin.datagen",
        "--problem=text",
        f"--pairs={tmp_path / 'all.tsv'}",
        "--vocab_size=300",
        "--filters=duplicates",
    ]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole_run = [*command, f"--data_dir={whole}"]
    subprocess.run(whole_run, check=True, capture_output=True)
    work = killed / ".text.incomplete"
    killed_run = [*command, f"--data_dir={killed}", "--processes=2"]
    for pattern in ("train/chunk-00003.json", "finished-text-train-00004-*"):
        process = subprocess.Popen(
            killed_run, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        while not list(work.glob(pattern)):
            assert process.poll() is None, "it ended too early"
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
    finished = {
        path: path.stat().st_mtime_ns for path in work.glob("finished-*")
    }
    assert len(finished) > 5
    last = subprocess.run(
        killed_run, check=True, capture_output=True, text=True
    )
    assert "continuing with what is finished" in last.stderr
    assert "learning the vocabulary" not in last.stderr
    ours, theirs = content(killed), content(whole)
    # Two manifests may differ in when things were made.
    plugins.load_plugins()
    for folder, files_there in ((killed, ours), (whole, theirs)):
        files_there["text.manifest.json"] = Manifest.load(
            folder, registry.problem("text")
        )
    assert ours == theirs


def test_after_all_nothing_else_is_there(raw_dir, tmp_path):
    make(Toy(), tmp_path / "data")
    names = {name for name in files_in(tmp_path / "data") if "-" not in name}
    assert names == {name for name in COMPLETE if "-" not in name}
