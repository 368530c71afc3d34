"""The Transformer for text-to-text work, from corpus to served translation.

`t2t-lite COMMAND ...` is the same as `t2t-lite-COMMAND ...`.
"""

import argparse
import ast
import importlib.util
import sys
from importlib import metadata
from typing import Any

import t2t_lite
from t2t_lite.bin.cli import command, completion, flags
from t2t_lite.errors import UsageError, nearest

_PREFIX = "t2t-lite-"


def commands() -> dict[str, metadata.EntryPoint]:
    """The installed commands, by their names without `t2t-lite-`."""
    scripts = metadata.distribution("t2t-lite").entry_points
    return {
        script.name.removeprefix(_PREFIX): script
        for script in scripts.select(group="console_scripts")
        if script.name.startswith(_PREFIX)
    }


def make_parser() -> flags.Parser:
    """The flags of `t2t-lite`; its help lists the commands."""
    parser = flags.Parser("t2t-lite", __doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    purposes = {name: _purpose(script) for name, script in commands().items()}
    told = "one of those below; COMMAND --help shows its flags"
    first: Any = parser.add_argument(
        "command", metavar="COMMAND", nargs="?", help=told
    )
    first.completer = lambda **_: purposes
    others: Any = parser.add_argument(
        "words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS
    )
    others.completer = lambda **_: []
    version = f"%(prog)s {t2t_lite.__version__}"
    parser.add_argument("--version", action="version", version=version)
    told = "print the code that makes a shell complete all commands"
    shells = ("bash", "zsh", "fish")
    parser.add_argument(
        "--completion", choices=shells, metavar="|".join(shells), help=told
    )
    lines = [f"  {name:12}{told}" for name, told in purposes.items()]
    parser.epilog = "\n".join(["commands:", *lines])
    return parser


def _purpose(script: metadata.EntryPoint) -> str:
    """The first line of a command's docstring; the command isn't imported."""
    spec: Any = importlib.util.find_spec(script.module)
    tree = ast.parse(spec.loader.get_source(script.module))
    return (ast.get_docstring(tree) or "").split("\n")[0]


def main(argv: list[str] | None = None) -> int:
    """Runs the command that the first word names; returns its exit code."""
    words = sys.argv[1:] if argv is None else argv
    known = commands()
    if completion.is_asked() and (name := completion.enter_command(known)):
        return known[name].load()([])
    if words and words[0] in known:
        run = known[words[0]].load()
        if argv is None:
            del sys.argv[1]  # what is left are its flags
            return run()
        return run(words[1:])
    parser = make_parser()

    def show(args: argparse.Namespace) -> None:
        if args.command in known:
            raise UsageError(
                f"A command comes before its flags: t2t-lite {args.command} ..."
            )
        if args.command:
            hint = nearest(args.command, known)
            raise UsageError(
                f"Unknown command {args.command!r}.{hint} "
                "t2t-lite --help lists them all."
            )
        if args.completion:
            programs = ["t2t-lite", *(f"{_PREFIX}{name}" for name in known)]
            print(completion.shell_code(args.completion, programs))
        else:
            parser.print_help()

    return command.run(parser, show, argv)


if __name__ == "__main__":
    raise SystemExit(main())
