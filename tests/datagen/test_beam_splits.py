"""Apache Beam generates the same files as one machine."""

import pytest

from support.toy_problem import WithPairs, make
from t2t_lite.datagen import encode, shuffle
from t2t_lite.errors import T2TLiteError, UsageError

pytest.importorskip(
    "apache_beam", reason="needs Apache Beam: pip install 't2t-lite[beam]'"
)

from t2t_lite.datagen.apache_beam import (  # noqa: E402 (requires Beam)
    BeamGeneration,
)

# Duplicates are in the same chunk and in others.
PAIRS = [(f"a {i % 37}", f"b {i % 37}") for i in range(100)]
PAIRS += [("", "x"), ("y", " "), ("same", "same")]
PAIRS += [(f"c {i}", f"d {i}") for i in range(120)] + PAIRS[:30]


class Plain(WithPairs):
    splits = ("train", "dev")
    pairs_of = {"dev": 70}


class Distinct(Plain):
    filters = {"duplicates": True, "identical": True}


def on_beam(runner, folder, problem=None, seed=0, options=()):
    return BeamGeneration(
        problem or Plain(PAIRS),
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
    ("problem", "runner"), [(Plain, "DirectRunner"), (Distinct, "fnapi")]
)
def test_files_are_the_same_as_of_one_machine(tmp_path, problem, runner):
    alone = make(problem(PAIRS), tmp_path / "alone", seed=7)
    manifest = on_beam(runner, tmp_path / "beam", problem(PAIRS), seed=7).run()
    assert manifest == alone  # checksums and counts
    train = manifest.splits["train"]
    assert len(train.shards) == -(-len(PAIRS) // 40) > 3
    assert len(manifest.splits["dev"].shards) == 2
    if problem is Distinct:
        assert train.examples == 37 + 120
        assert train.dropped["duplicates"] == 63 + 30


def damaged():
    yield "a", "b"
    raise T2TLiteError("File 7 is damaged.")


def empty():
    yield "", "a"


def buggy():
    yield "a", "b"
    yield ["a", "b"][7]


class OnWorker(Plain):
    """A corpus that is read on a worker."""

    splits = ("train",)

    def samples(self, split, raw):
        return self.train()


@pytest.mark.parametrize(
    ("pairs", "error", "message"),
    [
        (damaged, T2TLiteError, "^File 7 is damaged.$"),
        (empty, T2TLiteError, "train split of toy has no pair"),
        (buggy, RuntimeError, "FnApiRunner failed: .*index out of range"),
    ],
)
def test_an_error_of_a_worker_is_one_line(tmp_path, pairs, error, message):
    with pytest.raises(error, match=message) as raised:
        on_beam("FnApiRunner", tmp_path, OnWorker(pairs)).run()
    assert "\n" not in str(raised.value)


def test_unknown_runners_and_options_are_refused(tmp_path):
    for runner in ("DirectRuner", "flik"):
        with pytest.raises(UsageError, match=f"{runner}.*FlinkRunner"):
            on_beam(runner, tmp_path)
    with pytest.raises(UsageError, match="direct_num_workers"):
        on_beam("DirectRunner", tmp_path, options=["--direct_num_worker=3"])


def test_the_command_accepts_a_runner_and_its_options(
    run_command, tiny_usr_dir, tmp_path
):
    code, out, err = run_command(
        "datagen",
        "--problem=tiny_digits",
        f"--usr_dir={tiny_usr_dir}",
        f"--data_dir={tmp_path}",
        "--runner=FnApiRunner",
        "--",
        "--direct_num_workers=2",
        "--direct_running_mode=multi_processing",  # as on other machines
    )
    assert code == 0, err
    assert out.startswith("train: 40 pairs, ")
