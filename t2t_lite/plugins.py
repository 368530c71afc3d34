"""Import of problems and hparams sets: built-in, installed, and the user's.

Imported modules register their declarations. Installed packages, like this
package, list their modules in the entry point group `t2t_lite.plugins`; users
give a folder or a package.
"""

import importlib
import importlib.util
import sys
import traceback
from importlib import metadata
from pathlib import Path
from typing import Any

from t2t_lite import progress
from t2t_lite.errors import T2TLiteError, UsageError, format_error

GROUP = "t2t_lite.plugins"
_NOT_DECLARATIONS = ("_", "test_", "setup.", "conftest.")  # in a bare folder

loaded: set[str] = set()  # imported entry points, folders and packages
registered: list[str] = []  # names that `registry` adds


def load_plugins(usr_dir: str | None = None) -> None:
    """Import all modules that register problems and hparams sets, once.

    An installed plugin that fails to import is only a warning, because most
    commands do not need it. `usr_dir` is a folder with an `__init__.py`, a
    folder of modules, or the name of a package.

    Raises:
      UsageError: `usr_dir` is neither a folder nor a package.
      T2TLiteError: `usr_dir` or a module of this package fails to import (the
        message has file and line), or `usr_dir` registers nothing.
    """
    # Built-in names come first, so that no plugin can take them.
    entries = metadata.entry_points(group=GROUP)
    for entry in sorted(entries, key=_is_third_party):
        source = f"plugin {entry.name!r} ({entry.value})"
        if source in loaded:
            continue
        try:
            _import_or_raise(entry.load, source)
        except T2TLiteError as error:
            if not _is_third_party(entry):
                raise
            progress.log(f"Warning: {error}")
        loaded.add(source)
    if usr_dir:
        _load_usr_dir(str(usr_dir))


def _is_third_party(entry):
    return entry.value.partition(".")[0] != "t2t_lite"


def _load_usr_dir(usr_dir):
    source = f"`usr_dir={usr_dir}`"
    folder = Path(usr_dir).expanduser().resolve()
    key = str(folder) if folder.is_dir() else usr_dir
    if key in loaded:
        return
    count = len(registered)
    is_imported = usr_dir in sys.modules  # its names may be registered already
    is_package = (folder / "__init__.py").is_file()
    load = _import_package if is_package else _import_modules
    if folder.is_dir():
        _import_or_raise(lambda: load(folder), source, folder)
    else:
        _import_by_name(usr_dir)
    if not is_imported and len(registered) == count:
        raise T2TLiteError(
            f"{source} registers nothing: decorate a Problem with "
            "@register_problem or a function with @register_hparams, and "
            "import its module from __init__.py."
        )
    loaded.add(key)


def _import_by_name(name):
    try:
        found = importlib.util.find_spec(name) is not None
    except (ImportError, ValueError, AttributeError):
        found = False
    if not found:
        raise UsageError(
            f"`usr_dir={name}` is neither a folder nor an importable package."
        )
    _import_or_raise(lambda: importlib.import_module(name), f"`usr_dir={name}`")


def _import_package(folder):
    """Import a folder with an `__init__.py` under the folder's name."""
    name, file = folder.name, folder / "__init__.py"
    _check_name_is_free(name, file)
    # sys.path would expose all other modules in the parent folder.
    spec: Any = importlib.util.spec_from_file_location(
        name, file, submodule_search_locations=[str(folder)]
    )
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


def _import_modules(folder):
    """Import all modules of a folder without `__init__.py`, in name order."""
    # The folder stays in sys.path for later imports between its modules.
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    importlib.invalidate_caches()
    for file in sorted(folder.glob("*.py")):
        if not file.name.startswith(_NOT_DECLARATIONS):
            _check_name_is_free(file.stem, file)
            importlib.import_module(file.stem)


def _check_name_is_free(name, file):
    module = sys.modules.get(name)
    spec = module.__spec__ if module else importlib.util.find_spec(name)
    if spec is not None and spec.origin != str(file):
        raise T2TLiteError(
            f"{file} has the name of another module ({spec.origin}): rename it."
        )


def _import_or_raise(load, source, folder=None):
    """Call `load`; a failure becomes a T2TLiteError with file and line."""
    try:
        load()
    except (Exception, SystemExit) as error:  # scripts may call sys.exit
        line = _line_of(error, folder)
        raise T2TLiteError(
            f"{source} failed to import: {line}{format_error(error)}."
        ) from error


def _line_of(error, folder):
    """Return the `file:line: ` of an error, preferably in the folder."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}: "
    frames = [
        (frame.filename, frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen")
        and frame.filename not in (__file__, importlib.__file__)
    ]
    own = [f for f in frames if folder in Path(f[0]).parents]
    return "".join(f"{file}:{line}: " for file, line in (own or frames)[-1:])
