"""The runs of a folder at a glance, read without TensorFlow."""

import datetime
import math
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from t2t_lite.errors import T2TLiteError
from t2t_lite.training.config import (
    CONFIG,
    METRICS_FILE,
    read_config,
    read_metrics,
)

_LOSSES = ("loss", "perplexity")


class RunSummary(NamedTuple):
    """What a list of runs says of one."""

    folder: str
    problem: str
    hparams_set: str
    step: int  # of the last line of its metrics; else that it began with
    score: str  # of the last evaluation, such as "bleu 26.30"; "" without one
    changed: str  # when, such as "2026-01-31 18:05"


def list_runs(folder: pathlib.Path) -> Iterator[RunSummary]:
    """The runs in a folder and the folders in it, in the order of their names.

    A run whose config.json cannot be read is listed, too, with the reason in
    place of its problem.
    """
    for config_file in sorted(folder.rglob(CONFIG)):
        run = config_file.parent
        config: dict[str, Any] = {}
        try:
            config = read_config(run)
            problem = config["problem"]
        except T2TLiteError as error:
            problem = str(error)
        metrics = run / METRICS_FILE
        records = read_metrics(run)
        newest = metrics if metrics.exists() else config_file
        changed = datetime.datetime.fromtimestamp(newest.stat().st_mtime)
        yield RunSummary(
            str(run),
            problem,
            config.get("hparams_set") or "",
            max(
                (record["step"] for record in records),
                default=config.get("imported_from", {}).get("step", 0),
            ),
            _last_score(records),
            f"{changed:%Y-%m-%d %H:%M}",
        )


def _last_score(records: list[dict[str, Any]]) -> str:
    """The metric of the last evaluation; the loss where there is none."""
    for record in reversed(records):
        scores = {
            key.removeprefix("dev_"): value
            for key, value in record.items()
            if key.startswith("dev_") and value is not None
        }
        if scores:
            metrics = [name for name in scores if name not in _LOSSES]
            name = (metrics or ["loss"])[0]
            return f"{name} {scores.get(name, math.nan):.2f}"
    return ""
