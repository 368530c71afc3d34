"""Folders with code that the user has allowed on this machine.

A run names the folder of its problem's code, and a run may come from anybody.
So that folder counts only if the user has trained with it before. This is
remembered in the user's configuration, by absolute path.
"""

import importlib.util
import json
import os
import pathlib

from t2t_lite import files, progress

_FILE = "t2t-lite/allowed-usr-dirs.json"


def place_of(usr_dir: str) -> str | None:
    """Where a folder or an importable package is; None if it is nowhere.

    Nothing is imported to find out.
    """
    try:
        folder = pathlib.Path(usr_dir).expanduser()
        if folder.is_dir():
            return str(folder.resolve())
        # To look further down, Python would import the package.
        spec = importlib.util.find_spec(usr_dir.partition(".")[0])
    except (ImportError, ValueError, RuntimeError, OSError):
        return None
    if spec is None:
        return None
    found = spec.origin or next(iter(spec.submodule_search_locations or ()), "")
    return str(pathlib.Path(found).resolve())


def is_allowed(place: str) -> bool:
    """Whether `remember` was called for what is at this place."""
    return place in _allowed()


def remember(usr_dir: str) -> None:
    """Allows the code of a folder or package in later commands of this user.

    If that cannot be written down, a line on stderr says so.
    """
    place, allowed = place_of(usr_dir), _allowed()
    if place is None or place in allowed:
        return
    try:
        path = _path()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with files.write_file(path) as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(json.dumps([*allowed, place], indent=2).encode() + b"\n")
    except (OSError, RuntimeError) as error:
        progress.say(
            f"Warning: later commands need --usr_dir={place} again, because "
            f"it cannot be remembered: {error}"
        )


def _allowed() -> list[str]:
    """The places that are remembered; of a damaged file, none."""
    try:
        places = json.loads(_path().read_bytes())
    except (OSError, ValueError, RuntimeError):
        return []
    return places if isinstance(places, list) else []


def _path() -> pathlib.Path:
    home = os.environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(home):  # as the standard says
        home = str(pathlib.Path("~/.config").expanduser())
    return pathlib.Path(home) / _FILE
