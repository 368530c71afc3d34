"""A run's card: what was trained, on what, how well, and how again.

`OUTPUT_DIR/card.md` reads as a model card of the Hugging Face Hub, and
`card.json` says the same to programs.
"""

import contextlib
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from t2t_lite import files
from t2t_lite.errors import in_words
from t2t_lite.progress import duration, say
from t2t_lite.reports.markdown import code, code_block, front_matter, table
from t2t_lite.reports.scores import all_scores
from t2t_lite.training.checkpoints import checkpoint
from t2t_lite.training.config import read_config
from t2t_lite.training.run import Run

CARD, CARD_JSON = "card.md", "card.json"
_FORMAT = 1
_LANGUAGE = re.compile("[a-z]{2,3}")  # as the Hub takes them: ISO 639
# The folders before a file's name, in a word of a command.
_FOLDERS = re.compile(r"[^=,:;]*[/\\]")


@contextlib.contextmanager
def card_kept(run: Run) -> Iterator[None]:
    """Writes the card before and after what is done, however it ends."""
    write_card(run)
    try:
        yield
    finally:
        write_card(run)


def write_card(run: Run) -> None:
    """Writes both files anew; where that fails, a line says so."""
    try:
        card = run_card(run)
        files.write_json(run.output_dir / CARD_JSON, card)
        files.write_text(run.output_dir / CARD, as_markdown(card))
    except Exception as error:  # whatever it is, the training is sound
        say(f"Warning: the card of the run is not written: {in_words(error)}.")


def run_card(
    run: Run, scores: Sequence[Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """What the card of a run says, fit for JSON.

    Args:
      run: its folder is read.
      scores: None takes all that are known of any of its weights.

    Raises:
      T2TLiteError: a part of the run is damaged.
    """
    # Another process may have trained the run further since it was opened.
    config, reached = read_config(run.output_dir), run.reached
    conditions = config.get("conditions", {})
    cost: dict[str, Any] = config.get("training_cost") or {}
    source, target = getattr(run.problem, "languages", ("", ""))
    return {
        "format": _FORMAT,
        "name": run.output_dir.name,
        "problem": run.problem.name,
        "source_language": source or None,
        "target_language": target or None,
        "step": reached.step,
        "train_steps": conditions.get("train_steps", run.hparams.train_steps),
        "ended": bool(cost) and cost.get("step", reached.step) == reached.step,
        "best": reached.best,
        "scores": list(all_scores(run) if scores is None else scores),
        "command": conditions.get("command"),
        "seed": run.seed,
        "data": {
            "fingerprint": config["data"]["fingerprint"],
            "vocabulary": config["vocabulary"],
            **conditions.get("data", {}),
        },
        "hparams_set": config.get("hparams_set"),
        "hparams": run.hparams.to_dict(),
        "training": cost or _work_so_far(run),
        "hardware": conditions.get("hardware"),
        "code": conditions.get("code"),
        "versions": config.get("versions"),
    }


def _work_so_far(run: Run) -> dict[str, Any] | None:
    """What the newest checkpoint of an unfinished run tells of its cost."""
    saved = checkpoint.list_checkpoints(run.checkpoints_dir)
    if not saved:
        return None
    state = checkpoint.read_state(saved[-1].path)
    names = ("seconds", "source_tokens", "target_tokens", "skipped")
    return {name: state[name] for name in names if name in state}


def card_to_export(run: Run, scores: Sequence[Mapping[str, Any]]) -> str:
    """The text of a card for others: it names no place of this machine.

    Args:
      run: that the exported model is of.
      scores: of the exported weights.
    """
    card = run_card(run, scores)
    words = card["command"]
    return as_markdown({**card, "command": words and without_folders(words)})


def without_folders(words: Sequence[str]) -> list[str]:
    """The words of a command, with the names of files in place of paths."""
    return [_FOLDERS.sub("", word) for word in words]


def as_markdown(card: Mapping[str, Any]) -> str:
    """The text of `card.md`."""
    parts = [
        front_matter(_metadata(card)),
        f"# {code(card['problem'])}, {code(card['name'])}",
        _introduction(card),
        "## Scores",
        _scores(card["scores"]),
        "## Train it again",
        *_again(card["command"]),
        "## Data",
        *_data(card["data"]),
        "## What training took",
        _facts(_training(card)),
        "## Hyperparameters",
        _facts(card["hparams"]),
        "## Versions",
        _facts({**(card["versions"] or {}), "code": card["code"]}),
    ]
    return "\n\n".join(parts) + "\n"


def _metadata(card: Mapping[str, Any]) -> dict[str, Any]:
    """What the Hub reads: its fields and their names."""
    languages = (card["source_language"], card["target_language"])
    known = [name for name in languages if name and _LANGUAGE.fullmatch(name)]
    task = "translation" if card["source_language"] else "text2text-generation"
    results = [
        {
            "task": {"type": task},
            "dataset": {
                "name": card["problem"],
                "type": card["problem"],
                "split": score.get("split", "test"),
            },
            "metrics": [
                {
                    "type": score["metric"],
                    "value": round(score["score"], 2),
                    "name": f"{score['metric']}, {_how(score)}",
                }
            ],
        }
        for score in card["scores"]
        if math.isfinite(score.get("score", math.nan))
    ]
    metrics = sorted({s["metric"] for s in card["scores"] if s.get("metric")})
    index = {"name": card["name"], "results": results}
    return {
        **({"language": known} if known else {}),
        "library_name": "t2t-lite",
        "pipeline_tag": task,
        "tags": ["t2t-lite", "transformer", task],
        **({"metrics": metrics} if metrics else {}),
        **({"model-index": [index]} if results else {}),
    }


def _introduction(card: Mapping[str, Any]) -> str:
    source, target = card["source_language"], card["target_language"]
    sides = f", from {code(source)} to {code(target)}" if source else ""
    said = [
        f"A Transformer trained by t2t-lite on {code(card['problem'])}{sides}."
    ]
    step, steps = card["step"], card["train_steps"]
    if card["ended"]:
        said.append(f"Training ended after {step:,} updates.")
    else:
        said.append(
            f"Training has not ended: {step:,} of {steps:,} updates were saved "
            "when this card was written."
        )
    if best := card["best"]:
        metric, value = best["metric"], best["value"]
        if metric.startswith("negative_"):
            metric, value = metric.removeprefix("negative_"), -value
        said.append(
            f"The best on dev is step {best['step']:,}: {metric} {value:.4g}."
        )
    return " ".join(said)


def _scores(scores: Sequence[Mapping[str, Any]]) -> str:
    if not scores:
        return "None yet: `t2t-lite-evaluator` scores a split."
    return table(
        ["Split", "Metric", "Score", "How"],
        [
            [
                code(score.get("split", "")),
                code(score.get("metric", "")),
                f"{score.get('score', math.nan):.2f}",
                code(_how(score)),
            ]
            for score in scores
        ],
    )


def _how(score: Mapping[str, Any]) -> str:
    """All that a score says of itself besides the score, on one line."""
    told = ("weights", "beam_size", "alpha", "sentences", "signature")
    parts = [f"{name} {score[name]}" for name in told if name in score]
    return ", ".join(parts) or "as reported"


def _again(command: Sequence[str] | None) -> list[str]:
    if not command:
        return ["The run is older than the record of its command."]
    return [
        code_block(shlex.join(command)),
        "The same data, seed and versions give the same model, up to the order "
        "in which floats are added; `--deterministic` fixes that, too.",
    ]


def _data(data: Mapping[str, Any]) -> list[str]:
    parts = [f"Fingerprint: {code(data['fingerprint'])}"]
    splits = data.get("splits", {})
    if splits:
        rows = [
            [
                code(name),
                *(
                    f"{split[key]:,}"
                    for key in ("pairs", "source_tokens", "target_tokens")
                ),
                _counts(split["dropped"]),
                _counts(split["damaged"]),
            ]
            for name, split in splits.items()
        ]
        header = ["Split", "Pairs", "Source tokens", "Target tokens"]
        parts.append(table([*header, "Left out", "Kept, with"], rows))
    if corpora := data.get("corpora"):
        rows = [
            [
                code(" and ".join(corpus["files"])),
                code(corpus["tag"]) if corpus["tag"] else "none",
                f"{corpus['pairs']:,}",
                f"{corpus['copies']:,}",
            ]
            for corpus in corpora
        ]
        parts.append(
            table(["Corpus of train", "Tag", "Pairs", "With copies"], rows)
        )
    rows = [
        [code(source["file"]), f"{source['bytes']:,}", code(source["sha256"])]
        for source in data.get("sources", ())
    ]
    rows += [[code(n), "", code(s)] for n, s in data["vocabulary"].items()]
    parts.append(table(["File", "Bytes", "SHA-256"], rows))
    return parts


def _counts(counts: Mapping[str, int]) -> str:
    told = [f"{count:,} {code(what)}" for what, count in counts.items()]
    return ", ".join(told) or "none"


def _training(card: Mapping[str, Any]) -> dict[str, Any]:
    work, machine = card["training"] or {}, card["hardware"] or {}
    facts = {**work, **machine, "seed": card["seed"]}
    if "seconds" in work:
        facts["seconds"] = (
            f"{work['seconds']:.0f} ({duration(work['seconds'])})"
        )
    if "memory_bytes" in machine:
        del facts["memory_bytes"]
        facts["memory"] = f"{machine['memory_bytes'] / 2**30:.1f} GiB"
    if "gpus" in machine:
        facts["gpus"] = ", ".join(machine["gpus"]) or "none"
    return facts


def _facts(facts: Mapping[str, Any]) -> str:
    rows = [
        [code(name.replace("_", " ")), code(_text(value))]
        for name, value in facts.items()
    ]
    return table(["What", "Value"], rows)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e15 else f"{value:.3g}"
    return "none" if value is None else str(value)
