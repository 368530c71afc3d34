"""Searches compiled with XLA give the same results."""

import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from support.params import slow
from support.random_translator import random_model, random_sentences
from support.rounding import assert_scores_close
from t2t_lite.decoding.background_jit import MIN_REQUESTS, BackgroundJit
from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.decoding.translator import Translator
from t2t_lite.errors import UsageError
from t2t_lite.model.ensemble import Ensemble

# One text has more tokens than the minimum width of a compiled search.
LINES = [*random_sentences(5), "", " ", "grün " * 50]


def make(encoder, model, jit, **settings):
    return Translator(
        model,
        encoder,
        encoder,
        SearchSettings(**settings),
        extra_decode_length=6,
        max_length=40,
        jit=jit,
    )


LIMITS = {
    "min_new_tokens": 4,
    "max_new_tokens": 9,
    "no_repeat_ngram_size": 2,
    "suppress_tokens": ("<unk>",),
}


SLOW = [
    ({"beam_size": 1}, {}),
    ({"beam_size": 21}, {}),
    ({"beam_size": 3, **LIMITS}, {}),
    ({"beam_size": 3}, {"max_relative_position": 3}),
    ({"beam_size": 3}, {"attention_window": 4}),
    ({"beam_size": 3}, None),
]


@pytest.mark.parametrize(
    ("settings", "options"),
    [({"beam_size": 3}, {})] + [slow(*each) for each in SLOW],
    ids=str,
)
def test_a_compiled_search_gives_the_same_results(encoder, settings, options):
    if options is None:
        models = [random_model(encoder.vocab_size, seed) for seed in (1, 2)]
        model = Ensemble(models)
    else:
        model = random_model(encoder.vocab_size, **options)
    plain, jitted = (
        make(encoder, model, jit, **settings) for jit in (False, True)
    )
    count = settings["beam_size"]
    for lines in (LINES, LINES[:1]):
        wanted, found = (
            each.translate(tf.constant(lines), count)
            for each in (plain, jitted)
        )
        for name in ("outputs", "tokens", "cut"):
            np.testing.assert_array_equal(found[name], wanted[name])
        assert_scores_close(found["scores"], wanted["scores"])
    graph = jitted.graph(count).get_concrete_function().graph.as_graph_def()
    assert any("_XlaMustCompile" in f.attr for f in graph.library.function)
    empty = jitted.translate(tf.constant([], tf.string), count)
    assert empty["tokens"].shape == (0, count, 0)


@pytest.mark.parametrize(
    "settings", [{"sample": True}, {"bad_phrases": ("haus",)}]
)
def test_settings_that_cannot_be_compiled_are_refused(encoder, model, settings):
    with pytest.raises(UsageError, match=f"{next(iter(settings))}.*jit"):
        make(encoder, model, True, **settings)


def test_request_options_that_cannot_be_compiled_are_refused(encoder, model):
    translator = make(encoder, model, True)
    options = {"prefix": tf.constant(["hund"])}
    with pytest.raises(UsageError, match="prefix.*jit"):
        translator.translate(tf.constant(["haus"]), options=options)


def call_until(background, wanted, *args):
    """Call the function until it returns `wanted`."""
    deadline = time.monotonic() + 60
    while background.call(*args) != wanted:
        assert time.monotonic() < deadline


def test_a_shape_is_compiled_in_the_background_after_a_few_requests():
    compiling, may_end = threading.Event(), threading.Event()

    def compiled(number):
        compiling.set()
        assert may_end.wait(60)
        return "compiled", number

    def plain(number):
        if may_end.is_set():
            time.sleep(0.1)
        return "plain", number

    background = BackgroundJit(plain, compiled)
    for _ in range(MIN_REQUESTS - 1):
        assert background.call("small", 1) == ("plain", 1)
    assert background.call("large", 2) == ("plain", 2)
    assert not compiling.is_set()
    assert background.call("small", 1) == ("plain", 1)
    assert compiling.wait(timeout=60)
    assert background.call("small", 1) == ("plain", 1)  # while it is compiled
    may_end.set()
    call_until(background, ("compiled", 3), "small", 3)
    assert background.call("large", 2) == ("plain", 2)


def test_a_slower_compiled_function_is_not_used():
    calls = []

    def compiled():
        time.sleep(0.1)
        calls.append("compiled")
        return "compiled"

    background = BackgroundJit(lambda: "plain", compiled)
    for _ in range(50):
        assert background.call("small") == "plain"
        time.sleep(0.02)
    assert calls  # in the background


def test_a_failed_compilation_is_reported_once(capfd):
    def compiled():
        raise tf.errors.UnimplementedError(None, None, "no such kernel")

    background = BackgroundJit(lambda: "plain", compiled)
    err = ""
    while "no such kernel" not in err:
        assert background.call("small") == "plain"
        err += capfd.readouterr().err
    assert background.call("small") == "plain"
    assert "no such kernel" not in capfd.readouterr().err


@pytest.mark.slow
def test_single_texts_have_equal_results_before_and_after_compilation(
    encoder, model
):
    translator, jitted = (make(encoder, model, jit) for jit in (None, True))
    for _ in range(MIN_REQUESTS + 3):
        for line in LINES[:2]:
            found = translator.translate(tf.constant([line]), 2)
            wanted = jitted.translate(tf.constant([line]), 2)
            np.testing.assert_array_equal(found["outputs"], wanted["outputs"])
            assert_scores_close(found["scores"], wanted["scores"])
