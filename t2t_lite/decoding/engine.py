"""What any engine that translates tensors of text looks like from outside."""

from typing import Any, Protocol

from t2t_lite.text.encoder import TextEncoder
from t2t_lite.text.form import TextForm


class Engine(Protocol):
    """A `Translator`, or what stands in for one; see its attributes."""

    beam_size: int
    alpha: float
    max_length: int
    form: TextForm | None
    constrained: bool
    source_encoder: TextEncoder
    target_encoder: TextEncoder

    def translate(self, texts: Any, num_hypotheses: int = 1) -> dict[str, Any]:
        """See `Translator.translate`."""
        ...

    def score(self, sources: Any, targets: Any) -> dict[str, Any]:
        """See `Translator.score`."""
        ...

    def warm_up(self, num_hypotheses: int = 1) -> None:
        """Gets ready, so that the first text is quick."""
        ...

    def __hash__(self) -> int: ...
