"""`SearchSettings`: every option of a search, with its rule and its meaning."""

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
    """The settings of a search; `from_options` names a wrong one.

    A token is a piece of the target's vocabulary. Whatever is asked for, the
    log-probability of a hypothesis is the one that the model gives its tokens.

    Raises:
      UsageError: a value breaks its rule, or two do not go together.
    """

    beam_size: _Size = setting(4, "beams per sentence; 1 is greedy")
    alpha: _NotNegative = setting(
        0.6,
        "length penalty: score = log-probability / ((5 + length) / 6) ** alpha",
    )
    constrained: bool = setting(
        False,
        "search only for answers of the right form, such as trees over the "
        "words",
        "true|false",
    )
    min_new_tokens: _Count = setting(
        0, "fewest tokens of a translation, EOS not counted"
    )
    max_new_tokens: _Size | None = setting(
        None, "most tokens of a translation, EOS counted"
    )
    no_repeat_ngram_size: Annotated[int, integer(0, 100)] = setting(
        0, "no N tokens in a row appear twice; 0: they may"
    )
    suppress_tokens: _Texts = setting(
        (), "pieces of the vocabulary never to be used", "PIECE,..."
    )
    bad_phrases: _Texts = setting((), "words that must not appear")
    sample: bool = setting(
        False, "draw each token by chance; `nbest=N` draws N times"
    )
    temperature: Annotated[float, real(above=0)] = setting(
        1.0, "divisor of the logits of samples"
    )
    top_k: _Count = setting(
        0, "draw samples from the N likeliest tokens; 0: from all"
    )
    top_p: Annotated[float, real(above=0, at_most=1)] = setting(
        1.0,
        "draw samples from the likeliest tokens whose probabilities sum to X",
    )
    seed: Annotated[int, integer(0, 2**63 - 1)] = setting(
        1, "of samples: the same line and seed give the same text"
    )

    def __post_init__(self):
        validators.validate(self)
        self._check_that_all_go_together()

    @classmethod
    def from_options(cls, options: Mapping[str, Any], **defaults: Any) -> Self:
        """Return the settings of these options; None takes the default.

        Raises:
          UsageError: as the constructor; an option is unknown; or samples get a
            beam size.
        """
        validators.require_known(options, cls, "A search")
        given = {k: v for k, v in options.items() if v is not None}
        if given.get("sample") and "beam_size" in given:
            raise _conflict("beam_size", "sample")
        return cls(**{**defaults, **given})

    def changed(self) -> dict[str, Any]:
        """Return the values that differ from the defaults."""
        return validators.changed(self)

    def _check_that_all_go_together(self):
        self.check_supported(self.changed())
        longest = self.max_new_tokens
        if longest is not None and self.min_new_tokens >= longest:
            raise UsageError(
                "min_new_tokens must be less than max_new_tokens, which counts "
                f"EOS; got {self.min_new_tokens} and {longest}."
            )

    def check_supported(self, names: Iterable[str]) -> None:
        """Raise UsageError if one of these options conflicts with the settings.

        Args:
          names: options of a search or of single lines, or "jit".
        """
        names = {*names}
        present = {*self.changed(), *names}
        for name in _OF_SAMPLES:
            if name in names and not self.sample:
                raise UsageError(f"{name} requires sample: add sample.")
        for option, others in _CONFLICTS.items():
            for other in others:
                if {option, other} <= present and {option, other} & names:
                    raise _conflict(other, option)


def _conflict(name: str, other: str) -> UsageError:
    return UsageError(f"{name} conflicts with {other}: leave one out.")


# Options that require `sample`.
_OF_SAMPLES = ("temperature", "top_k", "top_p", "seed")
# Options of a search or of single lines ("prefix", "constraints",
# "bad_phrases", "seed") that conflict with another one.
_CONFLICTS = {
    # Trees define by themselves which tokens may follow and how many.
    "constrained": (
        *("min_new_tokens", "max_new_tokens", "no_repeat_ngram_size"),
        *("suppress_tokens", "bad_phrases", "prefix", "constraints"),
    ),
    "sample": ("constraints",),
    # XLA compiles neither ops on texts nor tensors of varying shapes.
    "jit": ("constrained", "sample", "bad_phrases", "prefix", "constraints"),
}
