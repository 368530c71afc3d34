"""Learning-rate schedules: plain functions of the update's number."""

from t2t_lite.hparam import HParams


def training_rate(hparams: HParams, step: int) -> float:
    """The rate of an update, counted from 1, with all that a set says of it."""
    return learning_rate(
        step, hparams.hidden_size, hparams.warmup_steps, hparams.learning_rate
    ) * cooldown(step, hparams.train_steps, hparams.cooldown)


def learning_rate(
    step: int, hidden_size: int, warmup_steps: int, factor: float = 1.0
) -> float:
    """The rate of an update (arXiv:1706.03762, equation 3).

    It rises linearly for `warmup_steps` updates and falls with the inverse
    square root of the update's number from there on. Others call it "noam".

    The first update has the rate of step 1. tensor2tensor's first sets count
    so, too; its later ones give update n the rate of n - 1, so that the first
    one changes nothing.

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
    if step < 1:
        raise ValueError(f"updates are counted from 1; got step={step}.")
    shape = min(step**-0.5, step * warmup_steps**-1.5)
    return factor * hidden_size**-0.5 * shape


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
