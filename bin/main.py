"""Train, evaluate and serve Transformers for translation and parsing.

`t2t-lite COMMAND ...` is equivalent to `t2t-lite-COMMAND ...`.
"""

import argparse
import ast
import importlib.util
import itertools
import sys
from importlib import metadata
from typing import Any

import t2t_lite
from t2t_lite.bin.cli import flags
from t2t_lite.bin.cli.command import Command
from t2t_lite.errors import UsageError, did_you_mean

_PREFIX = "t2t-lite-"
_LIBRARIES = ("tensorflow", "keras", "keras-hub")


def commands() -> dict[str, metadata.EntryPoint]:
    """Return the installed commands by name, without the prefix `t2t-lite-`."""
    scripts = metadata.distribution("t2t-lite").entry_points
    return {
        script.name.removeprefix(_PREFIX): script
        for script in scripts.select(group="console_scripts")
        if script.name.startswith(_PREFIX)
    }


def _add_flags(parser: flags.Parser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    about = "command in the list below; COMMAND --help shows its flags"
    parser.add_argument("command", metavar="COMMAND", nargs="?", help=about)
    others = (f"{k} {metadata.version(k)}" for k in _LIBRARIES)
    version = f"%(prog)s {t2t_lite.__version__} ({', '.join(others)})"
    parser.add_argument("--version", action="version", version=version)
    lines = [f"  {k:12}{_purpose(script)}" for k, script in commands().items()]
    parser.epilog = "\n".join(["commands:", *lines])


def _purpose(script: metadata.EntryPoint) -> str:
    """Return the first line of a command's docstring without an import."""
    spec: Any = importlib.util.find_spec(script.module)
    tree = ast.parse(spec.loader.get_source(script.module))
    return (ast.get_docstring(tree) or "").split("\n")[0]


def _show(args: argparse.Namespace) -> None:
    """Print the help, because the first word is not a command."""
    if args.command in commands():
        raise UsageError(
            f"The command must precede its flags: t2t-lite {args.command} ..."
        )
    if args.command:
        hint = did_you_mean(args.command, commands())
        raise UsageError(
            f"Unknown command {args.command!r}.{hint} t2t-lite --help lists "
            "all commands."
        )
    _help.make_parser().print_help()


_help = Command("t2t-lite", __doc__, _add_flags, _show)


def main(argv: list[str] | None = None) -> int:
    """Run the command named by the first word and return its exit code."""
    words = sys.argv[1:] if argv is None else argv
    script = commands().get(words[0]) if words else None
    if script is None:  # ignore the flags after an unknown command
        own = itertools.takewhile(lambda word: word.startswith("-"), words)
        return _help(words[: len([*own]) + 1])
    if argv is None:
        del sys.argv[1]  # the rest are the flags of the command
        return script.load()()
    return script.load()(words[1:])


if __name__ == "__main__":
    raise SystemExit(main())
