"""Training: set-up, the loop of updates, evaluation, checkpoints, exit."""

import contextlib
import dataclasses
import math
import os
import pathlib
import random
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import tensorflow as tf

from t2t_lite import files
from t2t_lite.errors import Interrupted, T2TLiteError
from t2t_lite.model.layers import unset_weights
from t2t_lite.progress import say
from t2t_lite.training import checkpoints, distribute
from t2t_lite.training.devices import choose_strategy, device_name
from t2t_lite.training.evaluation import (
    DevEvaluation,
    TextEvaluator,
    evaluations_since_best,
)
from t2t_lite.training.initial import load_initial_weights
from t2t_lite.training.logging import Meter, Totals, TrainingLog
from t2t_lite.training.memory import try_largest_batch
from t2t_lite.training.options import TrainingOptions
from t2t_lite.training.run import Run
from t2t_lite.training.schedules import last_step
from t2t_lite.training.signals import Decision, Requests, StopRequested
from t2t_lite.training.update import Updater

T = TypeVar("T")

MOST_SKIPPED_IN_A_ROW = 10


def train(
    run: Run,
    options: TrainingOptions,
    evaluate_text: TextEvaluator | None = None,
    *,
    strategy: tf.distribute.Strategy | None = None,
    saved: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Train a run to its end, from where it stopped.

    Args:
      run: its folder gets checkpoints and metrics; the caller keeps other
        trainers out of it, see `signals.run_lock`.
      options: that may change when a run resumes.
      evaluate_text: see `DevEvaluation`.
      strategy: of the devices that train; None chooses one for a single
        process. All workers of a strategy call this alike; the chief writes.
      saved: is called after each checkpoint, by the chief.

    Returns:
      The work done: `seconds` of updates, `source_tokens`, `target_tokens`,
      `skipped` updates, `devices` and the name of one. For the results see
      `Run.reached`.

    Raises:
      Interrupted: a signal came or the time is over; everything is saved.
      T2TLiteError: something is wrong; the message says what to do.
    """
    strategy = strategy or choose_strategy(
        options.replicas, None if options.jit else run.hparams
    )
    requests = Requests(
        options.max_minutes,
        options.save_steps,
        options.save_minutes,
        options.stall_minutes,
    )
    with requests:
        prepare(run.seed, options.deterministic, options.check_numerics)
        run.data.batches("dev")  # fails now rather than at the first evaluation
        trainer = Trainer(run, options, strategy, requests)
        trainer.restore()
        trainer.train(evaluate_text, saved)
    return {
        **trainer.saved_work,
        "devices": strategy.num_replicas_in_sync,
        "device": device_name(),
    }


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


class Trainer:
    """A model in training, and its checkpoints.

    Dropout needs no state: its seeds follow from the run's seed, the update's
    number and the micro-batch's. So does the order of the data from the
    position in it.

    Args:
      run: the run to train.
      options: see `train`.
      strategy: from `choose_strategy` or `join_workers`.
      requests: to stop or to save.

    Attributes:
      model: the run's.
      updater: makes the updates.
      step: number of updates made, the skipped ones included.
      position: in the data, of the next micro-batch; begins with the epoch.
      meter: results of the updates.
      saved_step: the update of the last checkpoint, 0 without one.
      saved_work: the totals of the meter by then.
    """

    def __init__(
        self,
        run: Run,
        options: TrainingOptions,
        strategy: tf.distribute.Strategy,
        requests: Requests | None = None,
    ):
        self.run, self._options, self._strategy = run, options, strategy
        self._requests = requests or Requests(None, None, math.inf)
        addresses, index = distribute.workers_of(strategy)
        self._workers, self._worker = len(addresses), index
        self._is_chief = index == 0
        self._steps = last_step(run.hparams, options.train_steps)
        if self._is_chief:
            for folder in (run.output_dir, run.checkpoints_dir):
                files.remove_unfinished(folder)
        say("Building the model.")
        slices = options.slices(run.hparams.micro_batches)
        self._resumes = bool(checkpoints.list_checkpoints(run.checkpoints_dir))
        # Workers get their first weights from the chief, so they need values.
        with unset_weights(self._resumes and self._workers == 1):
            with strategy.scope():
                self.model = run.model()
            self.updater = Updater(
                self.model,
                run.hparams,
                strategy,
                run.seed,
                freeze=run.config.get("freeze", ()),
                slices=slices,
                jit=options.jit,
                recompute=options.recompute,
            )
        if run.config.get("freeze"):
            say(
                f"{self.updater.trained_parameters:,} of "
                f"{self.model.count_params():,} parameters are trained."
            )
        # The weights to evaluate, as metrics name them. The last ones are
        # judged, and decoded by default.
        self._evaluated: tuple[str | None, ...] = (None,)
        if run.hparams.ema_decay:
            self._evaluated = (None, checkpoints.EMA)
        self.step = self.saved_step = 0
        self.position = [0, 0, 0]
        self.meter = Meter()
        self.saved_work = dataclasses.asdict(Totals())
        self._failed_saves = 0  # in a row
        self._decision_is_wanted = False
        self._batches: Iterator[dict[str, Any]] | None = None

    def train(
        self,
        evaluate_text: TextEvaluator | None = None,
        saved: Callable[[], None] = lambda: None,
    ) -> None:
        """Train to the last update, then evaluate and average.

        Training ends before if evaluations have not improved for long enough.

        Args:
          evaluate_text: see `DevEvaluation`.
          saved: is called after each checkpoint, by the chief.

        Raises:
          Interrupted: a signal came or the time is over; everything is saved.
        """
        run, options, requests = self.run, self._options, self._requests
        steps = self._steps
        self._saved = saved
        self._dev = DevEvaluation(
            run,
            self.model,
            evaluate_text,
            options.best_metric,
            self._worker,
            self._workers,
            self._check,
        )
        with (
            self._folder_to_write() as folder,
            TrainingLog(folder, self.step, steps) as log,
        ):
            self._log = log
            try:
                log.phase("Checking the data.")
                log.note(str(run.data.check()))
                # A guess: three float32 for each parameter, on a slow disk.
                requests.expect_save(12 * self.model.count_params() / 100e6)
                requests.progress()
                if self.step < steps:
                    try_largest_batch(
                        self.updater,
                        run.hparams,
                        options.slices(run.hparams.micro_batches),
                        run.config,
                        run.record,
                        log.phase,
                    )
                if self.step:
                    log.note(
                        f"Going on from update {self.step} in {run.output_dir}"
                    )
                # An evaluation that was due when the last process stopped.
                over = bool(self.step) and self._evaluate_if_due()
                if self.step < steps and not over:
                    log.phase("The first update makes the graphs.")
                while self.step < steps and not over:
                    with requests.timing_update():
                        self.update()
                    self._report(self.step == steps)
                    decision = self._decide()
                    if decision.save:
                        self._try_to_save()
                    if decision.stop:
                        raise StopRequested(decision.stop)
                    over = self._evaluate_if_due()
                self._try_to_save(must=True)
                self._evaluate_all()
                self._average()
            except StopRequested as stop:
                self._try_to_save(must=True)
                done = f"update {self.step} is saved"
                raise Interrupted(
                    f"Stopped by {stop}: "
                    f"{done if self.step else 'nothing trained yet'} in "
                    f"{run.output_dir}. Run the same command to go on."
                ) from None

    @contextlib.contextmanager
    def _folder_to_write(self) -> Iterator[pathlib.Path]:
        """Yield the run's folder; for workers other than the chief, another.

        They would write the same metrics as the chief.
        """
        if self._is_chief:
            yield self.run.output_dir
            return
        with tempfile.TemporaryDirectory() as folder:
            yield pathlib.Path(folder)

    def _check(self) -> None:
        """Stop between passes or batches, if requested; several workers agree.

        An update that is interrupted is not made.
        """
        self._requests.progress()
        self._requests.check()

    def update(self) -> None:
        """Make one update, with the next batches of the data."""
        # Several workers complete the update together.
        alone = self._workers == 1
        with self.meter.timed():
            if self._batches is None:
                self._batches = self.run.data.training_batches(self.position)
            count = self.run.hparams.micro_batches
            batches = [next(self._batches) for _ in range(count)]
            stats = self.updater.update(
                batches,
                self.step + 1,
                self._check if alone else self._requests.progress,
                lambda: self._requests.is_pending(self.step + 1),
            )
            self.step += 1
            self.position = batches[-1]["position"]
            self.meter.add(stats)
            if not alone:  # one process does not wait for the device
                self._decision_is_wanted = bool(stats.wanting_decision)

    def _decide(self) -> Decision:
        """Return what to do after an update, the same on all workers."""
        if self._workers == 1:
            return self._requests.take(self.step)
        if not self._decision_is_wanted:
            return Decision()
        decisions = self._exchange(self._requests.take(self.step))
        saves, stops = zip(*decisions, strict=True)
        return Decision(any(saves), next(filter(None, stops), None))

    def _exchange(self, value: T) -> list[T]:
        """Return the values of all workers, see `distribute.exchange`."""
        return distribute.exchange(self._strategy, value)

    def _report(self, is_last: bool) -> None:
        """Show and record the progress, where it is time to."""
        log, meter, step = self._log, self.meter, self.step
        due = is_last or step == 1 or step % self._options.log_steps == 0
        show = due or log.wants_progress()
        # The tenth is noticed before another update is made.
        if show or meter.skipped_in_a_row >= MOST_SKIPPED_IN_A_ROW - 1:
            meter.read()
        if meter.skipped_in_a_row >= MOST_SKIPPED_IN_A_ROW:
            raise T2TLiteError(
                f"The gradients of {MOST_SKIPPED_IN_A_ROW} updates in a row, "
                f"up to update {step}, were not finite. These updates were "
                "skipped, so the weights are intact; the last checkpoint is "
                f"that of update {self.saved_step}. Lower learning_rate or "
                "raise warmup_steps in another output_dir. To find the "
                "operation that produces the first NaN or Inf, resume with "
                "check_numerics."
            )
        if not show:
            return
        epoch = int(self.position[0])
        record = {"step": step, **meter.record(), "epoch": epoch}
        if not due:
            log.progress(record)
            return
        if skipped := meter.skipped_in_interval:
            log.note(
                f"{skipped} update(s) were skipped: their gradients were not "
                "finite."
            )
        log.training(record)
        meter.start_interval()

    def _evaluate_if_due(self) -> bool:
        """Evaluate on dev; returns whether to stop early."""
        if self.step % self._options.eval_steps_every:
            return False
        self._evaluate_all()
        patience = self._options.stop_after
        if patience is None:
            return False
        metric = self._options.stop_metric
        records = self._log.metrics.evaluations(self._evaluated[-1])
        since, step, best = self._exchange(
            evaluations_since_best(records, metric)
        )[0]
        if since < patience:
            return False
        self._log.note(
            f"Training ends at update {self.step}: {since} evaluations gave no "
            f"better {metric} than {best:.4g}, that of update {step}."
        )
        return True

    def _evaluate_all(self) -> None:
        """Evaluate the weights, and their moving average if there is one."""
        for weights in self._evaluated:
            with self._holding(weights):
                self._evaluate(weights)

    def _evaluate(self, weights: str | None) -> None:
        """Evaluate the model on dev, once for each step and weights.

        Args:
          weights: their name in metrics.
        """
        log = self._log
        if self._is_evaluated(self.step, weights):
            return
        log.activity("evaluating on dev")
        self.meter.read()
        share: dict[str, Any] = {}
        reason = ""
        try:
            self._check()
            share = self._dev.share()
        except StopRequested as stop:
            reason = str(stop)
        shares, reasons = zip(*self._exchange((share, reason)), strict=True)
        if any(reasons):
            raise StopRequested(next(filter(None, reasons)))
        scores = self._dev.scores(shares)
        if weights == self._evaluated[-1]:
            marks = self._by_chief(self._read_marks)
            metric, value = self._dev.judge(scores, next(iter(marks), {}))
            mark = {"step": self.step, "metric": metric, "value": value}
            best = checkpoints.rank(marks, mark)[: self._options.keep_best]
            if math.isfinite(value) and mark in best:
                self._try_to_save(best=best)
        record: dict[str, Any] = {"step": self.step, **scores}
        record |= {"weights": weights} if weights else {}
        log.evaluation(record, self._dev.samples)

    def _is_evaluated(self, step: int, weights: str | None) -> bool:
        """Return whether the chief's metrics have that evaluation."""
        known = self._log.metrics.has_evaluation(step, weights)
        return self._exchange(known)[0]

    @contextlib.contextmanager
    def _holding(self, weights: str | None) -> Iterator[None]:
        """Within, the model has its moving average, if `weights` names it."""
        model = checkpoints.model_tensors(self.model)
        averages = self._averages() if weights == checkpoints.EMA else {}
        trained = {name: tf.identity(model[name]) for name in averages}
        try:
            for name, average in averages.items():
                model[name].assign(average)
            yield
        finally:
            for name, value in trained.items():
                model[name].assign(value)

    def _average(self) -> None:
        """Average and evaluate the last checkpoints; the model becomes that.

        A moving average takes its place.
        """
        self._log.activity("averaging")
        directory = self.run.checkpoints_dir
        saved = len(checkpoints.list_checkpoints(directory))
        count = min(saved, self.run.hparams.average_checkpoints)
        count = self._exchange(count)[0]
        if count < 2 or checkpoints.EMA in self._evaluated:
            return

        def average() -> tuple[str, int]:
            made = checkpoints.resolve(directory, "default")
            if made.averaged != count:
                made = checkpoints.average_checkpoints(directory, count)
            return made.path.name, made.step

        name, step = self._by_chief(average)
        if not self._is_evaluated(step, name):
            model = checkpoints.model_tensors(self.model)
            checkpoints.restore(directory / name, model)
            self._evaluate(name)

    def _try_to_save(
        self, must: bool = False, best: list[dict[str, Any]] | None = None
    ) -> None:
        """Save; continue after a failure, unless it is one too many.

        Args:
          must: raise the error, as nothing will be saved later.
          best: marks of the best checkpoints, with this one.
        """
        saved_before = self.saved_step
        try:
            self._log.activity("saving")
            self.save(best)
        except checkpoints.SaveError as error:
            left = self._options.save_retries - self._failed_saves
            if must or left <= 0:
                raise
            self._failed_saves += 1
            self._log.note(
                f"WARNING: {error} Training goes on, and tries again when the "
                f"next checkpoint is due; tries left: {left}."
            )
        if self.saved_step != saved_before:
            self._failed_saves = 0
            if self._is_chief:
                self._saved()

    def save(self, best: list[dict[str, Any]] | None = None) -> None:
        """Save a checkpoint, unless this update is saved already.

        Removes the oldest ones, if there are too many now.

        Args:
          best: marks of the best checkpoints, with this one.

        Raises:
          SaveError: it cannot be written; what was saved before is intact. It
            is raised on every worker.
        """
        if self.step != self.saved_step:
            self.meter.read()
            with self._requests.timing_save():
                self._by_chief(self._write)
            self.saved_step = self.step
            self.saved_work = dataclasses.asdict(self.meter.totals)
        if best:
            self._by_chief(lambda: self._mark(best))

    def _write(self) -> None:
        directory = self.run.checkpoints_dir
        state = {
            "step": self.step,
            "position": [int(part) for part in self.position],
            "seed": self.run.seed,
            **dataclasses.asdict(self.meter.totals),
        }
        averages = self._averages()
        ema = {**checkpoints.model_tensors(self.model), **averages}
        checkpoints.save(
            directory, self.tensors(), state, ema=ema if averages else None
        )
        self._note_checkpoints()
        checkpoints.remove_old(directory, self._options.keep_checkpoints)

    def _mark(self, best: list[dict[str, Any]]) -> None:
        directory = self.run.checkpoints_dir
        checkpoints.mark_best(directory, best)
        # The previous best one may be an old one now.
        checkpoints.remove_old(directory, self._options.keep_checkpoints)

    def _read_marks(self) -> list[dict[str, Any]]:
        """Return the marks of the best checkpoints that still exist."""
        directory = self.run.checkpoints_dir
        saved = [each.step for each in checkpoints.list_checkpoints(directory)]
        marks = checkpoints.read_marks(directory)
        return [mark for mark in marks if mark["step"] in saved]

    def _by_chief(self, make: Callable[[], T]) -> T:
        """Return what the chief alone makes, or raise its `SaveError`.

        Args:
          make: returns something JSON-serializable.
        """
        made: Any = None
        message = ""
        if self._is_chief:
            try:
                made = make()
            except checkpoints.SaveError as error:
                message = str(error)
        made, message = self._exchange((made, message))[0]
        if message:
            raise checkpoints.SaveError(message)
        return made

    def restore(self) -> None:
        """Resume from the newest checkpoint, or begin as the config says.

        Raises:
          T2TLiteError: it is another model's, all are damaged, or all are
            gone.
        """
        name = self._by_chief(self._restore_newest)
        if name is None:
            if load_initial_weights(self.run, self.model):
                if self.updater.average:
                    self.updater.average.begin()
            return
        path = self.run.checkpoints_dir / name
        if not self._is_chief:
            self._read(path)
        state = checkpoints.Reader(path).state
        self.step = self.saved_step = state["step"]
        self.position = state["position"]
        fields = [field.name for field in dataclasses.fields(Totals)]
        self.saved_work = {key: state.get(key, 0) for key in fields}
        self.meter = Meter(Totals(**self.saved_work))

    def _restore_newest(self) -> str | None:
        """Restore the newest sound checkpoint and return its name."""
        run, strict = self.run, self._options.strict_checkpoints
        directory = run.checkpoints_dir
        if not checkpoints.list_checkpoints(directory):
            # Metrics are there before the first checkpoint is, so they do not
            # tell. A run older than the note has a cost at its end.
            notes = ("has_checkpoints", "training_cost")
            lost = not run.config.keys().isdisjoint(notes)
            if self._resumes or lost or not _is_empty(directory):
                raise T2TLiteError(
                    f"{run.output_dir} has trained, and {directory} holds no "
                    "checkpoint to go on from: put its checkpoints back (they "
                    "were moved, or their disk is not mounted), or choose "
                    "another --output_dir."
                )
            return None
        found = checkpoints.restore_newest(directory, self._read, strict)
        try:
            checkpoints.read_best(directory)
        except checkpoints.DamagedError as error:
            if strict:
                raise
            checkpoints.set_aside(error, "no checkpoint is marked as the best")
        self._note_checkpoints()
        return found.path.name

    def _read(self, path: pathlib.Path) -> None:
        checkpoints.restore(path, self.tensors())
        if averages := self._averages():
            checkpoints.restore(path / checkpoints.EMA, averages)

    def _note_checkpoints(self) -> None:
        """Record that the run has had checkpoints, in case they get lost."""
        if not self.run.config.get("has_checkpoints"):
            self.run.record(has_checkpoints=True)

    def tensors(self) -> dict[str, tf.Variable]:
        """Return the weights and the optimizer's state, by name."""
        model = checkpoints.model_tensors(self.model)
        return {**model, **self.updater.tensors()}

    def _averages(self) -> dict[str, tf.Variable]:
        """Return the moving averages by the names of the weights."""
        return {
            f"{checkpoints.MODEL_PREFIX}{path}": average
            for path, average in self.updater.averages().items()
        }


def _is_empty(directory: pathlib.Path) -> bool:
    """Return whether nothing is there; a dangling link is something."""
    if directory.is_dir():
        return not any(directory.iterdir())
    return not os.path.lexists(directory)
