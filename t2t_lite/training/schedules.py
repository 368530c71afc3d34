"""Learning-rate schedules: plain functions of an update's number, from 1."""

import math

from t2t_lite.errors import UsageError
from t2t_lite.hparam import FALLING_SCHEDULES, FLAT_SCHEDULE, HParams


def training_rate(hparams: HParams, step: int) -> float:
    """Return the rate of an update, by all hparams that change it.

    `learning_rate` is a factor on the schedule of the paper, and the peak rate
    of every other one. With a `schedule_offset` the first updates come before
    the schedule: they have the rate 0, if it begins with a warm-up.
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
    shape = share_of_peak(schedule, step, warmup, hparams.train_steps)
    return hparams.learning_rate * shape * fall


def has_an_end(hparams: HParams) -> bool:
    """Return whether the rate falls to 0 after `train_steps` updates."""
    return bool(hparams.cooldown) or hparams.schedule in FALLING_SCHEDULES


def last_step(hparams: HParams, train_steps: int | None) -> int:
    """Return the number of the last update; `train_steps` is None or given.

    Raises:
      UsageError: the rate has fallen to 0 by then.
    """
    steps = train_steps or hparams.train_steps
    if has_an_end(hparams) and steps > hparams.train_steps:
        without = "cooldown=0" if hparams.cooldown else "schedule=inverse_sqrt"
        raise UsageError(
            "The learning rate falls to 0 at update "
            f"{hparams.train_steps}; got `train_steps={steps}`. Train a new "
            f"run with `hparams_override=train_steps={steps}`, or with "
            f"{without}."
        )
    return steps


def learning_rate(
    step: int, hidden_size: int, warmup_steps: int, factor: float = 1.0
) -> float:
    """Return the rate of an update (arXiv:1706.03762, equation 3).

    It rises linearly for `warmup_steps` updates and falls with the inverse
    square root of the update's number from there on. Others call it "noam".
    The first update has the rate of step 1. tensor2tensor's first sets count
    so, too; its later ones have a `schedule_offset` of 1.

    Returns:
      factor * hidden_size ** -0.5 * min(step ** -0.5, step * warmup_steps **
      -1.5).
    """
    shape = min(step**-0.5, step * warmup_steps**-1.5)
    return factor * hidden_size**-0.5 * shape


def share_of_peak(
    schedule: str, step: int, warmup_steps: int, train_steps: int
) -> float:
    """Return the share of the peak rate by another schedule.

    Each but flat_inverse_sqrt rises linearly to 1 at update `warmup_steps`.
    From there on, with p = (step - warmup_steps) / (train_steps + 1 -
    warmup_steps):

      constant: 1.
      inverse_sqrt: (warmup_steps / step) ** 0.5, the shape of the paper's.
      flat_inverse_sqrt: the same, and 1 up to there (arXiv:1804.04235,
        section 9).
      linear: 1 - p (arXiv:1810.04805, appendix A.2).
      cosine: (1 + cos(pi * p)) / 2 (arXiv:1608.03983, equation 5, one period).

    The last two would be 0 one update after `train_steps`, the last.
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


def cooldown(step: int, train_steps: int, share: float) -> float:
    """Return the share of its rate that an update near the end keeps.

    Short training runs gain from a rate that comes to rest: it falls linearly
    over the last `share` of all updates (arXiv:2405.18392, section 3), to 1 /
    (share * train_steps) at `train_steps`. The paper has no cooldown.
    """
    if not share:
        return 1.0
    return min(1.0, (train_steps + 1 - step) / (share * train_steps))
