"""`TrainingJob`: what to train and where, looked up, and the steps of doing it.

Nothing here loads TensorFlow before `start`.
"""

import dataclasses
import pathlib
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from t2t_lite.hparam import HParams
from t2t_lite.problem import Problem
from t2t_lite.progress import say
from t2t_lite.runtime import start_tensorflow
from t2t_lite.training.options import StartOptions, TrainingOptions

if TYPE_CHECKING:
    from t2t_lite.data.manifest import Manifest
    from t2t_lite.datagen.generate import Generation
    from t2t_lite.training.dry_run import DryRun
    from t2t_lite.training.run import Run


@dataclasses.dataclass(frozen=True)
class TrainingJob:
    """A run to be made or to go on; call `start`, then one of the others."""

    problem: Problem
    hparams: HParams
    hparams_set: str | None  # the name, where the hparams are from one
    usr_dir: str | None
    data_dir: pathlib.Path
    raw_dir: pathlib.Path | None
    tfds_dir: pathlib.Path | None
    output_dir: pathlib.Path
    seed: int
    begin: StartOptions
    options: TrainingOptions

    def start(self, verbose: bool) -> None:
        """Starts TensorFlow, and its devices before anything runs on them."""
        if "tensorflow" not in sys.modules:
            say("Starting TensorFlow.")
        start_tensorflow(verbose)
        from t2t_lite.training.cluster.devices import choose_strategy

        if self.options.replicas:
            choose_strategy(self.options.replicas)

    def try_update(self) -> "DryRun":
        """Measures one pass over the largest batch; makes nothing."""
        from t2t_lite.data.manifest import Manifest
        from t2t_lite.training.dry_run import try_update

        data = self._generation()  # which refuses places that are not read
        if Manifest.path(self.data_dir, self.problem).exists():
            run = self._run(data.run(), dry_run=True)
            sizes, told = run.vocab_sizes, f"data: {run.data.check()}"
        else:
            problem = self.problem
            sizes = problem.directed(*problem.expected_vocab_sizes())
            told = self._tell_missing()
        return try_update(
            self.hparams,
            sizes,
            told,
            train_steps=self.options.train_steps or self.hparams.train_steps,
            seed=self.seed,
            freeze=self.begin.freeze,
            replicas=self.options.replicas,
        )

    def train(self, sustained_tflops: float | None) -> "Run":
        """Makes the data if it is missing, and trains.

        Args:
          sustained_tflops: see `recipe.train`.
        """
        from t2t_lite.reports.card import card_kept
        from t2t_lite.reports.conditions import conditions_of
        from t2t_lite.training import trainer
        from t2t_lite.training.run import only_trainer

        manifest = self._generation().run()
        # What is compared with a run that is there, nobody else changes.
        with only_trainer(self.output_dir):
            run = self._run(manifest)
            say(f"Training {self.problem.name} in {run.output_dir}.")
            run.record(
                conditions=conditions_of(run, self.options, self._places)
            )
            with card_kept(run):
                work = trainer.train(run, self.options)
                _record_cost(run, work, sustained_tflops)
        return run

    @property
    def _places(self) -> dict[str, pathlib.Path | str | None]:
        names = ("usr_dir", "data_dir", "raw_dir", "tfds_dir", "output_dir")
        return {name: getattr(self, name) for name in names}

    def _generation(self) -> "Generation":
        from t2t_lite.datagen.generate import Generation

        return Generation(
            self.problem, self.data_dir, self.raw_dir, self.tfds_dir
        )

    def _run(self, manifest: "Manifest", dry_run: bool = False) -> "Run":
        from t2t_lite.training.initial import facts_of_start
        from t2t_lite.training.run import Run

        facts = facts_of_start(
            self.output_dir,
            self.begin,
            self.problem,
            self.hparams,
            self.data_dir,
        )
        return Run.create(
            self.output_dir,
            problem=self.problem,
            hparams=self.hparams,
            seed=self.seed,
            data_dir=self.data_dir,
            manifest=manifest,
            usr_dir=self.usr_dir,
            hparams_set=self.hparams_set,
            facts=facts,
            dry_run=dry_run,
        )

    def _tell_missing(self) -> str:
        """Says that there is no data, and of which files it would be made."""
        from t2t_lite.corpus.raw_files import RawFiles

        problem = self.problem
        raw = RawFiles(problem.files, self.raw_dir, tfds_dir=self.tfds_dir)
        return "\n".join(
            [
                f"missing: {self.data_dir} has no data of {problem.name} yet; "
                "the same command without --dry_run, or t2t-lite-datagen, "
                "makes it",
                *problem.tell_sources(raw),
            ]
        )


def _record_cost(
    run: "Run", work: Mapping[str, Any], sustained_tflops: float | None
) -> None:
    """Puts `costs.training_cost` into the run's config."""
    from t2t_lite.model import costs

    cost = costs.training_cost(
        run.hparams,
        run.vocab_sizes[1],
        run.data.attended_lengths(),
        work,
        sustained_tflops and sustained_tflops * 1e12,
    )
    run.record(training_cost={"step": run.reached.step, **cost})
