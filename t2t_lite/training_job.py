"""`TrainingJob`: what to train and where, looked up, and the steps of doing it.

Nothing here loads TensorFlow before work begins.
"""

import contextlib
import dataclasses
import functools
import pathlib
import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.hparam import HParams
from t2t_lite.problem import Problem
from t2t_lite.progress import say
from t2t_lite.runtime import start_tensorflow
from t2t_lite.training.config import versions
from t2t_lite.training.options import StartOptions, TrainingOptions

if TYPE_CHECKING:
    import tensorflow as tf

    from t2t_lite.data.manifest import Manifest
    from t2t_lite.datagen.generate import Generation
    from t2t_lite.training.fit.dry_run import DryRun
    from t2t_lite.training.run import Run

_SECONDS_TO_SEE = 30.0


@dataclasses.dataclass(frozen=True)
class TrainingJob:
    """A run to be made or to go on."""

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
    workers: str | None = None  # addresses of all workers, see `find_workers`
    worker: int | None = None  # index of this process among them
    cluster_timeout: float = 600  # seconds to wait for the other workers
    verbose: bool = False  # show TensorFlow's messages

    def try_update(self) -> "DryRun":
        """Measures one pass over the largest batch; makes nothing.

        Raises:
          UsageError: `workers` are given.
        """
        if self.workers:
            raise UsageError(
                "dry_run measures one process, and conflicts with workers."
            )
        self._start_tensorflow()
        from t2t_lite.training.distribute import choose_strategy

        # Before anything runs on them.
        choose_strategy(self.options.replicas, self.hparams)
        from t2t_lite.data.manifest import Manifest
        from t2t_lite.training.fit.dry_run import try_update

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
            freeze=self.begin.frozen,
            replicas=self.options.replicas,
            slices=self.options.slices(self.hparams.micro_batches),
            recompute=self.options.recompute,
        )

    def train(self, sustained_tflops: float | None) -> "Run":
        """Makes the data if it is missing, and trains.

        Args:
          sustained_tflops: see `recipe.train`.
        """
        self._start_tensorflow()
        from t2t_lite.training import distribute

        strategy = self._strategy()
        with distribute.naming_lost_workers(strategy):
            fix = "Start the same command on all workers."
            distribute.require_equal(strategy, self._command(), fix)
            manifest = self._generation().run()
            fix = "Give all workers the same data."
            distribute.require_equal(strategy, {"data": manifest.digest}, fix)
            run = self._train(strategy, manifest, sustained_tflops)
            # No worker leaves early, and all know the cost.
            run.config = distribute.exchange(strategy, run.config)[0]
        return run

    def _train(
        self,
        strategy: "tf.distribute.Strategy",
        manifest: "Manifest",
        sustained_tflops: float | None,
    ) -> "Run":
        from t2t_lite.training import distribute, trainer
        from t2t_lite.training.model_card import write_card

        with self._run_of(strategy, manifest) as run:
            work = trainer.train(
                run,
                self.options,
                strategy=strategy,
                saved=functools.partial(write_card, run),
            )
            if distribute.worker_index(strategy) == 0:
                _record_cost(run, work, sustained_tflops)
        return run

    @contextlib.contextmanager
    def _run_of(
        self, strategy: "tf.distribute.Strategy", manifest: "Manifest"
    ) -> Iterator["Run"]:
        """Yield the run, which the chief makes and describes."""
        from t2t_lite.training import distribute
        from t2t_lite.training.faults.lock import only_trainer
        from t2t_lite.training.model_card import card_kept
        from t2t_lite.training.provenance import provenance_of

        if distribute.worker_index(strategy) > 0:
            distribute.exchange(strategy, "run")  # the chief has made it
            self._require_shared_folder()
            yield self._run(manifest, dry_run=True)
            return
        # What is compared with a run that is there, nobody else changes.
        with only_trainer(self.output_dir):
            run = self._run(manifest)
            say(f"Training {self.problem.name} in {run.output_dir}.")
            run.record(
                conditions=provenance_of(run, self.options, self._places)
            )
            distribute.exchange(strategy, "run")
            with card_kept(run):
                yield run

    def _require_shared_folder(self) -> None:
        from t2t_lite.training.config import CONFIG

        # A network file system may take a while to show a new file.
        deadline = time.monotonic() + _SECONDS_TO_SEE
        while not (self.output_dir / CONFIG).exists():
            if time.monotonic() > deadline:
                raise T2TLiteError(
                    f"{self.output_dir} lacks the files of the chief: "
                    "output_dir must be a folder that all workers share."
                )
            time.sleep(0.5)

    @property
    def _places(self) -> dict[str, pathlib.Path | str | None]:
        names = ("usr_dir", "data_dir", "raw_dir", "tfds_dir", "output_dir")
        return {name: getattr(self, name) for name in names}

    def _start_tensorflow(self) -> None:
        if "tensorflow" not in sys.modules:
            say("Starting TensorFlow.")
        start_tensorflow(self.verbose, fixed_weights=False)

    def _strategy(self) -> "tf.distribute.Strategy":
        """Return the devices to train on, before anything runs on them."""
        from t2t_lite.training import distribute

        addresses, index = distribute.find_workers(self.workers, self.worker)
        if not addresses:
            halved = None if self.options.jit else self.hparams
            return distribute.choose_strategy(self.options.replicas, halved)
        if self.options.replicas:
            raise UsageError(
                "replicas conflicts with workers: each worker trains on its "
                "GPUs or one CPU."
            )
        return distribute.join_workers(addresses, index, self.cluster_timeout)

    def _command(self) -> dict[str, Any]:
        """What must be the same on all workers."""
        return {
            **versions(),
            "problem": self.problem.name,
            "problem definition": self.problem.fingerprint(),
            "seed": self.seed,
            **self.hparams.to_dict(),
            **{
                f"--{name}": str(value)
                for part in (self.begin, self.options)
                for name, value in dataclasses.asdict(part).items()
            },
        }

    def _generation(self) -> "Generation":
        from t2t_lite.datagen.generate import Generation

        return Generation(
            self.problem,
            self.data_dir,
            self.raw_dir,
            self.tfds_dir,
            self._data_seed(),
        )

    def _data_seed(self) -> int | None:
        """That of the data of the run, if it is there and its data is not."""
        from t2t_lite.data.manifest import Manifest
        from t2t_lite.training.config import CONFIG, read_config

        if (
            Manifest.path(self.data_dir, self.problem).exists()
            or not (self.output_dir / CONFIG).exists()
        ):
            return None
        return read_config(self.output_dir)["data"].get("seed")

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

    parameters = costs.count_parameters(run.hparams, *run.vocab_sizes)
    cost = costs.training_cost(
        run.hparams,
        run.vocab_sizes[1],
        run.data.attended_lengths(),
        work,
        sustained_tflops and sustained_tflops * 1e12,
    )
    run.record(
        training_cost={
            "step": run.reached.step,
            "parameters": sum(parameters.values()),
            **cost,
        }
    )
