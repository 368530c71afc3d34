"""What a server answers: columns of the texts that were sent together."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from t2t_lite.serving.client.patience import Refused

Columns = Mapping[str, Sequence[Any]]
# The scores of hypotheses that do not exist are below it; see log_probs.
_NO_HYPOTHESIS = -1e7


class Model(Protocol):
    """A model of a server."""

    def predict(
        self, signature: str, texts: Sequence[str], seconds: float
    ) -> Columns:
        """The outputs of a signature: `outputs` and maybe `scores`, `cut`.

        Args:
          signature: its name.
          texts: its input.
          seconds: that this may take.

        Raises:
          Busy: not now.
          Refused: never.
        """


@dataclasses.dataclass(frozen=True)
class Answer:
    """The answer to one text.

    Attributes:
      hypotheses: translations and their scores, best first; a score is None
        where the model tells none.
      cut: whether the end of the text was left out.
      error: why there is no answer.
    """

    hypotheses: Sequence[tuple[str, float | None]] = ()
    cut: bool = False
    error: str | None = None


def answers_of(columns: Columns, count: int) -> list[Answer]:
    """The answers to texts that were sent together.

    Args:
      columns: `outputs`, a text or texts of each; maybe `scores`, likewise,
        and `cut`.
      count: how many texts there were.

    Raises:
      Refused: these are no translations of so many texts.
    """
    outputs = columns.get("outputs")
    if not isinstance(outputs, Sequence) or len(outputs) != count:
        raise Refused(
            "The signature must give one output for each text; its outputs "
            f"are {', '.join(sorted(columns)) or 'none'}."
        )
    scores = columns.get("scores", [None] * count)
    cut = columns.get("cut", [False] * count)
    return [
        Answer(_hypotheses(outputs[i], scores[i]), bool(cut[i]))
        for i in range(count)
    ]


def _hypotheses(
    texts: str | Sequence[str], scores: float | Sequence[float] | None
) -> list[tuple[str, float | None]]:
    if isinstance(texts, str):
        return [(texts, scores if isinstance(scores, int | float) else None)]
    if not isinstance(scores, Sequence):
        return [(text, None) for text in texts]
    return [
        (text, score)
        for k, (text, score) in enumerate(zip(texts, scores, strict=True))
        if k == 0 or score > _NO_HYPOTHESIS
    ]
