"""Training: updates, checkpoints, evaluation on dev, and a clean way out."""

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from t2t_lite import files
from t2t_lite.errors import Interrupted, T2TLiteError
from t2t_lite.model.layers import initial
from t2t_lite.progress import say
from t2t_lite.training import not_finite
from t2t_lite.training.checkpoints import checkpoint
from t2t_lite.training.cluster.cluster import ALONE, Cluster
from t2t_lite.training.cluster.devices import choose_strategy, device_name
from t2t_lite.training.cluster.silence import Silence
from t2t_lite.training.faults.deadline import Deadline
from t2t_lite.training.faults.decisions import Decisions
from t2t_lite.training.faults.signals import StopRequested, StopSignals
from t2t_lite.training.faults.stall import LOG, StallWatch
from t2t_lite.training.fit.largest import fitting_slices
from t2t_lite.training.optimizer.schedules import last_step
from t2t_lite.training.options import TrainingOptions
from t2t_lite.training.run import Run
from t2t_lite.training.state import TrainingState, prepare
from t2t_lite.training.telemetry import Telemetry
from t2t_lite.training.validation import (
    DevEvaluation,
    TextEvaluator,
    evaluations_since_best,
)

MOST_SKIPPED_IN_A_ROW = 10


def train(
    run: Run,
    options: TrainingOptions,
    evaluate_text: TextEvaluator | None = None,
    *,
    cluster: Cluster = ALONE,
    strategy: tf.distribute.Strategy | None = None,
    saved: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Trains a run to its end, going on where it stopped.

    Args:
      run: what to train; its folder gets checkpoints and metrics, and is kept
        from other trainers by the caller, see `run.only_trainer`.
      options: how.
      evaluate_text: see `DevEvaluation`.
      cluster: of this process. All its processes call this alike; the chief
        writes.
      strategy: of all their devices; None chooses one for a single process.
      saved: is called after each checkpoint, by the chief.

    Returns:
      How much went into the run: `seconds` of updates, `source_tokens`,
      `target_tokens`, `skipped` updates, `devices` and the name of one. What
      came out is in its folder, see `Run.reached`.

    Raises:
      Interrupted: a signal came; everything is saved.
      T2TLiteError: something is wrong; the message says what to do.
    """
    steps = last_step(run.hparams, options.train_steps)
    watch = StallWatch(options.stall_minutes, run.output_dir / LOG)
    with StopSignals() as signals:
        prepare(run.seed, options.deterministic)
        run.data.batches("dev")  # fails now rather than at the first evaluation
        if cluster.is_chief:
            for folder in (run.output_dir, run.checkpoints_dir):
                files.remove_unfinished(folder)
        say("Building the model.")
        goes_on = bool(checkpoint.list_checkpoints(run.checkpoints_dir))
        with initial.unset(goes_on and cluster.size == 1):
            state = TrainingState(
                run,
                strategy or choose_strategy(options.replicas),
                options.keep_checkpoints,
                cluster,
                options.keep_best,
                options.jit,
                options.recompute,
            )
        if run.config.get("freeze"):
            say(
                f"{state.updater.trained_parameters:,} of "
                f"{state.model.count_params():,} parameters are trained."
            )
        state.restore(options.strict_checkpoints, must=goes_on)
        dev = DevEvaluation(
            run,
            state.model,
            evaluate_text,
            options.best_metric,
            cluster.index,
            cluster.size,
            watch.moved,
        )
        cluster.share_stop(lambda: signals.requested, signals.ask)
        with _telemetry(state, steps, cluster) as telemetry:
            telemetry.phase("Checking the data.")
            telemetry.note(str(run.data.check()))
            # The first save is guessed: on a disk that is rather slow.
            deadline = Deadline(options.max_minutes, state.size_bytes / 100e6)
            deadline.share(cluster.exchange)
            decisions = Decisions(
                signals,
                deadline,
                options.save_steps,
                options.save_minutes,
                cluster.exchange,
            )
            loop = _Loop(
                state, telemetry, decisions, dev, options, cluster, watch.moved
            )
            loop.saved = saved
            with watch, cluster.naming_losses():
                if state.step < steps:
                    _fit(state, options, telemetry, cluster)
                loop.to_the_end(steps)
        return {
            **state.saved_work,
            "devices": state.replicas,
            "device": device_name(),
        }


def _telemetry(
    state: TrainingState, steps: int, cluster: Cluster
) -> "Telemetry | Silence":
    """The chief tells of training; the others would tell the same."""
    if cluster.is_chief:
        return Telemetry(state.run.output_dir, state.step, steps)
    return Silence()


def _fit(
    state: TrainingState,
    options: TrainingOptions,
    telemetry: Telemetry | Silence,
    cluster: Cluster,
) -> None:
    """Out of memory is met now, or never."""
    telemetry.phase("Trying the largest batch.")
    run, updater = state.run, state.updater
    asked = options.slices(run.hparams.micro_batches)
    updater.slices = fitting_slices(
        updater, run.hparams, asked, run.config, run.record, cluster
    )
    if asked is None:
        passes = updater.slices * run.hparams.micro_batches
        telemetry.note(f"--micro_batches=auto: {passes} passes an update.")


class _Loop:
    """Updates until the end, with all that happens between them."""

    def __init__(
        self,
        state: TrainingState,
        telemetry: Telemetry | Silence,
        decisions: Decisions,
        dev: DevEvaluation,
        options: TrainingOptions,
        cluster: Cluster,
        moved: Callable[[], None],
    ):
        self._state = state
        self._telemetry = telemetry
        self._decisions = decisions
        self._dev = dev
        self._options = options
        self._cluster = cluster
        self._moved = moved
        self._failed_saves = 0  # in a row
        self.saved: Callable[[], None] = lambda: None  # after a checkpoint

    def to_the_end(self, steps: int) -> None:
        """Trains to update `steps`, then evaluates and averages.

        It ends before, if evaluations have not been better for long enough.
        """
        state = self._state
        if state.step:
            self._telemetry.note(
                f"Going on from update {state.step} in {state.run.output_dir}"
            )
        try:
            # An evaluation that was due when the last process was stopped.
            over = state.step and self._evaluate_if_due()
            if state.step < steps and not over:
                self._telemetry.phase("The first update makes the graphs.")
            while state.step < steps and not over:
                with self._decisions.updating():
                    state.update(between_passes=self._between_passes)
                self._tell(log=self._log_is_due() or state.step == steps)
                decision = self._decisions.decide(state.step)
                if decision.save:
                    self._save()
                if decision.stop:
                    raise StopRequested(decision.stop)
                over = self._evaluate_if_due()
            self._save(must=True)
            self._evaluate_all()
            self._average()
        except StopRequested as stop:
            raise self._leave(str(stop)) from None

    def _between_passes(self) -> None:
        """Leaves an update undone; several workers finish it together."""
        self._moved()
        if self._cluster.size == 1:
            self._decisions.check()

    def _log_is_due(self) -> bool:
        step = self._state.step
        return step == 1 or step % self._options.log_steps == 0

    def _evaluate_if_due(self) -> bool:
        """Evaluates on dev, and tells whether that is to be the last time."""
        is_due = self._state.step % self._options.eval_steps_every == 0
        if is_due:
            self._evaluate_all()
        return is_due and self._learns_no_more()

    def _learns_no_more(self) -> bool:
        """By what the metrics say, which outlive a process."""
        if self._options.stop_after is None:
            return False
        metric = self._options.stop_on
        records = self._telemetry.evaluations(self._state.evaluated[-1])
        since, step, best = self._cluster.exchange(
            "learning", evaluations_since_best(records, metric)
        )[0]
        if since < self._options.stop_after:
            return False
        self._telemetry.note(
            f"Training ends at update {self._state.step}: {since} evaluations "
            f"gave no better {metric} than {best:.4g}, that of update {step}."
        )
        return True

    def _evaluate_all(self) -> None:
        """Records how good the weights and their moving average are on dev."""
        for weights in self._state.evaluated:
            self._evaluate(weights)

    def _tell(self, log: bool) -> None:
        """Shows and writes down how training goes, where it is time to."""
        meter, telemetry = self._state.meter, self._telemetry
        show = log or telemetry.wants_progress()
        # The tenth is noticed before another update is made.
        if show or meter.skipped_in_a_row >= MOST_SKIPPED_IN_A_ROW - 1:
            meter.read()
        if meter.skipped_in_a_row >= MOST_SKIPPED_IN_A_ROW:
            raise self._not_finite()
        if log:
            if skipped := meter.skipped_in_interval:
                telemetry.note(
                    f"{skipped} update(s) were skipped: their gradients were "
                    "not finite."
                )
            telemetry.training(self._record())
            meter.start_interval()
        elif show:
            telemetry.progress(self._record())

    def _not_finite(self) -> T2TLiteError:
        state = self._state
        folder = state.run.output_dir / not_finite.FOLDER
        try:
            if self._cluster.is_chief:
                not_finite.dump(state)
            flags = f"--output_dir={state.run.output_dir} --replay={folder}"
            told = (
                f"The last one is in {folder}: t2t-lite-trainer {flags} makes "
                "it again and says where it is not finite."
            )
        except checkpoint.SaveError as error:
            told = str(error)
        return T2TLiteError(
            f"The gradients of {MOST_SKIPPED_IN_A_ROW} updates in a row, up to "
            f"update {state.step}, were not finite; these updates were "
            f"skipped and the weights are sound. {told} Lower learning_rate "
            "or raise warmup_steps in another --output_dir; the last "
            f"checkpoint here is that of update {state.saved_step}."
        )

    def _record(self) -> dict[str, Any]:
        """A line of `metrics.jsonl` on the updates since the last one."""
        state, meter = self._state, self._state.meter
        return {
            "step": state.step,
            "loss": meter.loss,
            "learning_rate": meter.learning_rate,
            "tokens_per_second": meter.tokens_per_second,
            "gradient_norm": meter.gradient_norm,
            "padding": round(meter.padding, 4),
            "skipped": meter.skipped,
            "epoch": state.epoch,
            "seconds": round(meter.seconds, 2),
        }

    def _save(self, must: bool = False) -> None:
        self._telemetry.activity("saving")
        with self._decisions.saving():
            self._try_to_save(self._state.save, must)

    def _try_to_save(
        self, save: Callable[[], None], must: bool = False
    ) -> None:
        """Saves; goes on after a failure, unless it is one too many.

        Args:
          save: does it.
          must: raise its error, as nothing will be saved later.
        """
        saved_before = self._state.saved_step
        try:
            save()
        except checkpoint.SaveError as error:
            left = self._options.save_retries - self._failed_saves
            if must or left <= 0:
                raise
            self._failed_saves += 1
            self._telemetry.note(
                f"WARNING: {error} Training goes on, and tries again when the "
                f"next checkpoint is due; tries left: {left}."
            )
        if self._state.saved_step != saved_before:
            self._failed_saves = 0
            if self._cluster.is_chief:
                self.saved()

    def _evaluate(self, weights: str | None = None) -> None:
        """Records how good the model is on dev, once a step and weights."""
        state, telemetry = self._state, self._telemetry
        if self._is_evaluated(state.step, weights):
            return
        telemetry.activity("evaluating on dev")
        state.meter.read()
        with state.holding(weights):
            scores = self._scores()
        record: dict[str, Any] = {"step": state.step, **scores}
        if weights:
            record["weights"] = weights
        if weights == state.evaluated[-1]:
            metric, value = self._dev.judge(scores, state.best)
            if math.isfinite(value):
                self._try_to_save(lambda: state.mark_if_best(metric, value))
        telemetry.evaluation(record, self._dev.samples)

    def _is_evaluated(self, step: int, weights: str | None) -> bool:
        """Whether the metrics, which the chief writes, have it already."""
        known = self._telemetry.has_evaluation(step, weights)
        return self._cluster.exchange("evaluated", known)[0]

    def _scores(self) -> dict[str, float]:
        """Those of all workers' shares; a signal to one breaks it off."""
        share: dict[str, Any] = {}
        why = ""
        try:
            with self._decisions.interruptible():
                share = self._dev.share()
        except StopRequested as stop:
            why = str(stop)
        told = self._cluster.exchange("dev", (share, why))
        if whys := [why for _, why in told if why]:
            raise StopRequested(whys[0])
        return self._dev.scores([share for share, _ in told])

    def _average(self) -> None:
        """Averages the last checkpoints; the model then has these weights."""
        self._telemetry.activity("averaging")
        made = self._state.average()
        if made is None:
            return
        name = made.path.name
        if not self._is_evaluated(made.step, name):
            model = checkpoint.model_tensors(self._state.model)
            checkpoint.restore(made.path, model)
            self._evaluate(weights=name)

    def _leave(self, why: str) -> Interrupted:
        """Saves, and gives the error to leave with."""
        self._save(must=True)
        step = self._state.step
        done = f"update {step} is saved" if step else "nothing trained yet"
        return Interrupted(
            f"Stopped by {why}: {done} in "
            f"{self._state.run.output_dir}. Run the same command to go on."
        )
