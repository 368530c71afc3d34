"""One trainer to a run: two would write over each other's checkpoints."""

import contextlib
import fcntl
import os
import pathlib
from collections.abc import Iterator

from t2t_lite.errors import T2TLiteError, in_words


@contextlib.contextmanager
def only_trainer(output_dir: pathlib.Path) -> Iterator[None]:
    """Keeps a second trainer out of a run's folder, which is made.

    Raises:
      T2TLiteError: another process trains there, or it cannot be written.
    """
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
        file = open(output_dir / ".lock", "a+", encoding="utf-8")
    except OSError as error:
        raise T2TLiteError(
            f"{output_dir} cannot be written: "
            f"{in_words(error, place=False)}. Or choose another "
            "--output_dir."
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise T2TLiteError(
                f"Another trainer (process {file.read().strip()}) is writing "
                f"to {output_dir}; wait for it, or choose another "
                "--output_dir."
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        # The system releases the lock when the process ends, in any way.
        yield
