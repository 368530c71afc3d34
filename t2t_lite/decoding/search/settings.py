"""`SearchSettings`: every option of a search, with its rule and its meaning."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Self

from t2t_lite import values
from t2t_lite.errors import UsageError, nearest


def _texts(value: Any) -> tuple[str, ...]:
    """Texts, or one string with commas between them."""
    texts = value.split(",") if isinstance(value, str) else value
    if not (
        isinstance(texts, list | tuple)
        and all(isinstance(text, str) and text for text in texts)
    ):
        raise ValueError("texts, none of them empty, joined by commas")
    return tuple(texts)


def _number(rule, fits):
    return values.number(float, fits, rule)


def _whole(smallest, largest=2**31 - 1):
    rule = f"a whole number from {smallest} to {largest}"
    return values.number(int, lambda x: smallest <= x <= largest, rule)


_FINITE = float("inf")


@dataclasses.dataclass(frozen=True)
class SearchSettings:
    """How a translator searches; `from_options` names what is wrong.

    A token is a piece of the target's vocabulary. Whatever is asked for, the
    log-probability of a hypothesis is the one that the model gives its tokens.

    Raises:
      UsageError: a value breaks its rule, or two do not go together.
    """

    beam_size: int = values.setting(
        4, _whole(1), "K", "beams per sentence; 1 is greedy"
    )
    alpha: float = values.setting(
        0.6,
        _number("a number, at least 0", lambda x: 0 <= x < _FINITE),
        "A",
        "length penalty: score = log-probability / ((5 + length) / 6) ** A",
    )
    constrained: bool = values.setting(
        False,
        values.true_or_false,
        "true|false",
        "search only for answers of the right form, such as trees over the "
        "words",
    )
    coverage_penalty: float = values.setting(
        0.0,
        _number("a number, at least 0", lambda x: 0 <= x < _FINITE),
        "B",
        "add B * the sum over source tokens of log(min(attention, 1)) to the "
        "score",
    )
    min_new_tokens: int = values.setting(
        0,
        _whole(0),
        "N",
        "a translation has at least N tokens, EOS not counted",
    )
    max_new_tokens: int | None = values.setting(
        None,
        _whole(1),
        "N",
        "a translation has at most N tokens, EOS counted",
    )
    no_repeat_ngram_size: int = values.setting(
        0,
        _whole(0, 100),
        "N",
        "no N tokens in a row appear twice; 0: they may",
    )
    suppress: tuple[str, ...] = values.setting(
        (), _texts, "PIECE,...", "pieces of the vocabulary never to be used"
    )
    avoid: tuple[str, ...] = values.setting(
        (), _texts, "TEXT,...", "words that must not appear"
    )
    sample: bool = values.setting(
        False,
        values.true_or_false,
        "",
        "draw each token by chance; --nbest=N draws N translations",
    )
    temperature: float = values.setting(
        1.0,
        _number("a number above 0", lambda x: 0 < x < _FINITE),
        "T",
        "of samples: logits are divided by T",
    )
    top_k: int = values.setting(
        0,
        _whole(0),
        "K",
        "of samples: draw from the K likeliest tokens; 0: from all",
    )
    top_p: float = values.setting(
        1.0,
        _number("a number above 0, at most 1", lambda x: 0 < x <= 1),
        "P",
        "of samples: draw from the likeliest tokens whose probabilities sum "
        "to P",
    )
    seed: int = values.setting(
        1,
        _whole(0, 2**63 - 1),
        "N",
        "of samples: the same line and seed give the same text",
    )

    def __post_init__(self):
        values.check_settings(self)
        self._check_that_all_go_together()

    @classmethod
    def from_options(cls, options: Mapping[str, Any], **defaults: Any) -> Self:
        """The settings of these options; None takes the default.

        Raises:
          UsageError: as the constructor; no such option; or a beam size for
            samples.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        for name in options:
            if name not in known:
                hint = nearest(name, known)
                raise UsageError(f"A search has no option {name}.{hint}")
        given = {k: v for k, v in options.items() if v is not None}
        if given.get("sample") and "beam_size" in given:
            raise _not_together("beam_size", "sample")
        return cls(**{**defaults, **given})

    def changed(self) -> dict[str, Any]:
        """What differs from the defaults."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        }

    def check_columns(self, columns: Iterable[str]) -> None:
        """Refuses what may be asked of single lines, but not of this search.

        Args:
          columns: of "prefix", "constraints", "avoid", "seed".

        Raises:
          UsageError: one of them does not go with these settings.
        """
        for name in columns:
            if name == "seed" and not self.sample:
                raise UsageError("seed is for samples: add sample.")
            if name != "seed" and self.constrained:
                raise _not_together(name, "constrained")
            if name == "constraints" and self.sample:
                raise _not_together(name, "sample")

    def check_compiled(self, columns: Iterable[str] = ()) -> None:
        """Refuses what XLA cannot compile.

        Args:
          columns: as of `check_columns`.

        Raises:
          UsageError: these settings, or one of the columns.
        """
        for name in (*self.changed(), *columns):
            if name in _NOT_COMPILED:
                raise _not_together(name, "jit")

    def _check_that_all_go_together(self):
        changed = self.changed()
        if not self.sample:
            for name in _OF_SAMPLES:
                if name in changed:
                    raise UsageError(
                        f"{name} is for samples: add sample, or leave it out."
                    )
        elif self.coverage_penalty:
            raise _not_together("coverage_penalty", "sample")
        if self.constrained:
            for name in _NOT_OF_FORMS:
                if name in changed:
                    raise _not_together(name, "constrained")
        longest = self.max_new_tokens
        if longest is not None and self.min_new_tokens >= longest:
            raise UsageError(
                "min_new_tokens must be less than max_new_tokens, which counts "
                f"EOS; got {self.min_new_tokens} and {longest}."
            )


def _not_together(name: str, other: str) -> UsageError:
    return UsageError(f"{name} and {other} do not go together: leave one out.")


_OF_SAMPLES = ("temperature", "top_k", "top_p", "seed")
# A form says by itself what may follow and how long an answer is.
_NOT_OF_FORMS = (
    "coverage_penalty",
    "min_new_tokens",
    "max_new_tokens",
    "no_repeat_ngram_size",
    "suppress",
    "avoid",
)
# They look at texts, or bring along tensors of ever other shapes.
_NOT_COMPILED = ("constrained", "sample", "avoid", "prefix", "constraints")
