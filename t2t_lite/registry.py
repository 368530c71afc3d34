"""The registries of problems and of hparams sets.

A declaration registers itself where it is defined:

```python
@register_problem("wmt_ende")
class WmtEnDe(Text2TextProblem): ...

@register_hparams
def transformer_big(): ...
```
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, overload

from t2t_lite.errors import T2TLiteError, UsageError, nearest
from t2t_lite.hparam import HParams
from t2t_lite.problem import Problem

REVERSED_SUFFIX = "_rev"

P = TypeVar("P", bound=type[Problem])
F = TypeVar("F", bound=Callable[[], HParams])


class _Registry:
    """Names to checked declarations; refuses duplicates and wrong types."""

    def __init__(self, kind: str):
        self.kind = kind
        self._entries: dict[str, Any] = {}

    def add(self, name: str, entry: Any) -> Any:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            raise T2TLiteError(
                f"A {self.kind} name must have only lower-case letters, digits "
                f"and underscores; got {name!r}."
            )
        if name.endswith(REVERSED_SUFFIX):
            raise T2TLiteError(
                f"A {self.kind} name must not end in {REVERSED_SUFFIX}, which "
                f"asks for the reversed direction; got {name!r}."
            )
        known = self._entries.get(name)
        if known is not None:
            raise T2TLiteError(
                f"{self.kind} {name!r} is registered twice: by "
                f"{_where(known)} and by {_where(entry)}."
            )
        self._entries[name] = entry
        return entry

    def get(self, name: str, alias: str | None = None) -> Any:
        if name not in self._entries:
            raise unknown_name(self.kind, alias or name, self.names())
        return self._entries[name]

    def names(self) -> list[str]:
        return sorted(self._entries)


_broken_plugins: list[str] = []


def remember_broken_plugin(failure: str) -> None:
    """Keeps why a plugin failed, for the errors of unknown names."""
    _broken_plugins.append(failure)


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for a name that is not registered; names the nearest ones.

    Args:
      kind: what was looked up, such as "problem".
      name: as asked for.
      known: the names that exist.
    """
    base = name.removesuffix(REVERSED_SUFFIX)
    ours = name_here(name)
    hint = nearest(base, known) if ours == name else f" Here it is {ours}."
    if "=" in name:
        hint = " Give values with --hparams_override."
    broken = [f" It may be of a broken plugin: {b}" for b in _broken_plugins]
    return UsageError(
        f"Unknown {kind} {name!r}.{hint} t2t-lite-registry "
        f"lists them all; add --usr_dir for your own.{''.join(broken)}"
    )


_other_names: dict[str, str] = {}


def call_problem_also(name: str, *others: str) -> None:
    """Declare the names of a problem in other programs, for errors.

    Args:
      name: as registered.
      others: names that are not registered.
    """
    _other_names.update(dict.fromkeys(others, name))


def name_here(name: str) -> str:
    """Return the registered name of a problem with this other name.

    Args:
      name: of another program, with or without `_rev`; any other name is
        returned as it is.
    """
    base = name.removesuffix(REVERSED_SUFFIX)
    return _other_names.get(base, base) + name[len(base) :]


_PROBLEMS = _Registry("problem")
_HPARAMS = _Registry("hparams set")


@overload
def register_problem(name_or_class: str) -> Callable[[P], P]: ...
@overload
def register_problem(name_or_class: P) -> P: ...
def register_problem(name_or_class: Any) -> Any:
    """Registers a `Problem` subclass, by default under its snake-cased name.

    Raises:
      T2TLiteError: not a `Problem` subclass, or the name is bad or taken.
    """

    def register(cls, name):
        if not (isinstance(cls, type) and issubclass(cls, Problem)):
            raise T2TLiteError(
                f"@register_problem takes a subclass of Problem; got {cls!r}."
            )
        _PROBLEMS.add(name, cls)
        cls.name = cls.base_name = name
        return cls

    if isinstance(name_or_class, str):
        return lambda cls: register(cls, name_or_class)
    return register(name_or_class, _snake_case(name_or_class))


@overload
def register_hparams(name_or_function: str) -> Callable[[F], F]: ...
@overload
def register_hparams(name_or_function: F) -> F: ...
def register_hparams(name_or_function: Any) -> Any:
    """Registers a function without arguments that returns `HParams`.

    Raises:
      T2TLiteError: not a function, or the name is bad or taken.
    """

    def register(function, name):
        if isinstance(function, type) or not callable(function):
            raise T2TLiteError(
                "@register_hparams takes a function that returns HParams; "
                f"got {function!r}."
            )
        return _HPARAMS.add(name, function)

    if isinstance(name_or_function, str):
        return lambda function: register(function, name_or_function)
    return register(name_or_function, _snake_case(name_or_function))


def problem(name: str, options: Mapping[str, Any] | None = None) -> Problem:
    """The problem of that name; `NAME_rev` is NAME with its sides swapped.

    Args:
      name: as registered, with or without `_rev`.
      options: see `Problem.with_options`.

    Raises:
      UsageError: there is no such problem or option; names the nearest ones.
    """
    base = name.removesuffix(REVERSED_SUFFIX)
    instance = _PROBLEMS.get(base, alias=name)()
    if options:
        instance = instance.with_options(options)
    return instance if base == name else instance.reverse()


def hparams(name: str) -> HParams:
    """The hparams set of that name.

    Raises:
      UsageError: there is no such set; names the nearest ones.
      T2TLiteError: the registered function returned something else.
    """
    function = _HPARAMS.get(name)
    values = function()
    if not isinstance(values, HParams):
        raise T2TLiteError(
            f"hparams set {name!r} ({_where(function)}) must return HParams; "
            f"got {type(values).__name__}."
        )
    return values


def problem_names() -> list[str]:
    """The registered problems, sorted, without their `_rev` directions."""
    return _PROBLEMS.names()


def hparams_names() -> list[str]:
    """The registered hparams sets, sorted."""
    return _HPARAMS.names()


def describe(name: str) -> str:
    """The first docstring line of a registered problem or hparams set."""
    entry = _PROBLEMS if name in _PROBLEMS.names() else _HPARAMS
    return (entry.get(name).__doc__ or "").strip().split("\n")[0]


def _snake_case(declaration):
    name = getattr(declaration, "__name__", str(declaration))
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _where(declaration):
    return f"{declaration.__module__}.{declaration.__qualname__}"
