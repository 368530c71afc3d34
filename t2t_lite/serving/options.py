"""`ServingOptions`: what an export is asked to be; loads nothing."""

import dataclasses
from typing import Literal, get_args

Precision = Literal["float32", "bfloat16"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


@dataclasses.dataclass(frozen=True)
class ServingOptions:
    """What an export can be asked to be beside what its translator is.

    Attributes:
      prefixed: whether to have the signature `prefixed`.
      attention: whether to have the signature `attention`.
      precision: the type in which the weights are stored. The model computes
        as it does in the decoder, with weights that are rounded to that type.
      max_batch: texts that are computed together; a larger batch is worked
        through in parts. None: as many as come.
      max_length: source tokens, EOS included; the rest is cut off. None: as
        many as the translator takes.
    """

    prefixed: bool = False
    attention: bool = False
    precision: Precision = "float32"
    max_batch: int | None = None
    max_length: int | None = None
