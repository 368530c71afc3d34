"""Under which conditions a run is trained; `config.json` keeps them."""

import dataclasses
import os
import pathlib
import subprocess
from collections.abc import Mapping
from typing import Any

import t2t_lite
from t2t_lite import registry
from t2t_lite.data.manifest import Manifest
from t2t_lite.problem import Problem
from t2t_lite.reports.hardware import hardware
from t2t_lite.training.initial import flags_of_start
from t2t_lite.training.options import TrainingOptions
from t2t_lite.training.run import Run

_GIT_SECONDS = 10


def conditions_of(
    run: Run,
    options: TrainingOptions,
    places: Mapping[str, pathlib.Path | str | None],
) -> dict[str, Any]:
    """What `config.json` tells of a training that begins or goes on.

    Args:
      run: its data must be there.
      options: of the trainer.
      places: folders by the name of their flag, None where it is not given.
    """
    steps = options.train_steps or run.hparams.train_steps
    return {
        "command": command_of(run, options, places),
        "train_steps": steps,
        "code": code_revision(),
        "hardware": hardware(),
        "data": _data_facts(run.problem, run.data.manifest),
    }


def command_of(
    run: Run,
    options: TrainingOptions,
    places: Mapping[str, pathlib.Path | str | None],
) -> list[str]:
    """The words of the command that trains the same run again.

    Args: as in `conditions_of`.
    """
    name, override = _nearest_set(run)
    flags: dict[str, Any] = {"problem": run.config["problem"], "hparams": name}
    if override:
        flags["hparams_override"] = ",".join(override)
    words = [f"--{key}={value}" for key, value in flags.items()]
    words += run.problem.option_flags()
    switches = []
    flags = {key: value for key, value in places.items() if value}
    flags["seed"] = run.seed
    flags |= flags_of_start(run.config)
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if value is True:
            switches.append(f"--{field.name}")
        elif value != field.default:
            flags[field.name] = value
    words += [f"--{key}={value}" for key, value in flags.items()]
    return ["t2t-lite-trainer", *words, *switches]


def _nearest_set(run: Run) -> tuple[str, list[str]]:
    """The run's set, or the one most like its hparams, and what differs."""
    lines = str(run.hparams).splitlines()

    def differences(name: str) -> list[str]:
        known = set(str(registry.hparams(name)).splitlines())
        return [line for line in lines if line not in known]

    names = registry.hparams_names()
    if run.config["hparams_set"] in names:
        names = [run.config["hparams_set"]]
    return min(
        ((name, differences(name)) for name in names),
        key=lambda found: len(found[1]),
    )


def code_revision() -> str:
    """The commit of the checkout that this package is in, else its version."""
    folder = os.path.dirname(t2t_lite.__file__)

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", folder, *words],
            capture_output=True,
            check=True,
            text=True,
            timeout=_GIT_SECONDS,
        ).stdout.strip()

    try:
        # An environment may lie in somebody else's checkout.
        git("ls-files", "--error-unmatch", "__init__.py")
        commit = git("rev-parse", "HEAD")
        changed = (
            " with changes" if git("status", "--porcelain", "-uno") else ""
        )
    except (OSError, subprocess.SubprocessError):
        return f"t2t-lite {t2t_lite.__version__}"
    return f"t2t-lite {t2t_lite.__version__}, commit {commit}{changed}"


def _data_facts(problem: Problem, manifest: Manifest) -> dict[str, Any]:
    """What a card tells of the data, in the direction of the problem."""
    splits = {}
    for name, split in manifest.splits.items():
        tokens = problem.directed(split.source_tokens, split.target_tokens)
        splits[name] = {
            "pairs": split.examples,
            "source_tokens": tokens[0],
            "target_tokens": tokens[1],
            "dropped": split.dropped,
            "damaged": split.damaged,
        }
    return {
        "splits": splits,
        "corpora": [
            {**corpus, "files": list(map(os.path.basename, corpus["files"]))}
            for corpus in manifest.corpora
        ],
        "sources": [
            {
                "file": os.path.basename(path),
                "bytes": source["bytes"],
                "sha256": source["sha256"],
            }
            for path, source in manifest.sources.items()
        ],
    }
