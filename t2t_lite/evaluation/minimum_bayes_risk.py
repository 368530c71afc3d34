"""The candidate that is most like all the others: minimum Bayes risk.

Where candidates are samples of a model, the mean utility of one against all of
them estimates its expected utility (arXiv:2111.04800).

Utilities are sacreBLEU's of sentences, 0-100. N candidates are N * N pairs, for
which its own functions count n-grams again and again. Here those of each
candidate are counted once, and all pairs are compared at once.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from t2t_lite.errors import UsageError

_CHRF_ORDER = 6  # characters
_CHRF_BETA = 2
_BLEU_ORDER = 4  # words


def choose(candidates: Sequence[str], utility: str) -> tuple[int, list[float]]:
    """The candidate with the highest mean utility against all candidates.

    Each is compared with every candidate, itself included, as if that were the
    reference. Equal ones count as often as they are there.

    Args:
      candidates: at least one; samples, or the n best of a search.
      utility: one of `UTILITIES`.

    Returns: the place of the first best one, and the mean utility of each,
      0-100.

    Raises:
      UsageError: there is no such utility.
    """
    require_utility(utility)
    texts = list(dict.fromkeys(candidates))
    places = {text: place for place, text in enumerate(texts)}
    rows = np.array([places[text] for text in candidates])
    weights = np.bincount(rows) / len(rows)
    means = (UTILITIES[utility](texts) @ weights)[rows]
    return int(np.argmax(means)), means.tolist()


def require_utility(utility: str) -> None:
    """Raises UsageError unless it is one of `UTILITIES`."""
    if utility not in UTILITIES:
        raise UsageError(
            f"A utility is one of {', '.join(UTILITIES)}; got {utility!r}."
        )


def chrf_of_pairs(texts: Sequence[str]) -> np.ndarray:
    """The chrF of sacreBLEU of each text (row) against each text (column).

    chrF2: character n-grams up to 6, without white space. 100 where both are
    the same, 0 where one is empty.
    """
    characters = ["".join(text.split()) for text in texts]
    precision = recall = orders = np.zeros((len(texts), len(texts)))
    for matches, totals in _common_ngrams(characters, _CHRF_ORDER):
        both = np.minimum.outer(totals, totals) > 0
        precision = precision + _ratio(matches, totals[:, None])
        recall = recall + _ratio(matches, totals)
        orders = orders + both
    precision, recall = _ratio(precision, orders), _ratio(recall, orders)
    factor = _CHRF_BETA**2
    score = (1 + factor) * precision * recall
    return 100 * _ratio(score, factor * precision + recall)


def bleu_of_pairs(texts: Sequence[str]) -> np.ndarray:
    """The sentence BLEU of sacreBLEU of each text (row) against each (column).

    Tokenizer 13a; orders without a match are smoothed ("exp"), and those that
    the row is too short for left out.
    """
    tokenize = _tokenizer_13a()
    words = [tokenize(text.rstrip()).split() for text in texts]
    lengths = np.array([len(each) for each in words])
    smoothing = np.ones((len(texts), len(texts)))
    logs = orders = np.zeros_like(smoothing)
    matched = np.zeros_like(smoothing, bool)
    for matches, totals in _common_ngrams(words, _BLEU_ORDER):
        real = totals[:, None] > 0
        smoothing = np.where(real & (matches == 0), smoothing / 2, smoothing)
        hits = np.where(matches > 0, matches, smoothing)
        precision = hits / np.maximum(totals, 1)[:, None]
        logs = logs + np.where(real, np.log(precision), 0)
        orders = orders + real
        matched = matched | (matches > 0)
    shortness = 1 - _ratio(lengths, lengths[:, None])
    brevity = np.exp(np.minimum(shortness, 0))
    return 100 * matched * brevity * np.exp(_ratio(logs, orders))


UTILITIES: dict[str, Callable[[Sequence[str]], np.ndarray]] = {
    "chrf": chrf_of_pairs,
    "bleu": bleu_of_pairs,
}


def _common_ngrams(
    sequences: Sequence[Sequence[str]], most: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """How many n-grams any two sequences have in common, for n = 1 to `most`.

    Yields: the common ones [N, N], each as often as both have it, and how many
      each sequence has [N].
    """
    numbers: dict[str, int] = {}
    lengths = [len(sequence) for sequence in sequences]
    units = np.array(
        [numbers.setdefault(u, len(numbers)) for s in sequences for u in s],
        np.int64,
    )
    # Of the n-grams so far: the sequence, the place, and the number of each.
    owners = np.repeat(np.arange(len(sequences)), lengths)
    ends = np.repeat(np.cumsum(lengths), lengths)
    places, grams = np.arange(len(units)), np.zeros_like(units)
    for n in range(1, most + 1):
        kept = places + n <= ends[places]
        places, grams = places[kept], grams[kept]
        longer = grams * len(numbers) + units[places + n - 1]
        different, grams = np.unique(longer, return_inverse=True)
        shape = (len(sequences), len(different))
        cells = owners[places] * shape[1] + grams
        counts = np.bincount(cells, minlength=shape[0] * shape[1])
        counts = counts.reshape(shape)
        yield _sums_of_minima(counts), counts.sum(axis=1)


def _sums_of_minima(counts: np.ndarray) -> np.ndarray:
    """`sum_g min(counts[i, g], counts[j, g])` of all rows i, j: [N, N].

    min(a, b) is the number of k >= 1 that neither is below: a matrix product
    for each k.
    """
    total = np.zeros((len(counts), len(counts)))
    most = counts.max(axis=0, initial=0)
    for k in range(1, most.max(initial=0) + 1):
        counts, most = counts[:, most >= k], most[most >= k]
        reached = (counts >= k).astype(np.float32)  # exact up to 2 ** 24
        total += reached @ reached.T
    return total


def _ratio(above: Any, below: Any) -> np.ndarray:
    """The quotient, 0 where it is divided by 0."""
    above, below = np.broadcast_arrays(above, below)
    return np.divide(above, below, out=np.zeros(above.shape), where=below != 0)


@functools.cache
def _tokenizer_13a() -> Callable[[str], str]:
    from sacrebleu.metrics import BLEU

    return BLEU(tokenize="13a").tokenizer
