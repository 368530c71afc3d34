"""`config.json`: what makes a run the run it is, and how two differ."""

import contextlib
import json
import os
import pathlib
import platform
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from t2t_lite.errors import T2TLiteError, UsageError, format_error
from t2t_lite.hparam import HParams
from t2t_lite.problem import Problem
from t2t_lite.training.schedules import has_an_end

# Files of a run.
CONFIG = "config.json"
METRICS_FILE = "metrics.jsonl"
EVALUATIONS_FILE = "evaluations.jsonl"
SAMPLES_FILE = "samples.jsonl"
_FORMAT = 1
_PACKAGES = (
    *("t2t-lite", "tensorflow", "tensorflow-text", "keras", "numpy"),
    *("sentencepiece", "sacrebleu"),
)
# What may differ when a run goes on: how long, and how to decode.
_MAY_CHANGE = {
    *("train_steps", "average_checkpoints", "beam_size"),
    *("length_penalty_alpha", "extra_decode_length", "max_source_length"),
    "constrained_search",
}


def make_config(
    problem: Problem,
    hparams: HParams,
    seed: int,
    data: Mapping[str, Any],
    encoders: Mapping[str, Any],
    usr_dir: str | None = None,
    hparams_set: str | None = None,
) -> dict[str, Any]:
    """Return the content of `config.json`; arguments as in `Run.create`.

    `data` has `dir`, `fingerprint` and `seed`.
    """
    options = problem.options
    if usr_dir and (folder := pathlib.Path(usr_dir).expanduser()).is_dir():
        usr_dir = str(folder.resolve())  # else it is the name of a package
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
        "usr_dir": usr_dir,
        "versions": versions(),
    }


def vocabulary_hashes(
    problem: Problem, encoders: Mapping[str, Any]
) -> dict[str, str]:
    """Return the sha256 of each vocabulary file, by its name."""
    files = problem.vocabulary_files()
    inputs, targets = problem.swap_if_reversed(
        files["inputs"], files["targets"]
    )
    return {
        inputs: encoders["inputs"].sha256,
        targets: encoders["targets"].sha256,
    }


def _decodes_alone(problem: Problem) -> bool:
    """Return whether decoding needs no code of a problem."""
    asked = ("postprocess", "load_encoders", "output_constraint", "tokenize")
    return not problem.source_tags and all(
        getattr(getattr(problem, name), "__func__", None)
        is getattr(Problem, name)
        for name in asked
    )


def versions() -> dict[str, str]:
    """Return those of Python and the packages that results depend on."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


# The types of the values; "data.dir" is the key "dir" in "data".
_TYPES = {
    "problem": str,
    "problem_options": dict,
    "problem_fingerprint": str,
    "hparams": dict,
    "seed": int,
    "data": dict,
    "data.dir": str,
    "data.fingerprint": str,
    "data.seed": int,
    "vocabulary": dict,
    "conditions": dict,
    "freeze": list,
    "usr_dir": str,
}
_WORDS = {str: "text", dict: "an object", int: "a whole number", list: "a list"}
_MAY_BE_ABSENT = ("problem_options", "conditions", "freeze", "data.seed")
_MAY_BE_NULL = ("data.seed", "usr_dir")


def find_config(output_dir: pathlib.Path) -> dict[str, Any] | None:
    """Return the config of the run in a folder; None if it has no run."""
    has_run = (output_dir / CONFIG).is_file()
    return read_config(output_dir) if has_run else None


def read_config(output_dir: pathlib.Path) -> dict[str, Any]:
    """Return the config of the run in a folder, with values of valid types.

    Raises:
      T2TLiteError: there is none, or it cannot be understood; names the key.
    """
    path = output_dir / CONFIG
    try:
        config = json.loads(path.read_text("utf-8"))
        form, known = config["format"], config.get("versions")
        if form != _FORMAT:
            known = known if isinstance(known, dict) else {}
            raise T2TLiteError(
                f"{path} has format {form!r}, and this version reads format "
                f"{_FORMAT}: use the version that wrote it, "
                f"{known.get('t2t-lite', 'unknown')}."
            )
        for key in _TYPES:
            _require_type(config, key)
        files = config["vocabulary"]
        texts = *files.values(), *config.get("freeze", ())
        if not all(isinstance(text, str) for text in texts):
            raise UsageError("vocabulary and freeze must hold text")
        if len(files) not in (1, 2) or set(files) - set(
            map(os.path.basename, files)
        ):
            raise UsageError("vocabulary must name one or two files")
        HParams.from_dict(config["hparams"])
    except (FileNotFoundError, NotADirectoryError) as error:
        raise T2TLiteError(
            f"There is no run in {output_dir}: it has no {CONFIG}. "
            "t2t-lite-trainer makes one."
        ) from error
    except (
        *(OSError, ValueError, TypeError, KeyError, AttributeError),
        *(RecursionError, UsageError),
    ) as error:
        raise T2TLiteError(
            f"Cannot read {path}: {format_error(error, place=False)}. It is "
            "damaged, or of another version: restore a backup, or train a new "
            "run."
        ) from error
    return config


def _require_type(config: Any, key: str) -> None:
    value, kind = config, _TYPES[key]
    for part in key.split("."):
        if part not in value:
            if key in _MAY_BE_ABSENT:
                return
            raise UsageError(f"it has no {key}")
        value = value[part]
    fits = type(value) is kind or (value is None and key in _MAY_BE_NULL)
    if not fits or "\\x00" in repr(value):
        raise UsageError(
            f"{key} must be {_WORDS[kind]}; got {repr(value)[:80]}"
        )


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
            f"{path} cannot be read: {format_error(error, place=False)}."
        ) from error
    records = []
    for line in content.split(b"\n"):
        with contextlib.suppress(ValueError, RecursionError, AttributeError):
            record = json.loads(line)
            step, weights = record.get("step"), record.get("weights")
            if type(step) is int and isinstance(weights, str | None):
                records.append(record)
    return records


def read_metrics(output_dir: pathlib.Path) -> list[dict[str, Any]]:
    """Return the last record of each step in `metrics.jsonl`, by step.

    Training and each evaluated weights have a record of their own at a step.
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
    """Keep a report of the evaluator for cards, if the run can be written.

    The weights have a step and a checksum.
    """
    record = {"step": step, "weights": weights, **report}
    with (
        contextlib.suppress(OSError),
        open(output_dir / EVALUATIONS_FILE, "a", encoding="utf-8") as file,
    ):
        file.write(json.dumps(record) + "\n")


def problem_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a run's problem; most problems have none."""
    return config.get("problem_options", {})


def require_fitting_vocabularies(problem: Problem, hparams: HParams) -> None:
    """Require one vocabulary where the hparams share one embedding.

    Raises:
      UsageError: the problem has two.
    """
    names = sorted(set(problem.vocabulary_files().values()))
    if hparams.shared_embedding and len(names) > 1:
        raise UsageError(
            "shared_embedding requires one vocabulary for both sides (got "
            f"{' and '.join(names)}), or "
            "`hparams_override=shared_embedding=false`."
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


def require_same(
    output_dir: pathlib.Path, there: dict[str, Any], here: dict[str, Any]
) -> None:
    """Require that the config of the run in a folder is that of this run.

    A run that was imported has no data before its first training. Then only the
    hyperparameters and the content of the vocabularies count.

    Raises:
      T2TLiteError: names every difference that matters.
    """
    with_data = bool(there["data"]["fingerprint"])
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
            "Choose another `output_dir`, or use the same flags as there."
        )


def _brief(value: Any) -> str:
    """Return a value for an error, the beginning of a long hash."""
    if isinstance(value, str) and len(value) == 64:
        return value[:12]
    return repr(value) if value is not None else "absent"
