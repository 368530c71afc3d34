"""Text in, text out: order, line ends, empty and long lines, any batch size."""

import io
import itertools
import logging
import queue
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf

from support.random_translator import (
    WORDS,
    random_model,
    random_sentences,
    random_translator,
)
from support.rounding import approx_score
from t2t_lite.decoding.lines import (
    best_translations,
    score_pairs,
    translate_lines,
)
from t2t_lite.decoding.texts import prepare, with_eos
from t2t_lite.decoding.translator import Translator
from t2t_lite.errors import T2TLiteError
from t2t_lite.text.encoder import EOS_ID


@pytest.fixture(scope="module")
def translator(encoder):
    return random_translator(encoder)


def texts(translations):
    return [t.hypotheses[0].text for t in translations]


def test_ids_are_cut_ended_and_padded():
    ids, lengths, cut = with_eos(
        tf.ragged.constant([[5, 6, 7, 8], [5], []], dtype=tf.int32), 3
    )
    assert ids.numpy().tolist() == [[5, 6, 1], [5, 1, 0], [1, 0, 0]]
    assert lengths.numpy().tolist() == [3, 2, 1]
    assert cut.numpy().tolist() == [True, False, False]


def test_hypotheses_are_not_all_alike(translator):
    found = list(translate_lines(translator, random_sentences(20)))
    assert len(set(texts(found))) > 5
    ended = [h.hypotheses[0].tokens[-1] == EOS_ID for h in found]
    assert any(ended) and not all(ended)


def test_batch_size_changes_nothing(translator):
    lines = [*random_sentences(21), "", "eins", ""]
    wanted = list(
        translate_lines(translator, lines, batch_size=1, num_hypotheses=2)
    )
    for batch_size in (3, 16):
        found = translate_lines(
            translator, lines, batch_size=batch_size, num_hypotheses=2
        )
        for one, other in zip(wanted, found, strict=True):
            assert (one.line, one.source) == (other.line, other.source)
            assert len(one.hypotheses) == len(other.hypotheses) == 2
            for a, b in zip(one.hypotheses, other.hypotheses, strict=True):
                assert (a.text, a.tokens) == (b.text, b.tokens)
                assert a.score == approx_score(b.score)


def test_line_i_out_answers_line_i_in(translator):
    lines = random_sentences(40)
    answers = list(translate_lines(translator, lines, batch_size=2))
    assert [t.line for t in answers] == list(range(1, 41))
    assert [t.source for t in answers] == lines
    # Whatever is translated beside it.
    alone = list(translate_lines(translator, lines[17:18]))
    assert texts(alone) == texts(answers)[17:18]


def test_first_hypothesis_does_not_depend_on_how_many_are_asked(translator):
    lines = random_sentences(12)
    best = list(translate_lines(translator, lines))
    three = list(translate_lines(translator, lines, num_hypotheses=3))
    assert texts(best) == texts(three)
    for translation in three:
        assert len(translation.hypotheses) == 3
        assert len({tuple(h.tokens) for h in translation.hypotheses}) == 3


SPACES = [" ", "   ", " \t ", "\u3000", "\xa0 \u2003", "\x85\x0b\x1c"]


def test_best_translations_are_completed_first_hypotheses(translator):
    lines = random_sentences(5)
    found = best_translations(
        translator,
        lines,
        batch_size=2,
        complete=lambda source, text: (f"{source}: {text}", {}),
    )
    first = texts(translate_lines(translator, lines))
    assert found == [f"{a}: {b}" for a, b in zip(lines, first, strict=True)]


def test_empty_line_gives_an_empty_line(translator):
    answers = list(translate_lines(translator, [b"\n", b"eins\n", b"\r\n"]))
    for answer in (answers[0], answers[2]):
        (hypothesis,) = answer.hypotheses
        assert (hypothesis.text, hypothesis.score) == ("", 0.0)
        assert hypothesis.tokens == []
    assert answers[1].hypotheses[0].score < 0


@pytest.mark.parametrize("blank", SPACES)
def test_a_line_of_white_space_is_an_empty_line(translator, blank):
    lines = ["5 6", blank, "7"]
    first, second, third = translate_lines(translator, lines)
    empty, *_ = translate_lines(translator, [""])
    assert second.hypotheses == empty.hypotheses
    assert (second.line, second.source) == (2, blank)
    assert [first.hypotheses[0].text, third.hypotheses[0].text] == [
        answer.hypotheses[0].text
        for answer in translate_lines(translator, [lines[0], lines[2]])
    ]
    text = f"{blank}5"
    (indented,) = translate_lines(translator, [text])
    assert indented.hypotheses[0].score != 0


def test_white_space_is_what_a_corpus_has_as_such():
    white = [chr(c) for c in range(sys.maxunicode + 1) if chr(c).isspace()]
    others = ["\u200b", "\ufeff", "\0", "\x1b", "\x86", "\u180e", "\x7f"]
    prepared = prepare(tf.constant([*white, *others]), form=None)
    wanted = [b""] * len(white) + [other.encode() for other in others]
    assert prepared.numpy().tolist() == wanted


def test_no_lines_give_no_lines(translator):
    assert list(translate_lines(translator, [])) == []
    assert list(score_pairs(translator, [])) == []
    answers = translator.translate(tf.constant([], tf.string))
    assert answers["outputs"].shape == (0, 1)


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


def test_broken_utf8_becomes_replacement_characters(translator):
    broken, clean = translate_lines(
        translator, [b"ein\xff haus\n", "ein\ufffd haus\n".encode()]
    )
    assert broken.source == clean.source == "ein\ufffd haus"
    assert texts([broken]) == texts([clean])
    (surrogate,) = translate_lines(translator, ["ein \ud800"])
    assert "\ufffd" in surrogate.source


def test_overlong_line_is_cut_with_a_note(translator, caplog):
    words = " ".join(WORDS * 9)
    notes = []
    lines = ["eins", words, words + " noch mehr"]
    answers = list(
        translate_lines(
            translator, lines, note=lambda *note: notes.append(note)
        )
    )
    assert [number for number, _ in notes] == [2, 3]
    assert "max_length" in notes[0][1] and "20 tokens" in notes[0][1]
    # What is beyond the cut does not matter.
    assert texts(answers)[1] == texts(answers)[2]
    with caplog.at_level(logging.WARNING, logger="t2t_lite"):
        list(translate_lines(translator, lines[1:2]))
    assert "line 1: a text may have 20 tokens" in caplog.text


def test_output_is_one_line(translator, monkeypatch):
    monkeypatch.setattr(
        translator.target_encoder,
        "detokenize",
        lambda ids: tf.fill([tf.shape(ids)[0]], "a\nb\r\nc\rd"),
    )
    monkeypatch.setattr(translator, "_graphs", {})
    (answer,) = translate_lines(translator, ["eins"])
    assert answer.hypotheses[0].text == "a b c d"


def test_translations_have_at_most_the_extra_length(encoder):
    model = random_model(encoder.vocab_size)
    translator = Translator(model, encoder, encoder, extra_decode_length=2)
    lines = random_sentences(12)
    lengths = [len(ids) + 1 for ids in encoder.encode(lines)]
    for batch_size in (1, 12):
        for length, translation in zip(
            lengths,
            translate_lines(translator, lines, batch_size=batch_size),
            strict=True,
        ):
            assert len(translation.hypotheses[0].tokens) <= length + 2


def test_graph_is_traced_once(translator):
    for count in (1, 2, 5):
        list(translate_lines(translator, random_sentences(count, seed=count)))
    assert translator.graph(1).experimental_get_tracing_count() == 1


def test_a_pause_in_the_stream_is_answered(translator):
    lines = queue.Queue()
    answers = translate_lines(translator, iter(lines.get, None), batch_size=4)
    for number in range(1, 4):
        lines.put(b"eins zwei\n")  # and nothing more until it is answered
        assert next(answers).line == number
    lines.put(None)
    assert list(answers) == []


def test_an_error_of_the_stream_comes_after_what_was_read(translator):
    def lines():
        yield "eins"
        raise OSError("the pipe broke")

    answers = translate_lines(translator, lines())
    assert next(answers).line == 1
    with pytest.raises(OSError, match="the pipe broke"):
        next(answers)


def test_a_stream_is_not_read_far_ahead(translator):
    read = itertools.count()
    answers = translate_lines(
        translator, (f"eins {next(read)}" for _ in range(10**6)), batch_size=1
    )
    next(answers)
    answers.close()
    assert next(read) < 1000
    for thread in threading.enumerate():
        if thread.daemon and "_read_ahead" in thread.name:
            thread.join(timeout=5)
            assert not thread.is_alive()


def test_scores_of_pairs_are_those_of_the_search(translator):
    lines = random_sentences(9)
    found = [
        t
        for t in translate_lines(translator, lines)
        if t.hypotheses[0].tokens[-1] == EOS_ID
        and translator.target_encoder.encode([t.hypotheses[0].text])[0].tolist()
        == t.hypotheses[0].tokens[:-1]
    ]
    assert found
    pairs = [(t.source, t.hypotheses[0].text) for t in found]
    for batch_size in (1, 4):
        scores = list(score_pairs(translator, pairs, batch_size=batch_size))
        for t, pair in zip(found, scores, strict=True):
            assert pair.score == approx_score(t.hypotheses[0].score)
            assert pair.tokens == len(t.hypotheses[0].tokens)
            penalty = ((5 + pair.tokens) / 6) ** 0.6
            assert pair.log_probability == pytest.approx(
                pair.score * penalty, rel=1e-5
            )


def test_pairs_keep_their_order_and_may_be_empty(translator):
    pairs = [("", ""), ("eins zwei drei", "rot"), ("eins", ""), ("", "rot")]
    scores = list(score_pairs(translator, pairs, batch_size=2))
    assert [(s.line, s.source, s.target) for s in scores] == [
        (i + 1, *pair) for i, pair in enumerate(pairs)
    ]
    assert [s.tokens for s in scores][::2] == [1, 1]
    assert all(s.score < 0 for s in scores)


def test_diverged_model_is_an_error_not_a_translation(encoder):
    model = random_model(encoder.vocab_size)
    for variable in model.trainable_variables:
        variable.assign(np.full(variable.shape, np.nan))
    translator = Translator(model, encoder, encoder)
    with pytest.raises(T2TLiteError, match="NaN or infinities for line 2"):
        list(translate_lines(translator, ["", "eins"]))
    with pytest.raises(T2TLiteError, match="NaN or infinities for line 1"):
        list(score_pairs(translator, [("eins", "one")]))
    # Served, the same model still answers with finite numbers.
    scores = translator.translate(tf.constant(["eins"]), 4)["scores"]
    assert np.isfinite(scores).all()


def test_batch_size_must_be_positive(translator):
    with pytest.raises(ValueError, match="at least 1; got 0"):
        list(translate_lines(translator, ["eins"], batch_size=0))
