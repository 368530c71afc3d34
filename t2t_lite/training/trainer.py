"""Training: set-up, the loop of updates, evaluation, checkpoints, exit."""

import dataclasses
import math
import pathlib
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import tensorflow as tf

from t2t_lite import files
from t2t_lite.errors import Interrupted, T2TLiteError
from t2t_lite.model import flops
from t2t_lite.model.layers import skip_init
from t2t_lite.progress import log
from t2t_lite.training import checkpoints, distribute
from t2t_lite.training.devices import device_name
from t2t_lite.training.evaluation import DevEvaluation
from t2t_lite.training.logging import Meter, Totals, TrainingLog
from t2t_lite.training.memory import try_largest_batch
from t2t_lite.training.model_card import write_card
from t2t_lite.training.options import TrainingOptions
from t2t_lite.training.run import Run
from t2t_lite.training.schedules import last_step
from t2t_lite.training.signals import Decision, Requests, StopRequested
from t2t_lite.training.update import Updater
from t2t_lite.training.warm_start import load_initial_weights

T = TypeVar("T")

MOST_SKIPPED_IN_A_ROW = 10


def train(
    run: Run,
    options: TrainingOptions,
    strategy: tf.distribute.Strategy | None = None,
) -> None:
    """Train a run to its end, from where it stopped.

    All workers of a strategy call this alike; the chief writes. The caller
    keeps other trainers out of the run's folder, see `signals.run_lock`.

    Args:
      run: its folder gets checkpoints, metrics and the card, its config the
        cost.
      options: may differ from those of the last call.
      strategy: of the devices that train; None makes it by the options.

    Raises:
      Interrupted: a signal came or the time is over; everything is saved.
      T2TLiteError: something is wrong; the message says what to do.
    """
    strategy = strategy or distribute.make_strategy(options, run.hparams)
    is_chief = distribute.workers_of(strategy)[1] == 0
    try:
        with Requests(options) as requests:
            prepare(run.seed, options.deterministic, options.check_numerics)
            run.data.batches("dev")  # fails now, not at the first evaluation
            trainer = Trainer(run, options, strategy, requests)
            trainer.restore()
            trainer.train()
        if is_chief:
            run.record(training_cost=trainer.cost())
    finally:
        if is_chief:
            write_card(run)


def prepare(
    seed: int, deterministic: bool, check_numerics: bool = False
) -> None:
    """Set up the process before the model is built.

    Keras draws the seeds of initializers from Python's generator. Nothing here
    uses TensorFlow's own seed.
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
    position in it. For the arguments see `train`.

    Attributes:
      model: the run's.
      updater: makes the updates.
      step: number of updates made, the skipped ones included.
      position: in the data, of the next micro-batch; begins with the epoch.
      meter: results of the updates.
      saved_step: the update of the last checkpoint, 0 without one.
    """

    def __init__(
        self,
        run: Run,
        options: TrainingOptions,
        strategy: tf.distribute.Strategy,
        requests: Requests | None = None,
    ):
        self.run, self._options, self._strategy = run, options, strategy
        self._requests = requests or Requests(options)
        addresses, index = distribute.workers_of(strategy)
        self._workers, self._worker = len(addresses), index
        self._is_chief = index == 0
        self._steps = last_step(run.hparams, options.train_steps)
        if self._is_chief:
            for folder in (run.output_dir, run.checkpoints_dir):
                files.remove_unfinished(folder)
        log("Building the model.")
        self._resumes = bool(checkpoints.list_checkpoints(run.checkpoints_dir))
        # Workers get their first weights from the chief, so they need values.
        with skip_init(self._resumes and self._workers == 1):
            with strategy.scope():
                self.model = run.model()
            self.model.gradient_checkpointing = options.gradient_checkpointing
            freeze = run.config.get("freeze", ())
            self.updater = Updater(
                self.model, run.hparams, strategy, run.seed, freeze
            )
        if freeze:
            log(
                f"{self.updater.trained_parameters:,} of "
                f"{self.model.count_params():,} parameters are trained."
            )
        # The weights that are judged, and decoded by default, as metrics name
        # them.
        self._judged = checkpoints.EMA if run.hparams.ema_decay else None
        self.step = self.saved_step = 0
        self.position = [0, 0, 0]
        self.meter = Meter()
        self._decision_is_wanted = False
        self._batches: Iterator[dict[str, Any]] | None = None

    def train(self) -> None:
        """Train to the last update, then evaluate and average.

        Training ends before if evaluations have not improved for long enough.

        Raises:
          Interrupted: a signal came or the time is over; everything is saved.
        """
        run, requests = self.run, self._requests
        self._dev = DevEvaluation(
            run,
            self.model,
            self._options.best_metric,
            self._worker,
            self._workers,
            self._check,
        )
        with (
            # Other workers would write the same metrics as the chief.
            tempfile.TemporaryDirectory() as elsewhere,
            TrainingLog(
                run.output_dir if self._is_chief else pathlib.Path(elsewhere),
                self.step,
                self._steps,
            ) as self._log,
        ):
            try:
                self._log.phase("Checking the data.")
                self._log.note(str(run.data.check()))
                # A guess: three float32 for each parameter, on a slow disk.
                requests.save_seconds = 12 * self.model.count_params() / 100e6
                requests.progress()
                if self.step < self._steps:
                    try_largest_batch(self.updater, self._log.phase)
                if self.step:
                    self._log.note(
                        f"Going on from update {self.step} in {run.output_dir}"
                    )
                self._make_updates()
                self.save()
                self._evaluate_all()
                self._average()
            except StopRequested as stop:
                self.save()
                done = f"update {self.step} is saved"
                raise Interrupted(
                    f"Stopped by {stop}: "
                    f"{done if self.step else 'nothing trained yet'} in "
                    f"{run.output_dir}. Run the same command to go on."
                ) from None

    def _make_updates(self) -> None:
        # An evaluation that was due when the last process stopped.
        over = bool(self.step) and self._evaluate_if_due()
        if self.step < self._steps and not over:
            self._log.phase("The first update makes the graphs.")
        while self.step < self._steps and not over:
            with self._requests.timing_update():
                self.update()
            self._report(self.step == self._steps)
            decision = self._decide()
            if decision.save:
                self.save()
            if decision.stop:
                raise StopRequested(decision.stop)
            over = self._evaluate_if_due()

    def cost(self) -> dict[str, Any]:
        """Return the cost of the training that is saved."""
        run, options = self.run, self._options
        work = {
            **dataclasses.asdict(self.meter.totals),
            "devices": self._strategy.num_replicas_in_sync,
            "device": device_name(),
        }
        tflops = options.sustained_tflops
        cost = flops.training_cost(
            run.hparams,
            run.vocab_sizes[1],
            run.data.attended_lengths(),
            work,
            tflops and tflops * 1e12,
        )
        parameters = self.model.count_params()
        return {"step": self.step, "parameters": parameters, **cost}

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
            count = self.run.hparams.gradient_accumulation_steps
            batches = [next(self._batches) for _ in range(count)]
            stats = self.updater.update(
                batches,
                self.step + 1,
                self._check if alone else self._requests.progress,
                lambda: any(self._requests.decide(self.step + 1)),
            )
            self.step += 1
            self.position = batches[-1]["position"]
            self.meter.add(stats)
            if not alone:  # one process does not wait for the device
                self._decision_is_wanted = bool(stats.wanting_decision)

    def _decide(self) -> Decision:
        """Return what to do after an update, the same on all workers."""
        decision = self._requests.decide(self.step)
        if self._workers == 1:
            return decision
        if not self._decision_is_wanted:
            return Decision()
        saves, stops = zip(*self._exchange(decision), strict=True)
        return Decision(any(saves), next(filter(None, stops), None))

    def _exchange(self, value: Any) -> list[Any]:
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
                f"{MOST_SKIPPED_IN_A_ROW} updates in a row, up to update "
                f"{step}, were skipped, because their gradients were not "
                f"finite; update {self.saved_step} is saved. Lower "
                "learning_rate or raise warmup_steps in another output_dir, or "
                "find the operation: resume with check_numerics."
            )
        if not show:
            return
        epoch = int(self.position[0])
        record = {"step": step, **meter.record(), "epoch": epoch}
        if not due:
            log.progress(record)
            return
        if skipped := meter.skipped_in_interval:
            log.note(f"{skipped} update(s) skipped: gradients not finite.")
        log.training(record)
        meter.start_interval()

    def _evaluate_if_due(self) -> bool:
        """Evaluate on dev; return whether to stop early."""
        if self.step % self._options.eval_steps_every:
            return False
        self._evaluate_all()
        if self._options.early_stopping_patience is None:
            return False
        best = next(iter(self._marks()), {"step": 0})["step"]
        since = sum(
            step > best and weights == self._judged
            for step, weights in self._log.metrics.evaluated
        )
        since = self._exchange(since)[0]
        if since < self._options.early_stopping_patience:
            return False
        self._log.note(
            f"Training ends at update {self.step}: {since} evaluations were "
            f"not better than that of update {best}."
        )
        return True

    def _evaluate_all(self) -> None:
        """Evaluate the weights, then their moving average if there is one."""
        model = checkpoints.model_tensors(self.model)
        averages = self._averages()
        self._evaluate(None)
        if not averages:
            return
        trained = {name: tf.identity(model[name]) for name in averages}
        try:
            for name, average in averages.items():
                model[name].assign(average)
            self._evaluate(checkpoints.EMA)
        finally:
            for name, value in trained.items():
                model[name].assign(value)

    def _evaluate(self, weights: str | None) -> None:
        """Evaluate the model on dev, once for each step and weights."""
        log = self._log
        if self._is_evaluated(self.step, weights):
            return
        log.phase("evaluating on dev", brief=True)
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
        if weights == self._judged:
            marks = self._marks()
            metric, value = self._dev.judge(scores, next(iter(marks), {}))
            mark = {"step": self.step, "metric": metric, "value": value}
            best = checkpoints.rank(marks, mark)[: self._options.keep_best]
            if math.isfinite(value) and mark in best:
                self.save(best)
        record: dict[str, Any] = {"step": self.step, **scores}
        record |= {"weights": weights} if weights else {}
        log.evaluation(record, self._dev.samples)

    def _is_evaluated(self, step: int, weights: str | None) -> bool:
        """Return whether the chief's metrics have that evaluation."""
        return self._exchange((step, weights) in self._log.metrics.evaluated)[0]

    def _average(self) -> None:
        """Average and evaluate the last checkpoints; the model becomes that.

        A moving average takes its place.
        """
        self._log.phase("averaging", brief=True)
        directory = self.run.checkpoints_dir
        saved = len(checkpoints.list_checkpoints(directory))
        count = min(saved, self.run.hparams.average_checkpoints)
        if self._exchange(count)[0] < 2 or self._judged:
            return

        def average() -> str:
            made = checkpoints.resolve(directory, "default")
            if made.averaged != count:
                made = checkpoints.average_checkpoints(directory, count)
            return made.path.name

        name = self._by_chief(average)
        if not self._is_evaluated(self.step, name):
            model = checkpoints.model_tensors(self.model)
            checkpoints.restore(directory / name, model)
            self._evaluate(name)

    def save(self, best: Sequence[dict[str, Any]] = ()) -> None:
        """Save a checkpoint, unless this update is saved already.

        Args:
          best: marks of the best checkpoints, with this one.

        Raises:
          SaveError: on every worker: it cannot be written.
        """
        if self.step != self.saved_step:
            self._log.phase("saving", brief=True)
            self.meter.read()
            with self._requests.timing_save():
                self._by_chief(self._write)
            self.saved_step = self.step
        elif not best:
            return
        self._by_chief(lambda: self._mark(best))

    def _write(self) -> None:
        state = {
            "step": self.step,
            "position": [int(part) for part in self.position],
            "seed": self.run.seed,
            **dataclasses.asdict(self.meter.totals),
        }
        averages = self._averages()
        ema = {**checkpoints.model_tensors(self.model), **averages}
        checkpoints.save(
            self.run.checkpoints_dir,
            self.tensors(),
            state,
            ema=ema if averages else None,
        )
        # In case they get lost.
        if not self.run.config.get("has_checkpoints"):
            self.run.record(has_checkpoints=True)

    def _mark(self, best: Sequence[dict[str, Any]]) -> None:
        """Mark the best checkpoints, and remove what is old then."""
        directory = self.run.checkpoints_dir
        if best:
            checkpoints.mark_best(directory, best)
        checkpoints.remove_old(directory, self._options.keep_checkpoints)
        write_card(self.run)

    def _marks(self) -> list[dict[str, Any]]:
        directory = self.run.checkpoints_dir
        return self._by_chief(lambda: checkpoints.read_marks(directory))

    def _by_chief(self, make: Callable[[], T]) -> T:
        """Return what the chief alone makes, or raise its `SaveError`.

        The result is JSON-serializable.
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
            load_initial_weights(self.run, self.model)
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
        self.meter = Meter(Totals(**{key: state.get(key, 0) for key in fields}))

    def _restore_newest(self) -> str | None:
        """Restore the newest sound checkpoint and return its name."""
        directory = self.run.checkpoints_dir
        checkpoints.read_marks(directory)  # fails now, if they are damaged
        if not checkpoints.list_checkpoints(directory):
            if self._resumes or self.run.config.get("has_checkpoints"):
                raise T2TLiteError(
                    f"{directory} has lost its checkpoints (no checkpoint is "
                    "there; they were moved, or their disk is not mounted): "
                    "put them back, or choose another `output_dir`."
                )
            return None
        return checkpoints.restore_newest(directory, self._read).path.name

    def _read(self, path: pathlib.Path) -> None:
        checkpoints.restore(path, self.tensors())
        if averages := self._averages():
            checkpoints.restore(path / checkpoints.EMA, averages)

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
