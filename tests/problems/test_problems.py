"""The built-in problems: contents of their splits."""

import functools
import gzip
import hashlib
import os
import subprocess
import sys

import pytest

from support.places import SHARED_DATA
from t2t_lite import plugins, registry
from t2t_lite.errors import UsageError
from t2t_lite.problem import RawFiles

SHARED = SHARED_DATA / "multi30k"
SPELLOUT = ("spellout_ende", "spellout_enfr")
MULTI30K = ("multi30k_ende", "multi30k_enfr")


@pytest.fixture(autouse=True, scope="module")
def _registered():
    plugins.load_plugins()


@functools.cache
def all_pairs(name, raw_dir=None):
    problem, raw = registry.problem(name), RawFiles(raw_dir=raw_dir)
    return {
        split: list(problem.samples(split, raw)) for split in problem.splits
    }


@pytest.mark.parametrize("name", SPELLOUT)
def test_each_spellout_text_occurs_once(name):
    pairs = all_pairs(name)
    sizes = {split: len(pairs[split]) for split in pairs}
    assert 20_000 < sizes["train"] < 30_000
    assert (sizes["dev"], sizes["test"]) == (500, 1000)
    for side in (0, 1):  # so train has no held-out text on either side
        texts = [pair[side] for split in pairs.values() for pair in split]
        assert len(texts) == len(set(texts))


@pytest.mark.parametrize("name", SPELLOUT)
def test_spellout_sentences_are_short_and_encoded_losslessly(name, tmp_path):
    pairs = all_pairs(name)
    problem = registry.problem(name)
    problem.train_encoders(RawFiles(), tmp_path, seed=0)
    encoder = problem.load_encoders(tmp_path)["inputs"]
    assert encoder.vocab_size == problem.vocab_size
    for side in zip(*pairs["train"], strict=True):
        ids = encoder.encode(side)
        assert max(map(len, ids)) <= 40
        assert min(map(len, ids)) >= 1
        assert encoder.decode(ids[:100]) == list(side[:100])
        assert not any(text != text.strip() for text in side)


@pytest.mark.slow
def test_spellout_is_the_same_in_every_process():
    code = (
        "from t2t_lite import plugins, registry\n"
        "plugins.load_plugins()\n"
        "print(*registry.problem('spellout_ende').samples('dev', None))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            check=True,
            env=os.environ | {"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


@pytest.mark.parametrize(
    ("english", "german", "french"),
    [
        ("zero", "null", "zéro"),
        ("eightieth", "achtzigste", "quatre-vingtième"),
        ("two hundredth", "zweihundertste", "deux centième"),
        (
            "since nineteen eighty-four",
            "seit neunzehnhundertvierundachtzig",
            "depuis mille neuf cent quatre-vingt-quatre",
        ),
        ("one euro", "ein Euro", "un euro"),
        (
            "twenty-one euros and fifty-one cents",
            "einundzwanzig Euro und einundfünfzig Cent",
            "vingt et un euros et cinquante et un centimes",
        ),
        (
            "one hundred and one dollars and eight cents",
            "einhundertein Dollar und acht Cent",
            "cent un dollars et huit cents",
        ),
    ],
)
def test_numbers_are_spelled_right(english, german, french):
    for name, target in zip(SPELLOUT, (german, french), strict=True):
        assert any((english, target) in p for p in all_pairs(name).values())


def test_the_version_of_num2words_changes_the_fingerprint(monkeypatch):
    from t2t_lite.problems import spellout

    problem = registry.problem("spellout_ende")
    before = problem.fingerprint()
    monkeypatch.setattr(spellout.metadata, "version", lambda name: "9.9")
    assert problem.fingerprint() != before


@pytest.mark.parametrize("name", SPELLOUT + MULTI30K)
def test_both_directions_share_their_data(name):
    forward, backward = registry.problem(name), registry.problem(f"{name}_rev")
    assert backward.fingerprint() == forward.fingerprint()
    assert backward.languages == forward.languages[::-1]


def test_parsing_has_no_reverse_direction():
    with pytest.raises(UsageError, match="wsj_parsing"):
        registry.problem("wsj_parsing_rev")


def test_multi30k_reads_the_official_files(tmp_path):
    for file in ("train", "val", "test_2016_flickr"):
        for language in ("en", "fr"):
            path = tmp_path / f"{file}.{language}.gz"
            path.write_bytes(gzip.compress(f"{file} {language}\n".encode()))
    expected = {
        "train": [("train en", "train fr")],
        "dev": [("val en", "val fr")],
        "test": [("test_2016_flickr en", "test_2016_flickr fr")],
    }
    for name in ("multi30k_enfr", "multi30k_enfr_rev"):
        assert all_pairs(name, tmp_path) == expected


@pytest.mark.parametrize("name", MULTI30K)
def test_multi30k_checksums_are_those_of_the_corpus(name):
    if not SHARED.is_dir():
        pytest.skip("the corpus is not in ../shared/data/multi30k")
    problem = registry.problem(name)
    assert len(problem.files) == 6
    for file in problem.files:
        content = gzip.decompress((SHARED / file.name).read_bytes())
        assert hashlib.sha256(content).hexdigest() == file.sha256
    sizes = map(len, all_pairs(name, SHARED).values())
    assert list(sizes) == [29_000, 1_014, 1_000]
