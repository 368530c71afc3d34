"""The lengths of a problem's pairs as a picture."""

import io
import os
import pathlib

from t2t_lite import files
from t2t_lite.data.inspection_records import Inspection
from t2t_lite.errors import T2TLiteError

_SHOWN = 0.995  # of the pairs; a few endless lines would squash the others
_SIZE = (11, 4.5)  # inches
_DPI = 120


def draw_lengths(
    inspection: Inspection, data_dir: str | os.PathLike
) -> pathlib.Path:
    """Writes `DATA_DIR/PROBLEM.lengths.png`.

    On the left how long the sides of the first split are, on the right which
    share of the pairs of each split a `max_length` keeps.

    Returns: the file's path.

    Raises:
      T2TLiteError: matplotlib is not installed, or the file cannot be written.
    """
    figure = length_figure(inspection)
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=_DPI)
    path = pathlib.Path(data_dir) / f"{inspection.problem}.lengths.png"
    try:
        with files.write_file(path) as file:
            file.write(image.getvalue())
    except OSError as error:
        raise T2TLiteError(f"Cannot write {path}: {error.strerror}.") from error
    return path


def length_figure(inspection: Inspection):
    """The matplotlib figure of `draw_lengths`.

    Raises:
      T2TLiteError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise T2TLiteError(
            "Drawing needs matplotlib: pip install 't2t-lite[plot]'."
        ) from error
    figure = Figure(figsize=_SIZE, layout="constrained")
    left, right = figure.subplots(1, 2)
    split, pairs = next(iter(inspection.splits.items()))
    _draw_sides(left, split, pairs)
    _draw_kept(right, inspection)
    figure.suptitle(inspection.problem)
    return figure


def _draw_sides(axes, name, split):
    """Pairs by length, each side; as far as most pairs go."""
    end = split.quantile(_SHOWN)
    for side, lengths in (
        ("source", split.source.lengths),
        ("target", split.target.lengths),
    ):
        heights = [lengths.get(length, 0) for length in range(1, end + 1)]
        edges = [length - 0.5 for length in range(1, end + 2)]
        axes.stairs(heights, edges, label=side, fill=True, alpha=0.45)
    beyond = sum(n for length, n in split.lengths.items() if length > end)
    axes.set(
        title=f"{name}: {split.examples:,} pairs",
        xlabel="tokens of a side, EOS counted"
        + (f" ({beyond:,} pairs go on beyond)" if beyond else ""),
        ylabel="pairs",
        xlim=(0.5, end + 0.5),
    )
    axes.legend()


def _draw_kept(axes, inspection):
    for name, split in inspection.splits.items():
        kept, xs, ys = 0, [], []
        for length, count in sorted(split.lengths.items()):
            kept += count
            xs.append(length)
            ys.append(100 * kept / split.examples)
        axes.step(xs, ys, where="post", label=f"{name}, longest {xs[-1]:,}")
    axes.set(
        title="what a max_length keeps",
        xlabel="tokens of the longer side, EOS counted",
        ylabel="% of pairs",
    )
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
