"""`config.json`, which identifies a run, and the record files of a run."""

import contextlib
import json
import os
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from t2t_lite.errors import INVALID_JSON, T2TLiteError, UsageError, format_error
from t2t_lite.hparam import HParams
from t2t_lite.problem import Problem
from t2t_lite.training.schedules import decays_to_zero

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
# Hparams that may change when a run resumes: its length, and decoding.
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
    """Return `config.json`; `data` has `dir`, `fingerprint`, maybe `seed`."""
    options = problem.options
    if usr_dir and (folder := Path(usr_dir).expanduser()).is_dir():
        usr_dir = str(folder.resolve())  # otherwise the name of a package
    # Decoding needs the code of a problem that overrides one of these.
    methods = ("postprocess", "load_encoders", "output_constraint", "tokenize")
    decodes_alone = not problem.source_tags and all(
        getattr(getattr(problem, name), "__func__", None)
        is getattr(Problem, name)
        for name in methods
    )
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
        "decodes_alone": decodes_alone,
        "usr_dir": usr_dir,
        "versions": versions(),
    }


def vocabulary_hashes(
    problem: Problem, encoders: Mapping[str, Any]
) -> dict[str, str]:
    """Return the SHA-256 of each vocabulary file by name."""
    files, sides = problem.vocabulary_files(), ("inputs", "targets")
    names = [files[side] for side in problem.swap_if_reversed(*sides)]
    hashes = [encoders[side].sha256 for side in sides]
    return dict(zip(names, hashes, strict=True))


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that affect results."""
    python = {"python": platform.python_version()}
    return python | {name: metadata.version(name) for name in _PACKAGES}


# Types of the values; "data.dir" is the key "dir" in "data".
_TYPES = {
    "problem": "text",
    "problem_options": "an object or absent",
    "problem_fingerprint": "text",
    "hparams": "an object",
    "seed": "a whole number",
    "data": "an object",
    "data.dir": "text",
    "data.fingerprint": "text",
    "data.seed": "a whole number, null or absent",
    "vocabulary": "an object",
    "conditions": "an object or absent",
    "freeze": "a list or absent",
    "usr_dir": "text or null",
}
_NAMES = {
    **{str: "text", dict: "an object", int: "a whole number", list: "a list"},
    **{type(None): "null", type(...): "absent"},
}


def find_config(output_dir: Path) -> dict[str, Any] | None:
    """Return the config of the run in a folder, or None without a run."""
    return read_config(output_dir) if (output_dir / CONFIG).is_file() else None


def read_config(output_dir: Path) -> dict[str, Any]:
    """Return the config of the run in a folder, after checking its types."""
    path = output_dir / CONFIG
    try:
        config = json.loads(path.read_text("utf-8"))
        config_format, writers = config["format"], config.get("versions")
        if config_format != _FORMAT:
            writers = writers if isinstance(writers, dict) else {}
            raise T2TLiteError(
                f"{path} has format {config_format!r}, and this version reads "
                f"format {_FORMAT}: use t2t-lite "
                f"{writers.get('t2t-lite', 'of the version that wrote it')}."
            )
        for key in _TYPES:
            _require_type(config, key)
        files = config["vocabulary"]
        texts = *files.values(), *config.get("freeze", ())
        if not all(isinstance(text, str) for text in texts):
            raise UsageError("vocabulary and freeze must hold text")
        names = {*map(os.path.basename, files)}
        if len(files) not in (1, 2) or set(files) - names:
            raise UsageError("vocabulary must name one or two files")
        HParams.from_dict(config["hparams"])
    except (FileNotFoundError, NotADirectoryError) as error:
        raise T2TLiteError(
            f"There is no run in {output_dir}, because it has no {CONFIG}. "
            "t2t-lite-trainer creates a run."
        ) from error
    except (OSError, UsageError, *INVALID_JSON) as error:
        raise T2TLiteError(
            f"{path} is damaged ({format_error(error, place=False)}): restore "
            "a backup, or train a new run."
        ) from error
    return config


def _require_type(config: Any, key: str) -> None:
    value, expected = config, _TYPES[key]
    for name in key.split("."):
        value = value.get(name, ...)
    found = _NAMES.get(type(value), "a number")
    if found not in expected or "\\x00" in repr(value):
        text = "nothing" if value is ... else repr(value)[:80]
        raise UsageError(f"{key} must be {expected}; got {text}")


def read_records(path: Path) -> list[dict[str, Any]]:
    """Return the records of a JSON lines file of a run, in file order.

    Incomplete and damaged lines are skipped. A missing file has no records.
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


def read_metrics(output_dir: Path) -> list[dict[str, Any]]:
    """Return the last record of each step in `metrics.jsonl`, by step.

    A step has separate records for training and for evaluated weights.
    """
    last = {
        (record["step"], record.get("weights"), "dev_loss" in record): record
        for record in read_records(output_dir / METRICS_FILE)
    }
    return sorted(last.values(), key=lambda record: record["step"])


def add_evaluation(
    output_dir: Path, step: int, checksum: str, report: Mapping[str, Any]
) -> None:
    """Append a report with the `checksum` of its weights, if writable."""
    record = {"step": step, "weights": checksum, **report}
    with (
        contextlib.suppress(OSError),
        open(output_dir / EVALUATIONS_FILE, "a", encoding="utf-8") as file,
    ):
        file.write(json.dumps(record) + "\n")


def problem_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a run's problem; {} for most problems."""
    return config.get("problem_options", {})


def require_fitting_vocabularies(problem: Problem, hparams: HParams) -> None:
    """Check that hparams with a shared embedding get one vocabulary."""
    names = sorted(set(problem.vocabulary_files().values()))
    if hparams.shared_embedding and len(names) > 1:
        raise UsageError(
            "shared_embedding requires one vocabulary for both sides (got "
            f"{' and '.join(names)}). Use one vocabulary, or "
            "`hparams_override=shared_embedding=false`."
        )


def _identity(config: dict[str, Any], with_data: bool) -> dict[str, Any]:
    """Return the values that must not change when a run resumes."""
    # A hparam that is newer than the run has its default value.
    hparams = HParams.from_dict(config["hparams"])
    may_change = _MAY_CHANGE
    if with_data and decays_to_zero(hparams):  # train_steps changes the rate
        may_change = may_change - {"train_steps"}
    fixed = {k: v for k, v in hparams.to_dict().items() if k not in may_change}
    hashes = config["vocabulary"]
    if not with_data:
        source, *_, target = [*hashes.values()] * 2
        return fixed | {
            "vocabulary of the source": source,
            "vocabulary of the target": target,
        }
    return {
        "problem": config["problem"],
        **{f"option {k}": v for k, v in problem_options(config).items()},
        "problem definition": config["problem_fingerprint"],
        "seed": config["seed"],
        "data": config["data"]["fingerprint"],
        "freeze": ",".join(config.get("freeze", ())) or None,
        **{f"vocabulary {name}": sha256 for name, sha256 in hashes.items()},
        **fixed,
    }


def require_same(
    output_dir: Path, stored: dict[str, Any], requested: dict[str, Any]
) -> None:
    """Check that the run in a folder equals the `requested` one.

    An imported run has no data before its first training run. Only its
    hyperparameters and the content of its vocabularies are compared.
    """
    with_data = bool(stored["data"]["fingerprint"])
    stored = _identity(stored, with_data)
    requested = _identity(requested, with_data)
    if differences := [
        f"{key} is {_brief(stored.get(key))} in the run, but "
        f"{_brief(requested.get(key))} is requested"
        for key in {**stored, **requested}
        if stored.get(key) != requested.get(key)
    ]:
        raise T2TLiteError(
            f"{output_dir} holds another run: {'; '.join(differences)}. "
            "Choose another `output_dir`, or the options of that run."
        )


def _brief(value: Any) -> str:
    """Return a value as text, with a hash shortened."""
    if isinstance(value, str) and len(value) == 64:
        return value[:12]
    return repr(value) if value is not None else "absent"
