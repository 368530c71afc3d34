"""Searches that XLA compiles find what others find."""

import numpy as np
import pytest
import tensorflow as tf

from support.random_translator import (
    random_model,
    random_sentences,
)
from support.rounding import assert_scores_close
from t2t_lite.decoding.compiled import compiled
from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.decoding.translator import Translator
from t2t_lite.errors import UsageError
from t2t_lite.model.ensemble import Ensemble

# One has more tokens than the least that a source is padded to.
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


def test_the_answers_are_those_of_the_search_that_is_not_compiled(
    encoder, model
):
    _compare(encoder, model, beam_size=3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"beam_size": 1},
        {"beam_size": 21},
        {"beam_size": 3, "coverage_penalty": 0.3},
        {
            "beam_size": 3,
            "min_new_tokens": 4,
            "max_new_tokens": 9,
            "no_repeat_ngram_size": 2,
            "suppress": ("<unk>",),
        },
    ],
    ids=str,
)
def test_so_they_are_with_other_settings(encoder, model, settings):
    _compare(encoder, model, **settings)


@pytest.mark.slow
def test_so_they_are_of_an_ensemble(encoder, model):
    other = random_model(encoder.vocab_size, seed=2)
    _compare(encoder, Ensemble([model, other]), beam_size=3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"max_relative_position": 3}, {"attention_window": 4}], ids=str
)
def test_so_they_are_of_models_that_look_at_distances(encoder, options):
    model = random_model(encoder.vocab_size, **options)
    _compare(encoder, model, beam_size=3)


def _compare(encoder, model, beam_size, **settings):
    plain, jitted = (
        make(encoder, model, jit, beam_size=beam_size, **settings)
        for jit in (False, True)
    )
    for lines in (LINES, LINES[:1]):
        wanted, found = (
            each.translate(tf.constant(lines), beam_size)
            for each in (plain, jitted)
        )
        for name in ("outputs", "tokens", "cut"):
            np.testing.assert_array_equal(found[name], wanted[name])
        assert_scores_close(found["scores"], wanted["scores"])
    none = jitted.translate(tf.constant([], tf.string), beam_size)
    assert none["tokens"].shape == (0, beam_size, 0)


@pytest.mark.parametrize(
    "rows, width, padded",
    [(1, 3, (1, 32)), (5, 32, (8, 32)), (8, 33, (8, 64)), (0, 0, (1, 32))],
)
def test_sizes_are_padded_to_powers_of_two(rows, width, padded):
    """The search gives the sizes that it met as its tokens."""

    def search(ids, limits, longest):
        count, size = tf.unstack(tf.shape(ids))
        tokens = tf.fill([count, 2, longest], 1000 * count + size)
        return tokens, tf.cast(limits, tf.float32)[:, None]

    limits = tf.range(rows)
    tokens, scores = compiled(search, lambda size: size + 10)(
        tf.ones([rows, width], tf.int32), limits
    )
    assert tokens.shape == (rows, 2, max(rows - 1, 0))
    assert set(tokens.numpy().flat) <= {1000 * padded[0] + padded[1]}
    np.testing.assert_array_equal(scores[:, 0], limits)


def test_what_cannot_be_compiled_is_refused_by_name(encoder, model):
    with pytest.raises(UsageError, match="sample and jit do not go together"):
        make(encoder, model, True, sample=True)
    with pytest.raises(UsageError, match="avoid and jit do not go together"):
        make(encoder, model, True, avoid=("haus",))
    translator = make(encoder, model, True)
    with pytest.raises(UsageError, match="prefix and jit do not go together"):
        translator.translate(
            tf.constant(["haus"]), asked={"prefix": tf.constant(["hund"])}
        )
