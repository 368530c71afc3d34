"""How well the pairs of a split fit its batches: what is token, what is pad."""

import dataclasses
import os

import numpy as np

from t2t_lite.data.bucketing import plan_batches
from t2t_lite.data.manifest import Manifest, SplitRecord
from t2t_lite.data.packing import packed_shape, plan_rows
from t2t_lite.data.portions import (
    PORTION_SIZE,
    check_lengths,
    plan_generator,
    ragged_portions,
)
from t2t_lite.problem import Problem


@dataclasses.dataclass(frozen=True)
class PaddingReport:
    """How well the train split fits its batches.

    Attributes:
      examples: pairs of the split, or packed rows of them.
      too_long: of these, those left out for `max_length`; an exact count.
      batches: of an epoch; an estimate from its first portions.
      share: real tokens / positions of both sides together, 0-1.
      shapes: distinct (rows, source, target) shapes seen.
      unit: what the examples are.
    """

    examples: int
    too_long: int
    batches: int
    share: float
    shapes: int
    unit: str = "pairs"

    def __str__(self) -> str:
        left_out = f", {self.too_long:,} too long" if self.too_long else ""
        return (
            f"{self.examples:,} {self.unit}{left_out}; about "
            f"{self.batches:,} batches an epoch, {self.share:.1%} of their "
            "positions are real tokens"
        )


def padding_report(
    data_dir: str | os.PathLike,
    problem: Problem,
    manifest: Manifest,
    *,
    max_positions: int,
    max_length: int,
    seed: int = 0,
    packing: bool = False,
    portion_size: int = PORTION_SIZE,
    most_portions: int = 4,
) -> PaddingReport:
    """Plans the first portions of train and counts what is real.

    Args: as in `training_batches`, and
      most_portions: how many portions are looked at.
    """
    record = manifest.split("train")
    if packing and record.is_packed:
        return _report_of_rows(record, max_positions, max_length)
    check_lengths(record, max_positions, max_length)
    planned = plan_rows if packing else plan_batches
    seen, real, found = 0, 0, []
    portions = ragged_portions(data_dir, problem, record, portion_size)
    for portion, sides in zip(range(most_portions), portions, strict=False):
        lengths = [side.row_lengths().numpy() for side in sides]
        plan = planned(
            *lengths,
            max_positions=max_positions,
            max_length=max_length,
            generator=plan_generator(seed, 0, portion),
        )
        seen += len(lengths[0])
        real += sum(int(side[plan.rows].sum()) for side in lengths)
        found.append(plan.shapes())
    shapes = np.concatenate(found)
    positions = (shapes[:, :1] * shapes[:, 1:]).sum()
    return PaddingReport(
        examples=record.examples,
        too_long=record.too_long(max_length),
        batches=round(len(shapes) * record.examples / seen),
        share=real / max(int(positions), 1),
        shapes=len(np.unique(shapes, axis=0)),
    )


def _report_of_rows(
    record: SplitRecord, max_positions: int, max_length: int
) -> PaddingReport:
    """The report on rows that others have packed, by what is known of them."""
    rows = record.as_rows
    check_lengths(rows, max_positions, max_length)
    height, width = packed_shape(max_positions, max_length)
    too_long = rows.too_long(width)
    batches = -(-(rows.examples - too_long) // height)
    tokens = record.source_tokens + record.target_tokens
    kept = tokens * (rows.examples - too_long) / rows.examples
    return PaddingReport(
        examples=rows.examples,
        too_long=too_long,
        batches=batches,
        share=kept / (2 * batches * height * width),
        shapes=1,
        unit="packed rows",
    )
