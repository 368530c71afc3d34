"""The commands, one file each: `t2t-lite-<name>`, or `t2t-lite <name>`.

This file is imported before the rest of a command, so that Ctrl-C gives one
line at any time.
"""

import contextlib
import os
import sys
from typing import Any, NoReturn

CTRL_C = 130  # 128 + SIGINT, as shells count


def end_now() -> NoReturn:
    """End the process with CTRL_C, without waiting for threads."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError):  # closed
            stream.flush()
    os._exit(CTRL_C)


def _say_ctrl_c(kind: type[BaseException], error: Any, trace: Any) -> None:
    """Handle uncaught exceptions, as `sys.excepthook`."""
    if not issubclass(kind, KeyboardInterrupt):
        return sys.__excepthook__(kind, error, trace)
    print(f"{_program}: stopped by Ctrl-C.", file=sys.stderr)
    end_now()


_program = os.path.basename(sys.argv[0])
if _program.startswith("t2t-lite"):  # and not a program that imports us
    sys.excepthook = _say_ctrl_c
