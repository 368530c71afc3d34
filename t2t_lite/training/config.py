"""`config.json`: what makes a run the run it is, and how two differ."""

import contextlib
import json
import os
import pathlib
import platform
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from t2t_lite.errors import T2TLiteError, UsageError, in_words
from t2t_lite.hparam import HParams
from t2t_lite.problem import Problem
from t2t_lite.training.schedules import has_an_end
from t2t_lite.validators import (
    Validator,
    condition,
    is_of_type,
    optional,
)

# Files of a run.
CONFIG = "config.json"
METRICS_FILE = "metrics.jsonl"
EVALUATIONS_FILE = "evaluations.jsonl"
SAMPLES_FILE = "samples.jsonl"
_FORMAT = 1
_PACKAGES = (
    "t2t-lite",
    "tensorflow",
    "tensorflow-text",
    "keras",
    "numpy",
    "sentencepiece",
    "sacrebleu",
)
# What may differ when a run goes on: how long, and how to decode.
_MAY_CHANGE = frozenset(
    (
        "train_steps",
        "average_checkpoints",
        "beam_size",
        "length_penalty_alpha",
        "extra_decode_length",
        "longest_source",
        "constrained_search",
    )
)


def make_config(
    problem: Problem,
    hparams: HParams,
    seed: int,
    data: Mapping[str, Any],
    encoders: Mapping[str, Any],
    usr_dir: str | None = None,
    hparams_set: str | None = None,
) -> dict[str, Any]:
    """The content of `config.json`; arguments as in `Run.create`.

    What it says of the data, `data`, is `dir`, `fingerprint` and `seed`.
    """
    options = problem.options
    return {
        "format": _FORMAT,
        "problem": problem.registered_name,
        **({"problem_options": dict(options)} if options else {}),
        "problem_fingerprint": problem.fingerprint(),
        "hparams_set": hparams_set,
        "hparams": hparams.to_dict(),
        "seed": seed,
        "data": dict(data),
        "vocabulary": vocabulary_hashes(problem, encoders),
        "decodes_alone": _decodes_alone(problem),
        "usr_dir": _absolute_usr_dir(usr_dir),
        "versions": versions(),
    }


def vocabulary_hashes(
    problem: Problem, encoders: Mapping[str, Any]
) -> dict[str, str]:
    """The sha256 of each vocabulary file, by its name."""
    files = problem.vocabulary_files()
    inputs, targets = problem.directed(files["inputs"], files["targets"])
    return {
        inputs: encoders["inputs"].sha256,
        targets: encoders["targets"].sha256,
    }


def _decodes_alone(problem: Problem) -> bool:
    """Whether decoding needs nothing of a problem but its vocabulary."""
    asked = ("complete", "load_encoders", "text_form", "tokenize")
    return not problem.source_tags and all(
        getattr(getattr(problem, name), "__func__", None)
        is getattr(Problem, name)
        for name in asked
    )


def versions() -> dict[str, str]:
    """Of Python and the packages that results depend on."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


def _absolute_usr_dir(usr_dir: str | None) -> str | None:
    """A folder is found from anywhere; a package name is one already."""
    if usr_dir and pathlib.Path(usr_dir).expanduser().is_dir():
        return str(pathlib.Path(usr_dir).expanduser().resolve())
    return usr_dir


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and "\0" not in value


def _are_hashes_of_files(value: Any) -> bool:
    return (
        is_of_type(value, dict[str, str])
        and len(value) in (1, 2)
        and all(map(_is_text, [*value, *value.values()]))
        and all(name == os.path.basename(name) for name in value)
    )


_TEXT = condition("text", _is_text)
_OBJECT = condition("an object", lambda value: isinstance(value, dict))
_INTEGER = condition("a whole number", lambda value: is_of_type(value, int))
# The value of each key; "data.dir" is the key "dir" in "data".
_VALIDATORS = {
    "problem": _TEXT,
    "problem_options": _OBJECT,
    "problem_fingerprint": _TEXT,
    "hparams": _OBJECT,
    "seed": _INTEGER,
    "data": _OBJECT,
    "data.dir": _TEXT,
    "data.fingerprint": _TEXT,
    "data.seed": optional(_INTEGER),
    "vocabulary": condition(
        "one or two names of files with their sha256", _are_hashes_of_files
    ),
    "conditions": _OBJECT,
    "freeze": condition(
        "a list of text",
        lambda value: isinstance(value, list) and all(map(_is_text, value)),
    ),
    "usr_dir": optional(_TEXT),
}
# What an older run, or most runs, need not say.
_DEFAULTS: dict[str, Any] = {
    "problem_options": {},
    "conditions": {},
    "freeze": [],
    "data.seed": None,
}


def find_config(output_dir: pathlib.Path) -> dict[str, Any] | None:
    """Return the config of the run in a folder; None if it has no run.

    Raises:
      T2TLiteError: the config cannot be understood; names the key.
    """
    has_run = (output_dir / CONFIG).is_file()
    return read_config(output_dir) if has_run else None


def read_config(output_dir: pathlib.Path) -> dict[str, Any]:
    """The config of the run in a folder; its values are of the right kind.

    Raises:
      T2TLiteError: there is none, or it cannot be understood; names the key.
    """
    path = output_dir / CONFIG
    try:
        config = json.loads(path.read_text("utf-8"))
        _require_format(path, config["format"], config.get("versions"))
        for key, validator in _VALIDATORS.items():
            _require(config, key, validator)
        HParams.from_dict(config["hparams"])
    except (FileNotFoundError, NotADirectoryError) as error:
        lacks = f"it has no {CONFIG}"
        if isinstance(error, NotADirectoryError):
            lacks = "it is no folder"
        raise T2TLiteError(
            f"There is no run in {output_dir}: {lacks}. t2t-lite-trainer makes "
            "one."
        ) from error
    except UsageError as error:
        raise _damaged(path, f"hparams: {error}") from error
    except KeyError as error:
        raise _damaged(path, f"it has no {error.args[0]}") from error
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise _damaged(path, str(error)) from error
    return config


def read_records(path: pathlib.Path) -> list[dict[str, Any]]:
    """Return the records of a JSON lines file of a run, in their order.

    Lines that are incomplete or damaged are skipped. A missing file has none.

    Raises:
      T2TLiteError: the file cannot be read.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise T2TLiteError(
            f"{path} cannot be read: {in_words(error, place=False)}."
        ) from error
    records = []
    for line in content.split(b"\n"):
        with contextlib.suppress(ValueError, RecursionError):
            record = json.loads(line)
            if _is_record(record):
                records.append(record)
    return records


def _is_record(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and type(value.get("step")) is int
        and isinstance(value.get("weights"), str | None)
    )


def read_metrics(output_dir: pathlib.Path) -> list[dict[str, Any]]:
    """Return the last record of each step in `metrics.jsonl`, by step.

    Training, an evaluation and an evaluation of averaged weights each have a
    record of their own at a step.
    """
    last = {
        (record["step"], record.get("weights"), "dev_loss" in record): record
        for record in read_records(output_dir / METRICS_FILE)
    }
    return sorted(last.values(), key=lambda record: record["step"])


def add_evaluation(
    output_dir: pathlib.Path,
    step: int,
    weights: str,
    report: Mapping[str, Any],
) -> None:
    """Keeps a report on weights of a run, so that an export tells of it.

    In a run that cannot be written it is not kept.

    Args:
      output_dir: of the run.
      step: of the weights.
      weights: their checksum.
      report: of a split, as the evaluator prints it.
    """
    record = {"step": step, "weights": weights, **report}
    with (
        contextlib.suppress(OSError),
        open(output_dir / EVALUATIONS_FILE, "a", encoding="utf-8") as file,
    ):
        file.write(json.dumps(record) + "\n")


def _require(config: Any, key: str, validator: Validator) -> None:
    value = config
    for part in key.split("."):
        if part not in value and key not in _DEFAULTS:
            raise KeyError(key)
        value = value.get(part, _DEFAULTS.get(key))
    try:
        validator(value)
    except ValueError as error:
        shown = repr(value)[:80]
        raise ValueError(f"{key} must be {error}; got {shown}") from error


def _require_format(path: pathlib.Path, form: Any, versions: Any) -> None:
    if form != _FORMAT:
        known = versions if isinstance(versions, dict) else {}
        raise T2TLiteError(
            f"{path} has format {form!r}, and this version reads format "
            f"{_FORMAT}: use the version that wrote it, "
            f"{known.get('t2t-lite', 'unknown')}."
        )


def _damaged(path: pathlib.Path, reason: str) -> T2TLiteError:
    return T2TLiteError(
        f"{path} is damaged ({reason}), and nothing else says what the run "
        "is: correct it, put a copy back, or train a new run."
    )


def problem_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a run's problem; most problems have none."""
    return config.get("problem_options", {})


def require_fitting_vocabularies(problem: Problem, hparams: HParams) -> None:
    """Refuses one embedding for two vocabularies, before anything is made.

    Raises:
      UsageError: `shared_embedding` with a problem that has two.
    """
    names = sorted(set(problem.vocabulary_files().values()))
    if hparams.shared_embedding and len(names) > 1:
        raise UsageError(
            "shared_embedding needs one vocabulary for both sides; got "
            f"{' and '.join(names)}. Add "
            "--hparams_override=shared_embedding=false, or let the problem "
            "have one vocabulary."
        )


def _identity(config: dict[str, Any], with_data: bool) -> dict[str, Any]:
    """Return what must not change when a run resumes, as flat keys."""
    # A run older than a hparam was trained with its default.
    hparams = HParams.from_dict(config["hparams"])
    may_change = _MAY_CHANGE
    if with_data and has_an_end(hparams):  # which the rate depends on
        may_change = may_change - {"train_steps"}
    fixed = {k: v for k, v in hparams.to_dict().items() if k not in may_change}
    hashes = config["vocabulary"]
    if not with_data:
        source, *_, target = [*hashes.values()] * 2
        return fixed | {
            "vocabulary of the source": source,
            "vocabulary of the target": target,
        }
    frozen = config.get("freeze")
    return {
        "problem": config["problem"],
        **{f"option {k}": v for k, v in problem_options(config).items()},
        "problem definition": config["problem_fingerprint"],
        "seed": config["seed"],
        "data": config["data"]["fingerprint"],
        "freeze": ",".join(frozen) if frozen else None,
        **{f"vocabulary {name}": sha256 for name, sha256 in hashes.items()},
        **fixed,
    }


def has_data(config: Mapping[str, Any]) -> bool:
    """Whether a run knows its data; an imported one may not."""
    return bool(config["data"]["fingerprint"])


def require_same(
    output_dir: pathlib.Path, there: dict[str, Any], here: dict[str, Any]
) -> None:
    """Refuses to go on with a run that is another one.

    A run that was imported has no data before its first training. Then only the
    hyperparameters and the content of the vocabularies count.

    Raises:
      T2TLiteError: names every difference that matters.
    """
    with_data = has_data(there)
    there, here = _identity(there, with_data), _identity(here, with_data)
    differences = [
        f"{key} is {_brief(there.get(key))} there and "
        f"{_brief(here.get(key))} here"
        for key in {**there, **here}
        if there.get(key) != here.get(key)
    ]
    if differences:
        raise T2TLiteError(
            f"{output_dir} holds another run: {'; '.join(differences)}. "
            "Choose another --output_dir, or use the same flags as there."
        )


def _brief(value: Any) -> str:
    """Long hashes are told apart by their beginning."""
    if isinstance(value, str) and len(value) == 64:
        return value[:12]
    return repr(value) if value is not None else "absent"
