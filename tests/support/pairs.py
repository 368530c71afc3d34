"""Scoring of pairs of texts."""

from t2t_lite.decoding.requests import Pair
from t2t_lite.decoding.stream import translate_lines


def score_pairs(translator, pairs, **options):
    """The results of a stream of pairs, or of tuples of two texts."""
    pairs = (x if isinstance(x, Pair) else Pair(*x) for x in pairs)
    return translate_lines(translator, pairs, **options)
