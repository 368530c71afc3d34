"""What any engine that translates tensors of text looks like from outside."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.text.encoder import TextEncoder
from t2t_lite.text.form import TextForm


class Engine(Protocol):
    """A `Translator`, or what stands in for one; see its attributes."""

    settings: SearchSettings
    max_length: int
    form: TextForm | None
    source_encoder: TextEncoder
    target_encoder: TextEncoder

    @property
    def most_hypotheses(self) -> int | None:
        """See `Translator.most_hypotheses`."""
        ...

    def translate(
        self,
        texts: Any,
        num_hypotheses: int = 1,
        asked: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """See `Translator.translate`."""
        ...

    def require_can_do(self, asked: Iterable[str]) -> None:
        """See `Translator.require_can_do`."""
        ...

    def score(self, sources: Any, targets: Any) -> dict[str, Any]:
        """See `Translator.score`."""
        ...

    def warm_up(self, num_hypotheses: int = 1) -> None:
        """Gets ready, so that the first text is quick."""
        ...

    def __hash__(self) -> int: ...
