"""Learning-rate schedules: functions of the number of an update, from 1."""

import math

from t2t_lite.errors import UsageError
from t2t_lite.hparam import FALLING_SCHEDULES, FLAT_SCHEDULE, HParams


def training_rate(hparams: HParams, step: int) -> float:
    """Return the learning rate of an update.

    The hparam `learning_rate` is a factor for the schedule "paper", and the
    peak rate of all other schedules. `schedule_offset` delays the schedule;
    the rate before a warm-up is 0.
    """
    fall = cooldown(step, hparams.train_steps, hparams.cooldown)
    schedule, warmup = hparams.schedule, hparams.warmup_steps
    step -= hparams.schedule_offset
    if step < 1 and schedule != FLAT_SCHEDULE:
        return 0.0
    step = max(step, 1)
    if schedule == "paper":
        factor = hparams.learning_rate
        return learning_rate(step, hparams.hidden_size, warmup, factor) * fall
    shape = fraction_of_peak(schedule, step, warmup, hparams.train_steps)
    return hparams.learning_rate * shape * fall


def decays_to_zero(hparams: HParams) -> bool:
    """Return whether the rate decays to 0 after `train_steps` updates."""
    return bool(hparams.cooldown) or hparams.schedule in FALLING_SCHEDULES


def last_step(hparams: HParams, train_steps: int | None) -> int:
    """Return the number of the last update, by default the hparam's.

    Raises:
      UsageError: the rate reaches 0 before `train_steps`.
    """
    steps = train_steps or hparams.train_steps
    if decays_to_zero(hparams) and steps > hparams.train_steps:
        without = "cooldown=0" if hparams.cooldown else "schedule=inverse_sqrt"
        raise UsageError(
            f"`train_steps` must be at most {hparams.train_steps}, where the "
            f"learning rate decays to 0 (got {steps}). Train a new run with "
            f"`hparams_override=train_steps={steps}`, or with {without}."
        )
    return steps


def learning_rate(
    step: int, hidden_size: int, warmup_steps: int, factor: float = 1.0
) -> float:
    """Return the rate of an update (arXiv:1706.03762, equation 3).

    The rate rises linearly for `warmup_steps` updates, and then decays with the
    inverse square root of the step. tensor2tensor calls this schedule "noam";
    its later sets have a `schedule_offset` of 1.
    """
    shape = min(step**-0.5, step * warmup_steps**-1.5)
    return factor * hidden_size**-0.5 * shape


def fraction_of_peak(
    schedule: str, step: int, warmup_steps: int, train_steps: int
) -> float:
    """Return the rate of an update as a fraction of the peak rate, 0-1.

    The rate rises linearly to 1 at update `warmup_steps`; the warm-up of
    flat_inverse_sqrt is constantly 1 (arXiv:1804.04235, section 9). After the
    warm-up, with p = (step - warmup_steps) / (train_steps + 1 - warmup_steps):

      constant: 1.
      inverse_sqrt, flat_inverse_sqrt: (warmup_steps / step) ** 0.5.
      linear: 1 - p (arXiv:1810.04805, appendix A.2).
      cosine: (1 + cos(pi * p)) / 2 (arXiv:1608.03983, equation 5, one period).

    linear and cosine reach 0 at update train_steps + 1.
    """
    if step <= warmup_steps:
        return 1.0 if schedule == FLAT_SCHEDULE else step / warmup_steps
    progress = (step - warmup_steps) / (train_steps + 1 - warmup_steps)
    return {
        "constant": 1.0,
        "inverse_sqrt": (warmup_steps / step) ** 0.5,
        FLAT_SCHEDULE: (warmup_steps / step) ** 0.5,
        "linear": 1 - progress,
        "cosine": (1 + math.cos(math.pi * progress)) / 2,
    }[schedule]


def cooldown(step: int, train_steps: int, fraction: float) -> float:
    """Return the factor of a linear cooldown (arXiv:2405.18392, section 3).

    The factor decays over the last `fraction` of the updates, to
    1 / (fraction * train_steps) at `train_steps`.
    """
    if not fraction:
        return 1.0
    return min(1.0, (train_steps + 1 - step) / (fraction * train_steps))
