"""`SearchSettings`: the options of a search, with their validators and help."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Self

from t2t_lite import validators
from t2t_lite.errors import UsageError
from t2t_lite.validators import integer, real, setting, texts

_Size = Annotated[int, integer(1, 2**31 - 1)]
_Count = Annotated[int, integer(0, 2**31 - 1)]
_NotNegative = Annotated[float, real(at_least=0)]
_Texts = Annotated[tuple[str, ...], texts]


@dataclasses.dataclass(frozen=True)
class SearchSettings:
    """The settings of a search.

    Scores are computed from the model's log-probabilities, whatever the options
    are, unless the search is constrained.

    Raises:
      UsageError: a value is invalid, or two options conflict.
    """

    beam_size: _Size = setting(4, "beams per sentence; 1: greedy search")
    alpha: _NotNegative = setting(
        0.6,
        "length penalty: score = log-probability / ((5 + length) / 6) ** alpha",
    )
    constrained: bool = setting(
        False,
        "search only for valid outputs, such as trees over the source words",
        "true|false",
    )
    min_new_tokens: Annotated[int, integer(0, 2**31 - 2)] = setting(
        0, "minimum number of tokens of a translation, EOS excluded"
    )
    max_new_tokens: _Size | None = setting(
        None, "maximum number of tokens of a translation, EOS included"
    )
    no_repeat_ngram_size: Annotated[int, integer(0, 100)] = setting(
        0,
        "length in tokens of n-grams that must not repeat (arXiv:1705.04304); "
        "0: no limit",
    )
    suppress_tokens: _Texts = setting(
        (), "vocabulary pieces that must not appear", "PIECE,..."
    )
    bad_phrases: _Texts = setting((), "phrases that must not appear")
    sample: bool = setting(
        False, "sampling instead of beam search; `nbest=N` for N samples"
    )
    temperature: Annotated[float, real(above=0)] = setting(
        1.0, "divisor of the logits, for sampling"
    )
    top_k: _Count = setting(
        0, "likeliest tokens to sample from (arXiv:1805.04833); 0: all"
    )
    top_p: Annotated[float, real(above=0, at_most=1)] = setting(
        1.0,
        "total probability of the likeliest tokens to sample from "
        "(arXiv:1904.09751)",
    )
    seed: Annotated[int, integer(0, 2**63 - 1)] = setting(
        1, "random seed for sampling; a line and a seed determine the text"
    )

    def __post_init__(self):
        validators.validate(self)
        self.check_supported(self.changed())
        maximum = self.max_new_tokens
        if maximum is not None and self.min_new_tokens >= maximum:
            raise UsageError(
                "min_new_tokens must be less than max_new_tokens, which counts "
                f"EOS (got {self.min_new_tokens} and {maximum})."
            )

    @classmethod
    def from_options(cls, options: Mapping[str, Any], **defaults: Any) -> Self:
        """Build the settings from options; None means the default.

        Raises:
          UsageError: an option is unknown, a value is invalid, or two options
            conflict, such as sample and beam_size.
        """
        validators.require_known(options, cls, "A search")
        given = {k: v for k, v in options.items() if v is not None}
        if given.get("sample") and "beam_size" in given:
            raise _conflict("beam_size", "sample")
        return cls(**{**defaults, **given})

    def changed(self) -> dict[str, Any]:
        """Return the values that differ from the defaults."""
        return validators.changed(self)

    @property
    def supports_jit(self) -> bool:
        """True if XLA can compile a search with these settings."""
        return not any(getattr(self, name, None) for name in _CONFLICTS["jit"])

    def check_supported(self, names: Iterable[str]) -> None:
        """Raise UsageError if one of these options conflicts with the settings.

        Args:
          names: search options, request options, or "jit".
        """
        names = {*names}
        present = {*self.changed(), *names}
        for name in _SAMPLING_OPTIONS:
            if name in names and not self.sample:
                raise UsageError(f"{name} requires `sample`.")
        for option, others in _CONFLICTS.items():
            for other in others:
                if {option, other} <= present and {option, other} & names:
                    raise _conflict(other, option)


def _conflict(name: str, other: str) -> UsageError:
    return UsageError(f"{name} conflicts with {other}: remove one of them.")


# Options that require `sample`.
_SAMPLING_OPTIONS = ("temperature", "top_k", "top_p", "seed")
# Search options and request options that conflict with each key.
_CONFLICTS = {
    # The constraint determines the allowed tokens and the lengths.
    "constrained": (
        *("min_new_tokens", "max_new_tokens", "no_repeat_ngram_size"),
        *("suppress_tokens", "bad_phrases", "prefix", "constraints"),
    ),
    "sample": ("constraints",),
    # XLA does not support string ops and dynamic shapes.
    "jit": ("constrained", "sample", "bad_phrases", "prefix", "constraints"),
}
