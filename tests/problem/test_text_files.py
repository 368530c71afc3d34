"""Own text files: the options and their errors."""

import bz2
import functools
import gzip
import itertools
import json
import os
import random

import pytest

from support import toy_problem
from support.own_text import samples, splits_of, text
from t2t_lite.errors import T2TLiteError, UsageError

PAIRS = [(f"word {i}", f"Wort {i}") for i in range(300)]
# Separate files for every split.
EVERY = {
    "source": "a.xx",
    "target": "a.yy",
    "dev_pairs": "b.tsv",
    "test_pairs": "c.jsonl",
}


def vocab_lines(texts):
    return "".join(f"{text}\n" for text in texts)


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a file and returns its path."""

    def write(name, data):
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    return write


@pytest.fixture
def sides(write):
    """Return a function that writes pairs as two files: options of train."""

    def sides(pairs=PAIRS):
        sources, targets = map(vocab_lines, zip(*pairs, strict=True))
        return {
            "source": write("train.xx", sources),
            "target": write("train.yy", targets),
        }

    return sides


def test_each_split_may_have_another_format(write):
    tuv = '<tuv xml:lang="%s"><seg>%s</seg></tuv>'
    unit = tuv % ("xx-AA", "e") + tuv % ("yy", "E")
    tmx = f"<tmx><body><tu>{unit}</tu></body></tmx>"
    problem = text(
        source=write("a.xx.gz", gzip.compress(b"a\nb\n")),
        target=write("a.yy", b"A\r\nB"),
        dev_pairs=write("b.jsonl.bz2", bz2.compress(b'{"s": "c", "t": "C"}')),
        test_pairs=write("c.tmx", tmx),
        source_language="xx",
        target_language="yy",
        source_key="s",
        target_key="t",
    )
    assert splits_of(problem) == {
        "train": [("a", "A"), ("b", "B")],
        "dev": [("c", "C")],
        "test": [("e", "E")],
    }
    assert problem.reverse().languages == ("yy", "xx")
    assert splits_of(problem.reverse()) == splits_of(problem)


def test_no_pair_is_lost_or_in_two_splits(sides):
    splits = splits_of(text(**sides(), holdout=20))
    assert {split: len(pairs) for split, pairs in splits.items()} == {
        "train": 260,
        "dev": 20,
        "test": 20,
    }
    assert sorted(itertools.chain(*splits.values())) == sorted(PAIRS)
    for split, pairs in splits.items():
        assert pairs == [pair for pair in PAIRS if pair in pairs], split


def test_held_out_pairs_do_not_depend_on_the_order_or_the_format(sides, write):
    expected = splits_of(text(**sides(), holdout=5))
    shuffled = PAIRS + PAIRS[::2]
    random.shuffle(shuffled)
    tsv = vocab_lines("\t".join(pair) for pair in shuffled)
    found = splits_of(text(pairs=write("all.tsv", tsv), holdout=5))
    for split in expected:
        assert set(found[split]) == set(expected[split])
    assert sum(map(len, found.values())) == len(shuffled)


def test_only_splits_without_files_are_held_out(sides, write):
    dev = write("dev.tsv", "x\ty\n")
    problem = text(**sides(), dev_pairs=dev, holdout=7)
    splits = splits_of(problem)
    assert splits["dev"] == [("x", "y")]
    assert (len(splits["train"]), len(splits["test"])) == (293, 7)
    both = text(**sides(), dev_pairs=dev, test_pairs=dev)
    assert samples(both, "train") == PAIRS


def test_options_have_absolute_paths_and_no_defaults(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    problem = text(
        source="sub/../a.xx",
        target=tmp_path / "a.yy",
        name="text",
        vocab_size=8000,
        shared_vocabulary=True,
        source_key="source",
        holdout=None,
        source_language="xx",
    )
    assert problem.options == {
        "source": str(tmp_path / "a.xx"),
        "target": str(tmp_path / "a.yy"),
        "source_language": "xx",
    }
    assert json.loads(json.dumps(problem.options)) == problem.options
    again = text(**problem.options)
    assert again.fingerprint() == problem.fingerprint()


def test_the_name_option_names_the_problem_and_its_data():
    problem = text(problem="text_rev", name="my-text_2")
    assert (problem.name, problem.base_name) == ("my-text_2_rev", "my-text_2")
    assert problem.registered_name == "text_rev"
    assert problem.reverse().name == "my-text_2"
    assert problem.vocabulary_files()["inputs"] == "my-text_2.vocab.8000.model"


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"sorce": "a"}, "Did you mean source"),
        ({"source": "a"}, "`target`"),
        ({"dev_target": "a"}, "`dev_source`"),
        ({"source": "a", "target": "b", "pairs": "c.tsv"}, "`pairs`"),
        ({"test_pairs": "c.tsv", "test_source": "c"}, "`test_pairs`"),
        ({"pairs": "c.txt"}, ".jsonl"),
        ({"pairs": "c.tmx"}, "`source_language`"),
        ({"dev_pairs": "c.tmx", "target_language": "xx"}, "`source_language`"),
        ({"pairs": "c.tsv", "target_key": "x"}, "`target_key`"),
        ({"pairs": "c.tsv", "encoding": "rot13"}, "encoding"),
        (EVERY | {"holdout": 5}, "`holdout`"),
        ({"holdout": 0}, "holdout"),
        ({"vocab_size": "many"}, "vocab_size"),
        ({"source": ""}, "source"),
        ({"name": "../a"}, "name"),
        ({"name": "a_rev"}, "_rev"),
        ({"vocabulary": "a", "vocab_size": 9}, "`vocab_size`"),
        ({"vocabulary": "a", "character_coverage": 0.5}, "`character_co"),
        ({"character_coverage": 0}, "character_coverage"),
        ({"pairs": "c.parquet", "encoding": "latin-1"}, "`encoding`"),
        ({"vocabulary": "a", "shared_vocabulary": False}, "`separate_vocabul"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_read(options, word):
    with pytest.raises(UsageError) as error:
        text(**options)
    assert word in str(error.value) and "\n" not in str(error.value)


def test_all_missing_files_are_named_in_one_error(tmp_path, write):
    problem = text(
        source=tmp_path / "a.xx",
        target=write("a.yy", "A\n"),
        dev_source=tmp_path,
        dev_target=tmp_path / "dev.yy",
    )
    with pytest.raises(T2TLiteError) as error:
        samples(problem, "train")
    assert f"{tmp_path}/a.xx, {tmp_path}, {tmp_path}/dev.yy" in str(error.value)


@pytest.mark.parametrize("name", ["pipe", "pipe.tsv", "-"])
def test_a_pipe_is_refused(tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if name != "-":
        os.mkfifo(name)
    with pytest.raises(T2TLiteError, match=rf"{name} is a pipe"):
        samples(text(source=name, target=name), "train")
    with pytest.raises(T2TLiteError, match=rf"{name} is a pipe"):
        samples(text(pairs=name), "train")


def test_an_empty_file_is_refused(write):
    files = {name: write(path, "a\tA\n") for name, path in EVERY.items()}
    files["dev_pairs"].write_text("")
    with pytest.raises(T2TLiteError, match=r"one pair.*b\.tsv"):
        samples(text(**files), "dev")


@pytest.fixture
def make(tmp_path):
    """Return a function that generates the data of a problem."""
    return functools.partial(toy_problem.make, folder=tmp_path / "data")


def test_filters_that_drop_everything_are_named(write, make):
    pairs = write("a.tsv", "".join(f"a b c {i}\tx\n" for i in range(9)))
    problem = text(pairs=pairs, filters="length=9,length_ratio=2", holdout=1)
    with pytest.raises(T2TLiteError, match="all 7 pairs .*length_ratio 7"):
        make(problem)


def test_the_vocabulary_is_shared_or_separate(sides, make, tmp_path):
    shared = text(**sides(), vocab_size=280)
    assert make(shared).vocabulary.keys() == {"text.vocab.280.model"}
    encoders = shared.load_encoders(tmp_path / "data")
    assert encoders["inputs"] is encoders["targets"]
    split = text(**sides(), vocab_size=280, name="two", shared_vocabulary=False)
    assert make(split).vocabulary.keys() == {
        "two.vocab.280.source.model",
        "two.vocab.280.target.model",
    }
    encoders = split.load_encoders(tmp_path / "data")
    letters = {
        side: set("".join(encoder.ids_to_pieces(range(259, 280))))
        for side, encoder in encoders.items()
    }
    assert letters["inputs"] >= {*"word"} and letters["targets"] >= {*"Wort"}
    assert "W" not in letters["inputs"] and "w" not in letters["targets"]
    backward = split.reverse().load_encoders(tmp_path / "data")
    assert backward["inputs"].sha256 == encoders["targets"].sha256


def test_data_of_names_with_a_common_prefix_is_kept(sides, make):
    options = {**sides(), "vocab_size": 280}
    long = make(text(**options, name="my-train"))
    make(text(**options, name="my"))
    make(text(**options, name="my"), overwrite=True)
    assert make(text(**options, name="my-train")) == long
