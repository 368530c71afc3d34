"""Scoring of pairs of texts."""

from t2t_lite.decoding.requests import Pair
from t2t_lite.decoding.stream import translate_lines


def score_pairs(translator, pairs, **options):
    """Return the results of scoring pairs, or tuples of two texts."""
    pairs = (x if isinstance(x, Pair) else Pair(*x) for x in pairs)
    return translate_lines(translator, pairs, **options)
