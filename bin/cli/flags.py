"""The parser of every command, and the flags that several of them share."""

import argparse
import dataclasses
import itertools
import math
import pathlib
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, TypeAlias

from t2t_lite import recipe, values
from t2t_lite.bin.cli import t2t_flags
from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.errors import UsageError, nearest
from t2t_lite.interop.tensor2tensor.hparams import NAMES
from t2t_lite.values import Kind

Flags: TypeAlias = argparse.ArgumentParser | argparse._ArgumentGroup


class Parser(argparse.ArgumentParser):
    """Parses `--flag=value` and `--flag value`; mistakes are UsageErrors."""

    def __init__(self, prog: str, description: str):
        super().__init__(
            prog=prog,
            description=description,
            formatter_class=_HelpFormatter,
            allow_abbrev=False,
        )
        meaning = "show TensorFlow's messages, and a traceback on errors"
        add(self, {"--verbose": meaning})

    def parse_args(
        self, args: Iterable[str] | None = None, namespace: Any = None
    ) -> Any:
        """The flags; raises UsageError naming the nearest known flag."""
        words = list(sys.argv[1:] if args is None else args)
        try:
            parsed, unknown = self.parse_known_args(words, namespace)
        except UsageError:
            # What is wrong may follow from a flag that is not known.
            self._refuse_unknown(itertools.takewhile("--".__ne__, words))
            raise
        if not unknown:
            return parsed
        self._refuse_unknown(unknown)
        raise UsageError(
            f"Unexpected argument {unknown[0]!r}; flags look like "
            f"--flag=value. {self.prog} --help lists them all."
        )

    def _refuse_unknown(self, words: Iterable[str]) -> None:
        """Raises UsageError for the first word that is an unknown flag."""
        for word in words:
            flag = word.split("=")[0]
            if flag[:2] == "--" and flag not in self._option_string_actions:
                if advice := t2t_flags.advice(flag):
                    raise UsageError(
                        f"{flag} is a flag of tensor2tensor: {advice}."
                    )
                hint = nearest(flag, self._option_string_actions)
                raise UsageError(
                    f"Unknown flag {flag}.{hint} {self.prog} --help lists "
                    "them all."
                )

    def error(self, message: str) -> NoReturn:
        """Raises argparse's message as a UsageError, without a usage dump."""
        message = message.removeprefix("argument ")
        raise UsageError(f"{message[:1].upper()}{message[1:].rstrip('.')}.")


class _HelpFormatter(argparse.HelpFormatter):
    """Adds `(default: ...)` to every flag that has one worth naming."""

    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=30)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        told = "default" in (action.help or "") or not action.option_strings
        if told or action.default in (None, False, "", argparse.SUPPRESS):
            return action.help
        return f"{action.help} (default: %(default)s)"


def add(
    parser: Flags,
    table: Mapping[str, str],
    kind: Kind | None = None,
    default: Any = None,
) -> None:
    """Adds flags that take a value, and switches.

    Args:
      parser: or a group of one.
      table: their help by "--name=METAVAR", or by "--name" for a switch.
      kind: of the values; None means text.
      default: of the values.
    """
    for flag, told in table.items():
        name, _, metavar = flag.partition("=")
        how: dict[str, Any] = {"action": "store_true"}
        if metavar:
            how = {"metavar": metavar, "type": kind, "default": default}
        parser.add_argument(name, help=told, **how)


def add_run_flags(
    parser: argparse.ArgumentParser, title: str = "the run"
) -> None:
    """The flags that name a run, for commands that read one."""
    group = parser.add_argument_group(title)
    flags = {
        "--output_dir=DIR": f"the run (default: {recipe.RUNS_DIR}/PROBLEM/SET)",
        "--problem=NAME": "with --hparams, instead of a DIR",
        "--hparams=SET": "see --problem",
    }
    add(group, flags)
    add_usr_dir(group)


def add_override(parser: Flags) -> None:
    """`--hparams_override`, for commands that take a set."""
    told = "values that replace those of the set"
    flag = {"--hparams_override=KEY=VALUE,...": told}
    add(parser, flag, _hparams_override, default="")


def _hparams_override(text: str) -> str:
    """Return the text; raise UsageError for tensor2tensor's names in it."""
    given = values.parse_key_values(text, "--hparams_override")
    renamed = [f"{n} is {NAMES[n]}" for n in given if NAMES.get(n, n) != n]
    if renamed:
        raise UsageError(
            f"--hparams_override: tensor2tensor's {', '.join(renamed)} here; "
            "docs/from-tensor2tensor.md lists the values, too."
        )
    return text


def add_usr_dir(parser: Flags) -> None:
    """`--usr_dir`, for commands that look problems or sets up."""
    told = "a folder or package with your own problems and hparams sets"
    add(parser, {"--usr_dir=DIR": told})


def add_corpus_flags(parser: Flags) -> None:
    """Where a corpus is read from and its shards are."""
    shards = {"--data_dir=DIR": "the TFRecord shards and the vocabulary"}
    add(parser, shards, default=recipe.DATA_DIR)
    flags = {
        "--raw_dir=DIR": "a folder that holds the corpus files (default: "
        "download them)",
        "--tfds_dir=DIR": "a TensorFlow Datasets data folder",
    }
    add(parser, flags)
    told = (
        "options of the problem, see t2t-lite-registry NAME; the data and the "
        "run remember them"
    )
    add(parser, {"--problem_options=KEY=VALUE,...": told}, default="")


def add_text_flags(parser: Flags) -> None:
    """The options of `--problem=text`, for commands that make data."""
    from t2t_lite.problem.own_text_options import OPTIONS

    group = parser.add_argument_group(
        "your own text, with --problem=text",
        "Files may be packed (.gz .bz2 .xz .zst). The data and the run "
        "remember all of these: later commands need only --data_dir or "
        "--output_dir.",
    )
    for option in OPTIONS:
        kind: dict[str, Any] = {"metavar": option.metavar}
        told = option.meaning
        if option.off_flag:
            kind = {"action": "store_const", "const": False}
        elif option.default_text:
            told += f" (default: {option.default_text})"
        group.add_argument(option.flag, dest=option.name, help=told, **kind)


def add_checkpoint_flag(parser: Flags) -> None:
    """`--checkpoint`, for commands that read weights."""
    told = (
        "latest, best, average, ema, a step number, or a folder (default: the "
        "average of the newest checkpoints if it was made, else the newest, or "
        "its moving average)"
    )
    add(parser, {"--checkpoint=WHICH": told}, default="default")


def add_search_flags(parser: Flags, batches: bool = True) -> None:
    """Which weights search, and how, and many texts through it."""
    group = parser.add_argument_group("the search")
    add_checkpoint_flag(group)
    told = (
        "average the probabilities with those of other models: folders of "
        "runs, or checkpoints of this run"
    )
    add(group, {"--ensemble=RUN:...": told})
    add_settings(group, SearchSettings, hparams=_FROM_HPARAMS)
    if batches:
        table = {
            "--batch_size=N": "sentences searched together; changes speed, not "
            "results (default: 64)",
            "--batch_tokens=N": "instead: as many as have at most N source "
            "tokens together, padding included; with --batch_size both hold",
            "--replicas=N": "GPUs, or without them threads, that each search "
            "other batches; changes speed, not results (default: all GPUs, or "
            "a thread for each core, at most four)",
        }
        add(group, table, at_least(1))


def add_settings(
    parser: Flags,
    settings: type,
    names: Iterable[str] | None = None,
    hparams: Iterable[str] = (),
) -> None:
    """Add a flag for each field of a dataclass of settings.

    The value of a flag that is not given is None.

    Args:
      parser: of the command.
      settings: a dataclass whose fields are `values.setting`s.
      names: of the fields, in the order of the help; None means all.
      hparams: names of fields whose default is a hparam of the run.
    """
    fields = {field.name: field for field in dataclasses.fields(settings)}
    for name in fields if names is None else names:
        field = fields[name]
        kind, metavar = field.metadata["kind"], field.metadata["metavar"]
        how: dict[str, Any] = {"metavar": metavar, "type": _flag_of(kind)}
        if kind is values.true_or_false:
            how |= {"type": true_or_false, "choices": [True, False]}
        if not metavar:
            how = {"action": "store_true", "default": None}
        told = field.metadata["meaning"]
        default = "the run's hparam" if name in hparams else field.default
        if default not in (None, False, 0, ()) and "(default" not in told:
            told += f" (default: {default})"
        parser.add_argument(f"--{name}", help=told, **how)


def given_settings(args: argparse.Namespace, settings: type) -> dict[str, Any]:
    """Return the fields of a dataclass of settings whose flags are given."""
    names = [field.name for field in dataclasses.fields(settings)]
    return {
        name: getattr(args, name)
        for name in names
        if getattr(args, name) is not None
    }


# Settings of a search that a run has values of.
_FROM_HPARAMS = ("beam_size", "alpha", "constrained")


def members(args: argparse.Namespace) -> list[str]:
    """The other models of `--ensemble`."""
    return args.ensemble.split(":") if args.ensemble else []


def add_seed(parser: Flags, default: int | None = 1, more: str = "") -> None:
    """`--seed`, for commands that draw at random.

    Args:
      parser: of the command.
      default: None if the command finds one.
      more: what the help says of that.
    """
    told = f"of everything random; the same seed gives the same result{more}"
    rule = "a whole number from 0 to 2**63 - 1"
    seed = values.number(int, lambda value: 0 <= value < 2**63, rule)
    add(parser, {"--seed=N": told}, _flag_of(seed), default)


def add_json(parser: Flags) -> None:
    """`--json`, for commands that report."""
    told = "report as one JSON object on one line of stdout"
    add(parser, {"--json": told})


def true_or_false(text: str) -> bool | str:
    """The type of a flag whose choices are True and False."""
    return {"true": True, "false": False}.get(text.lower(), text)


def at_least(smallest: int) -> Kind:
    """The type of a whole-number flag, e.g. `at_least(1)`."""
    return _flag_of(values.whole_number(smallest))


def number(smallest: float) -> Kind:
    """The type of a flag that takes a finite number, e.g. `number(0)`."""
    rule = f"a number, at least {smallest}"
    return _flag_of(
        values.number(float, lambda x: smallest <= x < math.inf, rule)
    )


def _flag_of(kind: Kind) -> Kind:
    """A kind of values as argparse wants it."""

    def parse(text: str) -> Any:
        try:
            return kind(text)
        except ValueError as error:
            message = f"must be {error}; got {text!r}"
            raise argparse.ArgumentTypeError(message) from error

    return parse


# The type of a flag that takes a port; 0 is for any that is free.
port = _flag_of(
    values.number(int, lambda x: 0 <= x < 1 << 16, "a port, 0 to 65535")
)


def require(args: argparse.Namespace, *names: str) -> None:
    """Raises UsageError for the first named flag that was not given."""
    for name in names:
        if getattr(args, name) in (None, ""):
            raise UsageError(f"--{name} is required.")


folder = recipe.absolute  # a folder flag as a path


def output_dir(args: argparse.Namespace) -> pathlib.Path:
    """The run that the flags name.

    Raises:
      UsageError: neither `--output_dir` nor `--problem` and `--hparams`.
    """
    if args.output_dir:
        return recipe.absolute(args.output_dir)
    if not (args.problem and args.hparams):
        raise UsageError(
            "Give --output_dir, or --problem and --hparams, which name the "
            "default one."
        )
    return recipe.default_output_dir(args.problem, args.hparams)
