"""The built-in problems: what their splits hold."""

import gzip
import os
import subprocess
import sys

import pytest

from support.places import SHARED_DATA
from t2t_lite import plugins, registry
from t2t_lite.corpus.raw_files import RawFiles, _sha256_of_content
from t2t_lite.errors import T2TLiteError

SHARED = SHARED_DATA / "multi30k"
SPELLOUT = ("spellout_ende", "spellout_enfr")
MULTI30K = ("multi30k_ende", "multi30k_enfr")


@pytest.fixture(autouse=True, scope="module")
def _registered():
    plugins.load_plugins()


def all_pairs(name):
    problem = registry.problem(name)
    return {
        split: list(problem.samples(split, RawFiles()))
        for split in problem.splits
    }


def phrases(language):
    from t2t_lite.problems import spellout

    return lambda *item: spellout._phrase(item, language)


@pytest.mark.parametrize("name", SPELLOUT)
def test_each_spellout_text_occurs_once(name):
    pairs = all_pairs(name)
    sizes = {split: len(pairs[split]) for split in pairs}
    assert 20_000 < sizes["train"] < 30_000
    assert (sizes["dev"], sizes["test"]) == (500, 1000)
    for side in (0, 1):  # so no held-out text was ever seen, on either side
        texts = [pair[side] for split in pairs.values() for pair in split]
        assert len(texts) == len(set(texts))


@pytest.mark.parametrize("name", SPELLOUT)
def test_spellout_sentences_are_short_and_whole(name, tmp_path):
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


@pytest.mark.parametrize("name", SPELLOUT)
def test_held_out_spellout_has_every_kind(name):
    pairs = all_pairs(name)
    for split in ("dev", "test"):
        sources = [source for source, _ in pairs[split]]
        for word in ("since ", "until ", "in the year ", "euro", "dollar"):
            assert any(word in source for source in sources)
        assert any(source.endswith("th") for source in sources)


@pytest.mark.slow
def test_spellout_is_the_same_in_every_process():
    code = (
        "import hashlib\n"
        "from t2t_lite.problems import spellout\n"
        "pairs = repr(spellout._pairs('de')).encode()\n"
        "print(hashlib.sha256(pairs).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            check=True,
            env=os.environ | {"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("item", "english", "german", "french"),
    [
        (("cardinal", 0), "zero", "null", "zéro"),
        (
            ("cardinal", 2021),
            "two thousand and twenty-one",
            "zweitausendeinundzwanzig",
            "deux mille vingt et un",
        ),
        (("ordinal", 3), "third", "dritte", "troisième"),
        (("ordinal", 80), "eightieth", "achtzigste", "quatre-vingtième"),
        (
            ("ordinal", 200),
            "two hundredth",
            "zweihundertste",
            "deux centième",
        ),
        (
            ("year", 1984, 1),
            "since nineteen eighty-four",
            "seit neunzehnhundertvierundachtzig",
            "depuis mille neuf cent quatre-vingt-quatre",
        ),
        (("amount", "EUR", 1, 0), "one euro", "ein Euro", "un euro"),
        (
            ("amount", "EUR", 21, 1),
            "twenty-one euros and one cent",
            "einundzwanzig Euro und ein Cent",
            "vingt et un euros et un centime",
        ),
        (
            ("amount", "USD", 101, 12),
            "one hundred and one dollars and twelve cents",
            "einhundertein Dollar und zwölf Cent",
            "cent un dollars et douze cents",
        ),
    ],
)
def test_numbers_are_spelled_right(item, english, german, french):
    assert phrases("en")(*item) == english
    assert phrases("de")(*item) == german
    assert phrases("fr")(*item) == french


def test_another_num2words_is_other_data(monkeypatch):
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


def test_problems_differ_in_their_fingerprints():
    prints = {registry.problem(n).fingerprint() for n in SPELLOUT + MULTI30K}
    assert len(prints) == 4


def test_multi30k_reads_the_official_files(tmp_path):
    for file in ("train", "val", "test_2016_flickr"):
        for language in ("en", "fr"):
            path = tmp_path / f"{file}.{language}.gz"
            path.write_bytes(gzip.compress(f"{file} {language}\n".encode()))
    problem = registry.problem("multi30k_enfr")
    raw = RawFiles(problem.files, tmp_path)
    pairs = {
        split: list(problem.samples(split, raw)) for split in problem.splits
    }
    assert pairs == {
        "train": [("train en", "train fr")],
        "dev": [("val en", "val fr")],
        "test": [("test_2016_flickr en", "test_2016_flickr fr")],
    }
    reversed_problem = registry.problem("multi30k_enfr_rev")
    assert list(reversed_problem.samples("dev", raw)) == pairs["dev"]


def test_multi30k_names_the_file_that_is_missing(tmp_path):
    problem = registry.problem("multi30k_ende")
    with pytest.raises(T2TLiteError, match="holds no file train.en.gz. Put"):
        list(problem.samples("train", RawFiles(problem.files, tmp_path)))


@pytest.mark.parametrize("name", MULTI30K)
def test_multi30k_checksums_are_those_of_the_corpus(name):
    if not SHARED.is_dir():
        pytest.skip("the corpus is not in ../shared/data/multi30k")
    problem = registry.problem(name)
    raw = RawFiles(problem.files, SHARED)
    assert len(problem.files) == 6
    for file in problem.files:
        assert _sha256_of_content(raw.path(file.name)) == file.sha256
    sizes = [len(list(problem.samples(s, raw))) for s in problem.splits]
    assert sizes == [29_000, 1_014, 1_000]
