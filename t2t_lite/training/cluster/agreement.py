"""What workers compare before they train together."""

import contextlib
import pathlib
import secrets
import time
from collections.abc import Mapping
from typing import Any

from t2t_lite.errors import T2TLiteError, in_words
from t2t_lite.training.cluster.cluster import Cluster

_TOKEN = ".cluster"
# How long a shared file system may take to show what another machine wrote.
_SECONDS_TO_SEE = 30.0


def require_equal(
    cluster: Cluster, topic: str, facts: Mapping[str, Any], remedy: str
) -> None:
    """Refuses workers that differ from the chief in what must be equal.

    Args:
      cluster: of this process.
      topic: what is compared.
      facts: of this worker; flat and fit for JSON.
      remedy: what to do about a difference.

    Raises:
      T2TLiteError: names the first worker that differs, and each difference.
    """
    chief, *others = cluster.exchange(topic, dict(facts))
    for index, other in enumerate(others, start=1):
        differences = [
            f"{key} is {other.get(key)!r} there and {chief.get(key)!r} on the "
            "chief"
            for key in {**chief, **other}
            if chief.get(key) != other.get(key)
        ]
        if differences:
            raise T2TLiteError(
                f"{cluster.name(index)} differs: {'; '.join(differences)}. "
                f"{remedy}"
            )


def require_shared(cluster: Cluster, folder: pathlib.Path) -> None:
    """Refuses a folder that is not the same one for all workers.

    Raises:
      T2TLiteError: names a worker that does not see what the chief wrote, or
        it cannot be written.
    """
    if cluster.size == 1:
        return
    path = folder / _TOKEN
    token = secrets.token_hex(8)
    if cluster.is_chief:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(token, "utf-8")
        except OSError as error:
            raise T2TLiteError(
                f"{folder} cannot be written: {in_words(error, place=False)}. "
                "Or choose another --output_dir."
            ) from error
    token = cluster.exchange("token", token)[0]
    sees = cluster.exchange("shared folder", _appears(path, token))
    if cluster.is_chief:
        path.unlink(missing_ok=True)
    blind = [
        cluster.name(index) for index, sees_it in enumerate(sees) if not sees_it
    ]
    if blind:
        raise T2TLiteError(
            f"{', '.join(blind)} did not see within {_SECONDS_TO_SEE:.0f} s "
            f"what the chief wrote to {folder}: --output_dir must be a folder "
            "that all workers share, on NFS for example."
        )


def _appears(path: pathlib.Path, token: str) -> bool:
    """Whether a file comes to hold the token."""
    deadline = time.monotonic() + _SECONDS_TO_SEE
    while True:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if path.read_text("utf-8") == token:
                return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
