"""The model card of a run: `OUTPUT_DIR/card.md`, as the Hugging Face Hub reads.

It has the scores, the training command, the data and all settings.
"""

import contextlib
import json
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from t2t_lite import files
from t2t_lite.errors import T2TLiteError, in_words
from t2t_lite.progress import say
from t2t_lite.training import checkpoints
from t2t_lite.training.checkpoints import Checkpoint
from t2t_lite.training.config import (
    EVALUATIONS_FILE,
    read_config,
    read_metrics,
    read_records,
)
from t2t_lite.training.run import Run

CARD = "card.md"
_LANGUAGE = re.compile("[a-z]{2,3}")  # ISO 639, as the Hub reads it
# The folders before the name of a file, in a word of a command.
_FOLDERS = re.compile(r"[^=,:;]*[/\\]")
_CONDITIONS = ("weights", "beam_size", "alpha", "sentences", "signature")


@contextlib.contextmanager
def card_kept(run: Run) -> Iterator[None]:
    """Write the card before and after the body, also after an error."""
    write_card(run)
    try:
        yield
    finally:
        write_card(run)


def write_card(run: Run) -> None:
    """Write the card; a failure is a warning, because training is intact."""
    try:
        files.write_text(run.output_dir / CARD, make_card(run))
    except (
        *(OSError, T2TLiteError),
        # Anybody may have edited what the run recorded.
        *(AttributeError, LookupError, TypeError, ValueError),
    ) as error:
        say(f"Warning: the model card is not written: {in_words(error)}.")


def make_card(run: Run, exported: Sequence[Checkpoint] = ()) -> str:
    """Return the text of the card.

    Args:
      run: its folder is read, because another process may have trained since.
      exported: the checkpoints of an export, more than one of an ensemble. The
        card has the scores of these weights, and names no folder of this
        machine.

    Raises:
      T2TLiteError: a file of the run is damaged.
    """
    config = read_config(run.output_dir)
    provenance = config.get("conditions", {})
    words = provenance.get("command", ["t2t-lite-trainer"])
    if exported:
        words = [_FOLDERS.sub("", word) for word in words]
    scores = scores_of(run, *exported) if len(exported) < 2 else []
    facts = {
        **(config.get("training_cost") or {}),
        "seed": run.seed,
        "hardware": provenance.get("hardware"),
        "code": provenance.get("code"),
        "versions": config.get("versions"),
    }
    parts = [
        f"---\n{_front_matter(run, scores)}---",
        f"# {_code(run.problem.name)}, {_code(run.output_dir.name)}",
        _introduction(run, config),
        "## Scores",
        _score_table(scores),
        "## Training command",
        _block("sh", shlex.join(words)),
        "## Data",
        _json(
            {
                "fingerprint": config["data"]["fingerprint"],
                "vocabulary_sha256": config["vocabulary"],
                **provenance.get("data", {}),
            }
        ),
        "## Training",
        _json(facts),
        "## Hyperparameters",
        _json(run.hparams.to_dict()),
    ]
    return "\n\n".join(parts) + "\n"


def scores_of(
    run: Run, weights: Checkpoint | None = None
) -> list[dict[str, Any]]:
    """Return the scores of a checkpoint, or the best ones of the whole run.

    The dev scores of training (greedy search) come first, then each distinct
    report of `t2t-lite-evaluator`. Those of a run have a key `weights`.
    """
    metric, best = run.problem.metric, run.reached.best
    scores = []
    for record in read_metrics(run.output_dir):
        step, name = record["step"], record.get("weights")
        if weights:
            chosen = (step, name) == (weights.step, weights.weights)
        else:
            is_average = name not in (None, checkpoints.EMA)
            chosen = is_average or (best is not None and step == best["step"])
            if not is_average:
                name = f"{name} at step {step}" if name else f"step {step}"
        if chosen:
            score = {"metric": metric, "score": record.get(f"dev_{metric}")}
            scores.append(
                {"weights": name, "split": "dev", "beam_size": 1, **score}
            )
    for report in read_records(run.output_dir / EVALUATIONS_FILE):
        checksum = report.pop("weights", None)
        name = report.pop("checkpoint", f"step {report.pop('step')}")
        if not weights or checksum == weights.checksum:
            scores.append({"weights": name, **report})
    if weights:
        for score in scores:
            del score["weights"]
    distinct = [s for i, s in enumerate(scores) if s not in scores[:i]]
    return [score for score in distinct if _is_score(score)]


def _is_score(score: Mapping[str, Any]) -> bool:
    """Check the types, because anybody may write into a run's folder."""
    number, text = score.get("score"), (score.get("metric"), score.get("split"))
    return isinstance(number, int | float) and all(
        isinstance(value, str) for value in text
    )


def _front_matter(run: Run, scores: Sequence[Mapping[str, Any]]) -> str:
    """Return the YAML that the Hub reads, with its names of fields."""
    languages = [name for name in _languages(run) if _LANGUAGE.fullmatch(name)]
    task = "translation" if _languages(run) else "text2text-generation"
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
    metadata: dict[str, Any] = {
        "language": languages,
        "library_name": "t2t-lite",
        "pipeline_tag": task,
        "tags": ["t2t-lite", "transformer", task],
        "metrics": sorted({score["metric"] for score in scores}),
    }
    if results:
        index = {"name": run.output_dir.name, "results": results}
        metadata["model-index"] = [index]
    metadata = {key: value for key, value in metadata.items() if value}
    return yaml.safe_dump(metadata, sort_keys=False)


def _languages(run: Run) -> list[str]:
    return [name for name in getattr(run.problem, "languages", ()) if name]


def _introduction(run: Run, config: Mapping[str, Any]) -> str:
    sides = " to ".join(map(_code, _languages(run)))
    problem = f"{_code(run.problem.name)}{sides and f', from {sides}'}"
    reached, cost = run.reached, config.get("training_cost")
    ended = f"Training ended after {reached.step:,} updates."
    if not cost or cost.get("step", reached.step) != reached.step:
        steps = config.get("conditions", {}).get(
            "train_steps", run.hparams.train_steps
        )
        ended = (
            f"Training has not ended: {reached.step:,} of {steps:,} updates "
            "are saved."
        )
    best = reached.best_text
    best = best and f" The best checkpoint on dev: {best}."
    return f"A Transformer trained by t2t-lite on {problem}. {ended}{best}"


def _score_table(scores: Sequence[Mapping[str, Any]]) -> str:
    if not scores:
        return "None yet: `t2t-lite-evaluator` scores a split."
    lines = ["| Split | Metric | Score | Conditions |", "|---|---|---|---|"]
    for score in scores:
        texts = (score["split"], score["metric"], _conditions(score))
        split, metric, conditions = (
            _code(text).replace("|", r"\|") for text in texts
        )
        value = f"{score['score']:.2f}"
        lines.append(f"| {split} | {metric} | {value} | {conditions} |")
    return "\n".join(lines)


def _conditions(score: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{key} {score[key]}" for key in _CONDITIONS if key in score
    )


def _code(text: str) -> str:
    """Return a code span; characters that could end it become "?"."""
    shown = " ".join(text.split()) or "?"
    plain = (c if c.isprintable() and c != "`" else "?" for c in shown)
    return f"`{''.join(plain)}`"


def _json(facts: Mapping[str, Any]) -> str:
    return _block("json", json.dumps(facts, indent=2))


def _block(language: str, text: str) -> str:
    """Return a fenced block; no line of the text can end it."""
    lines = "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", lines))])
    return f"{fence}{language}\n{lines}\n{fence}"
