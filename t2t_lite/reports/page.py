"""Runs as one page for the browser, with nothing to load."""

import base64
import datetime
import hashlib
import importlib.resources
import json
import pathlib
import re
from collections.abc import Sequence
from typing import Any

import t2t_lite
from t2t_lite.reports.curves import MOST_POINTS, thinned
from t2t_lite.reports.told import RunTold, name_of, short_names, side_by_side

_UNITS = {
    "loss": "nats a target token, labels smoothed",
    "dev_loss": "nats a target token",
    "learning_rate": "",
    "tokens_per_second": "source and target, without padding",
    "gradient_norm": "mean of the updates made",
    "padding": "share of the positions",
}


def report_of(folders: Sequence[pathlib.Path]) -> dict[str, Any]:
    """What the page shows of runs, fit for JSON.

    Args:
      folders: of the runs, absolute.

    Raises:
      T2TLiteError: a folder holds no run, or its config cannot be read.
    """
    folders = list(dict.fromkeys(folders))
    runs = [RunTold(folder) for folder in folders]
    names = short_names(folders)
    keys = dict.fromkeys(curve.key for run in runs for curve in run.curves)
    now = datetime.datetime.now()
    return {
        "title": names[0] if len(names) == 1 else f"{len(names)} runs",
        "made": f"Made on {now:%Y-%m-%d at %H:%M} by t2t-lite "
        f"{t2t_lite.__version__}.",
        "most_points": MOST_POINTS,
        "runs": [
            {
                "name": name,
                "folder": str(run.folder),
                "summary": run.summary(),
                "sentences": run.sentences(),
            }
            for name, run in zip(names, runs, strict=True)
        ],
        "charts": [
            {
                "name": name_of(key)[:1].upper() + name_of(key)[1:],
                "unit": _UNITS.get(key, "of greedy translations, 0-100"),
                "curves": [
                    {
                        "run": number,
                        "weights": curve.weights,
                        "points": [
                            [p.step, _short(p.seconds), _short(p.value)]
                            for p in thinned(curve.points)
                        ],
                    }
                    for number, run in enumerate(runs)
                    for curve in run.curves
                    if curve.key == key
                ],
            }
            for key in keys
        ],
        "facts": side_by_side([run.facts() for run in runs]),
    }


def _short(value: float | None) -> float | None:
    """As many digits as could be seen."""
    return None if value is None else float(f"{value:.6g}")


def render_report(report: Any) -> str:
    """The page, HTML that runs and shows only what is in it.

    Args:
      report: from `report_of`.
    """
    folder = importlib.resources.files("t2t_lite.reports")
    script = "\n".join(
        (folder / name).read_text("utf-8") for name in ("chart.js", "report.js")
    )
    parts = {
        "STYLE": (folder / "report.css").read_text("utf-8"),
        "SCRIPT": script,
        # Inside a script element, only "</" could end it early.
        "DATA": json.dumps(report).replace("<", "\\u003c"),
    }
    parts["STYLE_HASH"] = _hash(parts["STYLE"])
    parts["SCRIPT_HASH"] = _hash(parts["SCRIPT"])
    template = (folder / "report.html").read_text("utf-8")
    # In one pass, so that no text of a user is taken for a place.
    return re.sub(r"__([A-Z_]+)__", lambda place: parts[place[1]], template)


def _hash(text: str) -> str:
    """As a content security policy names what may run."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
