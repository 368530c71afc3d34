"""All that a checkpoint holds: weights, optimizer, and place in the data."""

import contextlib
import os
import pathlib
import random
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import tensorflow as tf

from t2t_lite.errors import T2TLiteError
from t2t_lite.progress import say
from t2t_lite.training import distribute
from t2t_lite.training.checkpoints import checkpoint, checkpoint_choice
from t2t_lite.training.checkpoints.averaging import average_checkpoints
from t2t_lite.training.initial import load_initial_weights
from t2t_lite.training.optimizer.meter import Meter
from t2t_lite.training.optimizer.updates import Updater
from t2t_lite.training.run import Run

T = TypeVar("T")


def prepare(
    seed: int, deterministic: bool, check_numerics: bool = False
) -> None:
    """Set up the process before the model is built.

    Keras draws the seeds of initializers from Python's generator. TensorFlow's
    own seed stays as it is: nothing here uses it, and setting it empties the
    cache of kernels, which owns the open vocabularies.

    Args:
      seed: of the initial weights.
      deterministic: select deterministic operations for the whole process.
      check_numerics: raise an error at the first operation whose output has a
        NaN or Inf, for the whole process.
    """
    random.seed(seed)
    if deterministic:
        tf.config.experimental.enable_op_determinism()
    if check_numerics:
        tf.debugging.enable_check_numerics()


class TrainingState:
    """A model in training, and the checkpoints that it leaves.

    Dropout needs no state: its seeds follow from the run's seed, the update's
    number and the micro-batch's. So does the order of the data from the place
    in them.

    Args:
      run: what is trained.
      strategy: from `distribute.choose_strategy` or `join_workers`.
      keep_checkpoints: how many of the newest to keep, besides the best.
      keep_best: how many of the best to keep.
      jit, recompute: as in `Updater`.

    Attributes:
      run: as given.
      model: the run's.
      updater: makes the updates.
      evaluated: the weights to evaluate, as metrics name them: those in
        training, and their moving average if there is one. The last ones are
        judged, and decoded by default.
      replicas: devices that share an update.
      workers: processes that share it.
      worker: index of this process; 0 is the chief.
      step: updates made, the skipped ones included.
      decision_is_wanted: whether a worker wanted to save or stop after the
        last update, see `Decisions`; False for a single process.
      meter: what they did, in all and lately.
      saved_step: the update of the last checkpoint, 0 without one.
      saved_work: what the meter had counted by then.
    """

    def __init__(
        self,
        run: Run,
        strategy: tf.distribute.Strategy,
        keep_checkpoints: int = 20,
        keep_best: int = 1,
        jit: bool = False,
        recompute: bool = False,
    ):
        self.run = run
        self.replicas: int = strategy.num_replicas_in_sync
        with strategy.scope():
            self.model = run.model()
        self._strategy = strategy
        self.workers = distribute.worker_count(strategy)
        self.worker = distribute.worker_index(strategy)
        self.updater = Updater(
            self.model,
            run.hparams,
            strategy,
            run.seed,
            freeze=run.config.get("freeze", ()),
            jit=jit,
            recompute=recompute,
        )
        has_ema = bool(run.hparams.ema_decay)
        self.evaluated = (None, checkpoint.EMA) if has_ema else (None,)
        self.step = self.saved_step = 0
        self.meter = Meter()
        self.saved_work = self.meter.totals()
        self._keep, self._keep_best = keep_checkpoints, keep_best
        self._position = [0, 0, 0]
        self.decision_is_wanted = False
        self._batches: Iterator[dict[str, Any]] | None = None

    @property
    def epoch(self) -> int:
        """The epoch that the next micro-batch is from."""
        return int(self._position[0])

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the files of the run."""
        return self.worker == 0

    def exchange(self, value: T) -> list[T]:
        """Return the values that all workers give, see `exchange`."""
        return distribute.exchange(self._strategy, value)

    @property
    def size_bytes(self) -> int:
        """Of a checkpoint, nearly."""
        return sum(
            variable.dtype.size * variable.shape.num_elements()
            for tensors in (self._tensors(), self._ema_tensors())
            for variable in tensors.values()
        )

    def update(
        self,
        between_passes: Callable[[], None],
        wants_decision: Callable[[], bool] = lambda: False,
    ) -> None:
        """Makes one update.

        Args:
          between_passes: called before each pass. If it raises, this update
            was not made, and no other one can be.
          wants_decision: see `Updater.update`.
        """
        with self.meter.timed():
            if self._batches is None:
                self._batches = self.run.data.training_batches(self._position)
            count = self.run.hparams.micro_batches
            batches = [next(self._batches) for _ in range(count)]
            stats = self.updater.update(
                batches, self.step + 1, between_passes, wants_decision
            )
            self.step += 1
            self._position = batches[-1]["position"]
            self.meter.add(stats)
            # One process does not wait for the device.
            if self.workers > 1:
                self.decision_is_wanted = bool(stats.wanting_decision)

    def save(self) -> None:
        """Saves a checkpoint, unless this update is saved already.

        Removes the oldest ones, if they are too many now.

        Raises:
          SaveError: it cannot be written; what was saved before is intact. It
            is raised on every worker.
        """
        if self.step == self.saved_step:
            return
        self.meter.read()
        self._by_chief(self._write)
        self.saved_step, self.saved_work = self.step, self.meter.totals()

    def _by_chief(self, make: Callable[[], T]) -> T:
        """Return what the chief alone makes, or raise its `SaveError`.

        Args:
          make: returns something fit for JSON.
        """
        made: Any = None
        error: checkpoint.SaveError | None = None
        if self.is_chief:
            try:
                made = make()
            except checkpoint.SaveError as failed:
                error = failed
        made, told = self.exchange((made, str(error) if error else None))[0]
        if told:
            raise error or checkpoint.SaveError(told)
        return made

    def _write(self) -> None:
        checkpoint.save(
            self.run.checkpoints_dir,
            self._tensors(),
            {
                "step": self.step,
                "position": [int(part) for part in self._position],
                "seed": self.run.seed,
                **self.meter.totals(),
            },
            ema=self._ema_tensors(),
        )
        self._note_checkpoints()
        checkpoint_choice.remove_old(self.run.checkpoints_dir, self._keep)

    def restore(self, strict: bool = False, must: bool = False) -> None:
        """Goes on from the newest checkpoint, or begins as the config says.

        Args:
          strict: raise if it is damaged, rather than to set it aside and go
            on from the one before. The mark of the best likewise.
          must: raise if there is none, as weights were left unset for one.

        Raises:
          T2TLiteError: it is another model's, all are damaged, or all are
            gone.
        """
        name = self._by_chief(lambda: self._restore(strict, must))
        if name is None:
            if load_initial_weights(self.run, self.model):
                self.updater.begin_average()
            return
        path = self.run.checkpoints_dir / name
        if self.is_chief:
            state = checkpoint.read_state(path)
        else:
            state = self._read(path)
        self.step = self.saved_step = state["step"]
        self._position = state["position"]
        counted = self.meter.totals().keys() & state.keys()
        self.meter = Meter(**{name: state[name] for name in counted})
        self.saved_work = self.meter.totals()

    def _restore(self, strict: bool, must: bool) -> str | None:
        """Restores the newest sound checkpoint and gives its name."""
        directory = self.run.checkpoints_dir
        saved = checkpoint.list_checkpoints(directory)
        if not saved:
            if must or self._has_saved() or not _is_empty(directory):
                raise T2TLiteError(
                    f"{self.run.output_dir} has trained, and {directory} holds "
                    "no checkpoint to go on from: put its checkpoints back "
                    "(they were moved, or their disk is not mounted), or "
                    "choose another --output_dir."
                )
            return None
        found = self._restore_newest(saved, strict)
        try:
            checkpoint_choice.read_best(directory)
        except checkpoint.DamagedError as error:
            if strict:
                raise
            _set_aside(error.path, error, "no checkpoint is marked as the best")
        self._note_checkpoints()
        return found.path.name

    def _restore_newest(
        self, saved: list[checkpoint.Checkpoint], strict: bool
    ) -> checkpoint.Checkpoint:
        """Restores the newest sound checkpoint."""
        damaged: list[tuple[pathlib.Path, checkpoint.DamagedError]] = []
        for found in reversed(saved):
            try:
                self._read(found.path)
                break
            except checkpoint.DamagedError as error:
                damaged.append((found.path, error))
                if strict or len(saved) == 1:
                    raise
        else:
            raise T2TLiteError(
                f"All {len(saved)} checkpoints in {saved[0].path.parent} are "
                f"damaged, the newest one so: {damaged[0][1].reason}. Put a "
                "copy of one back, or choose another --output_dir."
            )
        for path, lost in damaged:
            then = f"training goes on from update {found.step}"
            _set_aside(path, lost, then)
        return found

    def _read(self, path: pathlib.Path) -> dict[str, Any]:
        """Sets everything that a checkpoint holds, and gives its state."""
        state = checkpoint.restore(path, self._tensors())
        if averages := self._named_averages():
            checkpoint.restore(path / checkpoint.EMA, averages)
        return state

    def _note_checkpoints(self) -> None:
        """Tells a run that lost its checkpoints from one that never had any.

        Metrics cannot, because they are there before the first checkpoint is.
        """
        if not self.run.config.get("has_checkpoints"):
            self.run.record(has_checkpoints=True)

    def _has_saved(self) -> bool:
        # A run that is older than the note had a cost at its end.
        return not self.run.config.keys().isdisjoint(
            ("has_checkpoints", "training_cost")
        )

    @property
    def best(self) -> dict[str, Any]:
        """What marks the best checkpoint, {} if there is none any more."""
        return next(iter(self._by_chief(self._read_best)), {})

    def _read_best(self) -> list[dict[str, Any]]:
        directory = self.run.checkpoints_dir
        marked = checkpoint_choice.read_all_best(directory)
        saved = [each.step for each in checkpoint.list_checkpoints(directory)]
        return [mark for mark in marked if mark["step"] in saved]

    def mark_if_best(self, metric: str, value: float) -> None:
        """Saves and marks this update if it is among the best there are.

        Args:
          metric: the higher, the better.
          value: of the model as it is now.
        """
        here = {"step": self.step, "metric": metric, "value": value}
        marks = self._by_chief(self._read_best)
        best = checkpoint_choice.ranked(marks, here)[: self._keep_best]
        if here in best:
            self.save()
            self._by_chief(lambda: self._mark(best))

    def _mark(self, best: list[dict[str, Any]]) -> None:
        directory = self.run.checkpoints_dir
        checkpoint_choice.mark_best(directory, best)
        # The one that was the best may be an old one now.
        checkpoint_choice.remove_old(directory, self._keep)

    def average(self) -> checkpoint.Checkpoint | None:
        """The average of the run's last checkpoints; None if there is one.

        Also with a moving average, which takes its place.
        """
        made = self._by_chief(self._make_average)
        return made and checkpoint.Checkpoint(pathlib.Path(made[0]), *made[1:])

    def _make_average(self) -> tuple[str, int, int | None] | None:
        directory = self.run.checkpoints_dir
        if checkpoint.EMA in self.evaluated:
            return None
        count = min(
            len(checkpoint.list_checkpoints(directory)),
            self.run.hparams.average_checkpoints,
        )
        if count < 2:
            return None
        made = checkpoint_choice.resolve(directory, "default")
        if made.averaged != count:
            made = average_checkpoints(directory, count)
        return str(made.path), made.step, made.averaged

    @contextlib.contextmanager
    def holding(self, weights: str | None) -> Iterator[None]:
        """Within, the model has its moving average, if `weights` names it."""
        model = checkpoint.model_tensors(self.model)
        averages = self._named_averages() if weights == checkpoint.EMA else {}
        trained = {name: tf.identity(model[name]) for name in averages}
        try:
            for name, average in averages.items():
                model[name].assign(average)
            yield
        finally:
            for name, value in trained.items():
                model[name].assign(value)

    def _tensors(self) -> dict[str, tf.Variable]:
        """Everything that is trained or kept by the optimizer, by name."""
        model = checkpoint.model_tensors(self.model)
        return {**model, **self.updater.tensors()}

    def _named_averages(self) -> dict[str, tf.Variable]:
        """The moving averages by the names of the weights; {} without."""
        return {
            f"{checkpoint.MODEL_PREFIX}{path}": average
            for path, average in self.updater.averages().items()
        }

    def _ema_tensors(self) -> dict[str, tf.Variable]:
        """The model with its moving average for weights; {} without."""
        averages = self._named_averages()
        return averages and {**checkpoint.model_tensors(self.model), **averages}


def _set_aside(
    path: pathlib.Path, damaged: checkpoint.DamagedError, then: str
) -> None:
    aside = checkpoint.set_aside(path)
    say(
        f"WARNING: {damaged.path} is damaged ({damaged.reason}). "
        f"{'It' if damaged.path == path else path.name} is {aside.name} now, "
        f"and {then}."
    )


def _is_empty(directory: pathlib.Path) -> bool:
    """Whether nothing is there; a link to nowhere is something."""
    if directory.is_dir():
        return not any(directory.iterdir())
    return not os.path.lexists(directory)
