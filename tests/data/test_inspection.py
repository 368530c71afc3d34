"""Inspection: every number worked out by hand on a few pairs of letters."""

import json
import shutil

import numpy as np
import pytest

from support import toy_problem
from t2t_lite.data import inspection
from t2t_lite.data.inspection import inspect_data
from t2t_lite.data.manifest import Manifest
from t2t_lite.datagen.generate import Generation
from t2t_lite.errors import T2TLiteError


class Letters:
    """Ids are code points; digits are spelt as the bytes that they are."""

    vocab_size = 300

    def __init__(self, path):
        path.read_text()

    def encode(self, texts):
        return [
            np.array(
                [ord(c) + 200 * c.isdigit() for c in text],
                np.int32,
            )
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
        Generation(problem, folder, progress=False).run()
    return folder


@pytest.fixture
def copy(folder, tmp_path):
    """The same, to be changed."""
    return shutil.copytree(folder, tmp_path / "copy")


def inspect(problem, folder, seed=0):
    return inspect_data(folder, problem, seed)


def test_counts_are_those_of_every_pair(folder):
    train = inspect(Toy(), folder)["splits"]["train"]
    assert train["examples"] == 3
    assert train["dropped"] == {"empty source": 1}
    # "ab c1", "de", "f" and "ABC", "D 22 EF", "F", each with its EOS.
    assert train["source"]["lengths"] == {6: 1, 3: 1, 2: 1}
    assert train["target"]["lengths"] == {4: 1, 8: 1, 2: 1}
    assert train["lengths"] == {6: 1, 8: 1, 2: 1}
    assert (train["source"]["tokens"], train["target"]["tokens"]) == (11, 14)


def test_counts_are_those_of_the_manifest(folder):
    record = Manifest.load(folder, Many()).splits["train"]
    train = inspect(Many(), folder)["splits"]["train"]
    assert train["lengths"] == record.lengths
    assert train["source"]["tokens"] == record.source_tokens
    assert train["target"]["tokens"] == record.target_tokens


def test_shares_leave_eos_out(folder):
    train = inspect(Toy(), folder)["splits"]["train"]
    assert train["source"]["byte_share"] == pytest.approx(1 / 8)
    assert train["target"]["byte_share"] == pytest.approx(2 / 11)
    assert train["source"]["tokens_per_word"] == pytest.approx(8 / 4)
    assert train["target"]["tokens_per_word"] == pytest.approx(11 / 5)


def test_a_vocabulary_without_pieces_has_no_share_of_bytes(folder, monkeypatch):
    monkeypatch.delattr(Letters, "pieces")
    train = inspect(Toy(), folder)["splits"]["train"]
    assert train["source"]["byte_share"] is None


def test_the_other_direction_swaps_the_sides(folder):
    one, other = (
        inspect(problem, folder)["splits"]["train"]
        for problem in (Toy(), Toy().reverse())
    )
    assert (other["source"], other["target"]) == (one["target"], one["source"])
    assert [
        (p["target"], p["source"], p["number"]) for p in other["drawn"]
    ] == [(p["source"], p["target"], p["number"]) for p in one["drawn"]]


def test_drawn_pairs_are_those_of_the_shards(folder, monkeypatch):
    from t2t_lite.data.input_pipeline import read_pairs

    monkeypatch.setattr(inspection, "PORTION_SIZE", 64)
    manifest = Manifest.load(folder, Many())
    drawn = inspect(Many(), folder, seed=3)["splits"]["train"]["drawn"]
    rows = list(read_pairs(folder, Many(), manifest, "train"))
    decode = Letters(folder / "toy.vocab").decode
    assert len({pair["number"] for pair in drawn}) == inspection.DRAWN_PAIRS
    for pair in drawn:
        source, target = rows[pair["number"] - 1]
        texts = decode([source, target])
        assert [pair["source"], pair["target"]] == texts
        assert (pair["source_tokens"], pair["target_tokens"]) == (
            len(source),
            len(target),
        )


def test_the_seed_draws(folder):
    first, again, other = (
        inspect(Many(), folder, seed)["splits"]["train"]["drawn"]
        for seed in (1, 1, 2)
    )
    assert first == again
    assert {pair["number"] for pair in first} != {
        pair["number"] for pair in other
    }


def test_a_sample_is_enough_for_words(folder, monkeypatch):
    monkeypatch.setattr(inspection, "SAMPLED_PAIRS", 50)
    monkeypatch.setattr(inspection, "PORTION_SIZE", 64)
    train = inspect(Many(), folder)["splits"]["train"]
    assert (train["examples"], train["sampled"]) == (1000, 50)
    sampled = train["source"]["tokens_per_word"] * 50  # a word each
    assert sampled == pytest.approx(round(sampled))
    assert sum(train["lengths"].values()) == 1000


def test_an_edited_shard_is_named(copy):
    shard = copy / "toy-train-00000-of-00001"
    data = bytearray(shard.read_bytes())
    data[-5] ^= 1
    shard.write_bytes(data)
    with pytest.raises(T2TLiteError, match=f"{shard} is damaged: its checksum"):
        inspect(Toy(), copy)


def test_ids_beyond_the_vocabulary_are_refused(folder, monkeypatch):
    monkeypatch.setattr(Letters, "vocab_size", 100)
    message = "below the 100 pieces of the vocabulary toy.vocab; got 1 to 249"
    with pytest.raises(T2TLiteError, match=message):
        inspect(Toy(), folder)


def test_missing_data_is_not_made(tmp_path):
    with pytest.raises(T2TLiteError, match="t2t-lite-datagen --problem=toy"):
        inspect(Toy(), tmp_path)
    assert not list(tmp_path.iterdir())


def test_json_has_it_all(folder):
    found = inspect(Toy().reverse(), folder)
    record = json.loads(json.dumps(found))
    assert record["problem"] == "toy_rev"
    train = record["splits"]["train"]
    vocabulary = train["source"]["file"], train["source"]["pieces"]
    assert vocabulary == ("toy.vocab", 300)
    assert train["source"]["tokens"] == 14
    assert train["target"]["byte_share"] == pytest.approx(1 / 8)
    assert {pair["target"] for pair in train["drawn"]} == {"ab c1", "de", "f"}
