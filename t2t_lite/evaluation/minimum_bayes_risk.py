"""Minimum Bayes risk decoding: the candidate most similar to all others.

If candidates are samples of a model, the mean utility of a candidate against
all of them estimates its expected utility (arXiv:2111.04800).
"""

from collections.abc import Sequence


def mean_utilities(candidates: Sequence[str]) -> list[float]:
    """Return the mean utility of each candidate against all, 0-100.

    The utility is sacreBLEU's chrF2 of a sentence. Each candidate is compared
    with every candidate, itself included; equal ones count several times.
    """
    from sacrebleu.metrics import CHRF

    score = CHRF().sentence_score
    counts = {text: candidates.count(text) for text in candidates}
    mean = {
        text: sum(
            count * score(text, [other]).score
            for other, count in counts.items()
        )
        / len(candidates)
        for text in counts
    }
    return [mean[text] for text in candidates]
