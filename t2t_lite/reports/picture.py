"""The curves of runs as a picture, drawn by matplotlib."""

import math
import pathlib
from typing import Any

from t2t_lite import files
from t2t_lite.errors import T2TLiteError

_COLUMNS = 3
_INCHES = (5.0, 3.2)  # of a chart


def write_picture(report: Any, path: pathlib.Path) -> None:
    """Writes a PNG of all charts, over steps.

    Args:
      report: from `page.report_of`.
      path: the file; complete or not at all.

    Raises:
      T2TLiteError: matplotlib is not installed, or there is nothing to draw.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise T2TLiteError(
            "--png needs matplotlib, which is not installed: pip install "
            "'t2t-lite[png]'."
        ) from error
    charts = report["charts"]
    if not charts:
        raise T2TLiteError(
            "There is nothing to draw yet: no line of metrics.jsonl."
        )
    columns = min(_COLUMNS, len(charts))
    rows = math.ceil(len(charts) / columns)
    size = (columns * _INCHES[0], rows * _INCHES[1])
    figure = Figure(figsize=size, layout="constrained")
    places = figure.subplots(rows, columns, squeeze=False).flatten()
    names = [run["name"] for run in report["runs"]]
    for place, chart in zip(places, charts, strict=False):
        place.set_title(chart["name"], parse_math=False)
        for curve in chart["curves"]:
            steps, _, values = zip(*curve["points"], strict=True)
            look = "o:" if curve["weights"] else "-"
            place.plot(steps, values, look, color=f"C{curve['run']}")
        place.grid(alpha=0.3)
    for place in places[len(charts) :]:
        place.set_axis_off()
    if len(names) > 1:
        lines = [
            places[0].plot([], [], color=f"C{run}")[0]
            for run in range(len(names))
        ]
        legend = figure.legend(lines, names, loc="outside lower center")
        for text in legend.get_texts():
            text.set_parse_math(False)
    with files.write_file(path) as file:
        figure.savefig(file, format="png", dpi=120)
