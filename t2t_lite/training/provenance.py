"""The provenance of a run: command, code, machine and data."""

import contextlib
import os
import pathlib
import platform
import subprocess
from typing import Any

import psutil
import tensorflow as tf

import t2t_lite
from t2t_lite import registry
from t2t_lite.data.manifest import Manifest
from t2t_lite.problem import Problem
from t2t_lite.runtime import usable_cores
from t2t_lite.training.initial import options_of_start
from t2t_lite.training.options import TrainingOptions
from t2t_lite.training.run import Run
from t2t_lite.validators import changed

_GIT_SECONDS = 10


def provenance_of(run: Run, options: TrainingOptions) -> dict[str, Any]:
    """Return what `config.json` records when training starts or resumes.

    Args:
      run: the run; its data must exist.
      options: of its training.
    """
    return {
        "command": command_of(run, options),
        "train_steps": options.train_steps or run.hparams.train_steps,
        "code": code_revision(),
        "hardware": hardware(),
        "data": _data_facts(run.problem, run.data.manifest),
    }


def command_of(run: Run, options: TrainingOptions) -> list[str]:
    """Return the words of the command that trains the same run again.

    Args:
      run: the run.
      options: of its training; defaults are left out.
    """
    name, override = _nearest_set(run)
    words = [f"--problem={run.config['problem']}", f"--hparams={name}"]
    if override:
        words.append(f"--hparams_override={','.join(override)}")
    words += run.problem.option_flags()
    given = changed(options) | options_of_start(run.config)
    given |= {"data_dir": run.data.folder, "output_dir": run.output_dir}
    for name, value in given.items():
        if name in ("hparams_override", "problem_options"):  # as above
            continue
        if isinstance(value, tuple):
            value = ",".join(value)
        words.append(f"--{name}" if value is True else f"--{name}={value}")
    return ["t2t-lite-trainer", *words]


def _nearest_set(run: Run) -> tuple[str, list[str]]:
    """Return the hparams set most like the run's hparams, and the overrides."""
    lines = str(run.hparams).splitlines()
    name = run.config["hparams_set"]
    names = registry.hparams_names()
    found = []
    for known in [name] if name in names else names:
        of_set = str(registry.hparams(known)).splitlines()
        found.append((known, [line for line in lines if line not in of_set]))
    return min(found, key=lambda each: len(each[1]))


def code_revision() -> str:
    """Return the version, with the commit if this is a git checkout."""
    git = ["git", "-C", os.path.dirname(t2t_lite.__file__)]
    version = f"t2t-lite {t2t_lite.__version__}"
    try:
        # An environment may lie in the checkout of another project.
        for words in (
            ["ls-files", "--error-unmatch", "__init__.py"],
            ["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
        ):
            done = subprocess.run(
                [*git, *words],
                capture_output=True,
                check=True,
                text=True,
                timeout=_GIT_SECONDS,
            )
    except (OSError, subprocess.SubprocessError):
        return version
    return f"{version}, commit {done.stdout.strip()}"


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
        source, target = problem.directed(
            split.source_tokens, split.target_tokens
        )
        splits[name] = {
            "pairs": split.examples,
            "source_tokens": source,
            "target_tokens": target,
            "dropped": split.dropped,
            "damaged": split.damaged,
        }
    corpora = [
        {**corpus, "files": list(map(os.path.basename, corpus["files"]))}
        for corpus in manifest.corpora
    ]
    sources = [
        {"file": os.path.basename(path)}
        | {key: source[key] for key in ("bytes", "sha256")}
        for path, source in manifest.sources.items()
    ]
    return {"splits": splits, "corpora": corpora, "sources": sources}
