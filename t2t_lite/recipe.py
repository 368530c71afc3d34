"""`t2t_lite.train`: from the name of a problem to a trained run.

Nothing here loads TensorFlow before the request is checked.
"""

import contextlib
import dataclasses
import os
import pathlib
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from t2t_lite import plugins, registry
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.hparam import HParams
from t2t_lite.problem import Problem
from t2t_lite.progress import say
from t2t_lite.runtime import start_tensorflow
from t2t_lite.training.config import (
    CONFIG,
    find_config,
    require_fitting_vocabularies,
    versions,
)
from t2t_lite.training.options import TrainingOptions, default_output_dir
from t2t_lite.training.problem_choice import choose_problem
from t2t_lite.validators import check, describe, folder, require_known

if TYPE_CHECKING:
    from t2t_lite.data.manifest import Manifest
    from t2t_lite.datagen.generate import Generation
    from t2t_lite.training.run import Run

_SECONDS_TO_SEE = 30.0
# Options that may differ between workers.
_OF_ONE_WORKER = (
    *("usr_dir", "data_dir", "raw_dir", "tfds_dir", "problem_options"),
    *("workers", "worker", "cluster_timeout", "sustained_tflops", "verbose"),
)


def train(
    problem: str | Problem | None = None,
    hparams: str | HParams | None = None,
    output_dir: str | os.PathLike | None = None,
    **options: Any,
) -> "Run | str":
    """Train a run, as the command `t2t-lite-trainer` does.

    It generates missing data, trains, evaluates and saves; the same call again
    resumes. In the main thread, Ctrl-C and SIGTERM save before they raise
    `Interrupted`; SIGUSR1 saves and training continues.

    Args:
      problem: the name of a problem, or the problem itself; None: the problem
        of the run in `output_dir`.
      hparams: the name of a set, or hyperparameters; None: those of that run.
      output_dir: the folder of the run; None takes
        `~/t2t-lite/runs/PROBLEM/SET`.
      **options: the options of training, by keyword.

    Keyword Args:
      OPTIONS

    Returns:
      The run; `run.reached` has its results. Of a dry run, its report as text.

    Raises:
      UsageError: an unknown name, key or option, or values that conflict.
      Interrupted: a signal came; everything is saved.
      T2TLiteError: training failed; the message says what to do.
    """
    require_known(options, TrainingOptions, "train")
    job = _plan(problem, hparams, output_dir, TrainingOptions(**options))
    if "tensorflow" not in sys.modules:
        say("Starting TensorFlow.")
    start_tensorflow(job.options.verbose, fixed_weights=False)
    return job.measure() if job.options.dry_run else job.train()


train.__doc__ = (train.__doc__ or "").replace(
    "      OPTIONS", describe(TrainingOptions)
)


def _plan(
    problem: str | Problem | None,
    hparams: str | HParams | None,
    output_dir: str | os.PathLike | None,
    options: TrainingOptions,
) -> "_Job":
    """Look up and check what to train; take the rest from the run there."""
    plugins.load_plugins(options.usr_dir)
    run_dir = check("output_dir", output_dir, folder) if output_dir else None
    config = find_config(run_dir) if run_dir else None
    if config is None and (problem is None or hparams is None):
        raise UsageError(
            "problem and hparams are required, unless output_dir is the folder "
            f"of a run (got problem={problem}, hparams={hparams}, "
            f"output_dir={output_dir})."
        )
    set_name = None
    if isinstance(hparams, HParams):
        values = hparams
    elif hparams is not None:
        values, set_name = registry.hparams(hparams), hparams
    else:
        config = config or {}
        values = HParams.from_dict(config["hparams"])
        set_name = config.get("hparams_set")
    values = values.override(options.hparams_override)
    if not run_dir and set_name and problem:
        name = problem if isinstance(problem, str) else problem.name
        run_dir = default_output_dir(name, set_name)
        config = find_config(run_dir)
    given = options.problem_options or {}
    task, data_dir = choose_problem(
        problem, given, options.data_dir, run_dir, config
    )
    if not run_dir:
        raise UsageError(
            "output_dir is required, because hyperparameters without the name "
            "of a set have no default folder."
        )
    if not output_dir and task.name != run_dir.parent.name:
        # Own text has got a name by its options or its data.
        run_dir = default_output_dir(task.name, str(set_name))
        config = find_config(run_dir)
    metrics = ("auto", "loss", task.metric)
    if options.best_metric not in metrics:
        raise UsageError(
            f"best_metric is one of {', '.join(metrics)} for {task.name}; got "
            f"{options.best_metric!r}."
        )
    require_fitting_vocabularies(task, values)
    return _Job(task, values, set_name, run_dir, data_dir, options, config)


@dataclasses.dataclass(frozen=True)
class _Job:
    """A run to create or to resume."""

    problem: Problem
    hparams: HParams
    hparams_set: str | None  # the name, if the hparams are from a set
    output_dir: pathlib.Path
    data_dir: pathlib.Path
    options: TrainingOptions
    config: Mapping[str, Any] | None  # of the run that is there

    def measure(self) -> str:
        """Measure one pass over the largest batch; make nothing."""
        from t2t_lite.training import devices, trainer
        from t2t_lite.training.memory import dry_run

        options = self.options
        # Before anything runs on the devices.
        devices.choose_strategy(options.replicas, self.hparams)
        data = self._generation()  # which refuses folders that are not read
        if self._has_data:
            run = self._run(data.run(), dry_run=True)
            sizes, lines = run.vocab_sizes, [f"data: {run.data.check()}"]
        else:
            sizes = self.problem.directed(*self.problem.expected_vocab_sizes())
            lines = self._missing_data()
        trainer.prepare(options.seed, deterministic=False)
        return "\n".join([*lines, dry_run(self.hparams, sizes, options)])

    def train(self) -> "Run":
        """Generate the data if it is missing, and train."""
        from t2t_lite.training import distribute, trainer
        from t2t_lite.training.model_card import provenance_of
        from t2t_lite.training.signals import run_lock

        strategy = distribute.make_strategy(self.options, self.hparams)
        with (
            distribute.naming_lost_workers(strategy),
            contextlib.ExitStack() as stack,
        ):
            fix = "Start the same command on all workers."
            distribute.require_equal(strategy, self._command(), fix)
            manifest = self._generation().run()
            fix = "Give all workers the same data."
            distribute.require_equal(strategy, {"data": manifest.digest}, fix)
            if distribute.workers_of(strategy)[1] == 0:
                # Nobody else changes the run that is compared.
                stack.enter_context(run_lock(self.output_dir))
                run = self._run(manifest)
                say(f"Training {self.problem.name} in {run.output_dir}.")
                run.record(conditions=provenance_of(run, self.options))
                distribute.exchange(strategy, "run")
            else:
                distribute.exchange(strategy, "run")  # the chief has made it
                # A network file system may take a while to show a new file.
                deadline = time.monotonic() + _SECONDS_TO_SEE
                while not (self.output_dir / CONFIG).exists():
                    if time.monotonic() > deadline:
                        raise T2TLiteError(
                            f"{self.output_dir} lacks the files of the chief: "
                            "output_dir must be a folder that all share."
                        )
                    time.sleep(0.5)
                run = self._run(manifest, dry_run=True)
            trainer.train(run, self.options, strategy)
            # No worker leaves early, and all know the cost.
            run.config = distribute.exchange(strategy, run.config)[0]
        return run

    def _command(self) -> dict[str, Any]:
        """Return what must be the same on all workers."""
        options = dataclasses.asdict(self.options)
        for name in _OF_ONE_WORKER:
            del options[name]
        return {
            **versions(),
            "problem": self.problem.name,
            "problem definition": self.problem.fingerprint(),
            **self.hparams.to_dict(),
            **{f"--{name}": str(value) for name, value in options.items()},
        }

    @property
    def _has_data(self) -> bool:
        from t2t_lite.data.manifest import Manifest

        return Manifest.path(self.data_dir, self.problem).exists()

    def _generation(self) -> "Generation":
        from t2t_lite.datagen.generate import Generation

        seed, options = None, self.options
        if self.config and not self._has_data:  # make the run's data again
            seed = self.config["data"].get("seed")
        return Generation(
            self.problem, self.data_dir, options.raw_dir, options.tfds_dir, seed
        )

    def _run(self, manifest: "Manifest", dry_run: bool = False) -> "Run":
        from t2t_lite.training.initial import facts_of_start
        from t2t_lite.training.run import Run

        return Run.create(
            self.output_dir,
            problem=self.problem,
            hparams=self.hparams,
            seed=self.options.seed,
            data_dir=self.data_dir,
            manifest=manifest,
            usr_dir=self.options.usr_dir,
            hparams_set=self.hparams_set,
            facts=facts_of_start(
                self.options,
                self.problem,
                self.hparams,
                self.data_dir,
                self.config,
            ),
            dry_run=dry_run,
        )

    def _missing_data(self) -> list[str]:
        """Report that there is no data, and whether there is a corpus."""
        from t2t_lite.corpus.raw_files import RawFiles

        problem, options = self.problem, self.options
        raw = RawFiles(
            problem.files, options.raw_dir, tfds_dir=options.tfds_dir
        )
        try:
            problem.require_sources(raw)
            told = "its corpus is there"
        except T2TLiteError as error:
            told = str(error)
        return [
            f"missing: {self.data_dir} has no data of {problem.name} yet; the "
            "same command without --dry_run, or t2t-lite-datagen, makes it",
            told,
        ]
