"""The model card of a run: `OUTPUT_DIR/card.md`, as the Hugging Face Hub reads.

It says what was trained, on which data, how well, and with which command.
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
from t2t_lite.training.checkpoints import checkpoint, checkpoint_choice
from t2t_lite.training.checkpoints.checkpoint import Checkpoint
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
_Scores = list[dict[str, Any]]


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
        files.write_text(run.output_dir / CARD, make_card(run, all_scores(run)))
    except Exception as error:
        say(f"Warning: the model card is not written: {in_words(error)}.")


def card_to_export(run: Run, scores: _Scores) -> str:
    """Return the card for an export: it names no folder of this machine.

    Args:
      run: the run of the exported model.
      scores: the scores of the exported weights, see `scores_of`.
    """
    return make_card(run, scores, without_folders)


def make_card(
    run: Run,
    scores: _Scores,
    edit_command: Any = lambda words: words,
) -> str:
    """Return the text of the card.

    Args:
      run: its folder is read, because another process may have trained since.
      scores: from `all_scores` or `scores_of`.
      edit_command: takes and returns the words of the training command.

    Raises:
      T2TLiteError: a file of the run is damaged.
    """
    config = read_config(run.output_dir)
    provenance = config.get("conditions", {})
    command = provenance.get("command")
    parts = [
        f"---\n{_front_matter(run, scores)}---",
        f"# {_code(run.problem.name)}, {_code(run.output_dir.name)}",
        _introduction(run, config),
        "## Scores",
        _score_table(scores),
        "## Training command",
        _block("sh", shlex.join(edit_command(command)))
        if command
        else "This run is older than the record of its command.",
        "## Data",
        *_data(config),
        "## Training",
        _facts(
            {
                **(config.get("training_cost") or _cost_so_far(run)),
                "seed": run.seed,
                "hardware": provenance.get("hardware"),
                "code": provenance.get("code"),
                "versions": config.get("versions"),
            }
        ),
        "## Hyperparameters",
        _facts(run.hparams.to_dict()),
    ]
    return "\n\n".join(parts) + "\n"


def without_folders(words: Sequence[str]) -> list[str]:
    """Return the words of a command with file names instead of paths."""
    return [_FOLDERS.sub("", word) for word in words]


def _front_matter(run: Run, scores: _Scores) -> str:
    """Return the YAML that the Hub reads, with its names of fields."""
    languages = [name for name in _languages(run) if _LANGUAGE.fullmatch(name)]
    task = "translation" if _languages(run) else "text2text-generation"
    name = run.problem.name
    results = [
        {
            "task": {"type": task},
            "dataset": {
                "name": name,
                "type": name,
                "split": score.get("split", "test"),
            },
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
        "model-index": results
        and [{"name": run.output_dir.name, "results": results}],
    }
    return yaml.safe_dump(
        {key: value for key, value in metadata.items() if value},
        sort_keys=False,
    )


def _languages(run: Run) -> list[str]:
    return [name for name in getattr(run.problem, "languages", ()) if name]


def _introduction(run: Run, config: Mapping[str, Any]) -> str:
    sides = " to ".join(map(_code, _languages(run)))
    sentences = [
        "A Transformer trained by t2t-lite on "
        f"{_code(run.problem.name)}{sides and f', from {sides}'}."
    ]
    reached, cost = run.reached, config.get("training_cost")
    if cost and cost.get("step", reached.step) == reached.step:
        sentences.append(f"Training ended after {reached.step:,} updates.")
    else:
        steps = config.get("conditions", {}).get(
            "train_steps", run.hparams.train_steps
        )
        sentences.append(
            f"Training has not ended: {reached.step:,} of {steps:,} updates "
            "are saved."
        )
    if best := reached.best:
        metric, value = best["metric"], best["value"]
        if metric.startswith("negative_"):
            metric, value = metric.removeprefix("negative_"), -value
        sentences.append(
            f"The best checkpoint on dev is step {best['step']:,}: {metric} "
            f"{value:.4g}."
        )
    return " ".join(sentences)


def _score_table(scores: _Scores) -> str:
    if not scores:
        return "None yet: `t2t-lite-evaluator` scores a split."
    rows = [
        [
            _code(score.get("split", "")),
            _code(score["metric"]),
            f"{score['score']:.2f}",
            _code(_conditions(score)),
        ]
        for score in scores
    ]
    return _table(["Split", "Metric", "Score", "Conditions"], rows)


def _conditions(score: Mapping[str, Any]) -> str:
    keys = ("weights", "beam_size", "alpha", "sentences", "signature")
    return ", ".join(f"{key} {score[key]}" for key in keys if key in score)


def _data(config: Mapping[str, Any]) -> list[str]:
    data = config.get("conditions", {}).get("data", {})
    rows = [
        [
            _code(name),
            *(
                f"{split[key]:,}"
                for key in ("pairs", "source_tokens", "target_tokens")
            ),
            _counts(split["dropped"]),
            _counts(split["damaged"]),
        ]
        for name, split in data.get("splits", {}).items()
    ]
    header = ["Split", "Pairs", "Source tokens", "Target tokens"]
    facts = {
        "fingerprint": config["data"]["fingerprint"],
        "vocabulary_sha256": config["vocabulary"],
        "corpora": data.get("corpora", []),
        "sources": data.get("sources", []),
    }
    table = _table([*header, "Dropped", "Repaired"], rows)
    return [table, _facts(facts)] if rows else [_facts(facts)]


def _counts(counts: Mapping[str, int]) -> str:
    shown = [f"{count:,} {_code(name)}" for name, count in counts.items()]
    return ", ".join(shown) or "none"


def _cost_so_far(run: Run) -> dict[str, Any]:
    """Return the counts in the newest checkpoint of an unfinished run."""
    saved = checkpoint.list_checkpoints(run.checkpoints_dir)
    state = checkpoint.read_state(saved[-1].path) if saved else {}
    names = ("seconds", "source_tokens", "target_tokens", "skipped")
    return {name: state[name] for name in names if name in state}


def _code(text: str) -> str:
    """Return a code span; characters that could end it become "?"."""
    shown = " ".join(text.split()) or "?"
    return f"`{''.join(c if _is_plain(c) else '?' for c in shown)}`"


def _is_plain(character: str) -> bool:
    return character.isprintable() and character != "`"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = []
    for row in (header, ["---"] * len(header), *rows):
        cells = (cell.replace("|", r"\|") for cell in row)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _facts(facts: Mapping[str, Any]) -> str:
    return _block("json", json.dumps(facts, indent=2))


def _block(language: str, text: str) -> str:
    """Return a fenced block; no line of the text can end it."""
    lines = "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", lines))])
    return f"{fence}{language}\n{lines}\n{fence}"


def scores_of(run: Run, weights: Checkpoint) -> _Scores:
    """Return the scores of the weights of a checkpoint.

    The score of training comes first (dev, greedy search), then each distinct
    report of `t2t-lite-evaluator`.
    """
    found: dict[str, Any] = {}
    for record in read_metrics(run.output_dir):
        if (record["step"], record.get("weights")) == (
            weights.step,
            weights.weights,
        ):
            found |= record
    reports = [r for r, of, _ in _reports(run) if of == weights.checksum]
    return [*_greedy_score(run, found), *reports]


def all_scores(run: Run) -> _Scores:
    """Return the best score of training, those of averages, and all reports.

    Each score has a key `weights`.
    """
    best = _best_step(run)
    scores: _Scores = []
    for record in read_metrics(run.output_dir):
        name = record.get("weights")
        is_average = name not in (None, checkpoint.EMA)
        if is_average or record["step"] == best:
            at_step = (
                f"step {best}" if name is None else f"{name} at step {best}"
            )
            for score in _greedy_score(run, record):
                scores.append(
                    {"weights": name if is_average else at_step} | score
                )
    names = _names_by_checksum(run)
    for report, of, step in _reports(run):
        scores.append({"weights": names.get(of, f"step {step}"), **report})
    return scores


def _greedy_score(run: Run, record: Mapping[str, Any]) -> _Scores:
    """Return the score of a dev evaluation in training, if it has one."""
    metric = run.problem.metric
    score = {"metric": metric, "score": record.get(f"dev_{metric}")}
    found = {"split": "dev", "beam_size": 1, **score}
    return [found] if _is_score(found) else []


def _reports(run: Run) -> list[tuple[dict[str, Any], str, int]]:
    """Return each distinct report, the checksum of its weights and its step."""
    reports: list[tuple[dict[str, Any], str, int]] = []
    for record in read_records(run.output_dir / EVALUATIONS_FILE):
        step, weights = record.pop("step"), str(record.pop("weights", None))
        report = record, weights, step
        if _is_score(record) and report not in reports:
            reports.append(report)
    return reports


def _is_score(record: Mapping[str, Any]) -> bool:
    """Check the types, because anybody may write into a run's folder."""
    return isinstance(record.get("metric"), str) and isinstance(
        record.get("score"), int | float
    )


def _best_step(run: Run) -> int | None:
    with contextlib.suppress(T2TLiteError):
        best = checkpoint_choice.read_best(run.checkpoints_dir)
        return best["step"] if best else None
    return None


def _names_by_checksum(run: Run) -> dict[str, str]:
    """Return the names of the weights that still exist, by their checksum."""
    names = {}
    for averages in (False, True):
        for found in checkpoint.list_checkpoints(run.checkpoints_dir, averages):
            for weights in {found, found.decoded}:
                with contextlib.suppress(T2TLiteError):
                    names[weights.checksum] = str(weights)
    return names
