"""The provenance of a run, and its model card `OUTPUT_DIR/card.md`.

The card has the format of the Hugging Face Hub, with the scores, the training
command, the data and all hyperparameters.
"""

import json
import math
import os
import platform
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import psutil
import yaml

from t2t_lite import files, registry
from t2t_lite.errors import format_error
from t2t_lite.progress import log
from t2t_lite.tf_setup import num_cpus
from t2t_lite.training import checkpoints, distribute
from t2t_lite.training import config as run_config
from t2t_lite.training.checkpoints import Checkpoint
from t2t_lite.training.options import TrainingOptions
from t2t_lite.training.run import Run
from t2t_lite.training.warm_start import SOURCE
from t2t_lite.validators import changed

CARD = "card.md"
_LANGUAGE = re.compile("[a-z]{2,3}")  # ISO 639, as the Hub reads it
# The folders of a file in a word of a command.
_FOLDERS = re.compile(r"(?<![^=,:;])[/~.][^=,:;]*[/\\]")
_CONDITIONS = ("weights", "beam_size", "alpha", "sentences", "signature")


def provenance_of(run: Run, options: TrainingOptions) -> dict[str, Any]:
    """Return the provenance of a run for `config.json`.

    It has the command, the hardware and the data, with the numbers of source
    and target tokens.
    """
    manifest = run.data.manifest
    sides = run.problem.swap_if_reversed("source_tokens", "target_tokens")
    return {
        "command": command_of(run, options),
        "train_steps": options.train_steps or run.hparams.train_steps,
        "hardware": {
            "system": platform.platform(),
            "processor": distribute.processor_name(),
            "cores": num_cpus(),
            "memory_bytes": psutil.virtual_memory().total,
            "gpus": distribute.gpu_names(),
        },
        "data": {
            "splits": {
                name: {
                    "pairs": split.examples,
                    "tokens": [getattr(split, side) for side in sides],
                    "dropped": split.dropped,
                    "damaged": split.damaged,
                }
                for name, split in manifest.splits.items()
            },
            "corpora": [
                {**corpus, "files": [*map(os.path.basename, corpus["files"])]}
                for corpus in manifest.corpora
            ],
            "sources": {
                os.path.basename(path): source["sha256"]
                for path, source in manifest.sources.items()
            },
        },
    }


def command_of(run: Run, options: TrainingOptions) -> list[str]:
    """Return the words of the command that trains the same run again.

    Options with default values are omitted. Hparams without the name of a set
    are written as the most similar set with overrides.
    """

    def overrides(name: str) -> list[str]:
        defaults = str(registry.hparams(name)).splitlines()
        lines = str(run.hparams).splitlines()
        return [line for line in lines if line not in defaults]

    name, names = run.config["hparams_set"], registry.hparams_names()
    if name not in names:
        name = min(names, key=lambda each: len(overrides(each)))
    words = [f"--problem={run.config['problem']}", f"--hparams={name}"]
    if lines := overrides(name):
        words.append(f"--hparams_override={','.join(lines)}")
    words += [f"--{word}" for word in run.problem.option_words()]
    given = changed(options)
    for name in ("hparams_override", "problem_options"):  # added above
        given.pop(name, None)
    if (seed := run.config.get("seed", 1)) != 1:
        given["seed"] = seed
    if "freeze" in run.config:
        given["freeze"] = tuple(run.config["freeze"])
    if source := run.config.get(SOURCE):
        given["init_from"] = source["checkpoint"]
    given |= {"data_dir": run.data.folder, "output_dir": run.output_dir}
    for name, value in given.items():
        text = ",".join(value) if isinstance(value, tuple) else value
        words.append(f"--{name}" if value is True else f"--{name}={text}")
    return ["t2t-lite-trainer", *words]


def write_card(run: Run) -> None:
    """Write the model card; a failure is only a warning."""
    try:
        files.write_text(run.output_dir / CARD, make_card(run))
    except Exception as error:  # users may have edited the records of the run
        log(f"Warning: the model card is not written: {format_error(error)}.")


def make_card(run: Run, exported: Sequence[Checkpoint] = ()) -> str:
    """Return the text of the card, from the run's folder.

    The card of an export has the scores of its single `exported` checkpoint,
    and a command without local folders.
    """
    config = run_config.read_config(run.output_dir)
    provenance, progress = config.get("conditions", {}), run.progress
    words = provenance.get("command", ["t2t-lite-trainer"])
    if exported:
        words = [_FOLDERS.sub("", word) for word in words]
    scores = scores_of(run, *exported) if len(exported) < 2 else []
    languages = [x for x in getattr(run.problem, "languages", ()) if x]
    problem = " to ".join(map(_code, languages))
    problem = f"{_code(run.problem.name)}{problem and f', from {problem}'}"
    cost = config.get("training_cost") or {}
    status = f"Training ended after {progress.step:,} updates."
    if cost.get("step") != progress.step:
        steps = provenance.get("train_steps", 0)
        status = (
            f"Training has not ended: {progress.step:,} of {steps:,} updates "
            "are saved."
        )
    best = progress.best_text and f"Best on dev: {progress.best_text}."
    table = ["No scores yet; `t2t-lite-evaluator` scores a split."]
    if scores:
        table = ["| Score | Metric | Split | Conditions |", "|---|---|---|---|"]
    for score in scores:
        texts = (score["metric"], score["split"], _conditions(score))
        cells = [_code(text).replace("|", r"\|") for text in texts]
        table.append(f"| {score['score']:.2f} | {' | '.join(cells)} |")
    sections = [
        f"---\n{_front_matter(run, scores, languages)}---",
        f"# {_code(run.problem.name)}, {_code(run.output_dir.name)}",
        f"A Transformer trained by t2t-lite on {problem}. {status} {best}",
        "## Scores",
        "\n".join(table),
        "## Training command",
        f"```sh\n{_plain(shlex.join(words))}\n```",
    ]
    facts = {
        "Data": {
            "fingerprint": config["data"]["fingerprint"],
            "vocabulary_sha256": config["vocabulary"],
            **provenance.get("data", {}),
        },
        "Training": {
            **cost,
            "seed": run.seed,
            "hardware": provenance.get("hardware"),
            "versions": config.get("versions"),
        },
        "Hyperparameters": run.hparams.to_dict(),
    }
    for title, each in facts.items():
        block = f"```json\n{json.dumps(each, indent=2)}\n```"
        sections += [f"## {title}", block]
    return "\n\n".join(sections) + "\n"


def scores_of(
    run: Run, weights: Checkpoint | None = None
) -> list[dict[str, Any]]:
    """Return the scores of a checkpoint, or the best scores of the run.

    The dev scores of training (greedy search) come first, then each distinct
    report of `t2t-lite-evaluator`. Scores of a run have a key `weights`.
    """
    metric, best = run.problem.metric, run.progress.best or {"step": None}
    found: list[dict[str, Any]] = []
    for record in run_config.read_metrics(run.output_dir):
        step, name = record["step"], record.get("weights")
        if weights:
            selected = (step, name) == (weights.step, weights.weights)
        elif name in (None, checkpoints.EMA):
            selected = step == best["step"]
            name = f"{name} at step {step}" if name else f"step {step}"
        else:
            selected = True  # a checkpoint average
        if selected:
            score = {"metric": metric, "score": record.get(f"dev_{metric}")}
            conditions = {"weights": name, "split": "dev", "beam_size": 1}
            found.append(conditions | score)
    evaluations = run.output_dir / run_config.EVALUATIONS_FILE
    for report in run_config.read_records(evaluations):
        checksum, step = report.pop("weights", None), report.pop("step")
        name = report.pop("checkpoint", f"step {step}")
        if not weights or checksum == weights.checksum:
            found.append({"weights": name, **report})
    scores: list[dict[str, Any]] = []
    for score in found:
        if weights:
            del score["weights"]
        # Users may have edited the records.
        texts = (score.get("metric"), score.get("split"))
        is_score = isinstance(score.get("score"), int | float)
        is_score = is_score and all(isinstance(text, str) for text in texts)
        if is_score and score not in scores:
            scores.append(score)
    return scores


def _front_matter(run, scores, languages):
    task = "translation" if languages else "text2text-generation"
    name = run.problem.name
    results = [
        {
            "task": {"type": task},
            "dataset": {"name": name, "type": name, "split": score["split"]},
            "metrics": [
                {
                    "type": score["metric"],
                    "value": round(score["score"], 2),
                    "name": f"{score['metric']}, {_conditions(score)}",
                }
            ],
        }
        for score in scores
        if math.isfinite(score["score"])
    ]
    index = [{"name": run.output_dir.name, "results": results}]
    metadata = {  # the field names of the Hub
        "language": [name for name in languages if _LANGUAGE.fullmatch(name)],
        "library_name": "t2t-lite",
        "pipeline_tag": task,
        "tags": ["t2t-lite", "transformer", task],
        "metrics": sorted({score["metric"] for score in scores}),
        "model-index": index if results else [],
    }
    metadata = {key: value for key, value in metadata.items() if value}
    return yaml.safe_dump(metadata, sort_keys=False)


def _conditions(score: Mapping[str, Any]) -> str:
    return ", ".join(f"{k} {score[k]}" for k in _CONDITIONS if k in score)


def _code(text: str) -> str:
    """Return a code span, in which no character ends the span."""
    return f"`{_plain(' '.join(text.split()) or '?')}`"


def _plain(text: str) -> str:
    """Return text that ends neither a code span nor a line."""
    return "".join(c if c.isprintable() and c != "`" else "?" for c in text)
