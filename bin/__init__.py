"""The commands, one file each: `t2t-lite-<name>` or `t2t-lite <name>`.

This file is imported first, so that Ctrl-C prints one line even while the
command is still being imported.
"""

import contextlib
import os
import sys
from typing import Any, NoReturn

CTRL_C = 130  # 128 + SIGINT, the convention of shells


def exit_now(code: int = CTRL_C) -> NoReturn:
    """Exit the process without waiting for threads."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError):  # closed
            stream.flush()
    os._exit(code)


def _handle_ctrl_c(cls: type[BaseException], error: Any, trace: Any) -> None:
    """Print one line for Ctrl-C, as `sys.excepthook`."""
    if not issubclass(cls, KeyboardInterrupt):
        return sys.__excepthook__(cls, error, trace)
    print(f"{_program}: stopped by Ctrl-C.", file=sys.stderr)
    exit_now()


_program = os.path.basename(sys.argv[0])
if _program.startswith("t2t-lite"):  # not another program with this import
    sys.excepthook = _handle_ctrl_c
