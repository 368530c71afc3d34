"""Minimum Bayes risk decoding: select the candidate most similar to all others.

If the candidates are samples of a model, the mean utility of a candidate
against all candidates estimates its expected utility (arXiv:2111.04800).
"""

from collections.abc import Sequence


def mean_utilities(candidates: Sequence[str]) -> list[float]:
    """Return the mean utility of each candidate against all, 0-100.

    The utility is sacreBLEU's sentence-level chrF2. Each candidate is compared
    with all candidates, itself and duplicates included.
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
