"""Values that people give: `key=value,key=value`, and kinds of values.

A kind makes of a value, or of its text on a command line, what is kept, fit for
JSON. It raises ValueError with the rule for anything else: "true or false".
"""

import contextlib
import dataclasses
import os
from collections.abc import Callable
from typing import Any, TypeAlias, get_args, get_origin, get_type_hints

from t2t_lite.errors import UsageError

Kind: TypeAlias = Callable[[Any], Any]


def parse_key_values(
    text: str, name: str, bare_keys: bool = False
) -> dict[str, str]:
    """The values by key.

    Example: "beam_size=4, alpha=0.6" gives {"beam_size": "4", "alpha": "0.6"}.

    Args:
      text: keys and values; white space around them does not count.
      name: what the text is called in an error.
      bare_keys: a key may stand alone; its value is then "true".

    Raises:
      UsageError: not of that form, or a key is there twice.
    """
    values: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        key, equals, value = (word.strip() for word in part.partition("="))
        if not key or key in values or not (equals or bare_keys):
            form = "key=value or key" if bare_keys else "key=value"
            raise UsageError(
                f"{name} must be {form}, joined by commas, each key once; got "
                f"{text!r}."
            )
        values[key] = value if equals else "true"
    return values


def is_of_type(value: Any, kind: Any) -> bool:
    """Whether a value is of a type as annotations write it.

    Args:
      value: of a JSON file, or a dataclass made of some.
      kind: Any, a class, or a dict, list or tuple of these, such as
        `dict[str, list[int]]` or `tuple[int, ...]`. The fields of a dataclass
        must be of their types, too. A bool is no int.
    """
    if kind is Any:
        return True
    parts = get_args(kind)
    plain = get_origin(kind) or kind
    if not isinstance(value, plain) or type(value) is bool and kind is int:
        return False
    if dataclasses.is_dataclass(plain):
        hints = get_type_hints(plain)
        return all(is_of_type(getattr(value, n), hints[n]) for n in hints)
    if parts and plain is dict:
        return all(
            is_of_type(key, parts[0]) and is_of_type(inner, parts[1])
            for key, inner in value.items()
        )
    return not parts or all(is_of_type(inner, parts[0]) for inner in value)


def setting(default: Any, kind: Kind, metavar: str, meaning: str) -> Any:
    """Return a dataclass field that declares an option once.

    Args:
      default: of the option.
      kind: of its values.
      metavar: of its flag; "" for a switch.
      meaning: its help, with the unit.
    """
    told = {"kind": kind, "metavar": metavar, "meaning": meaning}
    return dataclasses.field(default=default, metadata=told)


def check_settings(instance: Any) -> None:
    """Replace the values of a frozen dataclass of settings by parsed ones.

    Raises:
      UsageError: a value breaks its rule.
    """
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        if value == field.default:
            continue
        try:
            parsed = field.metadata["kind"](value)
        except ValueError as error:
            raise UsageError(
                f"{field.name} must be {error}; got {value!r}."
            ) from error
        object.__setattr__(instance, field.name, parsed)


def text(value: Any) -> str:
    """Text that is not empty."""
    if not isinstance(value, str) or not value:
        raise ValueError("text")
    return value


def file_path(value: Any) -> str:
    """A path, made absolute."""
    name = os.fspath(value) if isinstance(value, os.PathLike) else value
    return os.path.abspath(os.path.expanduser(text(name)))


def true_or_false(value: Any) -> bool:
    """A bool, or the word for it."""
    if isinstance(value, bool):
        return value
    if str(value).lower() not in ("true", "false"):
        raise ValueError("true or false")
    return str(value).lower() == "true"


def number(
    kind: Callable[[Any], Any], holds: Callable[[Any], bool], rule: str
) -> Kind:
    """Numbers for which `holds` is true; `kind` is int or float."""

    def read(value):
        if type(value) in (str, int, float):  # a bool is no number here
            with contextlib.suppress(ValueError, OverflowError):
                number = kind(value)
                # Of a float, all must be left.
                if (type(value) is not float or number == value) and holds(
                    number
                ):
                    return number
        raise ValueError(rule)

    return read


def whole_number(smallest: int) -> Kind:
    """Whole numbers from `smallest` on."""
    rule = f"a whole number, at least {smallest}"
    return number(int, lambda value: value >= smallest, rule)
