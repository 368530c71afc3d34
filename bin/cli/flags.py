"""The argument parser of the commands, and their shared flags."""

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
from t2t_lite.evaluation.bleu import METRICS, TOKENIZERS
from t2t_lite.interop.tensor2tensor.hparams import NAMES
from t2t_lite.training.options import RUNS_DIR, TrainingOptions
from t2t_lite.validators import Validator, check


class Parser(argparse.ArgumentParser):
    """Parses `--flag=value` and `--flag value`; errors are UsageErrors."""

    def __init__(self, prog: str, description: str | None):
        super().__init__(prog, description=description, allow_abbrev=False)
        help_text = "show TensorFlow's messages and tracebacks of errors"
        add(self, {"--verbose": help_text})

    def parse_args(
        self, args: Iterable[str] | None = None, namespace: Any = None
    ) -> Any:
        """Return the flags, or raise a UsageError."""
        words = list(sys.argv[1:] if args is None else args)
        self._check_known(itertools.takewhile("--".__ne__, words))
        words = self._merge_repeated(words)
        parsed, unknown = self.parse_known_args(words, namespace)
        if unknown:
            raise UsageError(
                f"Unexpected argument {unknown[0]!r}; flags look like "
                f"--flag=value. {self.prog} --help lists all flags."
            )
        return parsed

    def _merge_repeated(self, words: Iterable[str]) -> list[str]:
        """Return the words, with the values of a repeated list flag joined."""
        separators = dict(
            re.findall(r"(--\w+) \S+([,:])\.\.\.", self.format_usage())
        )
        merged: dict[str, str] = {}  # words by flag, or by index
        rest = iter(words)
        for word in rest:
            if word == "--":
                return [*merged.values(), word, *rest]
            flag, equals, value = word.partition("=")
            if flag[:2] != "--":
                flag = str(len(merged))
            elif flag in separators and not equals:
                value = next(rest, "--")
                if value[:2] == "--":  # another flag
                    raise UsageError(f"{flag}: expected one argument.")
                word = f"{flag}={value}"
            if flag in merged and flag not in separators:
                raise UsageError(f"{flag} is given twice: remove one.")
            if flag in merged:
                word = f"{merged[flag]}{separators[flag]}{value}"
            merged[flag] = word
        return list(merged.values())

    def _check_known(self, words: Iterable[str]) -> None:
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
                    f"Unknown flag {flag}.{hint} {self.prog} --help lists all "
                    "flags."
                )

    def error(self, message: str) -> NoReturn:
        """Raise the message of argparse as a UsageError."""
        message = message.removeprefix("argument ")
        raise UsageError(f"{message[:1].upper()}{message[1:].rstrip('.')}.")


def add(
    parser: Any,
    table: Mapping[str, str],
    validator: Callable[[Any], Any] | None = None,
    default: Any = None,
) -> None:
    """Add flags to a parser or a group.

    The keys of `table` are "--name=METAVAR", or "--name" for a switch; its
    values are help texts. `validator` parses the values. By default, N
    and V are at least 1, "text|json" accepts two words, and other flags accept
    any text.
    """
    for flag, help_text in table.items():
        name, _, metavar = flag.partition("=")
        options: dict[str, Any] = {"action": "store_true"}
        if metavar:
            help_text = validators.with_default(help_text, default)
            options = {"metavar": metavar, "default": default}
            parse = validator
            if metavar.islower() and not parse:
                parse = validators.one_of(*metavar.split("|"))
            elif metavar in ("N", "V") and not parse:
                parse = validators.integer(1)
            if parse:
                options["type"] = _argument_type(parse)
        parser.add_argument(name, help=help_text, **options)


def add_run_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that select an existing run."""
    group = parser.add_argument_group("Model")
    flags = {
        "--output_dir=DIR": "folder of the run (default: "
        f"{RUNS_DIR}/PROBLEM/SET)",
        "--problem=NAME": "problem of the run, with --hparams instead of "
        "--output_dir",
        "--hparams=SET": "hparams set of the run, with --problem",
    }
    add(group, flags)
    add_settings(group, TrainingOptions, ["usr_dir"])


def add_override(parser: Any) -> None:
    """Add `--hparams_override`, for commands with an hparams set."""
    table = {
        "--hparams_override=KEY=VALUE,...": "hparams that replace the set's"
    }
    add(parser, table, _check_hparam_names, default="")


def _check_hparam_names(text: str) -> str:
    """Return the text; raise UsageError for hparam names of tensor2tensor."""
    given = validators.parse_key_values(text, "--hparams_override")
    renamed = [f"{n} is {NAMES[n]}" for n in given if NAMES.get(n, n) != n]
    if renamed:
        raise UsageError(
            f"--hparams_override: tensor2tensor's {', '.join(renamed)} here. "
            "docs/from-tensor2tensor.md also lists the values."
        )
    return text


def add_text_flags(parser: argparse.ArgumentParser) -> None:
    """Add the options of `--problem=text`, for commands that generate data."""
    from t2t_lite.problem.text_files import TextOptions

    group = parser.add_argument_group(
        "Text files, with --problem=text",
        "Files may be compressed (.gz .bz2 .xz .zst). The data and the run "
        "store these options: later commands need only --data_dir or "
        "--output_dir.",
    )
    skip = ("shared_vocabulary", "imported")
    add_settings(group, TextOptions, skip=skip)
    group.add_argument(
        "--separate_vocabularies",
        dest="shared_vocabulary",
        action="store_const",
        const=False,
        help="learn a vocabulary of --vocab_size for each side; requires "
        "--hparams_override=shared_embedding=false (default: one for both)",
    )


def add_search_flags(
    parser: argparse.ArgumentParser, batches: bool = True
) -> None:
    """Add the flags of the weights, the search and optionally the batches."""
    group = parser.add_argument_group("Decoding")
    table = {
        "--checkpoint=WHICH": "latest, best, average, ema, a step number, or a "
        "folder (default: the average of the newest checkpoints if it exists, "
        "else the newest checkpoint or its moving average)",
        "--ensemble=RUN:...": "more models for an ensemble with averaged "
        "probabilities: folders of runs, or checkpoints of this run",
    }
    add(group, table)
    parser.set_defaults(checkpoint="default")
    hparams = ("beam_size", "alpha", "constrained")
    add_settings(group, SearchSettings, hparams=hparams)
    if batches:
        table = {
            "--batch_size=N": "sentences per batch; changes the speed, not the "
            "results (default: 64)",
            "--batch_tokens=N": "source tokens per batch, padding included; "
            "replaces the default of --batch_size, or is a second limit",
            "--replicas=N": "number of GPUs, or of CPU threads without GPUs, "
            "that decode concurrently; changes the speed, not the results "
            "(default: all GPUs, or one thread per core, at most four)",
        }
        add(group, table)


def add_settings(
    parser: Any,
    settings: type,
    names: Iterable[str] | None = None,
    *,
    skip: Iterable[str] = (),
    hparams: Iterable[str] = (),
) -> None:
    """Add a flag for each `validators.setting` of a dataclass.

    The fields in `names` are added to `parser`. Without `names` all fields
    except `skip` are added to their groups. The defaults of `hparams` are
    hparams of the run. A flag that is not given has the value None.
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
        options: dict[str, Any] = {"action": "store_true", "default": None}
        if metavar:
            options = {"metavar": metavar, "type": _argument_type(validator)}
        help_text = options_to_flags(validators.help_of(field))
        if name in hparams:
            help_text = f"{field.metadata['help']} (default: the run's hparam)"
        group = parser if names is not None else groups[title]
        group.add_argument(f"--{name}", help=help_text, **options)


def options_to_flags(text: str) -> str:
    """Replace options in backticks by flags: `seed=1` becomes --seed=1."""
    return re.sub(r"`('?)([a-z][a-z0-9_]*)(=[^`]*)?`", r"\1--\2\3", text)


def given_settings(args: argparse.Namespace, settings: type) -> dict[str, Any]:
    """Return the settings whose flags are given, by name."""
    return {
        field.name: value
        for field in dataclasses.fields(settings)
        if (value := getattr(args, field.name, None)) is not None
    }


def given_problem_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the problem, from single flags or from one flag."""
    from t2t_lite.problem.text_files import TextOptions

    given = given_settings(args, TextOptions)
    if given and args.problem_options:
        raise UsageError(
            "--problem_options conflicts with the flags of --problem=text, "
            f"such as --{next(iter(given))}: remove one of them."
        )
    return given or args.problem_options or {}


def ensemble_members(args: argparse.Namespace) -> list[str]:
    """Return the models in `--ensemble`."""
    return args.ensemble.split(":") if args.ensemble else []


def add_metric_flags(parser: Any, references: str) -> None:
    """Add the references, the tokenizer of BLEU, and other metrics."""
    about = f"files of detokenized references, {references}"
    add(parser, {"--reference=FILE,...": about}, validators.texts, ())
    about = f"more metrics: {', '.join(METRICS)}; chrf is always included"
    rule = f"names from {', '.join(METRICS)}, joined by commas"
    known = validators.condition(rule, set(METRICS).issuperset)
    names = Validator(rule, lambda text: known(validators.texts(text)))
    add(parser, {"--metrics=NAME,...": about}, names, ())
    about = "sacreBLEU tokenizer (default: by target language, else 13a)"
    add(parser, {f"--tokenize={'|'.join(TOKENIZERS)}": about})


def add_json(parser: Any) -> None:
    """Add `--json`, for commands that print reports."""
    add(parser, {"--json": "report as one JSON object on one line of stdout"})


def _argument_type(validator: Callable[[Any], Any]) -> Callable[[str], Any]:
    """Return the `type` for argparse that calls a validator."""

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
        if getattr(args, name) in (None, "", ()):
            raise UsageError(f"--{name} is required.")


def check_together(
    args: argparse.Namespace,
    conflicts: Iterable[Sequence[str]],
    required: Mapping[str, str],
) -> None:
    """Raise UsageError for flags that conflict, or lack a required flag.

    A flag is a name, or a name and a value such as "format=json". The first
    flag of each row of `conflicts` conflicts with all others.
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
    """Return the value of a folder flag as an absolute path, or None."""
    return check("The path", path, validators.folder) if path else None
