"""The commands, one file each: `t2t-lite-<name>`, or `t2t-lite <name>`.

What this file holds is there before the rest of a command is imported, so that
Ctrl-C is a line at any time.
"""

import os
import sys
from typing import Any, NoReturn

CTRL_C = 130  # 128 + SIGINT, as shells count


def end_now() -> NoReturn:
    """Ends the process with CTRL_C, whatever threads are still computing."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError):  # closed
            continue
    os._exit(CTRL_C)


def _say_ctrl_c(kind: type[BaseException], error: Any, trace: Any) -> None:
    """Python's hook for what nothing has caught."""
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    if sys.stderr is not None:
        print(f"{_program}: stopped by Ctrl-C.", file=sys.stderr)
    end_now()


_program = os.path.basename(sys.argv[0])
if _program.startswith("t2t-lite"):  # and not a program that imports us
    sys.excepthook = _say_ctrl_c
