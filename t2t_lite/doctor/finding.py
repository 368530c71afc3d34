"""`Finding`: what a check found, and `Asked`: what to check."""

import dataclasses
import pathlib
from typing import NamedTuple

from t2t_lite.problem import Problem


class Finding(NamedTuple):
    """What a check found."""

    name: str  # of what was looked at
    ok: bool
    text: str  # what there is; where that is not in order, what to do


@dataclasses.dataclass(frozen=True)
class Asked:
    """What to look at; what is None is left out."""

    data_dir: pathlib.Path
    output_dir: pathlib.Path | None = None
    problem: Problem | None = None
    usr_dir: str | None = None
    seconds: float | None = 3.0  # for what takes as long as there is data
