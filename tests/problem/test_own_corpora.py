"""Own text of several corpora: shares, tags and held-out pairs."""

import collections
import random

import pytest

from support import toy_problem
from support.own_text import samples, text
from t2t_lite.data.manifest import Manifest
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.tokenizers.sentencepiece import SentencePieceTokenizer

LARGE = [(f"word {i}", f"Wort {i}") for i in range(300)]
SMALL = [(f"big {i}", f"gros {i}") for i in range(20)]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("a.tsv", LARGE)
    write("b.tsv", SMALL)


def write(name, pairs):
    with open(name, "w", encoding="utf-8") as file:
        file.writelines(f"{source}\t{target}\n" for source, target in pairs)


def make(problem):
    return toy_problem.make(problem, "data")


def tagged(tag, pairs):
    return {(f"{tag} {source}", target) for source, target in pairs}


def test_a_plain_list_has_each_pair_once():
    problem = text("a.tsv,b.tsv", dev_pairs="b.tsv", test_pairs="b.tsv")
    assert samples(problem) == LARGE + SMALL
    assert samples(problem, "dev") == SMALL


def test_train_contains_the_corpora_in_their_shares():
    problem = text("a.tsv:0.75,b.tsv:0.25", holdout=5)
    counts = collections.Counter(samples(problem))
    assert samples(problem) == list(counts.elements())  # the same again
    held_out = {*samples(problem, "dev"), *samples(problem, "test")}
    assert len(held_out) == 10 and not held_out & counts.keys()
    assert counts.keys() | held_out == {*LARGE, *SMALL}  # none is lost
    large = [counts[pair] for pair in LARGE if pair not in held_out]
    small = [counts[pair] for pair in SMALL if pair not in held_out]
    assert set(large) == {1}
    assert max(small) - min(small) <= 1
    assert sum(small) == round(len(large) / 3)


def test_shares_apply_to_filtered_pairs():
    write("a.tsv", [*LARGE, ("", "x"), ("x y z", "y"), ("x", "x")])
    write("b.tsv", [*SMALL, ("x", "x"), ("x", "\u200b")])
    manifest = make(
        text(
            "a.tsv:0.75:web,b.tsv:0.25",
            filters="length=2,identical",
            dev_pairs="b.tsv",
            test_pairs="b.tsv",
            vocab_size=290,
        )
    )
    train = manifest.splits["train"]
    assert train.examples == 400
    # Filters ignore the tag, and a dropped pair is counted only once.
    assert train.dropped == {
        "empty source": 1,
        "empty target": 1,
        "identical": 2,
        "length": 1,
    }
    assert [
        (corpus["tag"], corpus["pairs"], corpus["copies"])
        for corpus in manifest.corpora
    ] == [("<web>", 300, 300), ("", 20, 100)]
    assert Manifest.load("data", text("a.tsv")) == manifest
    a, b = manifest.corpus_summary
    assert a.startswith("<web> /") and a.endswith(
        "a.tsv: 300 pairs, 300 with copies, 75.0%"
    )
    assert b.endswith("b.tsv: 20 pairs, 100 with copies, 25.0%")


def test_shares_conflict_with_a_filter_of_duplicates():
    with pytest.raises(UsageError, match="`filters=duplicates`"):
        text("a.tsv:0.5,b.tsv:0.5", filters="duplicates")
    assert samples(text("a.tsv,b.tsv", filters="duplicates"))


def test_held_out_pairs_of_one_corpus_are_in_no_other():
    shuffled = LARGE[:100]
    random.Random(0).shuffle(shuffled)
    write("b.tsv", shuffled)
    problem = text("a.tsv:0.5:web,b.tsv:0.5:news", holdout=30)
    train, dev, test = (
        {(s.split(" ", 1)[1], t) for s, t in samples(problem, split)}
        for split in ("train", "dev", "test")
    )
    assert not train & dev and not train & test and not dev & test
    assert train | dev | test == set(LARGE)
    found = set(samples(problem, "dev"))
    assert found <= tagged("<web>", LARGE) | tagged("<news>", shuffled)
    assert found & tagged("<news>", shuffled)


def test_a_tag_precedes_each_source_text_and_is_one_piece():
    write("b.tsv", [*SMALL, (" ", "x")])
    problem = text(
        "a.tsv:web,b.tsv:2de",
        dev_pairs="b.tsv:2de",
        test_pairs="a.tsv",
        vocab_size=300,
    )
    assert set(samples(problem)) == (
        tagged("<web>", LARGE) | tagged("<2de>", SMALL) | {(" ", "x")}
    )
    assert samples(problem, "test") == LARGE
    assert problem.source_tags == ("<2de>", "<web>")
    make(problem)
    encoder = problem.load_encoders("data")["inputs"]
    (ids,) = encoder.encode(["<2de> word 5"])
    assert encoder.ids_to_pieces(ids[:1].tolist()) == ["<2de>"]
    assert ids.tolist() == encoder.encode_tf(["<2de> word 5"]).to_list()[0]
    assert encoder.decode([ids]) == ["<2de> word 5"]
    assert encoder.vocab_size == 300


def test_an_existing_vocabulary_must_contain_the_tags():
    SentencePieceTokenizer.train(["a b c"] * 9, 265, "with.model", 0, ["<2de>"])
    SentencePieceTokenizer.train(["a b c"] * 9, 265, "without.model")
    with open("vocab.txt", "w", encoding="utf-8") as file:
        file.write("[PAD]\n[UNK]\n<\n>\n2\n##d\n##e\n")
    options = {"dev_pairs": "b.tsv", "test_pairs": "b.tsv"}
    for file in ("without.model", "vocab.txt"):
        problem = text("a.tsv:2de", vocabulary=file, **options)
        with pytest.raises(T2TLiteError) as error:
            make(problem)
        assert "A tag must be one piece of the vocabulary; " in str(error.value)
        assert file in str(error.value) and "<2de>" in str(error.value)
    assert make(text("a.tsv:2de", vocabulary="with.model", **options))


@pytest.mark.parametrize("pairs", ["b.tsv:2de", "b.tsv:1"])
def test_dev_pairs_have_tags_of_train_and_no_shares(pairs):
    assert text("a.tsv:web", dev_pairs="b.tsv:web,a.tsv")
    with pytest.raises(UsageError, match="`dev_pairs` .*b.tsv:"):
        text("a.tsv:web", dev_pairs=pairs)


def test_the_reversed_direction_has_no_tags():
    with pytest.raises(UsageError, match="text_rev .*tags"):
        text("a.tsv:web", "text_rev")
    with pytest.raises(UsageError, match="text_rev .*tags"):
        text("a.tsv", "text_rev").with_options({"pairs": "a.tsv:web"})
    assert text("a.tsv:0.5,b.tsv:0.5", "text_rev")


def test_a_report_has_the_score_of_each_tag():
    problem = text("a.tsv:2de,b.tsv:2fr")
    sources = ["<2de> a", "<2fr> b", "<2de> c", "d"]
    texts = [f"one two three four {i}" for i in range(4)]
    report = problem.evaluate(sources, texts, [texts[0], "x", *texts[2:]])
    assert report["by_tag"] == {
        "<2de>": {"score": pytest.approx(100), "sentences": 2},
        "<2fr>": {"score": 0, "sentences": 1},
        "no tag": {"score": pytest.approx(100), "sentences": 1},
    }
    assert 0 < report["score"] < 100
    assert "by_tag" not in text("a.tsv").evaluate(texts, texts, texts)
