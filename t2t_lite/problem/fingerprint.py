"""What of a problem's declaration shapes its data, in a form to compare.

A change of it makes data stale; a change of what only scores, describes or
searches does not. Classes of this package count by their `version`, so that
work on the engine leaves the data of users alone; all others by their code.
"""

import ast
import contextlib
import hashlib
import inspect
import json
import sys
import textwrap
from typing import Any

from t2t_lite.errors import T2TLiteError

# Members that score or describe; a change of them leaves the data as it is.
# The options count where there are some, see `Problem.definition`.
_DO_NOT_SHAPE_DATA = frozenset(
    (
        *("name", "options", "known_options", "metric", "reversed", "evaluate"),
        *("tokenize", "complete", "text_form", "expected_vocab_sizes"),
        *("tell_sources", "parts", "part_samples", "tfds_bytes"),
        "corpus_counts",
    )
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
        else:
            with contextlib.suppress(TypeError):  # it is not plain
                json.dumps(value, sort_keys=True)
                attributes[name] = value
    return attributes


def hash_of_code(cls: type) -> str:
    """The sha256 over the code of a class, as `Problem.definition` says.

    Raises:
      T2TLiteError: the code cannot be read.
    """
    parts = set()
    for base in cls.__mro__[:-1]:  # all but `object`
        if not _is_of_the_engine(base):
            parts.update(_code_of(base))
        elif (version := vars(base).get("version", 1)) > 1:
            parts.add(f"{base.__qualname__} {version}")
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()


def _is_of_the_engine(cls):
    """Whether it is one of ours, and no declaration as a user's."""
    package, _, rest = cls.__module__.partition(".")
    return package == "t2t_lite" and rest.split(".")[0] != "problems"


def _code_of(cls):
    """The code of a class and of what it names in its module, in any order."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
        module = ast.parse(inspect.getsource(sys.modules[cls.__module__]))
    except (OSError, TypeError, KeyError) as error:
        raise T2TLiteError(
            f"{cls.__qualname__} must be defined in a file, so that a change "
            f"of it can be noticed; its source cannot be read: {error}."
        ) from error
    definition: Any = tree.body[0]
    definition.body = [
        node
        for node in definition.body
        if not _bound_by(node) & (_DO_NOT_SHAPE_DATA | {"files"})
    ]
    defined = {name: node for node in module.body for name in _bound_by(node)}
    pending, counted = [definition], {cls.__name__}
    while pending:
        node = pending.pop()
        yield ast.unparse(_Stripped().visit(node))
        named = {x.id for x in ast.walk(node) if isinstance(x, ast.Name)}
        new = (named & defined.keys()) - counted
        counted |= new
        pending += [defined[name] for name in new]


def _bound_by(node):
    """The names that a statement of a class or module body binds."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {node.name}
    return {
        name.id
        for name in ast.walk(node)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    }


class _Stripped(ast.NodeTransformer):
    """Takes out what does nothing: docstrings, bare strings and imports.

    A module that is renamed or moved does what it did before.
    """

    def visit_Import(self, node: ast.AST) -> None:
        return None

    visit_ImportFrom = visit_Import

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(
            node.value.value, str
        )
        return None if is_text else node
