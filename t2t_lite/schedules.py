"""Learning-rate schedules: plain functions of the update's number."""


def learning_rate(
    step: int, hidden_size: int, warmup_steps: int, factor: float = 1.0
) -> float:
    """The rate of an update (arXiv:1706.03762, equation 3).

    It rises linearly for `warmup_steps` updates and falls with the inverse
    square root of the update's number from there on. Others call it "noam".

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
