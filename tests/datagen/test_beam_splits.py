"""Apache Beam makes the files that one machine makes."""

import json
import subprocess
import sys

import pytest

from support.toy_problem import WithPairs, make
from t2t_lite.corpus.raw_files import RawFiles
from t2t_lite.datagen import encode, shuffle
from t2t_lite.datagen.encode import SplitEncoder
from t2t_lite.errors import T2TLiteError, UsageError

pytest.importorskip(
    "apache_beam", reason="needs Apache Beam: pip install 't2t-lite[beam]'"
)

from t2t_lite.datagen.apache_beam import (  # noqa: E402 (requires Beam)
    BeamGeneration,
    pickle_task,
)

# Copies in one chunk, in one part and in other parts.
PAIRS = [(f"a {i % 37}", f"b {i % 37}") for i in range(100)]
PAIRS += [("", "x"), ("y", " "), ("same", "same")]
PAIRS += [(f"c {i}", f"d {i}") for i in range(120)] + PAIRS[:30]


class InParts(WithPairs):
    """A corpus of given pairs that several workers read."""

    splits = ("train", "dev")
    pairs_of = {"dev": 70}

    def parts(self, split, raw):
        return [slice(0, 90), slice(90, 91), slice(91, None)]

    def part_samples(self, split, raw, part):
        return list(self.samples(split, raw))[part]


class Distinct(InParts):
    filters = {"duplicates": True, "identical": True}


def on_beam(runner, folder, problem=None, seed=0, options=()):
    return BeamGeneration(
        problem or InParts(PAIRS),
        folder,
        seed=seed,
        progress=False,
        runner=runner,
        beam_options=options,
    )


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(encode, "CHUNK_PAIRS", 32)
    monkeypatch.setattr(shuffle, "SHARD_PAIRS", 40)


@pytest.mark.parametrize(
    ("problem", "runner"),
    [(InParts, "DirectRunner"), (Distinct, "fnapi")],
)
def test_the_files_are_those_of_one_machine(tmp_path, problem, runner):
    alone = make(problem(PAIRS), tmp_path / "alone", seed=7)
    manifest = on_beam(runner, tmp_path / "beam", problem(PAIRS), seed=7).run()
    assert manifest == alone  # checksums, counts and samples
    train = manifest.splits["train"]
    assert len(train.shards) == -(-len(PAIRS) // 40) > 3
    assert len(manifest.splits["dev"].shards) == 2
    if problem is Distinct:
        assert train.examples == 37 + 120
        assert train.dropped["duplicates"] == 63 + 30
        assert train.dropped_samples["duplicates"][0]["pair"] == 38


class Damaged(InParts):
    splits = ("train",)

    def part_samples(self, split, raw, part):
        yield "a", "b"
        raise T2TLiteError("File 7 is damaged.")


class Empty(InParts):
    splits = ("train",)

    def part_samples(self, split, raw, part):
        return [("", "a")]


class Careless(InParts):
    splits = ("train",)

    def part_samples(self, split, raw, part):
        yield ["a", "b"][7]


@pytest.mark.parametrize(
    ("problem", "error", "message"),
    [
        (Damaged, T2TLiteError, "^File 7 is damaged.$"),
        (Empty, T2TLiteError, "train split of toy has no pair"),
        (Careless, RuntimeError, "FnApiRunner failed: .*index out of range"),
    ],
)
def test_what_fails_on_a_worker_is_one_line_here(
    tmp_path, problem, error, message
):
    with pytest.raises(error, match=message) as raised:
        on_beam("FnApiRunner", tmp_path, problem([])).run()
    assert "\n" not in str(raised.value)


def test_unknown_runners_and_options_are_refused(tmp_path):
    for runner in ("DirectRuner", "flik"):
        with pytest.raises(UsageError, match=f"{runner}.*FlinkRunner"):
            on_beam(runner, tmp_path)
    with pytest.raises(UsageError, match="direct_num_workers"):
        on_beam("DirectRunner", tmp_path, options=["--direct_num_worker=3"])


def test_a_worker_needs_no_module_of_the_user(tmp_path, monkeypatch):
    usr_dir = tmp_path / "usr"
    usr_dir.mkdir()
    (usr_dir / "own_texts.py").write_text("TEXTS = [('a', 'b')]\n")
    (usr_dir / "own_problem.py").write_text(
        "import own_texts\n"
        "from t2t_lite import Text2TextProblem\n"
        "class Own(Text2TextProblem):\n"
        "    base_name = 'own'\n"
        "    def samples(self, split, raw):\n"
        "        return own_texts.TEXTS\n"
    )
    monkeypatch.syspath_prepend(str(usr_dir))
    import own_problem

    problem = own_problem.Own()
    vocabulary = tmp_path / problem.vocabulary_files()["inputs"]
    vocabulary.write_bytes(b"pieces")
    encoder = SplitEncoder(problem, "dev", seed=1)
    task = pickle_task(encoder, RawFiles(), tmp_path)
    (tmp_path / "task").write_bytes(task)
    code = (
        "import json, pickle, pathlib\n"
        f"task = pathlib.Path({str(tmp_path / 'task')!r}).read_bytes()\n"
        "encoder, raw, vocabulary, folder = pickle.loads(task)\n"
        "print(json.dumps(list(encoder.problem.samples('dev', raw))))\n"
        "assert list(vocabulary.values()) == [b'pieces']\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert json.loads(told.stdout) == [["a", "b"]]


def test_the_command_takes_a_runner_and_its_options(
    run_command, tiny_usr_dir, tmp_path
):
    code, out, err = run_command(
        "datagen",
        "--problem=tiny_digits",
        f"--usr_dir={tiny_usr_dir}",
        f"--data_dir={tmp_path}",
        "--runner=FnApiRunner",
        "--",
        "--direct_num_workers=1",
    )
    assert (code, out.splitlines()) == (
        0,
        ["train: 40 pairs", "dev: 4 pairs", "test: 4 pairs"],
    ), err
