"""Comparison of runs: tables and plots of the files in their folders."""

import datetime
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_lite import files
from t2t_lite.errors import T2TLiteError, requires_extra
from t2t_lite.progress import duration
from t2t_lite.training import config as run_config

# Plotted values of training; all dev scores are plotted, too.
_CHARTS = ("loss", "learning_rate", "tokens_per_second", "gradient_norm")
_LOSSES = ("dev_loss", "dev_perplexity")  # lower is better
_COLUMNS, _INCHES = 3, (5.0, 3.2)  # charts per row; size of a chart


def compare_runs(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Return a dict of facts for each run, with the same keys for all runs.

    The facts are progress, best dev scores, scores of the evaluator, cost, and
    every hyperparameter and version that differs between the runs. The runs may
    still be training.
    """
    configs = [run_config.read_config(folder) for folder in folders]
    settings = [_settings(config) for config in configs]
    rows = []
    for folder, config, own in zip(folders, configs, settings, strict=True):
        row = {"run": str(folder), **_progress(folder, config)}
        for key, value in own.items():
            if any(other.get(key) != value for other in settings):
                row[key] = value
        rows.append(row)
    keys = dict.fromkeys(key for row in rows for key in row)
    return [{key: row.get(key) for key in keys} for row in rows]


def _progress(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    records = run_config.read_metrics(folder)
    steps = [record["step"] for record in records]
    times = [r["seconds"] for r in records if _is_number(r.get("seconds"))]
    cost = config.get("training_cost") or {}
    row = {
        "problem": config["problem"],
        "hparams_set": config.get("hparams_set"),
        "parameters": cost.get("parameters"),
        "step": max(steps or [config.get("imported_from", {}).get("step", 0)]),
        "train_steps": config.get("conditions", {}).get("train_steps")
        or config["hparams"].get("train_steps"),
        "training_time": duration(times[-1]) if times else None,
        "devices": cost.get("devices"),
        "flops": cost.get("flops_counted"),
    }
    for record in records:
        for key, value in record.items():
            if key.startswith("dev_") and _is_number(value):
                best_of = min if key in _LOSSES else max
                best = f"best {key}"
                row[best] = best_of(row.get(best, value), value)
    for report in run_config.read_records(folder / run_config.EVALUATIONS_FILE):
        if _is_number(report.get("score")):
            name = f"{report.get('split')} {report.get('metric')}"
            row[name] = report["score"]
    return row


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    hardware = config.get("conditions", {}).get("hardware", {})
    return {
        **run_config.problem_options(config),
        "data": config["data"]["fingerprint"][:12],
        **config["hparams"],
        "seed": config["seed"],
        **config.get("versions", {}),
        "processor": hardware.get("processor"),
        "gpus": ", ".join(hardware.get("gpus", ())) or None,
    }


def list_runs(folder: Path) -> list[dict[str, str | int]]:
    """Return a dict of facts for each run in a folder and its subfolders.

    `score` is the best score on dev, or the best loss without scores. A run
    with a damaged config.json has the reason as its `problem`.
    """
    rows: list[dict[str, str | int]] = []
    for config_file in sorted(folder.rglob(run_config.CONFIG)):
        run = config_file.parent
        if (run.parent.parent / run_config.CONFIG).exists():
            continue  # a model in another format, in the folder of its run
        try:
            row = _progress(run, run_config.read_config(run))
        except T2TLiteError as error:
            row = {"problem": str(error)}
        scores = [key for key in row if key.startswith("best dev_")]
        scores.sort(key=lambda key: key.removeprefix("best ") in _LOSSES)
        metrics = run / run_config.METRICS_FILE
        newest = metrics if metrics.exists() else config_file
        changed = datetime.datetime.fromtimestamp(newest.stat().st_mtime)
        rows.append(
            {
                "folder": str(run),
                "problem": row["problem"],
                "hparams_set": row.get("hparams_set") or "",
                "step": row.get("step", 0),
                "score": "".join(
                    f"{key.removeprefix('best dev_')} {row[key]:.2f}"
                    for key in scores[:1]
                ),
                "changed": f"{changed:%Y-%m-%d %H:%M}",
            }
        )
    return rows


def plot_runs(folders: Sequence[Path], path: Path) -> None:
    """Write a PNG with a chart for each value in `metrics.jsonl`, by step."""
    with requires_extra("png"):
        from matplotlib.figure import Figure
    curves = _curves(folders)
    if not curves:
        raise T2TLiteError("The runs have no records in metrics.jsonl yet.")
    columns = min(_COLUMNS, len(curves))
    rows = math.ceil(len(curves) / columns)
    size = (columns * _INCHES[0], rows * _INCHES[1])
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for axis, (key, lines) in zip(axes, curves.items(), strict=False):
        axis.set_title(key, parse_math=False)
        axis.grid(alpha=0.3)
        for (index, weights), points in lines.items():
            style = "o:" if weights else "-"
            axis.plot(*zip(*points, strict=True), style, color=f"C{index}")
    for axis in axes[len(curves) :]:
        axis.set_axis_off()
    for index, folder in enumerate(folders):
        # matplotlib reads text between dollar signs as a formula.
        name = folder.name.replace("$", r"\$")
        axes[0].plot([], [], color=f"C{index}", label=name)
    figure.legend(loc="outside lower center")
    with files.write_file(path) as file:
        figure.savefig(file, format="png", dpi=120)


def _curves(folders: Sequence[Path]) -> dict[str, dict[Any, list]]:
    """Return {key: {(index of the run, weights): [(step, value), ...]}}."""
    curves: dict[str, dict[Any, list]] = {}
    for index, folder in enumerate(folders):
        for record in run_config.read_metrics(folder):
            line = index, record.get("weights")
            for key, value in record.items():
                is_plotted = key in _CHARTS or key.startswith("dev_")
                if is_plotted and _is_number(value):
                    points = curves.setdefault(key, {}).setdefault(line, [])
                    points.append((record["step"], value))
    return curves


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
