"""Inspection: every number worked out by hand on a few pairs of letters."""

import json
import math
import pathlib
import shutil

import numpy as np
import pytest

from t2t_lite.data import inspection
from t2t_lite.data.inspection import inspect_data
from t2t_lite.data.inspection_records import Pair, Side, SplitInspection
from t2t_lite.data.manifest import Manifest
from t2t_lite.datagen.generate import Generation
from t2t_lite.errors import T2TLiteError
from t2t_lite.problem import Problem


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


class Toy(Problem):
    """Train as given; dev and test have a pair each."""

    name = base_name = "toy"
    train = [("ab c1", "ABC"), ("de", "D 22 EF"), ("", "empty"), ("f", "F")]

    def samples(self, split, raw):
        yield from self.train if split == "train" else [("a", "b")]

    def vocabulary_files(self):
        return {"inputs": "toy.vocab", "targets": "toy.vocab"}

    def train_encoders(self, raw, data_dir, seed):
        (pathlib.Path(data_dir) / "toy.vocab").write_text("letters")

    def load_encoders(self, directory):
        encoder = Letters(pathlib.Path(directory) / "toy.vocab")
        return {"inputs": encoder, "targets": encoder}


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
    return inspect_data(folder, problem, seed, progress=False)


def test_counts_are_those_of_every_pair(folder):
    train = inspect(Toy(), folder).splits["train"]
    assert train.examples == 3
    assert train.dropped == {"empty source": 1}
    # "ab c1", "de", "f" and "ABC", "D 22 EF", "F", each with its EOS.
    assert train.source.lengths == {6: 1, 3: 1, 2: 1}
    assert train.target.lengths == {4: 1, 8: 1, 2: 1}
    assert train.lengths == {6: 1, 8: 1, 2: 1}
    assert (train.source.tokens, train.target.tokens) == (11, 14)


def test_counts_are_those_of_the_manifest(folder):
    record = Manifest.load(folder, Many()).splits["train"]
    train = inspect(Many(), folder).splits["train"]
    assert train.lengths == record.lengths
    assert train.source.tokens == record.source_tokens
    assert train.target.tokens == record.target_tokens


def test_shares_leave_eos_out(folder):
    train = inspect(Toy(), folder).splits["train"]
    assert train.source.byte_tokens == 1
    assert train.source.byte_share == pytest.approx(1 / 8)
    assert train.target.byte_share == pytest.approx(2 / 11)
    assert train.source.tokens_per_word == pytest.approx(8 / 4)
    assert train.target.tokens_per_word == pytest.approx(11 / 5)


def test_a_vocabulary_without_pieces_has_no_share_of_bytes(folder, monkeypatch):
    monkeypatch.delattr(Letters, "pieces")
    train = inspect(Toy(), folder).splits["train"]
    assert (train.source.byte_tokens, train.source.byte_share) == (None, None)


def test_the_other_direction_swaps_the_sides(folder):
    one, other = (
        inspect(problem, folder).splits["train"]
        for problem in (Toy(), Toy().reverse())
    )
    assert (other.source, other.target) == (one.target, one.source)
    assert [(p.target, p.source, p.number) for p in other.drawn] == [
        (p.source, p.target, p.number) for p in one.drawn
    ]


def test_the_longest_side_comes_first_and_ties_in_order(folder, monkeypatch):
    monkeypatch.setattr(inspection, "_WINDOW", 64)
    monkeypatch.setattr(inspection, "LONGEST_PAIRS", 12)
    longest = inspect(Many(), folder).splits["train"].longest
    # Ten pairs have 97 letters; of those with 96, the first two are kept.
    assert [pair.source_tokens for pair in longest] == [98] * 10 + [97] * 2
    for pairs in (longest[:10], longest[10:]):
        numbers = [pair.number for pair in pairs]
        assert numbers == sorted(numbers)
    assert all(len(p.source) + 1 == p.source_tokens for p in longest)


def test_drawn_pairs_are_those_of_the_shards(folder, monkeypatch):
    from t2t_lite.data.input_pipeline import read_pairs

    monkeypatch.setattr(inspection, "_WINDOW", 64)
    manifest = Manifest.load(folder, Many())
    drawn = inspect(Many(), folder, seed=3).splits["train"].drawn
    rows = list(read_pairs(folder, Many(), manifest, "train"))
    decode = Letters(folder / "toy.vocab").decode
    assert len({pair.number for pair in drawn}) == inspection.DRAWN_PAIRS
    for pair in drawn:
        source, target = rows[pair.number - 1]
        texts = decode([source, target])
        assert pair == Pair(pair.number, len(source), len(target), *texts)


def test_the_seed_draws(folder):
    first, again, other = (
        inspect(Many(), folder, seed).splits["train"].drawn
        for seed in (1, 1, 2)
    )
    assert first == again
    assert {pair.number for pair in first} != {pair.number for pair in other}


def test_a_sample_is_enough_for_words(folder, monkeypatch):
    monkeypatch.setattr(inspection, "SAMPLED_PAIRS", 50)
    monkeypatch.setattr(inspection, "_WINDOW", 64)
    train = inspect(Many(), folder).splits["train"]
    assert (train.examples, train.sampled) == (1000, 50)
    assert train.source.sampled_words == 50  # each text is one word
    assert sum(train.lengths.values()) == 1000


def test_an_edited_shard_is_named(copy):
    shard = copy / "toy-train-00000-of-00001"
    data = bytearray(shard.read_bytes())
    data[-5] ^= 1
    shard.write_bytes(data)
    with pytest.raises(T2TLiteError, match=f"{shard} is damaged: its checksum"):
        inspect(Toy(), copy)


def test_ids_beyond_the_vocabulary_are_refused(folder, monkeypatch):
    monkeypatch.setattr(Letters, "vocab_size", 100)
    message = "must be below the 100 pieces of the vocabulary; got 1 to 249"
    with pytest.raises(T2TLiteError, match=message):
        inspect(Toy(), folder)


def test_missing_data_is_not_made(tmp_path):
    with pytest.raises(T2TLiteError, match="t2t-lite-datagen --problem=toy"):
        inspect(Toy(), tmp_path)
    assert not list(tmp_path.iterdir())


def split_of(lengths):
    side = Side({}, None, 0, 0)
    return SplitInspection(0, {}, {}, side, side, lengths, 0, (), ())


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 2), (0.5, 2), (0.51, 3), (0.75, 3), (1, 9)]
)
def test_a_quantile_is_a_length_that_enough_pairs_keep_to(share, expected):
    assert split_of({9: 1, 2: 2, 3: 1}).quantile(share) == expected


@pytest.mark.parametrize(
    ("lengths", "most", "expected"),
    [
        ({3: 1}, 4, [(1, 1), (2, 2), (3, 3)]),
        ({1: 1, 7: 1}, 4, [(1, 5), (6, 10)]),
        ({1: 1, 30: 1}, 4, [(1, 10), (11, 20), (21, 30)]),
        # One in 1,000 is far beyond the others.
        ({4: 999, 5000: 1}, 4, [(1, 2), (3, 4), (5, math.inf)]),
    ],
)
def test_classes_are_few_and_round_and_hold_every_length(
    lengths, most, expected
):
    assert split_of(lengths).length_classes(most) == expected


def test_json_has_it_all(folder):
    found = inspect(Toy().reverse(), folder)
    record = json.loads(json.dumps(found.to_json()))
    assert record["problem"] == "toy_rev"
    assert record["vocabulary"]["source"] == {
        "file": "toy.vocab",
        "pieces": 300,
    }
    train = record["splits"]["train"]
    assert train["source"]["tokens"] == 14
    assert train["target"]["byte_share"] == pytest.approx(1 / 8)
    assert train["longest"][0]["source"] == "D 22 EF"
    assert {pair["target"] for pair in train["drawn"]} == {"ab c1", "de", "f"}
