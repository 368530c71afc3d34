"""What a report tells of a run besides its curves, read without TensorFlow."""

import datetime
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from t2t_lite.progress import duration
from t2t_lite.reports.curves import Curve, curves_of
from t2t_lite.training.config import (
    METRICS_FILE,
    SAMPLES_FILE,
    problem_options,
    read_config,
    read_records,
)

_MOST_EVALUATIONS = 12  # of a sentence


class RunTold:
    """A run's folder as it is now; a trainer may go on writing there.

    Args:
      folder: of the run.

    Attributes:
      folder, config: of the run.
      curves: see `curves_of`.

    Raises:
      T2TLiteError: there is no run, or its config cannot be read.
    """

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.config = read_config(folder)
        self._records = read_records(folder)
        self.curves: list[Curve] = curves_of(self._records)

    def summary(self) -> dict[str, str]:
        """How far it came and what it cost, in words by what they tell."""
        config, records = self.config, self._records
        step = max((record["step"] for record in records), default=0)
        steps = config.get("conditions", {}).get("train_steps")
        steps = steps or config["hparams"].get("train_steps") or step
        cost = config.get("training_cost") or {}
        training = [r for r in records if isinstance(r.get("seconds"), float)]
        seconds = training[-1]["seconds"] if training else 0.0
        told = {
            "problem": config["problem"],
            "set": config.get("hparams_set") or "none",
            "updates": f"{step:,} of {steps:,}",
            **self._best(),
            "time in updates": duration(seconds) if seconds else "none yet",
        }
        if cost:
            tokens = cost["source_tokens"] + cost["target_tokens"]
            told["tokens trained on"] = f"{tokens:,.0f}"
            told["devices"] = f"{cost['devices']} ({cost['device']})"
            told["FLOPs, counted"] = f"{cost['flops_counted']:.3g}"
        # A run that has ended may go on to more updates.
        ended = cost and cost.get("step", step) == step
        if seconds and step < steps and not ended:
            left = seconds * (steps - step) / training[-1]["step"]
            told["time left, about"] = duration(left)
        changed = (self.folder / METRICS_FILE).stat().st_mtime if records else 0
        if changed:
            at = datetime.datetime.fromtimestamp(changed)
            told["last line"] = f"{at:%Y-%m-%d %H:%M}"
        return told

    def _best(self) -> dict[str, str]:
        """The best values of each number on dev, and where."""
        told = {}
        for curve in self.curves:
            if curve.key.startswith("dev_"):
                choose = min if curve.key == "dev_loss" else max
                best = choose(curve.points, key=lambda point: point.value)
                name = f"best {name_of(curve.key)}"
                if curve.weights:
                    name += f", {curve.weights.partition('-')[0]}"
                told[name] = f"{best.value:.4g} at {best.step:,}"
        return told

    def facts(self) -> dict[str, Any]:
        """What makes the run what it is, by name."""
        config = self.config
        conditions = config.get("conditions", {})
        hardware = conditions.get("hardware", {})
        return {
            "problem": config["problem"],
            **problem_options(config),
            "data": config["data"]["fingerprint"][:12],
            "set": config.get("hparams_set"),
            **config["hparams"],
            "seed": config["seed"],
            "code": conditions.get("code"),
            **config.get("versions", {}),
            "processor": hardware.get("processor"),
            "gpus": ", ".join(hardware.get("gpus", ())) or None,
        }

    def sentences(self) -> list[dict[str, Any]]:
        """Each sample with its translations over time, [] if there are none.

        Of more than 12 evaluations, 12 are taken that lie evenly.
        """
        found: dict[tuple[int, str | None], list[dict[str, str]]] = {}
        for record in read_records(self.folder, SAMPLES_FILE):
            if _are_samples(record.get("samples")):
                found[record["step"], record.get("weights")] = record["samples"]
        if not found:
            return []
        # What is averaged comes after the weights that it is of.
        times = sorted(found, key=lambda time: (time[0], time[1] or ""))
        last = len(times) - 1
        count = min(len(times), _MOST_EVALUATIONS)
        chosen = {last * i // max(count - 1, 1) for i in range(count)}
        sentences: dict[tuple[str, str], list[list[Any]]] = {}
        for step, weights in (times[i] for i in sorted(chosen)):
            for sample in found[step, weights]:
                pair = sample["source"], sample["reference"]
                place = [step, weights, sample["translation"]]
                sentences.setdefault(pair, []).append(place)
        return [
            {"source": source, "reference": reference, "translations": told}
            for (source, reference), told in sentences.items()
        ]


def _are_samples(value: Any) -> bool:
    keys = ("source", "reference", "translation")
    return isinstance(value, list) and all(
        isinstance(sample, dict)
        and all(isinstance(sample.get(key), str) for key in keys)
        for sample in value
    )


def name_of(key: str) -> str:
    """A key of `metrics.jsonl` for people."""
    names = {"dev_loss": "loss on dev", "loss": "training loss"}
    name = names.get(key, key.replace("_", " "))
    return f"{name[4:].upper()} on dev" if name.startswith("dev ") else name


def short_names(folders: Sequence[pathlib.Path]) -> list[str]:
    """A name of each folder: what tells it from the others."""
    if len(folders) == 1:
        return [folders[0].name]
    parts = [folder.parts for folder in folders]
    same = 0
    while len({each[same : same + 1] for each in parts}) == 1:
        same += 1
    return ["/".join(each[same:]) or each[-1] for each in parts]


def side_by_side(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each fact of any run: `name`, `values`, and `differs`."""
    names = dict.fromkeys(name for facts in runs for name in facts)
    rows = []
    for name in names:
        values = [_text(facts.get(name)) for facts in runs]
        rows.append(
            {"name": name, "values": values, "differs": len(set(values)) > 1}
        )
    return rows


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
