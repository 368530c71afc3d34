"""Learning-rate schedules: plain functions of the update's number."""

import math

from t2t_lite.errors import UsageError
from t2t_lite.hparam import FALLING_SCHEDULES, FLAT_SCHEDULE, HParams


def training_rate(hparams: HParams, step: int) -> float:
    """The rate of an update, counted from 1, with all that a set says of it.

    `learning_rate` is a factor on the schedule of the paper, and the peak rate
    of every other one. With a `rate_delay` the first updates come before the
    schedule's: they have the rate 0, if it begins with a warm-up.
    """
    fall = cooldown(step, hparams.train_steps, hparams.cooldown)
    schedule, warmup = hparams.schedule, hparams.warmup_steps
    step -= hparams.rate_delay
    if step < 1 and schedule != FLAT_SCHEDULE:
        return 0.0
    step = max(step, 1)
    if schedule == "paper":
        factor = hparams.learning_rate
        return learning_rate(step, hparams.hidden_size, warmup, factor) * fall
    shape = share_of_peak(schedule, step, warmup, hparams.train_steps)
    return hparams.learning_rate * shape * fall


def has_an_end(hparams: HParams) -> bool:
    """Whether the rate falls to 0 at `train_steps`, which fixes that number."""
    return bool(hparams.cooldown) or hparams.schedule in FALLING_SCHEDULES


def last_step(hparams: HParams, train_steps: int | None) -> int:
    """The number of the last update, if `train_steps` is asked for or None.

    Raises:
      UsageError: the rate has fallen to 0 by then.
    """
    steps = train_steps or hparams.train_steps
    if has_an_end(hparams) and steps > hparams.train_steps:
        without = "cooldown=0" if hparams.cooldown else "schedule=inverse_sqrt"
        raise UsageError(
            "The learning rate falls to 0 at update "
            f"{hparams.train_steps}; got --train_steps={steps}. Train a new "
            "run with --hparams_override=train_steps="
            f"{steps}, or with {without}."
        )
    return steps


def learning_rate(
    step: int, hidden_size: int, warmup_steps: int, factor: float = 1.0
) -> float:
    """The rate of an update (arXiv:1706.03762, equation 3).

    It rises linearly for `warmup_steps` updates and falls with the inverse
    square root of the update's number from there on. Others call it "noam".

    The first update has the rate of step 1. tensor2tensor's first sets count
    so, too; its later ones give update n the rate of n - 1, so that the first
    one changes nothing: they have a `rate_delay` of 1.

    Args:
      step: the update's number, counted from 1.
      hidden_size: d_model; wider models get smaller rates.
      warmup_steps: updates until the peak.
      factor: multiplies every rate; 1 is the paper's.

    Returns:
      factor * hidden_size ** -0.5 * min(step ** -0.5, step * warmup_steps **
      -1.5).

    Raises:
      ValueError: `step` is below 1.
    """
    _require_update(step)
    shape = min(step**-0.5, step * warmup_steps**-1.5)
    return factor * hidden_size**-0.5 * shape


def share_of_peak(
    schedule: str, step: int, warmup_steps: int, train_steps: int
) -> float:
    """The share of the peak rate that an update has, by another schedule.

    Each but flat_inverse_sqrt rises linearly to 1 at update `warmup_steps`.
    From there on, with p = (step - warmup_steps) / (train_steps + 1 -
    warmup_steps):

      constant: 1.
      inverse_sqrt: (warmup_steps / step) ** 0.5, the shape of the paper's.
      flat_inverse_sqrt: the same, and 1 up to there (arXiv:1804.04235,
        section 9).
      linear: 1 - p (arXiv:1810.04805, appendix A.2).
      cosine: (1 + cos(pi * p)) / 2 (arXiv:1608.03983, equation 5, one period).

    The last two would be 0 one update after the last, so that every update
    changes something.

    Args:
      schedule: one of these names.
      step: the update's number, counted from 1.
      warmup_steps: updates until the peak.
      train_steps: the number of the last update, for the last two.

    Raises:
      ValueError: `step` is below 1, or beyond the end of one that has an end.
    """
    _require_update(step)
    if schedule in FALLING_SCHEDULES and step > train_steps:
        raise ValueError(
            f"the rate has fallen to 0 at update {train_steps}; "
            f"got step={step}."
        )
    if step <= warmup_steps:
        return 1.0 if schedule == FLAT_SCHEDULE else step / warmup_steps
    progress = (step - warmup_steps) / (train_steps + 1 - warmup_steps)
    return {
        "constant": lambda: 1.0,
        "inverse_sqrt": lambda: (warmup_steps / step) ** 0.5,
        FLAT_SCHEDULE: lambda: (warmup_steps / step) ** 0.5,
        "linear": lambda: 1 - progress,
        "cosine": lambda: (1 + math.cos(math.pi * progress)) / 2,
    }[schedule]()


def cooldown(step: int, train_steps: int, share: float) -> float:
    """The share of its rate that an update near the end of training keeps.

    Short trainings gain from a rate that comes to rest: it falls linearly
    over the last updates (arXiv:2405.18392, section 3). The paper has none.

    Args:
      step: the update's number, counted from 1.
      train_steps: the number of the last update.
      share: of all updates, the last ones, which the fall takes; 0 for none.

    Returns:
      1 before the fall begins, 1 / (share * train_steps) at the last update.

    Raises:
      ValueError: there is a cooldown, and `step` is beyond its end.
    """
    if not share:
        return 1.0
    if step > train_steps:
        raise ValueError(
            f"the rate has cooled down at update {train_steps}; "
            f"got step={step}."
        )
    return min(1.0, (train_steps + 1 - step) / (share * train_steps))


def _require_update(step: int) -> None:
    if step < 1:
        raise ValueError(f"updates are counted from 1; got step={step}.")
