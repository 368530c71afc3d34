"""A loaded run or export: what it takes, and what it gives."""

import abc
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

from t2t_lite.decoding.streams.batching import DEFAULT_SIZE, Batching
from t2t_lite.decoding.streams.requests import Request
from t2t_lite.errors import UsageError
from t2t_lite.progress import Counter

if TYPE_CHECKING:
    from t2t_lite.decoding.answers import Hypothesis, PairScore

    Order = Callable[[Sequence[Hypothesis]], list[Hypothesis]]


class SearchOptions(TypedDict, total=False):
    """How a translator searches; what is left out is the run's.

    Beside these there are all of `decoding.search.settings.SearchSettings`.

    Attributes:
      batch_size: texts translated together, 64 if left out; changes the
        speed, not the results.
      batch_tokens: instead: as many as have at most so many source tokens
        together, padding included; with `batch_size` both hold.
      split_sentences: translate the sentences of each text by themselves.
      mbr: "chrf": of `nbest` hypotheses, or of as many as there are
        beams, take the one that is most like all of them.
      token_scores: with `nbest`, hypotheses have `token_log_probabilities` and
        `pieces`.
      alignment: "tokens" or "words": with `nbest`, hypotheses have an
        `alignment`.
      alignment_layer: the decoder layer that it is from; the last but one if
        left out.
    """

    beam_size: int
    alpha: float
    constrained: bool
    coverage_penalty: float
    min_new_tokens: int
    max_new_tokens: int
    no_repeat_ngram_size: int
    suppress: Sequence[str]
    avoid: Sequence[str]
    sample: bool
    temperature: float
    top_k: int
    top_p: float
    seed: int
    batch_size: int
    batch_tokens: int
    split_sentences: bool
    mbr: str
    token_scores: bool
    alignment: str
    alignment_layer: int


class ScoreOptions(TypedDict, total=False):
    """How given pairs are scored; see `SearchOptions`."""

    alpha: float
    batch_size: int
    batch_tokens: int
    alignment: str
    alignment_layer: int


class LoadedTranslator(abc.ABC):
    """Translates with a trained model; made by `t2t_lite.load`."""

    # A str is an Iterable[str] too, but the first that fits is taken.
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self,
        texts: str | Request,
        *,
        nbest: None = None,
        **options: Unpack[SearchOptions],
    ) -> str: ...

    @overload
    def __call__(
        self,
        texts: Iterable[str | Request],
        *,
        nbest: None = None,
        **options: Unpack[SearchOptions],
    ) -> list[str]: ...

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self,
        texts: str | Request,
        *,
        nbest: int,
        **options: Unpack[SearchOptions],
    ) -> "list[Hypothesis]": ...

    @overload
    def __call__(
        self,
        texts: Iterable[str | Request],
        *,
        nbest: int,
        **options: Unpack[SearchOptions],
    ) -> "list[list[Hypothesis]]": ...

    def __call__(
        self,
        texts: str | Request | Iterable[str | Request],
        *,
        nbest: int | None = None,
        **options: Unpack[SearchOptions],
    ) -> Any:
        """Translates one text or several; of many, stderr shows progress.

        Args:
          texts: one text, or several; a `Request` for a text that more is
            asked of.
          nbest: how many hypotheses to give of each text, best first, at most
            the beam size, or so many samples; None gives the text of the best
            one.
          options: see `SearchOptions`.

        Returns:
          A str for a text, and a list of them for several. With `nbest`, a
          list of hypotheses, which have `text`, `score` and `tokens`, and a
          list of such lists. An export gives no tokens: they are None.

        Raises:
          UsageError: an option that does not apply here, or a bad value.
        """
        several = _texts(texts)
        batching = _batching(options)
        for name in ("token_scores", "alignment"):
            if nbest is None and options.get(name):
                raise UsageError(
                    f"{name} is told of hypotheses, not of a str: give nbest; "
                    "got nbest=None."
                )
        _require_positive(nbest=nbest)
        order, count = _order(options.pop("mbr", None)), nbest
        if nbest is None and order is None:
            count = 1
        answers: list[Any] = []
        many = len(several) > (batching.size or DEFAULT_SIZE)
        with Counter("translating", "texts", many, len(several)) as counter:
            for found in self._search(several, count, batching, options):
                hypotheses = order(found) if order else found
                answers.append(
                    hypotheses[0].text if nbest is None else hypotheses
                )
                counter.advance(1)
        return answers[0] if isinstance(texts, str | Request) else answers

    @overload
    def score(  # type: ignore[overload-overlap]
        self, sources: str, targets: str, **options: Unpack[ScoreOptions]
    ) -> "PairScore": ...

    @overload
    def score(
        self,
        sources: Iterable[str],
        targets: Iterable[str],
        **options: Unpack[ScoreOptions],
    ) -> "list[PairScore]": ...

    def score(
        self,
        sources: str | Iterable[str],
        targets: str | Iterable[str],
        **options: Unpack[ScoreOptions],
    ) -> Any:
        """How likely given translations are, and each of their tokens.

        Args:
          sources: one text, or several.
          targets: the translation of each.
          options: see `ScoreOptions`.

        Returns:
          A record with `score`, `log_probability`, `token_log_probabilities`,
          `pieces` and what else `PairScore` has; or a list of them. An export
          tells nothing of single tokens: these are None.

        Raises:
          UsageError: an option that an export does not take, a bad value, or
            unequal numbers of texts.
        """
        one = isinstance(sources, str)
        texts, others = _texts(sources), _texts(targets)
        if len(texts) != len(others) or one != isinstance(targets, str):
            raise UsageError(
                "Each source needs one target, a str that is one or a list "
                f"of as many; got {len(texts)} and {len(others)}."
            )
        batching = _batching(options)
        scores = list(self._score(texts, others, batching, options))
        return scores[0] if one else scores

    @abc.abstractmethod
    def _search(
        self,
        texts: Sequence[str | Request],
        count: int | None,
        batching: Batching,
        options: Mapping[str, Any],
    ) -> "Iterator[list[Hypothesis]]":
        """The best `count` hypotheses of each text; None: all beams."""

    @abc.abstractmethod
    def _score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        batching: Batching,
        options: Mapping[str, Any],
    ) -> "Iterator[PairScore]":
        """The score of each pair."""


def _texts(texts: Any) -> list[Any]:
    one = isinstance(texts, str | Request)
    several = [texts] if one else list(texts)
    for text in several:
        if not isinstance(text, str | Request):
            raise UsageError(f"A text must be a str; got {text!r}.")
    return several


def _order(utility: str | None) -> "Order | None":
    """What orders hypotheses by their utility; None leaves them as they are."""
    if utility is None:
        return None
    from t2t_lite.decoding.answers import by_utility
    from t2t_lite.evaluation.minimum_bayes_risk import require_utility

    require_utility(utility)
    return functools.partial(by_utility, utility=utility)


def _batching(options: Any) -> Batching:
    """Takes the options of batches out of the others."""
    size = options.pop("batch_size", None)
    tokens = options.pop("batch_tokens", None)
    _require_positive(batch_size=size, batch_tokens=tokens)
    return Batching(size, tokens)


def _require_positive(**values: int | None) -> None:
    for name, value in values.items():
        if value is not None and value < 1:
            raise UsageError(f"{name} must be at least 1; got {value}.")
