"""Sampling, compared with results worked out by hand."""

import numpy as np
import pytest
import tensorflow as tf

from support.rounding import assert_scores_close
from support.search_tables import search_tables
from t2t_lite.decoding.search.selection import Sample


def draw(probabilities, sample_uniforms, **options):
    """Return the first token for each uniform number, and its score."""
    rows, size = len(sample_uniforms), len(probabilities)
    with np.errstate(divide="ignore"):
        logits = np.log(np.asarray(probabilities, np.float32))
    uniforms = tf.constant(sample_uniforms, tf.float32)[:, None]
    sample = Sample(uniforms, **options)
    tables = np.tile(logits, (rows, 1, size, 1))
    ids, scores = search_tables(
        tables, [0] * rows, [1] * rows, 1, alpha=0.0, selector=sample
    )
    return ids[:, 0, 0].tolist(), scores[:, 0]


@pytest.mark.parametrize(
    ("options", "sample_uniforms", "ids"),
    [
        ({}, [0.0, 0.49, 0.51, 0.74, 0.76, 0.91], [0, 0, 2, 2, 3, 4]),
        # Renormalized to 2 / 3 and 1 / 3.
        ({"top_k": 2}, [0.65, 0.67], [0, 2]),
        ({"top_k": 1}, [0.0, 0.99], [0, 0]),
        # One token has less than 0.6, two have more.
        ({"top_p": 0.6}, [0.65, 0.67, 0.99], [0, 2, 2]),
        ({"top_p": 0.4}, [0.0, 0.99], [0, 0]),
        # Squared: 0.25, 0.0625, 0.0225 and 0.01, with the sum 0.345.
        ({"temperature": 0.5}, [0.72, 0.73, 0.9, 0.91], [0, 2, 2, 3]),
    ],
)
def test_the_uniform_number_selects_the_token(options, sample_uniforms, ids):
    probabilities = [0.5, 1e-30, 0.25, 0.15, 0.1]
    drawn, scores = draw(probabilities, sample_uniforms, **options)
    assert drawn == ids
    # The score is the model's log-probability, whatever the options are.
    wanted = np.log([probabilities[i] for i in ids])
    assert_scores_close(scores, wanted)


def test_a_temperature_near_zero_is_greedy():
    logits = tf.constant([[1.0, 3.0, 2.0]])
    weights = Sample(tf.zeros((1, 1)), temperature=1e-40).weights(logits)
    np.testing.assert_array_equal(weights, [[0, 1, 0]])


def test_impossible_tokens_are_never_drawn():
    sample_uniforms = [0.0, 0.5, np.nextafter(np.float32(1), np.float32(0))]
    drawn, _ = draw([0.0, 0.5, 0.0, 0.5, 0.0], sample_uniforms)
    assert drawn[0] == 1 and drawn[1] in (1, 3) and drawn[2] == 3
