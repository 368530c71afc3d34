"""Training: updates, checkpoints, evaluation on dev, and a clean way out."""

import math
import time
from typing import Any

from t2t_lite import files
from t2t_lite.errors import Interrupted, T2TLiteError, UsageError
from t2t_lite.hparam import HParams
from t2t_lite.progress import say
from t2t_lite.training import checkpoint
from t2t_lite.training.cluster.devices import choose_strategy, device_name
from t2t_lite.training.faults.signals import StopRequested, StopSignals
from t2t_lite.training.run import Run
from t2t_lite.training.state import TrainingState, prepare
from t2t_lite.training.telemetry import Telemetry
from t2t_lite.training.validation import DevEvaluation, TextEvaluator

MOST_SKIPPED_IN_A_ROW = 10


def train(
    run: Run,
    *,
    train_steps: int | None = None,
    eval_steps_every: int,
    save_minutes: float,
    save_steps: int | None = None,
    keep_checkpoints: int,
    log_steps: int = 100,
    best_metric: str = "auto",
    replicas: int | None = None,
    deterministic: bool = False,
    strict_checkpoints: bool = False,
    evaluate_text: TextEvaluator | None = None,
) -> dict[str, Any]:
    """Trains a run to its end, going on where it stopped.

    Args:
      run: what to train; its folder gets checkpoints and metrics, and is kept
        from other trainers by the caller, see `run.only_trainer`.
      train_steps: updates in total; None takes the run's hparam.
      eval_steps_every: updates between evaluations on dev.
      save_minutes: minutes between checkpoints.
      save_steps: updates between checkpoints, instead of minutes.
      keep_checkpoints: how many of the newest to keep, besides the best.
      log_steps: updates between lines of `metrics.jsonl`.
      best_metric: see `DevEvaluation`.
      replicas: logical CPU devices; None takes all GPUs, else one device.
      deterministic: the same to the bit each time; slower.
      strict_checkpoints: see `TrainingState.restore`.
      evaluate_text: see `DevEvaluation`.

    Returns:
      How much went into the run: `seconds` of updates, `source_tokens`,
      `target_tokens`, `skipped` updates, `devices` and the name of one. What
      came out is in its folder, see `Run.reached`.

    Raises:
      Interrupted: a signal came; everything is saved.
      T2TLiteError: something is wrong; the message says what to do.
    """
    steps = _last_step(run.hparams, train_steps)
    with StopSignals() as stop:
        prepare(run.seed, deterministic)
        run.data.batches("dev")  # fails now rather than at the first evaluation
        for folder in (run.output_dir, run.checkpoints_dir):
            files.remove_unfinished(folder)
        say("Building the model.")
        state = TrainingState(run, choose_strategy(replicas), keep_checkpoints)
        state.restore(strict_checkpoints)
        with Telemetry(run.output_dir, state.step, steps) as telemetry:
            telemetry.phase("Checking the data.")
            telemetry.note(str(run.data.check()))
            _Loop(
                state,
                telemetry,
                stop,
                DevEvaluation(run, state.model, evaluate_text, best_metric),
                _Due(eval_steps_every, save_steps, save_minutes, log_steps),
            ).to_the_end(steps)
        return {
            **state.saved_work,
            "devices": state.replicas,
            "device": device_name(),
        }


def _last_step(hparams: HParams, train_steps: int | None) -> int:
    """The last update's number; a learning rate of 0 trains no further."""
    steps = train_steps or hparams.train_steps
    if hparams.cooldown and steps > hparams.train_steps:
        raise UsageError(
            "The learning rate falls to 0 at update "
            f"{hparams.train_steps}; got --train_steps={steps}. Train a new "
            "run with --hparams_override=train_steps="
            f"{steps}, or with cooldown=0."
        )
    return steps


class _Due:
    """When to evaluate, to save and to log."""

    def __init__(
        self,
        eval_steps: int,
        save_steps: int | None,
        save_minutes: float,
        log_steps: int,
    ):
        self._eval_steps = eval_steps
        self._save_steps = save_steps
        self._save_seconds = save_minutes * 60
        self._log_steps = log_steps
        self._saved_at = time.monotonic()

    def evaluation(self, step: int) -> bool:
        return step % self._eval_steps == 0

    def log(self, step: int) -> bool:
        return step == 1 or step % self._log_steps == 0

    def save(self, step: int) -> bool:
        if self._save_steps:
            return step % self._save_steps == 0
        return time.monotonic() - self._saved_at >= self._save_seconds

    def saved(self) -> None:
        self._saved_at = time.monotonic()


class _Loop:
    """Updates until the end, with all that happens between them."""

    def __init__(
        self,
        state: TrainingState,
        telemetry: Telemetry,
        stop: StopSignals,
        dev: DevEvaluation,
        due: _Due,
    ):
        self._state = state
        self._telemetry = telemetry
        self._stop = stop
        self._dev = dev
        self._due = due

    def to_the_end(self, steps: int) -> None:
        """Trains to update `steps`, then evaluates and averages."""
        state, due = self._state, self._due
        if state.step:
            self._telemetry.note(
                f"Going on from update {state.step} in {state.run.output_dir}"
            )
        try:
            # An evaluation that was due when the last process was stopped.
            if state.step and due.evaluation(state.step):
                self._evaluate()
            if state.step < steps:
                self._telemetry.phase("The first update makes the graphs.")
            while state.step < steps:
                state.update(between_passes=self._stop.check)
                self._tell(log=due.log(state.step) or state.step == steps)
                if due.save(state.step):
                    self._save()
                    due.saved()
                if due.evaluation(state.step):
                    self._evaluate()
            self._save()
            self._evaluate()
            self._average()
        except StopRequested:
            raise self._leave() from None

    def _tell(self, log: bool) -> None:
        """Shows and writes down how training goes, where it is time to."""
        meter, telemetry = self._state.meter, self._telemetry
        show = log or telemetry.wants_progress()
        if show:
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
        return T2TLiteError(
            f"The gradients of {MOST_SKIPPED_IN_A_ROW} updates in a row, up to "
            f"update {self._state.step}, were not finite; these updates were "
            "skipped and the weights are sound. Lower learning_rate or raise "
            "warmup_steps in another --output_dir; the last checkpoint here is "
            f"that of update {self._state.saved_step}."
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
            "skipped": meter.skipped,
            "epoch": state.epoch,
            "seconds": round(meter.seconds, 2),
        }

    def _save(self) -> None:
        self._telemetry.activity("saving")
        self._state.save()

    def _evaluate(self, weights: str | None = None) -> None:
        """Records how good the model is on dev, once a step and weights."""
        state, telemetry = self._state, self._telemetry
        if telemetry.metrics.has_evaluation(state.step, weights):
            return
        telemetry.activity("evaluating on dev")
        state.meter.read()
        with self._stop.interruptible():
            scores = self._dev()
        record: dict[str, Any] = {"step": state.step, **scores}
        if weights:
            record["weights"] = weights
        else:
            metric, value = self._dev.judge(scores, state.best)
            if math.isfinite(value):
                state.mark_if_best(metric, value)
        telemetry.evaluation(record, self._dev.sample)

    def _average(self) -> None:
        """Averages the last checkpoints; the model then has these weights."""
        self._telemetry.activity("averaging")
        made = self._state.average()
        if made is None:
            return
        name = made.path.name
        if not self._telemetry.metrics.has_evaluation(made.step, name):
            model = checkpoint.model_tensors(self._state.model)
            checkpoint.restore(made.path, model)
            self._evaluate(weights=name)

    def _leave(self) -> Interrupted:
        """Saves, and gives the error to leave with."""
        self._save()
        step = self._state.step
        done = f"update {step} is saved" if step else "nothing trained yet"
        return Interrupted(
            f"Stopped by {self._stop.requested}: {done} in "
            f"{self._state.run.output_dir}. Run the same command to go on."
        )
