"""The curves of a run, from the lines of its `metrics.jsonl`."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

# What charts show of training, in this order; dev's come after the loss.
_TRAINING = (
    "loss",
    "learning_rate",
    "tokens_per_second",
    "gradient_norm",
    "padding",
)
_NOT_SHOWN = ("dev_perplexity",)  # says what the loss says
MOST_POINTS = 1000  # of a curve on a page


class Point(NamedTuple):
    """A place on a curve."""

    step: int
    seconds: float | None  # in updates until then; None where not known
    value: float


class Curve(NamedTuple):
    """How a number went."""

    key: str  # of `metrics.jsonl`
    weights: str | None  # "ema" or an average; None: those in training
    points: list[Point]  # by step


def curves_of(records: Iterable[Mapping[str, Any]]) -> list[Curve]:
    """The curves that lines of metrics hold.

    Args:
      records: from `read_records`; what is no finite number is left out.
    """
    by_step = sorted(records, key=lambda record: record["step"])
    clock = [
        (each["step"], each["seconds"])
        for each in by_step
        if _is_number(each.get("seconds"))
    ]
    found: dict[tuple[str, str | None], dict[int, float]] = {}
    for record in by_step:
        of_dev = "dev_loss" in record
        weights = str(record["weights"]) if record.get("weights") else None
        for key, value in record.items():
            shown = key.startswith("dev_") if of_dev else key in _TRAINING
            if shown and key not in _NOT_SHOWN and _is_number(value):
                found.setdefault((key, weights), {})[record["step"]] = value
    times = _times(clock, {step for made in found.values() for step in made})
    return [
        Curve(key, weights, [Point(s, times[s], v) for s, v in made.items()])
        for (key, weights), made in sorted(found.items(), key=_order)
    ]


def _order(item: tuple[tuple[str, str | None], Any]) -> tuple[int, str, str]:
    key, weights = item[0]
    place = {"loss": 0, "dev_loss": 1}
    rank = _TRAINING.index(key) + 2 if key in _TRAINING else 2
    return place.get(key, rank), key, weights or ""


def thinned(points: Sequence[Point]) -> list[Point]:
    """At most MOST_POINTS and the two at the ends, with every spike.

    The points are cut into half as many stretches, of about as many each; of a
    stretch the lowest and the highest one stay, where they are.
    """
    count, stretches = len(points), MOST_POINTS // 2
    if count <= MOST_POINTS:
        return list(points)
    kept = {0, count - 1}
    for i in range(stretches):
        part = range(count * i // stretches, count * (i + 1) // stretches)
        by_value = sorted(part, key=lambda j: points[j].value)
        kept |= {by_value[0], by_value[-1]}
    return [points[i] for i in sorted(kept)]


def _times(
    clock: Sequence[tuple[int, float]], steps: Iterable[int]
) -> dict[int, float | None]:
    """The seconds at each step, on a line between the two known around it."""
    times: dict[int, float | None] = {}
    i = 0
    for step in sorted(steps):
        while i < len(clock) and clock[i][0] < step:
            i += 1
        if i < len(clock) and (i or clock[i][0] == step):
            (low, start), (high, end) = clock[max(i - 1, 0)], clock[i]
            share = (step - low) / (high - low) if high > low else 1.0
            times[step] = start + share * (end - start)
        else:  # an evaluation that no line of training precedes or follows
            times[step] = None
    return times


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
