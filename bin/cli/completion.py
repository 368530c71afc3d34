"""Answers the shell's Tab, which asks through argcomplete.

The shell runs the command itself, with the line typed so far in `COMP_LINE`.
"""

import argparse
import os
import re
from collections.abc import Callable, Iterable
from typing import Any, cast

from t2t_lite import plugins, registry
from t2t_lite.errors import T2TLiteError


def is_asked() -> bool:
    """Whether a shell asks what could come next."""
    return "_ARGCOMPLETE" in os.environ


def enter_command(known: Iterable[str]) -> str | None:
    """The command in a line of `t2t-lite`; its flags are then asked for.

    Returns:
      "trainer" for "t2t-lite trainer --pro"; None for "t2t-lite trai".
    """
    found = re.match(r"\s*\S+\s+(\S+)\s", os.environ["COMP_LINE"])
    if not found or found[1] not in known:
        return None
    os.environ["_ARGCOMPLETE"] = "2"  # the command is the second word
    return found[1]


def answer(parser: argparse.ArgumentParser) -> None:
    """Offer flags, names and files to the shell, and end the process."""
    import argcomplete

    def complete(prefix: str, action: argparse.Action, **others: Any) -> Any:
        offer = _COMPLETERS.get(action.dest, argcomplete.FilesCompleter())
        return offer(prefix=prefix, action=action, **others)

    argcomplete.autocomplete(
        parser,
        always_complete_options="long",
        default_completer=cast(Any, complete),
    )


def shell_code(shell: str, programs: Iterable[str]) -> str:
    """The code that makes a shell ask the programs.

    Args:
      shell: "bash", "zsh" or "fish".
      programs: their names.
    """
    try:
        import argcomplete
    except ImportError as error:
        raise T2TLiteError(
            "--completion requires argcomplete: pip install "
            "'t2t-lite[completion]'."
        ) from error
    return argcomplete.shellcode(programs, shell=shell)


def _offer(*sources: Callable[[], list[str]]) -> Callable[..., list[str]]:
    """A completer of argcomplete that offers registered names."""

    def names(parsed_args: argparse.Namespace, **_: Any) -> list[str]:
        plugins.load_plugins(getattr(parsed_args, "usr_dir", None))
        return [name for source in sources for name in source()]

    return names


_COMPLETERS = {
    "problem": _offer(registry.problem_names),
    "hparams": _offer(registry.hparams_names),
    "constrained": lambda **_: ["true", "false"],
    # Of t2t-lite-registry:
    "name": _offer(registry.problem_names, registry.hparams_names),
}
