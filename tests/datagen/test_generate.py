import itertools
import re
import signal
import subprocess
import sys
import textwrap
import time
import urllib.error
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from support.full_disk import full_disk
from support.places import TESTS
from support.toy_problem import COMPLETE, Toy, WithPairs, files_in, make, texts
from t2t_lite.corpus.download import RemoteFile
from t2t_lite.corpus.parallel import read_parallel
from t2t_lite.data.manifest import Manifest, sha256_of
from t2t_lite.datagen import encode, shuffle
from t2t_lite.datagen.generate import DataGenerator
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.problem import Text2TextProblem


def test_writes_shards_vocabulary_and_manifest(tmp_path):
    manifest = make(Toy(), tmp_path / "new" / "data")
    folder = tmp_path / "new" / "data"
    assert files_in(folder) == COMPLETE
    assert manifest == Manifest.load(folder, Toy())
    record = manifest.splits["dev"]
    assert record.examples == 3
    assert record.source_tokens == 3 * len("dev 0.")
    assert record.lengths == {len("dev, number 0."): 3}
    (shard,) = record.shards
    assert shard.sha256 == sha256_of(folder / shard.file)
    assert shard.bytes == (folder / shard.file).stat().st_size
    assert {"t2t-lite", "tensorflow", "sentencepiece"} <= set(manifest.versions)


def test_the_number_of_shards_depends_on_the_pairs(tmp_path, monkeypatch):
    monkeypatch.setattr(shuffle, "SHARD_PAIRS", 15)
    problem = Toy()
    problem.pairs_of = {"train": 400, "dev": 40, "test": 2}
    manifest = make(problem, tmp_path)
    shards = manifest.splits["train"].shards
    assert [shard.file for shard in shards] == [
        f"toy-train-{number:05d}-of-00027" for number in range(27)
    ]
    assert sum(shard.examples for shard in shards) == 400
    assert max(shard.examples for shard in shards) < 40
    shards = manifest.splits["dev"].shards
    assert [shard.examples for shard in shards] == [15, 15, 10]
    for split in problem.splits:
        pairs = texts(tmp_path, problem, manifest, split)
        wanted = list(problem.samples(split, None))
        assert sorted(pairs) == sorted(wanted)
        assert (pairs == wanted) == (split != "train")


def test_pairs_with_an_empty_side_are_dropped_and_counted(tmp_path):
    pairs = [("a", "b"), ("", "x"), ("y", " \t"), ("c", "d")]
    pairs += [("\u3000\u200b", ""), *(("", str(i)) for i in range(5))]
    manifest = make(WithPairs(pairs), tmp_path)
    record = manifest.splits["train"]
    assert record.examples == 2
    assert record.dropped == {
        "both sides empty": 1,
        "empty source": 6,
        "empty target": 1,
    }


class Filtered(WithPairs):
    filters = {"identical": True, "characters": 9}

    def samples(self, split, raw):
        yield from self.train


def test_filters_drop_pairs_of_train_only(tmp_path):
    pairs = [("a", "b"), ("c", "c"), ("d" * 10, "D"), *[("e", "e")] * 4]
    manifest = make(Filtered(pairs), tmp_path)
    record = manifest.splits["train"]
    assert record.examples == 1
    assert record.dropped == {"characters": 1, "identical": 5}
    for split in ("dev", "test"):
        assert texts(tmp_path, Filtered(()), manifest, split) == pairs
        assert manifest.splits[split].dropped == {}


@pytest.mark.parametrize("pairs", [[], [("", "a"), ("b", "")]])
def test_corpus_without_a_pair_is_an_error(tmp_path, pairs):
    with pytest.raises(T2TLiteError, match="train split of toy has no pair"):
        make(WithPairs(pairs), tmp_path)
    assert files_in(tmp_path) == {".toy.lock"}


@pytest.mark.parametrize("pair", [None, "ab", ("a",), ("a", None), (b"a", "b")])
def test_samples_that_are_not_texts_are_an_error(tmp_path, pair):
    problem = WithPairs([("a", "b"), pair])
    with pytest.raises(T2TLiteError, match="as pair 2 of toy train"):
        make(problem, tmp_path)
    # The vocabulary refuses them, too.
    with pytest.raises(T2TLiteError, match="as pair 2 of toy train"):
        list(problem.vocabulary_lines(None))


class TwoFiles(Text2TextProblem):
    name = base_name = "two_files"
    vocab_size = 300

    def samples(self, split, raw):
        return read_parallel(raw.path("a.txt"), raw.path("b.txt"))


class TwoRemoteFiles(TwoFiles):
    files = tuple(RemoteFile(f"{x}.txt", f"http://x/{x}", "00") for x in "ab")


def test_missing_files_are_reported_before_work_begins(tmp_path, capsys):
    raw = tmp_path / "raw"
    for problem, message in (
        (TwoFiles(), f"{raw}"),
        (TwoRemoteFiles(), "holds no file b.txt"),
    ):
        with pytest.raises(T2TLiteError, match=re.escape(message)):
            DataGenerator(problem, tmp_path / "data", raw_dir=raw).run()
        raw.mkdir(exist_ok=True)
        (raw / "a.txt").write_text("one\ntwo\n")
    assert capsys.readouterr().err == ""


def test_reversed_problem_shares_the_data(tmp_path):
    reverse = Toy().reverse()
    manifest = make(reverse, tmp_path)
    assert files_in(tmp_path) == COMPLETE
    assert make(Toy(), tmp_path) == manifest
    assert texts(tmp_path, reverse, manifest, "dev")[0] == (
        "dev, number 0",
        "dev 0",
    )


def test_data_keeps_its_seed(tmp_path):
    usual, other = (make(Toy(), tmp_path / str(n), seed=n) for n in (1, 5))
    assert usual.digest != other.digest
    assert make(Toy(), tmp_path / "new").digest == usual.digest
    with pytest.raises(UsageError, match="`seed=5` .got 1"):
        make(Toy(), tmp_path / "5", seed=1)
    again = make(Toy(), tmp_path / "5", overwrite=True)
    assert again.digest == other.digest
    again = make(Toy(), tmp_path / "5", overwrite=True, seed=1)
    assert again.digest == usual.digest


def test_overwriting_removes_old_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(shuffle, "SHARD_PAIRS", 15)
    make(Toy(), tmp_path)
    monkeypatch.setattr(shuffle, "SHARD_PAIRS", 100)
    make(Toy(), tmp_path, overwrite=True)
    assert files_in(tmp_path) == COMPLETE


def test_files_of_a_killed_process_are_not_used_as_data(tmp_path):
    make(Toy(), tmp_path)
    (tmp_path / "toy.manifest.json").unlink()  # killed while renaming
    left = tmp_path / ".toy.incomplete"
    left.mkdir()
    (left / "toy-train-00000").write_bytes(b"half a record")
    (tmp_path / "toy-train-00007-of-00009").write_bytes(b"of an older run")
    (tmp_path / ".toy.manifest.json.4711.tmp").write_text("{")
    make(Toy(), tmp_path)
    assert files_in(tmp_path) == COMPLETE


def test_concurrent_calls_generate_the_data_once(tmp_path):
    runs = []

    class Slow(Toy):
        def train_encoders(self, raw, data_dir, seed):
            runs.append(data_dir)
            time.sleep(0.2)
            super().train_encoders(raw, data_dir, seed)

    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(make, Slow(), tmp_path) for _ in range(3)]
    first, *others = (call.result() for call in calls)
    assert others == [first, first] and len(runs) == 1
    assert files_in(tmp_path) == COMPLETE


def test_folder_that_cannot_be_created_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(T2TLiteError, match="Cannot write data: .*file"):
        make(Toy(), tmp_path / "file" / "data")


class Unreadable(Toy):
    """A problem whose own code fails to open a file."""

    def samples(self, split, raw):
        return open("/no/such/corpus")


def test_a_file_error_in_the_code_of_a_problem_is_unchanged(tmp_path):
    with pytest.raises(FileNotFoundError, match="/no/such/corpus"):
        make(Unreadable(), tmp_path)
    assert files_in(tmp_path) == {".toy.lock"}


class Remote(Toy):
    """A problem whose connection is lost after the first pair of train."""

    def samples(self, split, raw):
        yield from itertools.islice(super().samples(split, raw), 1)
        if split == "train":
            raise self.error from self.cause


def test_a_lost_connection_is_no_error_of_the_disk_and_can_resume(tmp_path):
    lost = urllib.error.URLError("lost")
    for error in (lost, T2TLiteError("Cannot read hf:x: lost.")):
        Remote.error, Remote.cause = error, None if error is lost else lost
        with pytest.raises(type(error), match="lost") as caught:
            make(Remote(), tmp_path)
        assert "write" not in str(caught.value)
        assert ".toy.incomplete" in files_in(tmp_path)


def test_full_disk_is_one_clear_error_and_keeps_the_old_data(tmp_path):
    before = make(Toy(), tmp_path)
    big = WithPairs([("x" * 100, "y" * 100)] * 500)
    with (
        full_disk(20_000),
        pytest.raises(T2TLiteError, match="`data_dir") as error,
    ):
        make(big, tmp_path, overwrite=True)
    assert "\n" not in str(error.value)
    assert "resumes" in str(error.value)
    assert files_in(tmp_path) == COMPLETE | {".toy.incomplete"}
    assert Manifest.load(tmp_path, Toy()) == before
    assert make(big, tmp_path, overwrite=True).splits["train"].examples == 500
    assert files_in(tmp_path) == COMPLETE


# Runs in a separate process, where no other code uses memory.
_PEAKS = """
import sys, tracemalloc
from support.toy_problem import Endless, Toy, make
from t2t_lite.datagen import encode, shuffle

folder = sys.argv[1]
encode.CHUNK_PAIRS = shuffle.SHARD_PAIRS = 2000
make(Toy(), f"{folder}/warm_up", processes=1)
for pairs in (50_000, 150_000):
    tracemalloc.start()
    make(Endless(pairs), f"{folder}/{pairs}", processes=1)
    print(tracemalloc.get_traced_memory()[1])
    tracemalloc.stop()
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_corpus(tmp_path):
    out = subprocess.check_output(
        [sys.executable, "-c", _PEAKS, tmp_path], cwd=TESTS, text=True
    )
    few, many = map(int, out.split())
    assert many < 1.3 * few


@pytest.mark.slow
def test_number_of_processes_does_not_change_the_data(tmp_path, monkeypatch):
    monkeypatch.setattr(encode, "CHUNK_PAIRS", 4)
    monkeypatch.setattr(encode, "MIN_CHUNKS_FOR_POOL", 2)
    manifests = [
        make(Toy(), tmp_path / str(processes), processes=processes)
        for processes in (1, 2)
    ]
    assert manifests[0] == manifests[1]


@pytest.mark.slow
@pytest.mark.parametrize("words", [["-"], ["-c"]])
def test_a_problem_of_a_notebook_needs_no_other_process(tmp_path, words):
    code = (
        "from support.toy_problem import Toy, make\n"
        "from t2t_lite.datagen import encode\n"
        "encode.CHUNK_PAIRS = encode.MIN_CHUNKS_FOR_POOL = 2\n"
        "class Mine(Toy):\n"
        "    pass\n"
        f"make(Mine(), {str(tmp_path)!r}, processes=2)\n"
    )
    words = [*words, code] if words == ["-c"] else words
    subprocess.run(
        [sys.executable, *words], input=code, check=True, cwd=TESTS, text=True
    )
    assert Manifest.load(tmp_path, Toy()).splits["train"].examples == 40


def run_endless_pool(folder):
    """Start a process that generates data forever, with two workers."""
    code = f"""
        import sys
        sys.path.insert(0, {str(TESTS)!r})
        from support.toy_problem import Endless, make
        from t2t_lite.datagen import encode
        if __name__ == "__main__":
            encode.CHUNK_PAIRS = 4
            encode.MIN_CHUNKS_FOR_POOL = 2
            make(Endless(10**9), sys.argv[1], processes=2)
    """
    script = folder / "script.py"
    script.write_text(textwrap.dedent(code))
    return subprocess.Popen(
        [sys.executable, script, folder / "data"], stderr=subprocess.PIPE
    )


def wait_until(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_generation_leaves_no_process(tmp_path, stop):
    process = run_endless_pool(tmp_path)
    children_of = psutil.Process(process.pid).children
    # Two workers and a tracker.
    wait_until(lambda: len(children_of()) >= 3)
    wait_until((tmp_path / "data" / ".toy.incomplete").exists)
    children = children_of()
    process.send_signal(stop)
    _, err = process.communicate(timeout=120)
    assert not psutil.wait_procs(children, timeout=120)[1]
    if stop == signal.SIGINT:
        # The main process prints the interrupt, and workers print nothing. (It
        # may be handling an exception, and then prints two tracebacks.)
        assert err.decode().splitlines().count("KeyboardInterrupt") == 1
        left = {".toy.lock", ".toy.incomplete"}
        assert files_in(tmp_path / "data") == left
    else:
        assert not (tmp_path / "data" / "toy.manifest.json").exists()


def test_progress_is_printed_to_stderr(tmp_path, capsys):
    DataGenerator(WithPairs([("a", "b"), ("", "c")]), tmp_path).run()
    out, err = capsys.readouterr()
    assert not out
    assert err.splitlines() == [
        "toy: learning the vocabulary",
        "toy train: 1 pairs, 1 dropped (empty source)",
        "toy dev: 3 pairs, none dropped",
        "toy test: 2 pairs, none dropped",
    ]
