"""Minimum Bayes risk decoding: the candidate most similar to all others.

If candidates are samples of a model, the mean utility of a candidate against
all of them estimates its expected utility (arXiv:2111.04800).
"""

from collections.abc import Sequence

from t2t_lite.errors import UsageError

UTILITIES = ("chrf",)


def choose(candidates: Sequence[str], utility: str) -> tuple[int, list[float]]:
    """Return the candidate with the highest mean utility against all.

    The utility is sacreBLEU's chrF2 of a sentence. Each candidate is compared
    with every candidate, itself included; equal ones count several times.

    Args:
      candidates: at least one: samples, or the n-best list of a search.
      utility: one of UTILITIES.

    Returns:
      The index of the first best candidate, and the mean utility of each,
      0-100.

    Raises:
      UsageError: the utility is unknown.
    """
    from sacrebleu.metrics import CHRF

    require_utility(utility)
    score = CHRF().sentence_score
    counts = {text: candidates.count(text) for text in candidates}
    total = len(candidates)
    mean = {
        text: sum(
            count * score(text, [other]).score
            for other, count in counts.items()
        )
        / total
        for text in counts
    }
    means = [mean[text] for text in candidates]
    return means.index(max(means)), means


def require_utility(utility: str) -> None:
    """Raise UsageError unless the utility is one of UTILITIES."""
    if utility not in UTILITIES:
        raise UsageError(
            f"A utility is one of {', '.join(UTILITIES)}; got {utility!r}."
        )
