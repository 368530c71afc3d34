"""A line has one answer, whatever is translated beside it, how, and where."""

import itertools
import random
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.places import TESTS
from support.random_translator import (
    random_sentences,
    random_translator,
)
from support.rounding import approx_score
from t2t_lite.decoding.lines import score_pairs, translate_lines
from t2t_lite.decoding.streams.replicas import Replica
from t2t_lite.decoding.streams.requests import Request

NASTY = [
    b"",
    b" \t ",
    b"eins\tzwei",
    b"eins\0zwei",
    b"\0",
    b"\xff\xfe broken \xc3",
    "\N{DOG FACE}\N{ZERO WIDTH JOINER}\N{CAT FACE} haus".encode(),
    "שלום עולם \u200fabc مرحبا".encode(),
    "eins\u2028zwei\u2029drei\x85vier\x0b\x0c".encode(),
    "e\u0301\u0301\u0301 ﬁ Å".encode(),
    "\ufeffeins".encode(),
    b"eins zwei drei " * 40,
    b"a" * 3000,
]
LINES = [*NASTY, *(text.encode() for text in random_sentences(25))]


@pytest.fixture(scope="module")
def translator(encoder):
    return random_translator(encoder)


def quiet(number, text):
    """Takes the notes of lines that are cut."""


@pytest.fixture(scope="module")
def alone(translator):
    """The translation of each line with nothing beside it."""
    found = translate_lines(
        translator, LINES, batch_size=1, num_hypotheses=2, note=quiet
    )
    return dict(zip(LINES, found, strict=True))


def require_same(one, other):
    """Text and tokens are the same; scores may differ in their last bits."""
    assert one.source == other.source
    for ours, theirs in zip(one.hypotheses, other.hypotheses, strict=True):
        assert (ours.text, ours.tokens) == (theirs.text, theirs.tokens)
        assert ours.score == approx_score(theirs.score)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    lines=st.lists(st.sampled_from(LINES), max_size=40),
    batching=st.fixed_dictionaries(
        {},
        optional={
            "batch_size": st.integers(1, 20),
            "batch_tokens": st.integers(1, 400),
            "prompt": st.booleans(),
        },
    ),
    replicas=st.integers(1, 3),
)
def test_an_answer_depends_on_its_line_alone(
    translator, alone, lines, batching, replicas
):
    found = translate_lines(
        [Replica(translator)] * replicas,
        lines,
        num_hypotheses=2,
        note=quiet,
        **batching,
    )
    for number, (line, one) in enumerate(
        itertools.zip_longest(lines, found), start=1
    ):
        assert one.line == number
        require_same(alone[line], one)


def test_scores_of_pairs_do_not_depend_on_batches(translator):
    targets = random.Random(1).sample(LINES, len(LINES))
    pairs = list(zip(LINES, targets, strict=True))
    wanted = list(score_pairs(translator, pairs, batch_size=1, note=quiet))
    for batching in ({"batch_size": 7}, {"batch_tokens": 90}):
        found = score_pairs(
            [Replica(translator)] * 2, pairs, note=quiet, **batching
        )
        for one, other in zip(wanted, found, strict=True):
            assert (one.line, one.tokens) == (other.line, other.tokens)
            assert one.score == approx_score(other.score)


def test_batches_by_tokens_keep_their_bound(translator, monkeypatch):
    shapes = []
    tokenize = translator.source_encoder.tokenize
    translate = translator.translate

    def watched(texts, *args):
        lengths = tokenize(texts).row_lengths() + 1
        shapes.append((len(texts), min(int(max(lengths)), 20)))
        return translate(texts, *args)

    monkeypatch.setattr(translator, "translate", watched)
    texts = random_sentences(60)
    list(translate_lines(translator, texts, batch_tokens=60))
    assert sum(rows for rows, _ in shapes) == 60
    assert all(rows * width <= 60 for rows, width in shapes)
    assert max(rows for rows, _ in shapes) > 2


def at_stops(text):
    """Sentences, for tests: whatever ends in a full stop."""
    return [each.strip() for each in text.split(".")] if "." in text else [text]


def test_sentences_are_translated_by_themselves_and_joined(translator):
    lines = ["eins zwei. drei. vier haus", "rot", "", "maus.", "grün. . weiß"]
    alone = {
        sentence: next(translate_lines(translator, [sentence])).hypotheses[0]
        for line in lines
        for sentence in at_stops(line)
    }
    for replicas in (1, 2):
        found = translate_lines(
            [Replica(translator)] * replicas,
            lines,
            batch_size=2,
            split=at_stops,
        )
        for number, (line, one) in enumerate(
            zip(lines, found, strict=True), start=1
        ):
            parts = [alone[sentence] for sentence in at_stops(line)]
            (best,) = one.hypotheses
            assert (one.line, one.source) == (number, line)
            texts = [part.text for part in parts if part.text]
            assert best.text == " ".join(texts)
            assert best.tokens == sum((part.tokens for part in parts), [])


def test_the_score_of_joined_sentences_is_that_of_all_their_tokens(translator):
    line = "eins zwei. drei vier haus"
    (one,) = translate_lines(translator, [line], split=at_stops)
    parts = [
        each.hypotheses[0]
        for each in translate_lines(translator, at_stops(line))
    ]

    def penalty(tokens):
        return ((5 + len(tokens)) / 6) ** translator.settings.alpha

    total = sum(part.score * penalty(part.tokens) for part in parts)
    best = one.hypotheses[0]
    assert best.score == approx_score(total / penalty(best.tokens))


def test_what_is_asked_of_one_sentence_does_not_go_with_several(translator):
    requests = [Request("eins. zwei", prefix="a"), Request("eins. zwei")]
    first, second = translate_lines(translator, requests, split=at_stops)
    assert first.error.startswith("prefix and split_sentences do not")
    assert second.hypotheses


ON_TWO_DEVICES = """
import pathlib, sys
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * 2
)
from support.random_translator import (
    random_model,
    random_sentences,
    random_translator,
)
from t2t_lite.decoding.lines import translate_lines
from t2t_lite.decoding.streams.replicas import make_replicas
from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.decoding.translator import Translator
from t2t_lite.text.sentencepiece_encoder import SentencePieceEncoder

path = pathlib.Path(sys.argv[1])
encoder = SentencePieceEncoder.train(random_sentences(300), 320, path)
def make():
    model = random_model(encoder.vocab_size)
    return Translator(model, encoder, encoder, max_length=20)
devices = [f"/device:CPU:{number}" for number in range(2)]
replicas = make_replicas(devices, make)
for replica in replicas:
    places = {v.value.device for v in replica.translator.model.weights}
    assert len(places) == 1 and places.pop().endswith(replica.device)
lines = random_sentences(40)
wanted = list(translate_lines(replicas[0].translator, lines))
found = list(translate_lines(replicas, lines, batch_size=4))
for one, other in zip(wanted, found, strict=True):
    assert one.hypotheses[0].text == other.hypotheses[0].text
"""


@pytest.mark.slow
def test_replicas_work_each_on_its_device(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", ON_TWO_DEVICES, tmp_path / "vocabulary.model"],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=TESTS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
