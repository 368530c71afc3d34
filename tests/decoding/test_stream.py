"""Lines in, results out: order, line ends, hostile lines, batches, replicas."""

import io
import itertools
import queue
import random
import subprocess
import sys
import unicodedata

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from support.pairs import score_pairs
from support.places import TESTS
from support.random_translator import (
    WORDS,
    random_model,
    random_sentences,
    random_translator,
)
from support.rounding import approx_score
from t2t_lite.decoding import stream
from t2t_lite.decoding.batching import Batching
from t2t_lite.decoding.requests import Pair, Request
from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.decoding.stream import (
    Replica,
    configure_cpu_threads,
    translate_lines,
)
from t2t_lite.decoding.translator import Translator, prepare
from t2t_lite.errors import T2TLiteError
from t2t_lite.tokenizers.base import EOS_ID
from t2t_lite.tokenizers.tags import is_blank

HOSTILE = [
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
LINES = [*HOSTILE, *(text.encode() for text in random_sentences(25))]


@pytest.fixture(scope="module")
def translator(encoder):
    return random_translator(encoder)


def quiet(number, text):
    """Ignore notes on truncated lines."""


def texts(translations):
    return [t.hypotheses[0].text for t in translations]


@pytest.fixture(scope="module")
def alone(translator):
    """The translation of each line in a batch of its own."""
    found = translate_lines(
        translator, LINES, batching=Batching(1), num_hypotheses=2, note=quiet
    )
    return dict(zip(LINES, found, strict=True))


@settings(max_examples=25)
@given(
    lines=st.lists(st.sampled_from(LINES), max_size=40),
    batching=st.builds(
        Batching,
        st.none() | st.integers(1, 20),
        st.none() | st.integers(1, 400),
        st.booleans(),
    ),
    replicas=st.integers(1, 3),
)
def test_a_result_depends_on_its_line_alone(
    translator, alone, lines, batching, replicas
):
    found = translate_lines(
        [Replica(translator)] * replicas,
        lines,
        num_hypotheses=2,
        note=quiet,
        batching=batching,
    )
    for number, (line, one) in enumerate(
        itertools.zip_longest(lines, found), start=1
    ):
        assert (one.line, one.source) == (number, alone[line].source)
        for ours, theirs in zip(
            one.hypotheses, alone[line].hypotheses, strict=True
        ):
            assert (ours.text, ours.tokens) == (theirs.text, theirs.tokens)
            assert ours.score == approx_score(theirs.score)


def test_the_lines_of_this_test_have_different_results(alone):
    found = [each.hypotheses[0] for each in alone.values()]
    assert len({each.text for each in found}) > 5
    ended = [EOS_ID in each.tokens for each in found]
    assert any(ended) and not all(ended)


def test_scores_of_pairs_do_not_depend_on_batches(translator):
    targets = random.Random(1).sample(LINES, len(LINES))
    pairs = [*zip(LINES, targets, strict=True), ("", "rot"), ("rot", "")]
    wanted = list(
        score_pairs(translator, pairs, batching=Batching(1), note=quiet)
    )
    for batching in (Batching(7), Batching(tokens=90)):
        found = score_pairs(
            [Replica(translator)] * 2, pairs, note=quiet, batching=batching
        )
        for one, other in zip(wanted, found, strict=True):
            (ours,), (theirs,) = one.hypotheses, other.hypotheses
            assert (one.line, ours.tokens) == (other.line, theirs.tokens)
            assert ours.score == approx_score(theirs.score) and ours.score < 0


def test_scores_of_pairs_equal_those_of_the_search(translator):
    encoder = translator.target_encoder
    found = [
        each
        for each in translate_lines(translator, random_sentences(9))
        if [*encoder.encode([texts([each])[0]])[0], EOS_ID]
        == each.hypotheses[0].tokens
    ]
    assert found
    pairs = [(each.source, each.hypotheses[0].text) for each in found]
    for each, scored in zip(found, score_pairs(translator, pairs), strict=True):
        (best,), (pair,) = each.hypotheses, scored.hypotheses
        assert pair.score == approx_score(best.score)
        assert pair.tokens == best.tokens
        assert pair.log_probability == pytest.approx(
            pair.score * ((5 + len(pair.tokens)) / 6) ** 0.6, rel=1e-5
        )


def test_batches_by_tokens_keep_their_limit(translator, monkeypatch):
    shapes = []
    tokenize = translator.source_encoder.encode_tf
    translate = translator.translate

    def recorded(texts, *args):
        lengths = tokenize(texts).row_lengths() + 1
        shapes.append((len(texts), min(int(max(lengths)), 20)))
        return translate(texts, *args)

    monkeypatch.setattr(translator, "translate", recorded)
    list(
        translate_lines(
            translator, random_sentences(60), batching=Batching(tokens=60)
        )
    )
    assert sum(rows for rows, _ in shapes) == 60
    assert all(rows * width <= 60 for rows, width in shapes)
    assert max(rows for rows, _ in shapes) > 2


def test_equal_postprocessed_texts_are_replaced_by_others_of_the_beam(encoder):
    translator = random_translator(encoder, settings=SearchSettings(6))
    lines = random_sentences(8)
    six = translator.translate(tf.constant(lines), 6)
    found = translate_lines(
        translator,
        lines,
        num_hypotheses=2,
        postprocess=lambda source, text: (f"{source}: {text[:1]}", {}),
    )
    counts = set()
    for row, result in enumerate(found):
        letters = [text.decode()[:1] for text in six["outputs"][row].numpy()]
        wanted = [letters.index(letter) for letter in dict.fromkeys(letters)]
        counts.add(len(wanted) - wanted[-1])
        assert [h.text for h in result.hypotheses] == [
            f"{lines[row]}: {letters[k]}" for k in wanted[:2]
        ]
        scores = [six["scores"][row][k] for k in wanted[:2]]
        assert [h.score for h in result.hypotheses] == approx_score(scores)
    assert len(counts) > 1  # some beams have equal texts


@pytest.mark.parametrize(
    "blank",
    ["", " \t ", "\xa0 \u2003", "\ufeff \u200b", "\x1b\x07\0"],
)
def test_a_blank_line_has_an_empty_result(translator, blank):
    first, second, third = translate_lines(translator, ["5 6", blank, "7"])
    (hypothesis,) = second.hypotheses
    assert (hypothesis.text, hypothesis.score) == ("", 0.0)
    assert (hypothesis.tokens, second.source) == ([], blank)
    assert first.hypotheses[0].score < 0 and third.hypotheses[0].score < 0
    (indented,) = translate_lines(translator, [f"{blank}5"])
    assert indented.hypotheses[0].score != 0


def test_graph_and_corpus_agree_on_blank_texts():
    characters = [*map(chr, range(0xD800)), *map(chr, range(0xE000, 0x1F000))]
    prepared = prepare(tf.constant(characters), constraint=None).numpy()
    for character, text in zip(characters, prepared, strict=True):
        assert is_blank(character) == (text == b"")
        kind = unicodedata.category(character)
        if character.isspace() or kind in ("Cc", "Zs"):
            assert not text
        if kind in ("Lu", "Ll", "Nd", "Po", "Sm"):
            assert text


def test_lines_end_at_newlines_only(translator):
    file = io.BytesIO(
        b"eins\r\nzw\x00ei\n\xef\xbb\xbfdrei\n"
        + "rot\u2028grün\x0b\x0c\u0085blau\n".encode()
        + b"vier\r\r\nlast"
    )
    sources = [t.source for t in translate_lines(translator, file)]
    assert sources == [
        "eins",
        "zw\x00ei",
        "\ufeffdrei",
        "rot\u2028grün\x0b\x0c\u0085blau",
        "vier\r",
        "last",
    ]


def test_invalid_utf8_becomes_replacement_characters(translator):
    broken, clean, surrogate = translate_lines(
        translator, [b"ein\xff haus\n", "ein\ufffd haus\n".encode(), "\ud800"]
    )
    assert broken.source == clean.source == "ein\ufffd haus"
    assert texts([broken]) == texts([clean])
    assert set(surrogate.source) == {"\ufffd"}


def test_a_long_line_is_truncated_with_a_note(translator):
    words = " ".join(WORDS * 9)
    notes = []
    lines = ["eins", words, words + " noch mehr"]
    found = list(
        translate_lines(translator, lines, note=lambda *n: notes.append(n))
    )
    assert [number for number, _ in notes] == [2, 3]
    assert "max_length" in notes[0][1] and "20 tokens" in notes[0][1]
    assert texts(found)[1] == texts(found)[2]


def test_a_result_is_one_valid_line(model, encoder, monkeypatch):
    text = "a\nb\r\nc\rd\te\0\x1f\uffff\x7f"
    monkeypatch.setattr(
        encoder,
        "decode_tf",
        lambda ids: tf.fill([tf.shape(ids)[0]], text),
    )
    translator = Translator(model, encoder, encoder)
    (found,) = texts(translate_lines(translator, ["eins"]))
    assert found == "a b c d\te\ufffd\ufffd\ufffd\x7f"


def test_translations_keep_the_limit_of_their_length(encoder, model):
    translator = Translator(model, encoder, encoder, extra_decode_length=2)
    lines = random_sentences(12)
    lengths = [len(ids) + 1 for ids in encoder.encode(lines)]
    found = translate_lines(translator, lines)
    for length, translation in zip(lengths, found, strict=True):
        assert len(translation.hypotheses[0].tokens) <= length + 2


def test_the_graph_is_traced_once(translator):
    for count in (1, 2, 5):
        list(translate_lines(translator, random_sentences(count, seed=count)))
    assert translator.graph(1).experimental_get_tracing_count() == 1


def test_lines_are_translated_when_the_stream_pauses(translator):
    lines = queue.Queue()
    found = translate_lines(
        translator, iter(lines.get, None), batching=Batching(4)
    )
    for number in range(1, 4):
        lines.put(b"eins zwei\n")  # and no more until it is translated
        assert next(found).line == number
    lines.put(None)
    assert list(found) == []


def test_an_error_of_the_stream_is_raised_after_its_lines(translator):
    def lines():
        yield "eins"
        raise OSError("the pipe broke")

    found = translate_lines(translator, lines())
    assert next(found).line == 1
    with pytest.raises(OSError, match="the pipe broke"):
        next(found)


def test_a_model_with_nan_weights_is_an_error(encoder):
    model = random_model(encoder.vocab_size)
    for variable in model.trainable_variables:
        variable.assign(np.full(variable.shape, np.nan))
    translator = Translator(model, encoder, encoder)
    with pytest.raises(T2TLiteError, match="line 2"):
        list(translate_lines(translator, ["", "eins"]))
    with pytest.raises(T2TLiteError, match="line 1"):
        list(score_pairs(translator, [("eins", "one")]))


def at_stops(text):
    """Split sentences at full stops."""
    return [each.strip() for each in text.split(".")] if "." in text else [text]


def test_sentences_are_translated_separately_and_concatenated(translator):
    lines = ["eins zwei. drei. vier haus", "rot", "", "maus.", "grün. . weiß"]
    sentences = [sentence for line in lines for sentence in at_stops(line)]
    found = translate_lines(translator, sentences)
    alone = {each.source: each.hypotheses[0] for each in found}

    def penalty(tokens):
        return ((5 + len(tokens)) / 6) ** translator.settings.alpha

    found = translate_lines(
        [Replica(translator)] * 2, lines, batching=Batching(2), split=at_stops
    )
    for line, one in zip(lines, found, strict=True):
        parts = [alone[sentence] for sentence in at_stops(line)]
        (best,) = one.hypotheses
        assert one.source == line
        assert best.text == " ".join(part.text for part in parts if part.text)
        assert best.tokens == sum((part.tokens for part in parts), [])
        total = sum(part.score * penalty(part.tokens) for part in parts)
        assert best.score == approx_score(total / penalty(best.tokens))


def test_options_of_one_sentence_conflict_with_splitting(translator):
    requests = [Request("eins. zwei", prefix="a"), Request("eins. zwei")]
    first, second = translate_lines(translator, requests, split=at_stops)
    assert "prefix" in first.error and "split_sentences" in first.error
    assert second.hypotheses


TAGS = ("<haus>", "<maus>")


def test_each_sentence_of_a_line_has_the_tag_of_the_line(translator):
    lines = ["<haus> eins. zwei", "<haus> eins", "<haus> zwei"]
    both, *parts = texts(
        translate_lines(translator, lines, split=at_stops, tags=TAGS)
    )
    assert both == " ".join(parts)


def test_a_tag_is_put_before_the_text_of_a_request(translator):
    requests = [
        Request("eins zwei", tag="haus"),
        Request("<haus> drei", tag="<maus>"),
        Request("", tag="haus"),
        Request("vier", tag="hund", id=7),
    ]
    *found, unknown = translate_lines(translator, requests, tags=TAGS)
    lines = ["<haus> eins zwei", "<haus> drei", ""]
    assert [each.source for each in found] == lines
    assert texts(found) == texts(translate_lines(translator, lines))
    assert unknown.id == 7 and not unknown.hypotheses
    assert "<haus>, <maus>; got 'hund'" in unknown.error


def test_a_tag_is_put_before_the_source_of_a_pair(translator):
    pairs = [
        Pair("eins", "zwei", tag="haus"),
        Pair("<haus> eins", "zwei"),
        Pair("eins", "zwei"),
        Pair("eins", "zwei", tag="hund"),
    ]
    tagged, typed, without, unknown = score_pairs(translator, pairs, tags=TAGS)
    scores = [x.hypotheses[0].score for x in (tagged, typed, without)]
    assert scores[0] == approx_score(scores[1])
    assert abs(scores[0] - scores[2]) > 1e-3
    assert "hund" in unknown.error


@pytest.mark.parametrize(
    ("count", "cores", "searches"),
    [(None, 1, 1), (None, 2, 2), (None, 64, 4), (3, 2, 3)],
)
def test_default_is_one_search_per_core_and_at_most_four(
    monkeypatch, count, cores, searches
):
    thread_counts = []
    monkeypatch.setattr(stream, "num_cpus", lambda: cores)
    monkeypatch.setattr(stream, "set_num_threads", thread_counts.append)
    assert configure_cpu_threads(count) == searches
    assert thread_counts == [searches]


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
    train_encoder,
)
from t2t_lite.decoding.batching import Batching
from t2t_lite.decoding.stream import Replica, build_per_device, translate_lines
from t2t_lite.decoding.translator import Translator

encoder = train_encoder(pathlib.Path(sys.argv[1]))
def make():
    model = random_model(encoder.vocab_size)
    return Translator(model, encoder, encoder, max_length=20)
devices = [f"/device:CPU:{number}" for number in range(2)]
made = build_per_device(devices, make)
replicas = [Replica(made[device], device) for device in devices]
for replica in replicas:
    places = {v.value.device for v in replica.translator.model.weights}
    assert len(places) == 1 and places.pop().endswith(replica.device)
lines = random_sentences(40)
wanted = list(translate_lines(replicas[0].translator, lines))
found = list(translate_lines(replicas, lines, batching=Batching(4)))
for one, other in zip(wanted, found, strict=True):
    assert one.hypotheses[0].text == other.hypotheses[0].text
"""


@pytest.mark.slow
def test_each_replica_runs_on_its_device(tmp_path):
    command = [sys.executable, "-c", ON_TWO_DEVICES, tmp_path]
    done = subprocess.run(command, stderr=subprocess.PIPE, cwd=TESTS)
    assert done.returncode == 0, done.stderr.decode()
