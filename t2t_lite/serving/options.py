"""The options of an export. Imports no TensorFlow."""

import dataclasses
from typing import Literal, get_args

Precision = Literal["float32", "bfloat16"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


@dataclasses.dataclass(frozen=True)
class ServingOptions:
    """The options of an export."""

    prefixed: bool = False  # add the signature `prefixed`
    attention: bool = False  # add the signature `attention`
    precision: Precision = "float32"  # of the stored weights
    max_batch: int | None = None  # rows that are computed together
    max_length: int | None = None  # source tokens, EOS included
