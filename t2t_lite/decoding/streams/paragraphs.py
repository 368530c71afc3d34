"""Lines that are paragraphs: how those of a problem are split."""

from collections.abc import Callable, Mapping
from typing import Any

from t2t_lite.errors import UsageError
from t2t_lite.problem import Problem
from t2t_lite.text.sentences import sentence_splitter


def splitter_of(
    problem: Problem, encoders: Mapping[str, Any]
) -> Callable[[str], list[str]]:
    """What gives the sentences of a text in a problem's source language.

    Args:
      problem: whose texts are split; English stands in for no language.
      encoders: of the problem.

    Raises:
      UsageError: the answers are no sentences that can be joined.
    """
    if problem.text_form(encoders) is not None:
        raise UsageError(
            "split_sentences is for plain text; the answers of "
            f"{problem.name} have a form: leave it out."
        )
    language, _ = getattr(problem, "languages", ("", ""))
    return sentence_splitter(language)
