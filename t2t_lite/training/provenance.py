"""The provenance of a run: command, code, machine and data."""

import contextlib
import dataclasses
import os
import pathlib
import platform
import subprocess
from collections.abc import Mapping
from typing import Any

import psutil
import tensorflow as tf

import t2t_lite
from t2t_lite import registry
from t2t_lite.data.manifest import Manifest
from t2t_lite.problem import Problem
from t2t_lite.runtime import usable_cores
from t2t_lite.training.initial import flags_of_start
from t2t_lite.training.options import TrainingOptions
from t2t_lite.training.run import Run

_GIT_SECONDS = 10


def provenance_of(
    run: Run,
    options: TrainingOptions,
    paths: Mapping[str, pathlib.Path | str | None],
) -> dict[str, Any]:
    """Return what `config.json` records when training starts or resumes.

    Args:
      run: the run; its data must exist.
      options: the options of the trainer.
      paths: folders by the name of their option; None if not given.
    """
    return {
        "command": command_of(run, options, paths),
        "train_steps": options.train_steps or run.hparams.train_steps,
        "code": code_revision(),
        "hardware": hardware(),
        "data": _data_facts(run.problem, run.data.manifest),
    }


def command_of(
    run: Run,
    options: TrainingOptions,
    paths: Mapping[str, pathlib.Path | str | None],
) -> list[str]:
    """Return the words of the command that trains the same run again.

    Args:
      run: the run.
      options: the options of the trainer; defaults are left out.
      paths: folders by the name of their option; None if not given.
    """
    name, override = _nearest_set(run)
    flags: dict[str, Any] = {"problem": run.config["problem"], "hparams": name}
    if override:
        flags["hparams_override"] = ",".join(override)
    words = [f"--{key}={value}" for key, value in flags.items()]
    words += run.problem.option_flags()
    switches = []
    flags = {key: value for key, value in paths.items() if value}
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
    """Return the hparams set most like the run's hparams, and the overrides."""
    lines = str(run.hparams).splitlines()

    def overrides(name: str) -> list[str]:
        known = set(str(registry.hparams(name)).splitlines())
        return [line for line in lines if line not in known]

    names = registry.hparams_names()
    if run.config["hparams_set"] in names:
        names = [run.config["hparams_set"]]
    return min(
        ((name, overrides(name)) for name in names),
        key=lambda found: len(found[1]),
    )


def code_revision() -> str:
    """Return the version, with the commit if this is a git checkout."""
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
        # An environment may lie in the checkout of another project.
        git("ls-files", "--error-unmatch", "__init__.py")
        commit = git("rev-parse", "HEAD")
        changed = (
            " with changes" if git("status", "--porcelain", "-uno") else ""
        )
    except (OSError, subprocess.SubprocessError):
        return f"t2t-lite {t2t_lite.__version__}"
    return f"t2t-lite {t2t_lite.__version__}, commit {commit}{changed}"


def hardware() -> dict[str, Any]:
    """Describe this machine; lists TensorFlow's devices."""
    return {
        "system": platform.platform(),
        "processor": processor_name(),
        "cores": usable_cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "gpus": gpu_names(),
    }


def processor_name() -> str:
    """Return a name such as "AMD EPYC 7R13", else the architecture."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def gpu_names() -> list[str]:
    """Return the name of each GPU that TensorFlow can use."""
    return [
        tf.config.experimental.get_device_details(gpu).get("device_name", "GPU")
        for gpu in tf.config.list_physical_devices("GPU")
    ]


def _data_facts(problem: Problem, manifest: Manifest) -> dict[str, Any]:
    """Return sizes and sources of the data, in the problem's direction."""
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
