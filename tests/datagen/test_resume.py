"""An interrupted data generation resumes and writes the same bytes."""

import json
import subprocess
import sys
import time

import pytest

from support.toy_problem import Toy, files_in, make
from t2t_lite import files
from t2t_lite.corpus import filters
from t2t_lite.corpus.parallel import read_parallel
from t2t_lite.datagen import encode, shuffle
from t2t_lite.datagen.generate import DataGenerator
from t2t_lite.errors import T2TLiteError


class Files(Toy):
    """The toy problem with a corpus in files."""

    filters = {"duplicates": True}

    def samples(self, split, raw):
        return read_parallel(raw.path("a.txt"), raw.path("b.txt"))


@pytest.fixture
def raw_dir(tmp_path, monkeypatch):
    """A corpus with three chunks, four shards and duplicates."""
    monkeypatch.setattr(encode, "CHUNK_PAIRS", 10)
    monkeypatch.setattr(shuffle, "SHARD_PAIRS", 8)
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
    """An exception that no handler catches, to simulate `kill -9`."""


def resume_until_complete(raw_dir, folder):
    """Return the number of attempts that generate the data."""
    for attempts in range(1, 200):
        try:
            make(Files(), folder, raw_dir=raw_dir)
        except Killed:
            continue
        return attempts
    raise AssertionError("It makes no progress.")


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_at_any_file_does_not_change_the_data(
    raw_dir, tmp_path, monkeypatch, when
):
    make(Files(), tmp_path / "whole", raw_dir=raw_dir)
    atomic_replace, allowed = files.atomic_replace, [0]

    def replace_and_die(*arguments, **options):
        if not allowed[0]:
            allowed[0] = 2
            if when == "after":
                atomic_replace(*arguments, **options)
            raise Killed
        allowed[0] -= 1
        atomic_replace(*arguments, **options)

    folder = tmp_path / "stopped"
    monkeypatch.setattr(files, "atomic_replace", replace_and_die)
    assert resume_until_complete(raw_dir, folder) > 8
    assert content(folder) == content(tmp_path / "whole")


def stop_at_dev(data_dir, raw_dir, monkeypatch):
    """Interrupt a generation after its train split."""
    reads = []

    def samples(self, split, raw):
        reads.append(split)
        for pair in read_parallel(raw.path("a.txt"), raw.path("b.txt")):
            yield pair
            if split == "dev" and "train" in reads:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Files, "samples", samples)
        with pytest.raises(KeyboardInterrupt):
            make(Files(), data_dir, raw_dir=raw_dir)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "resuming"),
        ({"seed": 5}, "starting over"),
        ({"raw_dir": "copy"}, "starting over"),
        ({"filters": {}}, "starting over"),
        ({"text": "other\n"}, "starting over"),
    ],
)
def test_only_the_same_job_is_resumed(
    raw_dir, tmp_path, monkeypatch, capsys, change, message
):
    data_dir = tmp_path / "data"
    monkeypatch.setattr(
        Files, "definition", lambda self: {"filters": self.filters}
    )
    stop_at_dev(data_dir, raw_dir, monkeypatch)
    if "text" in change:
        (raw_dir / "a.txt").write_text(change["text"] * 25)
    if "raw_dir" in change:
        raw_dir = raw_dir.rename(tmp_path / "copy")
    problem = Files()
    problem.filters = change.get("filters", Files.filters)
    reads = []
    sample = Files.samples

    def samples(self, split, raw):
        for pair in sample(self, split, raw):
            reads.append(split)
            yield pair

    monkeypatch.setattr(Files, "samples", samples)
    seed = change.get("seed")
    DataGenerator(problem, data_dir, raw_dir=raw_dir, seed=seed).run()
    assert message in capsys.readouterr().err
    assert ("train" not in reads) == (not change)


def test_overwriting_does_not_resume(raw_dir, tmp_path, monkeypatch, capsys):
    data_dir = tmp_path / "data"
    stop_at_dev(data_dir, raw_dir, monkeypatch)
    DataGenerator(Files(), data_dir, raw_dir=raw_dir).run(overwrite=True)
    assert "resuming" not in capsys.readouterr().err
    assert not any("incomplete" in name for name in files_in(data_dir))


@pytest.mark.parametrize(
    "damage", [lambda x: x[:-1], lambda x: b"", lambda x: bytes(len(x))]
)
def test_a_damaged_chunk_starts_the_job_over(
    raw_dir, tmp_path, monkeypatch, damage
):
    make(Files(), tmp_path / "whole", raw_dir=raw_dir)
    data_dir = tmp_path / "data"

    def read_shards(*arguments):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(shuffle, "read_shards", read_shards)
        with pytest.raises(Killed):
            make(Files(), data_dir, raw_dir=raw_dir)
    chunk = data_dir / ".toy.incomplete" / "train" / "chunk-00001"
    chunk.write_bytes(damage(chunk.read_bytes()))
    with pytest.raises(T2TLiteError, match="chunk-00001 is damaged"):
        make(Files(), data_dir, raw_dir=raw_dir)
    make(Files(), data_dir, raw_dir=raw_dir)
    assert content(data_dir) == content(tmp_path / "whole")


def test_a_corpus_must_not_change_while_it_is_read(raw_dir, tmp_path):
    class Changing(Files):
        reads = ()

        def samples(self, split, raw):
            self.reads = (*self.reads, split)
            yield from super().samples(split, raw)
            if split == "test" and "train" in self.reads:
                (raw_dir / "a.txt").write_text("other")

    Changing.definition = Files.definition
    data_dir = tmp_path / "data"
    with pytest.raises(T2TLiteError, match="a.txt must not change"):
        make(Changing(), data_dir, raw_dir=raw_dir)
    assert files_in(data_dir) == {".toy.lock"}


def test_duplicates_are_dropped_over_all_chunks(raw_dir, tmp_path):
    manifest = make(Files(), tmp_path / "data", raw_dir=raw_dir)
    record = manifest.splits["train"]
    assert record.examples == 21
    assert record.dropped == {filters.DUPLICATES: 4}
    assert manifest.splits["dev"].dropped == {}
    assert manifest.splits["dev"].examples == 25


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks at files of a run")
def test_killed_processes_resume_and_write_the_same_bytes(tmp_path):
    """Kill the command by SIGKILL twice, then let it finish."""
    with open(tmp_path / "all.tsv", "w", encoding="utf-8") as file:
        for i in range(400_000):
            file.write(f"source {i * 7919 % 100_003} {i}\tTarget {i}\n")
    command = [sys.executable, "-m", "t2t_lite.bin.main", "datagen"]
    command += ["--problem=text", f"--pairs={tmp_path / 'all.tsv'}"]
    command += ["--vocab_size=300", "--filters=duplicates"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole_run = [*command, f"--data_dir={whole}"]
    subprocess.run(whole_run, check=True, capture_output=True)
    job = killed / ".text.incomplete"
    killed_run = [*command, f"--data_dir={killed}", "--processes=2"]
    for pattern in ("train/chunk-00003", "text-train-00004-*"):
        process = subprocess.Popen(
            killed_run, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        while not list(job.glob(pattern)):
            assert process.poll() is None, "it ended too early"
            time.sleep(0.002)
        process.kill()
        process.wait()
    last = subprocess.run(
        killed_run, check=True, capture_output=True, text=True
    )
    assert "resuming" in last.stderr
    assert "learning the vocabulary" not in last.stderr
    ours, theirs = content(killed), content(whole)
    for found in (ours, theirs):  # the bytes of manifests may differ
        manifest = json.loads(found.pop("text.manifest.json"))
        found["manifest"] = manifest | {"sha256": ""}
    assert ours == theirs
