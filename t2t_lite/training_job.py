"""`TrainingJob`: what to train and where, looked up, and the steps of doing it.

Nothing here loads TensorFlow before work begins.
"""

import contextlib
import dataclasses
import functools
import pathlib
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from t2t_lite.errors import UsageError
from t2t_lite.hparam import HParams
from t2t_lite.problem import Problem
from t2t_lite.progress import say
from t2t_lite.runtime import start_tensorflow
from t2t_lite.training.cluster.agreement import require_equal, require_shared
from t2t_lite.training.cluster.cluster import ALONE, Cluster, Workers
from t2t_lite.training.cluster.early_stop import stopping_early
from t2t_lite.training.cluster.members import Members
from t2t_lite.training.config import versions
from t2t_lite.training.options import StartOptions, TrainingOptions

if TYPE_CHECKING:
    from t2t_lite.data.manifest import Manifest
    from t2t_lite.datagen.generate import Generation
    from t2t_lite.training.fit.dry_run import DryRun
    from t2t_lite.training.run import Run


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
    members: Members | None = None  # of the cluster, if there is one
    cluster_timeout: float = 600  # seconds until all of them must have come
    verbose: bool = False  # show TensorFlow's messages

    def try_update(self) -> "DryRun":
        """Measures one pass over the largest batch; makes nothing.

        Raises:
          UsageError: there is a cluster.
        """
        if self.members:
            raise UsageError(
                "--dry_run measures one process: leave out --workers, and "
                "unset TF_CONFIG."
            )
        self._start_tensorflow()
        from t2t_lite.training.cluster.devices import choose_strategy

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
        if not self.members:
            return self._train(ALONE, sustained_tflops)
        with (
            stopping_early() as stop_if_asked,
            Workers(self.members, self.cluster_timeout) as cluster,
        ):
            cluster.before_exchange = stop_if_asked
            say(f"All {cluster.size} workers are here.")
            remedy = "Start the same command everywhere."
            require_equal(cluster, "command", self._command(), remedy)
            run = self._train(cluster, sustained_tflops)
            cluster.exchange("the end", None)
        return run

    def _train(self, cluster: Cluster, sustained_tflops: float | None) -> "Run":
        self._start_tensorflow()
        from t2t_lite.training import trainer
        from t2t_lite.training.model_card import write_card

        strategy = self._strategy(cluster)
        manifest = self._generation().run()
        data = {"data": manifest.digest}
        remedy = "Give all workers the same data."
        require_equal(cluster, "data", data, remedy)
        require_shared(cluster, self.output_dir)
        with self._run_of(cluster, manifest) as run:
            work = trainer.train(
                run,
                self.options,
                cluster=cluster,
                strategy=strategy,
                saved=functools.partial(write_card, run),
            )
            if cluster.is_chief:
                _record_cost(run, work, sustained_tflops)
        return run

    @contextlib.contextmanager
    def _run_of(
        self, cluster: Cluster, manifest: "Manifest"
    ) -> Iterator["Run"]:
        """The run, which the chief makes and describes."""
        from t2t_lite.training.faults.lock import only_trainer
        from t2t_lite.training.model_card import card_kept
        from t2t_lite.training.provenance import provenance_of

        if not cluster.is_chief:
            cluster.exchange("run", None)
            yield self._run(manifest, dry_run=True)
            return
        # What is compared with a run that is there, nobody else changes.
        with only_trainer(self.output_dir):
            run = self._run(manifest)
            say(f"Training {self.problem.name} in {run.output_dir}.")
            run.record(
                conditions=provenance_of(run, self.options, self._places)
            )
            cluster.exchange("run", None)
            with card_kept(run):
                yield run

    @property
    def _places(self) -> dict[str, pathlib.Path | str | None]:
        names = ("usr_dir", "data_dir", "raw_dir", "tfds_dir", "output_dir")
        return {name: getattr(self, name) for name in names}

    def _start_tensorflow(self) -> None:
        if "tensorflow" not in sys.modules:
            say("Starting TensorFlow.")
        start_tensorflow(self.verbose, fixed_weights=False)

    def _strategy(self, cluster: Cluster) -> Any:
        """The devices that train, before anything runs on them."""
        import tensorflow as tf

        from t2t_lite.training.cluster.devices import choose_strategy

        if not isinstance(cluster, Workers):
            halved = None if self.options.jit else self.hparams
            return choose_strategy(self.options.replicas, halved)
        from t2t_lite.training.cluster.machines import join_machines

        devices = {"GPUs": len(tf.config.list_physical_devices("GPU"))}
        remedy = "Workers share an update evenly: give all as many devices."
        require_equal(cluster, "devices", devices, remedy)
        return join_machines(cluster, self.options.replicas)

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
