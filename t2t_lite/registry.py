"""The registries of problems and of hparams sets.

A declaration registers itself where it is defined:

```python
@register_problem("wmt_ende")
class WmtEnDe(Text2TextProblem): ...

@register_hparams
def transformer_big(): ...
```
"""

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, overload

from t2t_lite import plugins
from t2t_lite.errors import T2TLiteError, UsageError, did_you_mean
from t2t_lite.hparam import HParams
from t2t_lite.problem import Problem

REVERSED_SUFFIX = "_rev"

P = TypeVar("P", bound=type[Problem])
F = TypeVar("F", bound=Callable[[], HParams])

# The registered declarations by name; use the functions below.
PROBLEMS: dict[str, type[Problem]] = {}
HPARAMS: dict[str, Callable[[], HParams]] = {}
# Our problems by their names in other programs, for errors.
OTHER_NAMES: dict[str, str] = {}


@overload
def register_problem(name_or_class: str) -> Callable[[P], P]: ...
@overload
def register_problem(name_or_class: P) -> P: ...
def register_problem(name_or_class: Any) -> Any:
    """Register a `Problem` subclass, by default under its snake-cased name.

    Raises:
      T2TLiteError: the class or the name is not valid, or the name is taken.
    """

    def register(cls, name):
        if not (isinstance(cls, type) and issubclass(cls, Problem)):
            raise T2TLiteError(
                f"@register_problem needs a subclass of Problem; got {cls!r}."
            )
        _add(PROBLEMS, "problem", name, cls)
        cls.name = cls.base_name = name
        return cls

    return _decorate(name_or_class, register)


@overload
def register_hparams(name_or_function: str) -> Callable[[F], F]: ...
@overload
def register_hparams(name_or_function: F) -> F: ...
def register_hparams(name_or_function: Any) -> Any:
    """Register a function without arguments that returns `HParams`.

    Raises:
      T2TLiteError: the function or the name is not valid, or the name is taken.
    """

    def register(function, name):
        if isinstance(function, type) or not callable(function):
            raise T2TLiteError(
                "@register_hparams requires a function that returns HParams; "
                f"got {function!r}."
            )
        _add(HPARAMS, "hparams set", name, function)
        return function

    return _decorate(name_or_function, register)


def _decorate(name_or_declaration, register):
    if isinstance(name_or_declaration, str):
        return lambda declaration: register(declaration, name_or_declaration)
    name = getattr(name_or_declaration, "__name__", str(name_or_declaration))
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return register(name_or_declaration, name)


def _add(entries, category, name, entry):
    is_name = re.fullmatch(r"[a-z][a-z0-9_]*", name)
    if not is_name or name.endswith(REVERSED_SUFFIX):
        raise T2TLiteError(
            f"A {category} name must have only lower-case letters, digits and "
            f"underscores, and no suffix {REVERSED_SUFFIX}, which means the "
            f"reversed direction; got {name!r}."
        )
    if name in entries:
        raise T2TLiteError(
            f"{category} {name!r} is registered twice: by "
            f"{_full_name(entries[name])} and by {_full_name(entry)}."
        )
    entries[name] = entry
    plugins.registered.append(name)


def problem(name: str, options: Mapping[str, Any] | None = None) -> Problem:
    """Return the problem with a name; `NAME_rev` is the reversed direction.

    For its options see `Problem.with_options`.

    Raises:
      UsageError: the problem or an option is unknown.
    """
    _load_plugins()
    base = name.removesuffix(REVERSED_SUFFIX)
    if base not in PROBLEMS:
        raise unknown_name_error("problem", name, PROBLEMS)
    instance = PROBLEMS[base]()
    if options:
        instance = instance.with_options(options)
    return instance if base == name else instance.reverse()


def hparams(name: str) -> HParams:
    """Return the hparams set with a name.

    Raises:
      UsageError: the set is unknown; the message has similar names.
      T2TLiteError: the registered function did not return `HParams`.
    """
    _load_plugins()
    if name not in HPARAMS:
        raise unknown_name_error("hparams set", name, HPARAMS)
    values = HPARAMS[name]()
    if not isinstance(values, HParams):
        raise T2TLiteError(
            f"hparams set {name!r} ({_full_name(HPARAMS[name])}) must return "
            f"HParams; got {type(values).__name__}."
        )
    return values


def problem_names() -> list[str]:
    """Return the registered problems, sorted, without reversed directions."""
    _load_plugins()
    return sorted(PROBLEMS)


def hparams_names() -> list[str]:
    """Return the registered hparams sets, sorted."""
    _load_plugins()
    return sorted(HPARAMS)


def describe(name: str) -> str:
    """Return the first docstring line of a problem or an hparams set."""
    _load_plugins()
    entry = PROBLEMS.get(name) or HPARAMS[name]
    return (entry.__doc__ or "").strip().split("\n")[0]


def unknown_name_error(
    category: str, name: str, known: Iterable[str]
) -> UsageError:
    """Return the error for an unknown name of a category such as "problem"."""
    base = name.removesuffix(REVERSED_SUFFIX)
    hint = did_you_mean(base, known)
    if base in OTHER_NAMES:
        hint = f" Its name here is {OTHER_NAMES[base]}{name[len(base) :]}."
    elif "=" in name:
        hint = " Use `hparams_override` for values."
    return UsageError(
        f"Unknown {category} {name!r}.{hint} t2t-lite-registry lists all "
        "names; add `usr_dir` for your own."
    )


@functools.cache
def _load_plugins():
    """Import the declarations, if no command or function has done so."""
    plugins.load_plugins()


def _full_name(declaration):
    return f"{declaration.__module__}.{declaration.__qualname__}"
