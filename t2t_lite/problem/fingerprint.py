"""What of a problem's declaration shapes its data, in a form to compare.

A change of it makes data stale; a change of what only scores, describes or
searches does not.
"""

import ast
import hashlib
import inspect
import sys
import textwrap
from typing import Any

from t2t_lite.errors import T2TLiteError

# Members that score or describe; a change of them leaves the data as it is.
# The options count where there are some, see `Problem.definition`.
_DO_NOT_SHAPE_DATA = (
    "name",
    "options",
    "known_options",
    "metric",
    "reversed",
    "evaluate",
    "tokenize",
    "complete",
    "text_form",
    "expected_vocab_sizes",
    "tell_sources",
    "parts",
    "part_samples",
    "tfds_bytes",
)


def attributes_of(cls: type) -> dict[str, Any]:
    """The public class attributes that are plain data, by name."""
    attributes = {}
    for name in dir(cls):
        if name.startswith("_") or name in _DO_NOT_SHAPE_DATA:
            continue
        value = inspect.getattr_static(cls, name)
        if name == "filters" and not value:
            continue  # as if there were no such attribute
        if name == "files":  # an address may move, the content may not
            attributes[name] = [[file.name, file.sha256] for file in value]
        elif _is_plain(value):
            attributes[name] = value
    return attributes


def _is_plain(value):
    if isinstance(value, dict):
        return all(
            isinstance(key, str) and _is_plain(item)
            for key, item in value.items()
        )
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (str, int, float))


def hash_of_sources(cls: type, stop_at: str) -> str:
    """The sha256 over the code of a class, as `Problem.definition` says.

    Args:
      cls: of a problem.
      stop_at: the module whose classes, bases of all, do not count.

    Raises:
      T2TLiteError: the code cannot be read.
    """
    sources = set()
    for base in cls.__mro__:
        if base.__module__ not in (stop_at, "builtins"):
            sources.update(_sources_of(base))
    return hashlib.sha256("\n".join(sorted(sources)).encode()).hexdigest()


def _sources_of(cls):
    """The canonical code of a class and of what it names in its module."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
        module = ast.parse(inspect.getsource(sys.modules[cls.__module__]))
    except (OSError, TypeError, KeyError) as error:
        raise T2TLiteError(
            f"{cls.__qualname__} must be defined in a file, so that a change "
            f"of it can be noticed; its source cannot be read: {error}."
        ) from error
    definition = tree.body[0]
    definition.body = [
        node
        for node in definition.body
        if not set(_names_defined(node)) & {*_DO_NOT_SHAPE_DATA, "files"}
    ] or [ast.Pass()]
    defined = {
        name: node for node in module.body for name in _names_defined(node)
    }
    defined.pop(definition.name, None)
    sources, pending = {}, [definition]
    while pending:
        node = pending.pop()
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and inner.id in defined:
                pending.append(defined.pop(inner.id))
        sources[id(node)] = ast.unparse(_what_counts(node))
    return sources.values()


def _names_defined(node):
    """The names that a statement of a class or module body binds."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    targets = (
        node.targets
        if isinstance(node, ast.Assign)
        else [node.target]
        if isinstance(node, (ast.AnnAssign, ast.AugAssign))
        else []
    )
    return [
        name.id
        for target in targets
        for name in ast.walk(target)
        if isinstance(name, ast.Name)
    ]


def _what_counts(tree):
    """The tree, its imports, docstrings and bare strings taken out in place.

    A module that is renamed or moved does what it did before.
    """
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            lines = getattr(node, name, None)
            if isinstance(lines, list):
                kept = [line for line in lines if not _is_without_effect(line)]
                setattr(node, name, kept or lines and [ast.Pass()])
    return tree


def _is_without_effect(node):
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return True
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
