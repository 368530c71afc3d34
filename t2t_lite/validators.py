"""Validators of flags, Python keywords, hparams, problem options and JSON.

A validator parses a value or its text, and returns a JSON-serializable value.
For an invalid value it raises ValueError with its rule, such as "true or
false", and `check` turns the rule into an error that names the value.
"""

import dataclasses
import math
import numbers
import os
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from t2t_lite.errors import UsageError, did_you_mean


@dataclasses.dataclass(frozen=True)
class Validator:
    """Parses a value, or raises ValueError with the rule."""

    rule: str  # the text after "must be" in an error
    # May raise ValueError, TypeError or OverflowError.
    parse: Callable[[Any], Any]
    metavar: str = "VALUE"  # of flags; "" for a switch

    def __call__(self, value: Any) -> Any:
        try:
            return self.parse(value)
        except (ValueError, TypeError, OverflowError) as error:
            raise ValueError(self.rule) from error


def check(name: str, value: Any, validator: Callable[[Any], Any]) -> Any:
    """Return the parsed value; raise UsageError with its name if not valid."""
    try:
        return validator(value)
    except ValueError as error:
        raise UsageError(f"{name} must be {error}; got {value!r}.") from error


def integer(at_least: int, at_most: float = math.inf) -> Validator:
    """Accept whole numbers in a range."""
    rule = f"a whole number, at least {at_least}"
    if at_most < math.inf:
        rule = f"a whole number from {at_least} to {at_most}"

    def parse(value):
        number = int(value) if isinstance(value, str) else value
        _require(isinstance(number, numbers.Integral))
        _require(not isinstance(number, bool))
        _require(at_least <= number <= at_most)
        return int(number)

    return Validator(rule, parse, "N")


def real(
    *,
    at_least: float = -math.inf,
    above: float = -math.inf,
    at_most: float = math.inf,
    below: float = math.inf,
) -> Validator:
    """Accept finite numbers between bounds."""
    bounds = {
        **{"at least": at_least, "above": above},
        **{"at most": at_most, "below": below},
    }
    given = [f"{w} {b:g}" for w, b in bounds.items() if math.isfinite(b)]

    def parse(value):
        _require(isinstance(value, numbers.Real | str))
        number = float(value)
        _require(at_least <= number <= at_most and above < number < below)
        _require(math.isfinite(number) and not isinstance(value, bool))
        return number

    return Validator(f"a number, {' and '.join(given)}", parse, "X")


def optional(validator: Validator) -> Validator:
    """Accept None, the text "none", and the values of `validator`."""

    def parse(value):
        return None if value in (None, "none") else validator.parse(value)

    return dataclasses.replace(
        validator, rule=f"{validator.rule}, or none", parse=parse
    )


def condition(rule: str, is_valid: Callable[[Any], Any]) -> Validator:
    """Accept values for which `is_valid` returns true, unchanged."""

    def parse(value):
        _require(is_valid(value))
        return value

    return Validator(rule, parse)


def one_of(*choices: str) -> Validator:
    """Accept a value from a list of words."""
    rule = f"one of {', '.join(choices)}"
    accepted = condition(rule, choices.__contains__)
    return dataclasses.replace(accepted, metavar="|".join(choices))


def _require(is_valid: Any) -> None:
    if not is_valid:
        raise ValueError


def _parse_text(value):
    _require(isinstance(value, str) and value != "")
    return value


def _parse_path(value):
    name = os.fspath(value) if isinstance(value, os.PathLike) else value
    return os.path.abspath(os.path.expanduser(_parse_text(name)))


def _parse_folder(value):
    _require("://" not in str(value))  # not in the cloud
    folder = Path(_parse_path(value))
    str(folder).encode("utf-8")  # configs and reports contain it
    return folder


def _parse_boolean(value):
    words = {"true": True, "false": False, "1": True, "0": False}
    if isinstance(value, str):
        value = words.get(value.lower())
    _require(isinstance(value, bool))
    return value


def _parse_texts(value):
    texts = value.split(",") if isinstance(value, str) else value
    _require(isinstance(texts, list | tuple))
    return tuple(map(_parse_text, texts))


text = Validator("text", _parse_text, "TEXT")  # not empty
file_path = Validator("a path", _parse_path, "FILE")  # an absolute str
folder = Validator(  # an absolute Path
    "a folder of a mounted file system, in UTF-8", _parse_folder, "DIR"
)
boolean = Validator("true or false", _parse_boolean, "")
# A list, or a text with commas.
texts = Validator(
    "texts, none of them empty, joined by commas", _parse_texts, "TEXT,..."
)


def setting(
    default: Any, help: str, metavar: str | None = None, group: str = ""
) -> Any:
    """Return a dataclass field that declares an option.

    The type of the field determines the validator, see `validator_of`, and by
    default the metavar of the flag. `group` is the title of a help group.
    """
    metadata = {"help": help, "metavar": metavar, "group": group}
    return dataclasses.field(default=default, metadata=metadata)


def with_default(help_text: str, default: Any) -> str:
    """Return a help text with the default, unless the default is trivial."""
    if default in (None, False, 0, (), "") or "(default" in help_text:
        return help_text
    return f"{help_text} (default: {default})"


def help_of(field: dataclasses.Field) -> str:
    """Return the help of a `setting` with its default."""
    return with_default(field.metadata["help"], field.default)


def describe(settings: type) -> str:
    """Return the `Args` of a docstring for the fields of a dataclass."""
    return "\n".join(
        textwrap.fill(
            f"{field.name}: {help_of(field)}.",
            width=80,
            initial_indent=" " * 4,
            subsequent_indent=" " * 6,
            break_on_hyphens=False,
        )
        for field in dataclasses.fields(settings)
    )


def require_known(names: Iterable[str], settings: type, owner: str) -> None:
    """Raise UsageError if a dataclass, named `owner`, lacks an option."""
    known = [field.name for field in dataclasses.fields(settings)]
    for name in names:
        if name not in known:
            raise UsageError(
                f"{owner} has no option {name}.{did_you_mean(name, known)}"
            )


def validate(instance: Any) -> None:
    """Replace the values of a frozen dataclass by parsed values."""
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        if value is not None or field.default is not None:
            value = check(field.name, value, validator_of(field.type))
            object.__setattr__(instance, field.name, value)


def changed(instance: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that differ from their defaults."""
    return {
        field.name: value
        for field in dataclasses.fields(instance)
        if (value := getattr(instance, field.name)) != field.default
    }


def validator_of(annotation: Any) -> Validator:
    """Return the validator of a type annotation.

    Annotations are bool, str, a Literal, `Annotated[TYPE, validator]`, or a
    union of one of these and None.
    """
    arguments = get_args(annotation)
    if type(None) in arguments:
        return optional(validator_of(arguments[0]))
    if get_origin(annotation) is Literal:
        return one_of(*arguments)
    if get_origin(annotation) is Annotated:
        return arguments[1]
    return {bool: boolean, str: text}[annotation]


def parse_key_values(
    text: str, name: str, allow_bare_keys: bool = False
) -> dict[str, str]:
    """Parse "key=value,key=value"; `name` names the text in errors.

    Example: "beam_size=4, alpha=0.6" gives {"beam_size": "4", "alpha": "0.6"}.
    With `allow_bare_keys` a key without a value is "true".

    Raises:
      UsageError: the text does not have this form, or a key is repeated.
    """
    values: dict[str, str] = {}
    for item in filter(None, map(str.strip, text.split(","))):
        key, equals, value = (word.strip() for word in item.partition("="))
        if not key or key in values or not (equals or allow_bare_keys):
            form = "key=value or key" if allow_bare_keys else "key=value"
            raise UsageError(
                f"{name} must be {form}, joined by commas, each key once; got "
                f"{text!r}."
            )
        values[key] = value if equals else "true"
    return values
