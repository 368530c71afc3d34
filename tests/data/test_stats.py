"""Statistics: every number worked out by hand on a few pairs of letters."""

import json

import numpy as np
import pytest

from support import toy_problem
from t2t_lite.data import stats
from t2t_lite.data.manifest import Manifest
from t2t_lite.data.pipeline import read_pairs
from t2t_lite.data.stats import inspect_data
from t2t_lite.errors import T2TLiteError


class Letters:
    """Ids are code points; digits are spelt as the bytes that they are."""

    vocab_size = 300

    def __init__(self, path):
        path.read_text()

    def encode(self, texts):
        return [
            np.array([ord(c) + 200 * c.isdigit() for c in text], np.int32)
            for text in texts
        ]

    def decode(self, rows):
        return [
            "".join(chr(i - 200 * (i > 200)) for i in row if i > 1)
            for row in rows
        ]

    def pieces(self, ids):
        return [f"<0x{i - 200:02X}>" if i > 200 else chr(i) for i in ids]


class Toy(toy_problem.Toy):
    """Train as given; dev and test have a pair each."""

    encoder = Letters
    train = [("ab c1", "ABC"), ("de", "D 22 EF"), ("", "empty"), ("f", "F")]

    def samples(self, split, raw):
        yield from self.train if split == "train" else [("a", "b")]


class Many(Toy):
    name = base_name = "many"
    train = [("x" * (i % 97 + 1), f"y{i}") for i in range(1000)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Holds the data of `Toy` and of `Many`; not to be changed."""
    folder = tmp_path_factory.mktemp("data")
    for problem in (Toy(), Many()):
        toy_problem.make(problem, folder)
    return folder


def inspect_train(problem, folder, seed=0):
    return inspect_data(folder, problem, seed)["splits"]["train"]


def test_numbers_are_those_of_the_pairs(folder):
    train = inspect_train(Toy(), folder)
    assert train["examples"] == train["sampled"] == 3
    assert train["dropped"] == {"empty source": 1}
    # "ab c1", "de", "f" and "ABC", "D 22 EF", "F", each with its EOS.
    assert train["source"]["lengths"] == {6: 1, 3: 1, 2: 1}
    assert train["target"]["lengths"] == {4: 1, 8: 1, 2: 1}
    assert train["lengths"] == {6: 1, 8: 1, 2: 1}
    assert (train["source"]["tokens"], train["target"]["tokens"]) == (11, 14)
    # Shares leave EOS out.
    assert train["source"]["byte_share"] == pytest.approx(1 / 8)
    assert train["target"]["byte_share"] == pytest.approx(2 / 11)
    assert train["source"]["tokens_per_word"] == pytest.approx(8 / 4)
    assert train["target"]["tokens_per_word"] == pytest.approx(11 / 5)


def test_the_other_direction_swaps_the_sides(folder):
    one, other = (inspect_train(p, folder) for p in (Toy(), Toy().reverse()))
    assert (other["source"], other["target"]) == (one["target"], one["source"])
    assert [
        (p["target"], p["source"], p["number"]) for p in other["drawn"]
    ] == [(p["source"], p["target"], p["number"]) for p in one["drawn"]]


def test_drawn_pairs_are_those_of_the_shards_and_the_seed_draws(folder):
    manifest = Manifest.load(folder, Many())
    first, again, other = (
        inspect_train(Many(), folder, seed)["drawn"] for seed in (1, 1, 2)
    )
    rows = list(read_pairs(folder, Many(), manifest, "train"))
    decode = Letters(folder / "toy.vocab").decode
    assert len({pair["number"] for pair in first}) == stats.DRAWN_PAIRS
    for pair in first:
        source, target = rows[pair["number"] - 1]
        assert [pair["source"], pair["target"]] == decode([source, target])
        lengths = pair["source_tokens"], pair["target_tokens"]
        assert lengths == (len(source), len(target))
    assert first == again != other


def test_a_sample_is_enough_for_all_but_counts(folder, monkeypatch):
    monkeypatch.setattr(stats, "SAMPLED_PAIRS", 50)
    train = inspect_train(Many(), folder)
    record = Manifest.load(folder, Many()).splits["train"]
    assert (train["examples"], train["sampled"]) == (1000, 50)
    assert train["lengths"] == record.lengths
    assert train["source"]["tokens"] == record.source_tokens
    assert sum(train["source"]["lengths"].values()) == 50


def test_ids_beyond_the_vocabulary_are_refused(folder, monkeypatch):
    monkeypatch.setattr(Letters, "vocab_size", 100)
    with pytest.raises(T2TLiteError, match="100 pieces .* toy.vocab; got 1 to"):
        inspect_train(Toy(), folder)


def test_missing_data_is_not_made(tmp_path):
    with pytest.raises(T2TLiteError, match="t2t-lite-datagen --problem=toy"):
        inspect_train(Toy(), tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_report_is_fit_for_json(folder):
    found = inspect_data(folder, Toy().reverse())
    record = json.loads(json.dumps(found))
    assert record["problem"] == "toy_rev"
    train = record["splits"]["train"]
    vocabulary = train["source"]["file"], train["source"]["pieces"]
    assert vocabulary == ("toy.vocab", 300)
