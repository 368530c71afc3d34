"""The loop of training: updates, and all that happens between them."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from t2t_lite.errors import Interrupted, T2TLiteError
from t2t_lite.training.checkpoints import checkpoint
from t2t_lite.training.faults.decisions import Decisions
from t2t_lite.training.faults.signals import StopRequested
from t2t_lite.training.options import TrainingOptions
from t2t_lite.training.state import TrainingState
from t2t_lite.training.telemetry import Telemetry
from t2t_lite.training.validation import (
    DevEvaluation,
    evaluations_since_best,
)

MOST_SKIPPED_IN_A_ROW = 10


@dataclasses.dataclass(eq=False)
class Loop:
    """Updates until the end, with all that happens between them."""

    state: TrainingState
    telemetry: Telemetry
    decisions: Decisions
    dev: DevEvaluation
    options: TrainingOptions
    moved: Callable[[], None]  # is called before each pass
    saved: Callable[[], None]  # is called after a checkpoint, by the chief
    _failed_saves: int = dataclasses.field(default=0, init=False)  # in a row

    def to_the_end(self, steps: int) -> None:
        """Trains to update `steps`, then evaluates and averages.

        It ends before, if evaluations have not been better for long enough.
        """
        state = self.state
        if state.step:
            self.telemetry.note(
                f"Going on from update {state.step} in {state.run.output_dir}"
            )
        try:
            # An evaluation that was due when the last process was stopped.
            over = state.step and self._evaluate_if_due()
            if state.step < steps and not over:
                self.telemetry.phase("The first update makes the graphs.")
            while state.step < steps and not over:
                with self.decisions.updating():
                    state.update(self._between_passes, self._wants_decision)
                self._tell(log=self._log_is_due() or state.step == steps)
                decision = self.decisions.decide(
                    state.step, state.decision_is_wanted
                )
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
        self.moved()
        if self.state.workers == 1:
            self.decisions.check()

    def _wants_decision(self) -> bool:
        """Return whether this worker wants to save or stop after the update."""
        return self.decisions.is_wanted(self.state.step + 1)

    def _log_is_due(self) -> bool:
        step = self.state.step
        return step == 1 or step % self.options.log_steps == 0

    def _evaluate_if_due(self) -> bool:
        """Evaluates on dev, and tells whether that is to be the last time."""
        is_due = self.state.step % self.options.eval_steps_every == 0
        if is_due:
            self._evaluate_all()
        return is_due and self._learns_no_more()

    def _learns_no_more(self) -> bool:
        """By what the metrics say, which outlive a process."""
        if self.options.stop_after is None:
            return False
        metric = self.options.stop_metric
        records = self.telemetry.evaluations(self.state.evaluated[-1])
        since, step, best = self.state.exchange(
            evaluations_since_best(records, metric)
        )[0]
        if since < self.options.stop_after:
            return False
        self.telemetry.note(
            f"Training ends at update {self.state.step}: {since} evaluations "
            f"gave no better {metric} than {best:.4g}, that of update {step}."
        )
        return True

    def _evaluate_all(self) -> None:
        """Records how good the weights and their moving average are on dev."""
        for weights in self.state.evaluated:
            self._evaluate(weights)

    def _tell(self, log: bool) -> None:
        """Shows and writes down how training goes, where it is time to."""
        meter, telemetry = self.state.meter, self.telemetry
        show = log or telemetry.wants_progress()
        # The tenth is noticed before another update is made.
        if show or meter.skipped_in_a_row >= MOST_SKIPPED_IN_A_ROW - 1:
            meter.read()
        if meter.skipped_in_a_row >= MOST_SKIPPED_IN_A_ROW:
            raise self._gradients_not_finite()
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

    def _gradients_not_finite(self) -> T2TLiteError:
        state = self.state
        return T2TLiteError(
            f"The gradients of {MOST_SKIPPED_IN_A_ROW} updates in a row, up to "
            f"update {state.step}, were not finite. These updates were "
            "skipped, so the weights are intact; the last checkpoint is that "
            f"of update {state.saved_step}. Lower learning_rate or raise "
            "warmup_steps in another output_dir. To find the operation that "
            "produces the first NaN or Inf, resume with check_numerics."
        )

    def _record(self) -> dict[str, Any]:
        """A line of `metrics.jsonl` on the updates since the last one."""
        state, meter = self.state, self.state.meter
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
        self.telemetry.activity("saving")
        with self.decisions.saving():
            self._try_to_save(self.state.save, must)

    def _try_to_save(
        self, save: Callable[[], None], must: bool = False
    ) -> None:
        """Saves; goes on after a failure, unless it is one too many.

        Args:
          save: does it.
          must: raise its error, as nothing will be saved later.
        """
        saved_before = self.state.saved_step
        try:
            save()
        except checkpoint.SaveError as error:
            left = self.options.save_retries - self._failed_saves
            if must or left <= 0:
                raise
            self._failed_saves += 1
            self.telemetry.note(
                f"WARNING: {error} Training goes on, and tries again when the "
                f"next checkpoint is due; tries left: {left}."
            )
        if self.state.saved_step != saved_before:
            self._failed_saves = 0
            if self.state.is_chief:
                self.saved()

    def _evaluate(self, weights: str | None = None) -> None:
        """Records how good the model is on dev, once a step and weights."""
        state, telemetry = self.state, self.telemetry
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
            metric, value = self.dev.judge(scores, state.best)
            if math.isfinite(value):
                self._try_to_save(lambda: state.mark_if_best(metric, value))
        telemetry.evaluation(record, self.dev.samples)

    def _is_evaluated(self, step: int, weights: str | None) -> bool:
        """Whether the metrics, which the chief writes, have it already."""
        known = self.telemetry.has_evaluation(step, weights)
        return self.state.exchange(known)[0]

    def _scores(self) -> dict[str, float]:
        """Return the scores of all shares; a signal breaks off its own."""
        share: dict[str, Any] = {}
        why = ""
        try:
            with self.decisions.interruptible():
                share = self.dev.share()
        except StopRequested as stop:
            why = str(stop)
        told = self.state.exchange((share, why))
        if whys := [why for _, why in told if why]:
            raise StopRequested(whys[0])
        return self.dev.scores([share for share, _ in told])

    def _average(self) -> None:
        """Averages the last checkpoints; the model then has these weights."""
        self.telemetry.activity("averaging")
        made = self.state.average()
        if made is None:
            return
        name = made.path.name
        if not self._is_evaluated(made.step, name):
            model = checkpoint.model_tensors(self.state.model)
            checkpoint.restore(made.path, model)
            self._evaluate(weights=name)

    def _leave(self, why: str) -> Interrupted:
        """Saves, and gives the error to leave with."""
        self._save(must=True)
        step = self.state.step
        done = f"update {step} is saved" if step else "nothing trained yet"
        return Interrupted(
            f"Stopped by {why}: {done} in "
            f"{self.state.run.output_dir}. Run the same command to go on."
        )
