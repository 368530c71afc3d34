"""Training: updates, checkpoints, evaluation on dev, and a clean way out."""

import math
import random
import resource
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from t2t_lite import files
from t2t_lite.data.packing import feature_names, packed_shape
from t2t_lite.errors import Interrupted, T2TLiteError, UsageError
from t2t_lite.hparam import HParams
from t2t_lite.training import checkpoint
from t2t_lite.training.lock import only_trainer
from t2t_lite.training.run import Run
from t2t_lite.training.signals import StopRequested, StopSignals
from t2t_lite.training.state import TrainingState, training_rate
from t2t_lite.training.telemetry import Meter, Telemetry
from t2t_lite.training.updates import (
    Updater,
    UpdateStats,
    choose_strategy,
    device_name,
)
from t2t_lite.training.validation import (
    LossEvaluation,
    TextEvaluation,
    TextEvaluator,
)

MOST_SKIPPED_IN_A_ROW = 10


def train(
    run: Run,
    *,
    train_steps: int | None = None,
    eval_steps_every: int = 1000,
    save_minutes: float = 10,
    save_steps: int | None = None,
    keep_checkpoints: int = 20,
    log_steps: int = 100,
    replicas: int | None = None,
    deterministic: bool = False,
    evaluate_text: TextEvaluator | None = None,
) -> dict[str, Any]:
    """Trains a run to its end, going on where it stopped.

    Args:
      run: what to train; its folder gets checkpoints and metrics.
      train_steps: updates in total; None takes the run's hparam.
      eval_steps_every: updates between evaluations on dev.
      save_minutes: minutes between checkpoints.
      save_steps: updates between checkpoints, in place of minutes.
      keep_checkpoints: newest ones kept; the best is kept besides.
      log_steps: updates between lines of `metrics.jsonl`.
      replicas: logical CPU devices; None takes all GPUs, else one device.
      deterministic: bitwise the same each time; slower.
      evaluate_text: gives `{"score", ...}` of a model; None
        translates the dev split greedily and scores that.

    Returns:
      `{"step", "best", "average", "work"}`: the last update, what is marked as
      the best checkpoint, the folder of the average, or None, and how much
      went into the run: `seconds` of updates, `source_tokens`,
      `target_tokens`, `skipped` updates, `devices` and the name of one.

    Raises:
      Interrupted: a signal came; everything is saved.
      T2TLiteError: something is wrong; the message says what to do.
    """
    steps = _steps(run.hparams, train_steps)
    with StopSignals() as stop, only_trainer(run.output_dir):
        prepare(run.seed, deterministic)
        run.data.batches("dev")  # fails now rather than at the first evaluation
        for folder in (run.output_dir, run.checkpoints_dir):
            files.remove_unfinished(folder)
        state = TrainingState(run, choose_strategy(replicas))
        saved = state.restore()
        with Telemetry(run.output_dir, state.step, steps) as telemetry:
            telemetry.note(str(run.data.check()))
            loop = _Loop(
                run,
                state,
                Meter(**{k: saved[k] for k in Meter().totals() if k in saved}),
                telemetry,
                stop,
                evaluate_text or TextEvaluation(run),
                keep_checkpoints,
                log_steps,
            )
            due = _Due(eval_steps_every, save_steps, save_minutes)
            return loop.to_the_end(steps, due)


def _steps(hparams, train_steps):
    """The last update's number, which a rate at rest does not pass."""
    steps = train_steps or hparams.train_steps
    if hparams.cooldown and steps > hparams.train_steps:
        raise UsageError(
            "The learning rate has fallen to 0 at update "
            f"{hparams.train_steps}; got --train_steps={steps}. Train a new "
            "run with --hparams_override=train_steps="
            f"{steps}, or with cooldown=0."
        )
    return steps


def dry_run(
    make_model: Callable[[], Any],
    hparams: HParams,
    seed: int = 1,
    replicas: int | None = None,
) -> dict[str, Any]:
    """Makes one update on the largest possible micro-batches; saves nothing.

    Args:
      make_model: gives a model with fresh weights.
      hparams: of its training.
      seed: of all that is drawn.
      replicas: as of `train`.

    Returns:
      `parameters`, of the model; `replicas`; `micro_batch`, its rows and
      columns; `seconds_per_update`, the making of graphs left out;
      `peak_memory_bytes`, of the first GPU, or of this process without one;
      `loss`, in nats a token, of the update.
    """
    prepare(seed, deterministic=False)
    strategy = choose_strategy(replicas)
    with strategy.scope():
        model = make_model()
    updater = Updater(model, hparams, strategy, seed)
    positions = hparams.batch_tokens // hparams.micro_batches
    shape = packed_shape(positions, hparams.max_length)
    # The first update, on next to nothing, makes the graphs.
    for number, size in enumerate(([1, 1], shape), start=1):
        batch = _full_batch(size, hparams.packing)
        batches = [batch] * hparams.micro_batches
        start = time.monotonic()
        rate = training_rate(hparams, number)
        stats = UpdateStats(*updater.update(batches, number, rate).numpy())
    return {
        "parameters": model.count_params(),
        "replicas": strategy.num_replicas_in_sync,
        "micro_batch": list(shape),
        "seconds_per_update": time.monotonic() - start,
        "peak_memory_bytes": _peak_memory_bytes(),
        "loss": float(stats.loss_sum / stats.target_tokens),
    }


def _full_batch(shape, packing):
    """Rows without padding; packed: of one pair each."""
    places = tf.broadcast_to(tf.range(shape[1]), shape)
    return {
        name: places if name.endswith("_position") else tf.ones_like(places)
        for name in feature_names(packing)
    }


def _peak_memory_bytes():
    if tf.config.list_physical_devices("GPU"):
        return tf.config.experimental.get_memory_info("GPU:0")["peak"]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def prepare(seed: int, deterministic: bool) -> None:
    """Seeds what initializes weights; makes ops deterministic if asked to.

    Keras draws the seeds of initializers from Python's generator. TensorFlow's
    own seed is left alone: nothing here uses it, and to set it empties the
    cache of kernels, which own the vocabularies that are open.
    """
    random.seed(seed)
    if deterministic:
        tf.config.experimental.enable_op_determinism()


class _Due:
    """When to evaluate and when to save."""

    def __init__(self, eval_steps, save_steps, save_minutes):
        self._eval_steps = eval_steps
        self._save_steps = save_steps
        self._save_seconds = save_minutes * 60
        self._saved_at = time.monotonic()

    def evaluation(self, step):
        return step % self._eval_steps == 0

    def save(self, step):
        if self._save_steps:
            return step % self._save_steps == 0
        return time.monotonic() - self._saved_at >= self._save_seconds

    def saved(self):
        self._saved_at = time.monotonic()


class _Loop:
    """Updates until the end, with all that happens between them."""

    def __init__(
        self,
        run,
        state,
        meter,
        telemetry,
        stop,
        evaluate_text,
        keep_checkpoints,
        log_steps,
    ):
        self._run = run
        self._directory = run.checkpoints_dir
        self._state = state
        self._meter = meter
        self._telemetry = telemetry
        self._stop = stop
        self._evaluate_loss = LossEvaluation(state.model)
        self._evaluate_text = evaluate_text
        self._keep = keep_checkpoints
        self._log_steps = log_steps
        self._saved_step = state.step  # nothing to save at 0 yet
        self._work = meter.totals()  # that went into what is saved

    def to_the_end(self, steps, due):
        """Trains to update `steps`, then evaluates and averages."""
        state = self._state
        if state.step:
            self._telemetry.note(
                f"Going on from update {state.step} in {self._run.output_dir}"
            )
        try:
            # An evaluation that was due when the last process was stopped.
            if state.step and due.evaluation(state.step):
                self._evaluate()
            while state.step < steps:
                self._update(steps)
                if due.save(state.step):
                    self._save()
                    due.saved()
                if due.evaluation(state.step):
                    self._evaluate()
            return self._finish()
        except StopRequested:
            raise self._leave() from None

    def _update(self, steps):
        state, meter = self._state, self._meter
        rate = state.learning_rate
        with meter.timed():
            meter.add(state.update(between_passes=self._stop.check))
        logged = state.step % self._log_steps == 0 or state.step in (1, steps)
        shown = logged or self._telemetry.wants_progress()
        if shown:
            meter.read()
        if meter.skipped_in_a_row >= MOST_SKIPPED_IN_A_ROW:
            raise self._not_finite()
        if logged:
            self._log(rate)
        elif shown:
            self._telemetry.progress(self._record(rate))

    def _not_finite(self):
        return T2TLiteError(
            f"The gradients of {MOST_SKIPPED_IN_A_ROW} updates in a row, up to "
            f"update {self._state.step}, were not finite; these updates were "
            "skipped and the weights are sound. Lower learning_rate or raise "
            "warmup_steps in another --output_dir; the last checkpoint here is "
            f"that of update {self._saved_step}."
        )

    def _record(self, rate):
        """A line of `metrics.jsonl` on the updates since the last one."""
        meter = self._meter
        return {
            "step": self._state.step,
            "loss": meter.loss,
            "learning_rate": rate,
            "tokens_per_second": meter.tokens_per_second,
            "gradient_norm": meter.gradient_norm,
            "skipped": meter.skipped,
            "epoch": self._state.epoch,
            "seconds": round(meter.seconds, 2),
        }

    def _log(self, rate):
        meter = self._meter
        if meter.skipped_in_window:
            self._telemetry.note(
                f"{meter.skipped_in_window} update(s) were skipped: their "
                "gradients were not finite."
            )
        self._telemetry.training(self._record(rate))
        meter.start_window()

    def _save(self):
        state, meter = self._state, self._meter
        if state.step == self._saved_step:
            return
        self._telemetry.activity("saving")
        meter.read()
        self._work = meter.totals()
        state.save(**self._work)
        self._saved_step = state.step
        checkpoint.remove_old(self._directory, self._keep)

    def _evaluate(self, weights=None):
        """Records how good the model is on dev, once a step and weights."""
        step, telemetry = self._state.step, self._telemetry
        if telemetry.metrics.has_evaluation(step, weights):
            return
        telemetry.activity("evaluating on dev")
        self._meter.read()
        with self._stop.interruptible():
            loss = self._evaluate_loss(self._run.data.batches("dev"))
            score = self._score(self._evaluate_text(self._state.model))
        record = {
            "step": step,
            "dev_loss": loss["loss"],
            "dev_perplexity": loss["perplexity"],
            **score,
        }
        if weights:
            record["weights"] = weights
        else:
            # Without a score, the best one is that with the lowest loss.
            score = score or {"negative_dev_loss": -loss["loss"]}
            self._mark_if_best(*next(iter(score.items())))
        telemetry.evaluation(record)

    def _score(self, report: Mapping[str, Any]) -> dict[str, float]:
        """`{"dev_bleu": 30.0}` of a problem's report, or nothing without."""
        if not report:
            return {}
        return {f"dev_{self._run.problem.metric}": float(report["score"])}

    def _mark_if_best(self, metric, value):
        best = checkpoint.read_best(self._directory) or {}
        saved = checkpoint.list_checkpoints(self._directory)
        is_there = best.get("step") in [found.step for found in saved]
        if is_there and best["metric"] == metric and best["value"] >= value:
            return
        if math.isfinite(value):
            self._save()
            step = self._state.step
            checkpoint.mark_best(self._directory, step, metric, value)
            # The one that was the best may be an old one now.
            checkpoint.remove_old(self._directory, self._keep)

    def _finish(self):
        """The last checkpoint, the last evaluation, and the average."""
        state, average = self._state, None
        self._save()
        self._evaluate()
        count = len(checkpoint.list_checkpoints(self._directory))
        count = min(count, self._run.hparams.average_checkpoints)
        if count > 1:
            average = self._average(count)
        return {
            "step": state.step,
            "best": checkpoint.read_best(self._directory),
            "average": average and str(average.path),
            "work": self._work
            | {"devices": state.replicas, "device": device_name()},
        }

    def _average(self, count):
        made = checkpoint.resolve(self._directory, "default")
        if made.averaged != count:
            self._telemetry.activity("averaging")
            made = checkpoint.average(self._directory, count)
        name = made.path.name
        if not self._telemetry.metrics.has_evaluation(made.step, name):
            # All is saved: the model may have other weights now.
            model = checkpoint.model_tensors(self._state.model)
            checkpoint.restore(made.path, model)
            self._evaluate(weights=name)
        return made

    def _leave(self):
        """Saves, and gives the error to leave with."""
        self._save()
        step = self._state.step
        done = f"update {step} is saved" if step else "nothing trained yet"
        return Interrupted(
            f"Stopped by {self._stop.requested}: {done} in "
            f"{self._run.output_dir}, and the same command goes on."
        )
