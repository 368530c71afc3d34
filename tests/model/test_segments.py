"""Packed rows give the same results as one pair per row."""

import numpy as np
import pytest
import tensorflow as tf

from support.packed_rows import pack
from t2t_lite.model.masks import (
    Segments,
    causal_bias,
    segment_mask,
    shift_right,
)
from t2t_lite.model.transformer import Transformer

VOCAB = 17
# (source, target) lengths of the pairs, and the pairs in each row.
LENGTHS = [(9, 7), (4, 12), (3, 1), (20, 22), (1, 5), (30, 28)]
ROWS = [[0, 1, 2], [4, 3], [5]]
WIDTH = 50  # a window needs more than one block of 32


def make_pairs():
    generator = np.random.default_rng(0)
    return [
        tuple(np.append(generator.integers(2, VOCAB, n - 1), 1) for n in pair)
        for pair in LENGTHS
    ]


def padded(pairs):
    """Return features with one pair per row."""
    features = {}
    for side, name in enumerate(("inputs", "targets")):
        features[name] = np.zeros((len(pairs), 31), "int32")
        for row, pair in zip(features[name], pairs, strict=True):
            row[: len(pair[side])] = pair[side]
    return features


def packed(pairs):
    """Return features with several pairs per row, and an empty row."""
    rows = [[pairs[index] for index in numbers] for numbers in ROWS]
    return pack([*rows, []], WIDTH)


def split_pairs(values):
    """Split values of packed target positions, [B, T, ...], by pair."""
    found = {}
    for row, numbers in enumerate(ROWS):
        start = 0
        for index in numbers:
            end = start + LENGTHS[index][1]
            found[index] = np.array(values)[row, start:end]
            start = end
    return [found[index] for index in range(len(LENGTHS))]


def make_model(**changes):
    values = {
        "num_hidden_layers": 2,
        "residual_dropout": 0.0,
        "max_length": 40,
    } | changes
    return Transformer(
        VOCAB, hidden_size=8, filter_size=16, num_heads=2, **values
    ).build_weights()


VARIANTS = [
    {},
    {"norm_placement": "pre", "position_encoding": "learned"},
    {"attention_window": 6, "position_encoding": "concatenated"},
    {"max_relative_position": 3, "position_encoding": "none"},
    {"attention_score": "additive"},
]


@pytest.mark.parametrize("changes", VARIANTS)
def test_packed_loss_gradients_and_logits_equal_those_of_single_pairs(changes):
    model, pairs = make_model(**changes), make_pairs()
    results = []
    for features in (padded(pairs), packed(pairs)):
        with tf.GradientTape() as tape:
            loss, count = model.loss_sum(features, label_smoothing=0.1)
            loss = loss / count
        weights = [v.value for v in model.trainable_variables]
        gradients = map(tf.convert_to_tensor, tape.gradient(loss, weights))
        results.append([loss, count, *gradients])
    for ours, expected in zip(*reversed(results), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)
    logits = [np.array(model(f)) for f in (padded(pairs), packed(pairs))]
    for row, ours in zip(logits[0], split_pairs(logits[1]), strict=True):
        np.testing.assert_allclose(ours, row[: len(ours)], atol=1e-5)


def test_masks_of_packed_rows_equal_the_literal_matrices():
    source = Segments(np.array([[1, 1, 2, 0]]), None)
    target = Segments(np.array([[1, 2, 2]]), None)
    np.testing.assert_array_equal(
        segment_mask(target.segment_ids, source.segment_ids)[0, 0],
        np.array([[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0]], bool),
    )
    np.testing.assert_array_equal(
        np.array(causal_bias(3, target))[0, 0] == 0,
        np.array([[1, 0, 0], [0, 1, 0], [0, 1, 1]], bool),
    )


def test_targets_are_shifted_within_their_sentence():
    targets = np.array([[5, 1, 7, 8, 1, 0]])
    np.testing.assert_array_equal(shift_right(targets), [[0, 5, 1, 7, 8, 1]])
    positions = np.array([[0, 1, 0, 1, 2, 0]])
    np.testing.assert_array_equal(
        shift_right(targets, Segments(None, positions)),
        [[0, 5, 0, 7, 8, 0]],
    )
