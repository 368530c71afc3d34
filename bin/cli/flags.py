"""The parser of every command, and the flags that several of them share."""

import argparse
import dataclasses
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from t2t_lite import validators
from t2t_lite.bin.cli import t2t_flags
from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.errors import UsageError, did_you_mean
from t2t_lite.interop.tensor2tensor.hparams import NAMES
from t2t_lite.training.options import RUNS_DIR, TrainingOptions
from t2t_lite.validators import check


class Parser(argparse.ArgumentParser):
    """Parses `--flag=value` and `--flag value`; mistakes are UsageErrors."""

    def __init__(self, prog: str, description: str | None):
        super().__init__(prog, description=description, allow_abbrev=False)
        meaning = "show TensorFlow's messages, and a traceback on errors"
        add(self, {"--verbose": meaning})

    def parse_args(
        self, args: Iterable[str] | None = None, namespace: Any = None
    ) -> Any:
        """Return the flags; an unknown one is a UsageError with the nearest."""
        words = list(sys.argv[1:] if args is None else args)
        self._refuse_unknown(itertools.takewhile("--".__ne__, words))
        words = self._with_each_flag_once(words)
        parsed, unknown = self.parse_known_args(words, namespace)
        if unknown:
            raise UsageError(
                f"Unexpected argument {unknown[0]!r}; flags look like "
                f"--flag=value. {self.prog} --help lists them all."
            )
        return parsed

    def _with_each_flag_once(self, words: Iterable[str]) -> list[str]:
        """Return the words; the values of a list that is given again are added.

        Raises:
          UsageError: a flag that does not take a list is given twice.
        """
        lists = dict(
            re.findall(r"(--\w+) \S+([,:])\.\.\.", self.format_usage())
        )
        once: dict[str, str] = {}  # words by their flag, or by their number
        rest = iter(words)
        for word in rest:
            if word == "--":
                return [*once.values(), word, *rest]
            flag, equals, value = word.partition("=")
            if flag[:2] != "--":
                flag = str(len(once))
            elif flag in lists and not equals:
                value = next(rest, "")
                word = f"{flag}={value}"
            if flag in once and flag not in lists:
                raise UsageError(f"{flag} is given twice: remove one.")
            if flag in once:
                word = f"{once[flag]}{lists[flag]}{value}"
            once[flag] = word
        return list(once.values())

    def _refuse_unknown(self, words: Iterable[str]) -> None:
        """Raise UsageError for the first word that is an unknown flag."""
        known = {"--help", *re.findall(r"--\w+", self.format_usage())}
        for word in words:
            flag = word.split("=")[0]
            if flag[:2] == "--" and flag not in known:
                for name in (flag, f"--{flag.removeprefix('--no')}"):
                    if advice := t2t_flags.FLAGS.get(name):
                        raise UsageError(
                            f"{flag} is a flag of tensor2tensor: {advice}."
                        )
                hint = did_you_mean(flag, known)
                raise UsageError(
                    f"Unknown flag {flag}.{hint} {self.prog} --help lists "
                    "them all."
                )

    def error(self, message: str) -> NoReturn:
        """Raise argparse's message as a UsageError, without a usage dump."""
        message = message.removeprefix("argument ")
        raise UsageError(f"{message[:1].upper()}{message[1:].rstrip('.')}.")


def add(
    parser: Any,
    table: Mapping[str, str],
    validator: Callable[[Any], Any] | None = None,
    default: Any = None,
) -> None:
    """Add flags to a parser or a group.

    The `table` has their help by "--name=METAVAR", or by "--name" for a switch.
    Values are those that the `validator` accepts, or any text.
    """
    for flag, told in table.items():
        name, _, metavar = flag.partition("=")
        how: dict[str, Any] = {"action": "store_true"}
        if metavar:
            told = validators.with_default(told, default)
            how = {"metavar": metavar, "default": default}
            if validator:
                how["type"] = _type_of(validator)
        parser.add_argument(name, help=told, **how)


def add_choice(
    parser: Any, name: str, told: str, *choices: str, default: Any = None
) -> None:
    """Add a flag that takes one of several words."""
    metavar = {f"--{name}={'|'.join(choices)}": told}
    add(parser, metavar, validators.one_of(*choices), default)


def add_run_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that name a run, for commands that read one."""
    group = parser.add_argument_group("the run")
    flags = {
        "--output_dir=DIR": f"the run (default: {RUNS_DIR}/PROBLEM/SET)",
        "--problem=NAME": "with --hparams, instead of a DIR",
        "--hparams=SET": "see --problem",
    }
    add(group, flags)
    add_settings(group, TrainingOptions, ["usr_dir"])


def add_override(parser: Any) -> None:
    """Add `--hparams_override`, for commands that take a set."""
    told = "values that replace those of the set"
    flag = {"--hparams_override=KEY=VALUE,...": told}
    add(parser, flag, _hparams_override, default="")


def _hparams_override(text: str) -> str:
    """Return the text; raise UsageError for tensor2tensor's names in it."""
    given = validators.parse_key_values(text, "--hparams_override")
    renamed = [f"{n} is {NAMES[n]}" for n in given if NAMES.get(n, n) != n]
    if renamed:
        raise UsageError(
            f"--hparams_override: tensor2tensor's {', '.join(renamed)} here; "
            "docs/from-tensor2tensor.md lists the values, too."
        )
    return text


def add_text_flags(parser: argparse.ArgumentParser) -> None:
    """Add the options of `--problem=text`, for commands that make data."""
    from t2t_lite.problem.text_files import TextOptions

    group = parser.add_argument_group(
        "your own text, with --problem=text",
        "Files may be compressed (.gz .bz2 .xz .zst). The data and the run "
        "remember all of these: later commands need only --data_dir or "
        "--output_dir.",
    )
    skip = ("shared_vocabulary", "imported")
    names = [field.name for field in dataclasses.fields(TextOptions)]
    add_settings(group, TextOptions, names, skip=skip)
    group.add_argument(
        "--separate_vocabularies",
        dest="shared_vocabulary",
        action="store_const",
        const=False,
        help="learn a vocabulary of --vocab_size for each side; needs "
        "--hparams_override=shared_embedding=false (default: one for both)",
    )


def add_search_flags(
    parser: argparse.ArgumentParser, batches: bool = True
) -> None:
    """Add the flags of the weights, the search and, if any, the batches."""
    group = parser.add_argument_group("the search")
    table = {
        "--checkpoint=WHICH": "latest, best, average, ema, a step number, or a "
        "folder (default: the average of the newest checkpoints if it was "
        "made, else the newest, or its moving average)",
        "--ensemble=RUN:...": "average the probabilities with those of other "
        "models: folders of runs, or checkpoints of this run",
    }
    add(group, table)
    parser.set_defaults(checkpoint="default")
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
        add(group, table, validators.integer(1))


def add_settings(
    parser: Any,
    settings: type,
    names: Iterable[str] | None = None,
    *,
    skip: Iterable[str] = (),
    hparams: Iterable[str] = (),
) -> None:
    """Add a flag for each field of a dataclass of settings.

    Its fields are `validators.setting`s. Without `names` all but those to
    `skip` are added, each in the group that it names, else those to `parser`
    itself. The default of some is one of the run's `hparams`. The value of a
    flag that is not given is None.
    """
    groups: dict[str, Any] = {"": parser}
    for field in dataclasses.fields(settings):
        name, title = field.name, field.metadata["group"]
        if name in skip or (names is not None and name not in names):
            continue
        if names is None and title not in groups:
            groups[title] = parser.add_argument_group(title)
        validator: Any = validators.validator_of(field.type)
        metavar = field.metadata["metavar"]
        metavar = validator.metavar if metavar is None else metavar
        how: dict[str, Any] = {"action": "store_true", "default": None}
        if metavar:
            how = {"metavar": metavar, "type": _type_of(validator)}
        told = flags_of_options(validators.help_of(field))
        if name in hparams:
            told = f"{field.metadata['help']} (default: the run's hparam)"
        where = parser if names is not None else groups[title]
        where.add_argument(f"--{name}", help=told, **how)


def flags_of_options(text: str) -> str:
    """Return a text of the engine with flags for options: `seed=1` -> --seed=1.

    The engine writes an option in backticks, with or without a value.
    """
    return re.sub(r"`('?)([a-z][a-z0-9_]*)(=[^`]*)?`", r"\1--\2\3", text)


def given_settings(args: argparse.Namespace, settings: type) -> dict[str, Any]:
    """Return the fields of a dataclass of settings whose flags are given."""
    return {
        field.name: value
        for field in dataclasses.fields(settings)
        if (value := getattr(args, field.name, None)) is not None
    }


def given_problem_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the problem: flags of own text, or all in one.

    Raises:
      UsageError: both are given.
    """
    from t2t_lite.problem.text_files import TextOptions

    given = given_settings(args, TextOptions)
    if given and args.problem_options:
        raise UsageError(
            "--problem_options conflicts with the flags of --problem=text, "
            f"such as --{next(iter(given))}: use one of them."
        )
    return given or args.problem_options or {}


# Settings of a search that a run has values of.
_FROM_HPARAMS = ("beam_size", "alpha", "constrained")


def ensemble_members(args: argparse.Namespace) -> list[str]:
    """Return the other models of `--ensemble`."""
    return args.ensemble.split(":") if args.ensemble else []


def add_json(parser: Any) -> None:
    """Add `--json`, for commands that report."""
    add(parser, {"--json": "report as one JSON object on one line of stdout"})


def _type_of(validator: Callable[[Any], Any]) -> Callable[[str], Any]:
    """Return the validator as argparse wants it."""

    def parse(text: str) -> Any:
        try:
            return validator(text)
        except ValueError as error:
            message = f"must be {error}; got {text!r}"
            raise argparse.ArgumentTypeError(message) from error

    return parse


def require(args: argparse.Namespace, *names: str) -> None:
    """Raise UsageError for the first flag that was not given."""
    for name in names:
        if getattr(args, name) in (None, ""):
            raise UsageError(f"--{name} is required.")


def check_together(
    args: argparse.Namespace,
    conflicts: Iterable[Sequence[str]],
    required: Mapping[str, str],
) -> None:
    """Raise UsageError for flags that conflict or lack another one.

    A flag is its name, or its name and value as in "format=json". Of flags that
    are `conflicts`, the first conflicts with each of the others.
    """
    given = set()
    for name, value in vars(args).items():
        if value not in (None, "", []) and value is not False:
            given |= {name, f"{name}={value}"}
    for first, *others in conflicts:
        for other in others:
            if {first, other} <= given:
                raise UsageError(f"--{first} conflicts with --{other}.")
    for name, other in required.items():
        if name in given and other not in given:
            raise UsageError(f"--{name} requires --{other}.")


def folder(path: Any) -> Any:
    """Return a flag's folder as an absolute path; None stays None."""
    return check("The path", path, validators.folder) if path else None
