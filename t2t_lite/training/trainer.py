"""Training: updates, checkpoints, evaluation on dev, and a clean way out."""

import contextlib
import pathlib
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from t2t_lite import files
from t2t_lite.model.layers import initial
from t2t_lite.progress import say
from t2t_lite.training.checkpoints import checkpoint
from t2t_lite.training.distribute import (
    choose_strategy,
    device_name,
    worker_count,
    worker_index,
)
from t2t_lite.training.faults.deadline import Deadline
from t2t_lite.training.faults.decisions import Decisions
from t2t_lite.training.faults.signals import StopSignals
from t2t_lite.training.faults.stall import HangWatchdog
from t2t_lite.training.fit.largest import fitting_slices
from t2t_lite.training.loop import Loop
from t2t_lite.training.optimizer.schedules import last_step
from t2t_lite.training.options import TrainingOptions
from t2t_lite.training.run import Run
from t2t_lite.training.state import TrainingState, prepare
from t2t_lite.training.telemetry import Telemetry
from t2t_lite.training.validation import DevEvaluation, TextEvaluator


def train(
    run: Run,
    options: TrainingOptions,
    evaluate_text: TextEvaluator | None = None,
    *,
    strategy: tf.distribute.Strategy | None = None,
    saved: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Trains a run to its end, going on where it stopped.

    Args:
      run: what to train; its folder gets checkpoints and metrics, and is kept
        from other trainers by the caller, see `faults.lock`.
      options: how.
      evaluate_text: see `DevEvaluation`.
      strategy: of the devices that train; None chooses one for a single
        process. All workers of a strategy call this alike; the chief writes.
      saved: is called after each checkpoint, by the chief.

    Returns:
      How much went into the run: `seconds` of updates, `source_tokens`,
      `target_tokens`, `skipped` updates, `devices` and the name of one. What
      came out is in its folder, see `Run.reached`.

    Raises:
      Interrupted: a signal came; everything is saved.
      T2TLiteError: something is wrong; the message says what to do.
    """
    strategy = strategy or choose_strategy(
        options.replicas, None if options.jit else run.hparams
    )
    steps = last_step(run.hparams, options.train_steps)
    watch = HangWatchdog(options.stall_minutes)
    with StopSignals() as signals:
        prepare(run.seed, options.deterministic, options.check_numerics)
        run.data.batches("dev")  # fails now rather than at the first evaluation
        if worker_index(strategy) == 0:
            for folder in (run.output_dir, run.checkpoints_dir):
                files.remove_unfinished(folder)
        state = _state_of(run, options, strategy)
        dev = DevEvaluation(
            run,
            state.model,
            evaluate_text,
            options.best_metric,
            state.worker,
            state.workers,
            watch.moved,
        )
        with (
            _folder_to_write(state) as folder,
            Telemetry(folder, state.step, steps) as telemetry,
        ):
            telemetry.phase("Checking the data.")
            telemetry.note(str(run.data.check()))
            # The first save is guessed: on a disk that is rather slow.
            deadline = Deadline(options.max_minutes, state.size_bytes / 100e6)
            decisions = Decisions(
                signals,
                deadline,
                options.save_steps,
                options.save_minutes,
                state.exchange if state.workers > 1 else None,
            )
            loop = Loop(
                state,
                telemetry,
                decisions,
                dev,
                options,
                watch.moved,
                saved,
            )
            with watch:
                if state.step < steps:
                    _fit(state, options, telemetry)
                loop.to_the_end(steps)
        return {
            **state.saved_work,
            "devices": state.replicas,
            "device": device_name(),
        }


def _state_of(
    run: Run,
    options: TrainingOptions,
    strategy: tf.distribute.Strategy,
) -> TrainingState:
    """The model and what goes with it, as they were when the run stopped."""
    say("Building the model.")
    goes_on = bool(checkpoint.list_checkpoints(run.checkpoints_dir))
    # Workers get their first weights from the chief, so they need values.
    with initial.unset(goes_on and worker_count(strategy) == 1):
        state = TrainingState(
            run,
            strategy,
            options.keep_checkpoints,
            options.keep_best,
            jit=options.jit,
            recompute=options.recompute,
        )
    if run.config.get("freeze"):
        say(
            f"{state.updater.trained_parameters:,} of "
            f"{state.model.count_params():,} parameters are trained."
        )
    state.restore(options.strict_checkpoints, must=goes_on)
    return state


@contextlib.contextmanager
def _folder_to_write(state: TrainingState) -> Iterator[pathlib.Path]:
    """Yield the run's folder; to other workers than the chief a temporary one.

    They would write the same metrics as the chief.
    """
    if state.is_chief:
        yield state.run.output_dir
        return
    with tempfile.TemporaryDirectory() as folder:
        yield pathlib.Path(folder)


def _fit(
    state: TrainingState,
    options: TrainingOptions,
    telemetry: Telemetry,
) -> None:
    """Out of memory is met now, or never."""
    telemetry.phase("Trying the largest batch.")
    run, updater = state.run, state.updater
    asked = options.slices(run.hparams.micro_batches)
    updater.slices = fitting_slices(
        updater, run.hparams, asked, run.config, run.record
    )
    if asked is None:
        passes = updater.slices * run.hparams.micro_batches
        telemetry.note(f"--micro_batches=auto: {passes} passes an update.")
