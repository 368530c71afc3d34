"""Finds problems and hparams sets: the built-in, the installed, the user's.

All three come in the same way: a module is imported, and what it declares
registers itself. Installed packages name theirs in the entry point group
`t2t_lite.plugins`, as this package does; a user names a folder or a package.
"""

import importlib
import importlib.util
import pathlib
import sys
import traceback
from importlib import metadata
from typing import Any

from t2t_lite import progress, registry
from t2t_lite.errors import T2TLiteError, UsageError

GROUP = "t2t_lite.plugins"
_NOT_DECLARATIONS = ("_", "test_", "setup.", "conftest.")  # in a bare folder

_loaded: set[Any] = set()  # entry points, folders and packages


def load_plugins(usr_dir: str | None = None) -> None:
    """Imports what registers problems and hparams sets, each thing once.

    An installed plugin that fails to import is a warning on stderr, because
    most commands need nothing of it. A name that is not found then tells of it.

    Args:
      usr_dir: also import this: a folder with an `__init__.py` (a package), a
        folder of plain modules, or the name of an importable package.

    Raises:
      UsageError: `usr_dir` is neither a folder nor a package.
      T2TLiteError: `usr_dir` or a part of this package failed to import (the
        message has file and line), or `usr_dir` registers nothing.
    """
    # Our own come first, so that no plugin can take a built-in name.
    for entry in sorted(metadata.entry_points(group=GROUP), key=_is_foreign):
        if (entry.name, entry.value) in _loaded:
            continue
        try:
            source = f"plugin {entry.name!r} ({entry.value})"
            _guarded(entry.load, source, within=None)
        except T2TLiteError as error:
            if not _is_foreign(entry):
                raise
            progress.say(f"Warning: {error}")
            registry.remember_broken_plugin(str(error))
        _loaded.add((entry.name, entry.value))
    if usr_dir:
        _load_usr_dir(str(usr_dir))


def _is_foreign(entry):
    return entry.value.partition(".")[0] != "t2t_lite"


def _load_usr_dir(usr_dir):
    folder = pathlib.Path(usr_dir).expanduser()
    key = str(folder.resolve()) if folder.is_dir() else usr_dir
    if key in _loaded:
        return
    before = registry.problem_names(), registry.hparams_names()
    source = f"--usr_dir={usr_dir}"
    if folder.is_dir():
        folder = folder.resolve()
        is_package = (folder / "__init__.py").is_file()
        loader = _import_package if is_package else _import_modules
        _guarded(lambda: loader(folder), source, within=folder)
        known_before = False
    else:
        known_before = usr_dir in sys.modules  # it may have registered then
        _require_importable(usr_dir)
        _guarded(lambda: importlib.import_module(usr_dir), source, within=None)
    after = registry.problem_names(), registry.hparams_names()
    if not known_before and after == before:
        raise T2TLiteError(
            f"{source} registers nothing: decorate a Problem with "
            "@register_problem or a function with @register_hparams, and "
            "import its module from __init__.py."
        )
    _loaded.add(key)


def _require_importable(name):
    try:
        found = importlib.util.find_spec(name) is not None
    except (ImportError, ValueError, AttributeError):
        found = False
    if not found:
        raise UsageError(
            f"--usr_dir={name} is neither a folder nor an importable package."
        )


def _import_package(folder):
    """Imports a folder that has an `__init__.py`, under the folder's name."""
    name = folder.name
    if not name.isidentifier():
        raise T2TLiteError(
            f"a folder with an __init__.py is imported by its name, and "
            f"{name!r} is not a Python name: rename it."
        )
    _require_free(name, folder / "__init__.py")
    spec: Any = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


def _import_modules(folder):
    """Imports every module of a folder without `__init__.py`, by name order."""
    # The folder stays on the path: its modules may import each other later.
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    importlib.invalidate_caches()
    for file in sorted(folder.glob("*.py")):
        if not file.name.startswith(_NOT_DECLARATIONS):
            _require_free(file.stem, file)
            importlib.import_module(file.stem)


def _require_free(name, file):
    """Refuses a module whose name already means another file."""
    module = sys.modules.get(name)
    if module is not None:
        taken_by = getattr(module, "__file__", None) or "Python itself"
    else:
        spec = importlib.util.find_spec(name)
        taken_by = spec.origin if spec and spec.origin else str(file)
    if taken_by != str(file):
        raise T2TLiteError(
            f"{file} has the name of another module ({taken_by}): rename it."
        )


def _guarded(load, source, within):
    """Calls `load`; a failure becomes one line with the file and the line."""
    try:
        load()
    except (Exception, SystemExit) as error:  # a script exits at its end
        place = _place_of(error, within)
        raise T2TLiteError(
            f"{source} failed to import: {place}{_in_one_line(error)}"
        ) from error


def _place_of(error, within):
    """The `file:line: ` of an import error, of the user's files if it can."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}: "
    frames = [
        (frame.filename, frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen")
        and frame.filename not in (__file__, importlib.__file__)
    ]
    own = [f for f in frames if within in pathlib.Path(f[0]).parents]
    return "".join(f"{file}:{line}: " for file, line in (own or frames)[-1:])


def _in_one_line(error):
    text = " ".join(str(error).split())
    if isinstance(error, T2TLiteError):
        return text
    if isinstance(error, SyntaxError):
        text = error.msg
    return f"{type(error).__name__}: {text}"
