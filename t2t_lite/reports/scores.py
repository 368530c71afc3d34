"""What training and the evaluator wrote down of a run's weights."""

import contextlib
from typing import Any

from t2t_lite.errors import T2TLiteError
from t2t_lite.training.checkpoints import checkpoint, checkpoint_choice
from t2t_lite.training.checkpoints.checkpoint import Checkpoint
from t2t_lite.training.config import EVALUATIONS_FILE, read_records
from t2t_lite.training.run import Run


def scores_of(run: Run, weights: Checkpoint) -> list[dict[str, Any]]:
    """The scores of a checkpoint's weights.

    First that of training, on dev and by greedy search; then the evaluator's,
    on any split, as reported; the same report once.
    """
    found: dict[str, Any] = {}
    for record in read_records(run.output_dir):
        if (record["step"], record.get("weights")) == (
            weights.step,
            weights.weights,
        ):
            found |= record
    reports = _reports(run)
    of_evaluator = [r for r, of, _ in reports if of == weights.checksum]
    return [*_greedy(run, found), *of_evaluator]


def all_scores(run: Run) -> list[dict[str, Any]]:
    """The best of training on dev, those of the averages, and all reports.

    Each says of which `weights` it is.
    """
    best = _of_best(run)
    scores = []
    for record in read_records(run.output_dir):
        name = record.get("weights")
        is_average = name not in (None, checkpoint.EMA)
        if is_average or record["step"] == best:
            at_step = (
                f"step {best}" if name is None else f"{name} at step {best}"
            )
            for score in _greedy(run, record):
                weights = name if is_average else at_step
                scores.append({"weights": weights, **score})
    names = _names(run)
    for report, of, step in _reports(run):
        weights = names.get(of, f"step {step}")
        scores.append({"weights": weights, **report})
    return [each for each in scores if _is_score(each)]


def _is_score(record: dict[str, Any]) -> bool:
    """Anybody may write into a run's folder."""
    return isinstance(record.get("metric"), str) and isinstance(
        record.get("score"), (int, float)
    )


def _greedy(run: Run, record: dict[str, Any]) -> list[dict[str, Any]]:
    """The score of an evaluation while training; none without a metric."""
    metric = run.problem.metric
    score = record.get(f"dev_{metric}")
    if score is None:
        return []
    return [{"split": "dev", "beam_size": 1, "metric": metric, "score": score}]


def _reports(run: Run) -> list[tuple[dict[str, Any], str, int]]:
    """The evaluator's, each once, with its weights' checksum and step."""
    reports: list[tuple[dict[str, Any], str, int]] = []
    for record in read_records(run.output_dir, EVALUATIONS_FILE):
        step, weights = record.pop("step"), str(record.pop("weights", None))
        if (report := (record, weights, step)) not in reports:
            reports.append(report)
    return reports


def _of_best(run: Run) -> int | None:
    """The step of the best checkpoint."""
    with contextlib.suppress(T2TLiteError):
        best = checkpoint_choice.read_best(run.checkpoints_dir)
        return best["step"] if best else None
    return None


def _names(run: Run) -> dict[str, str]:
    """The names of the weights that are still there, by their checksum."""
    names = {}
    for averages in (False, True):
        for found in checkpoint.list_checkpoints(run.checkpoints_dir, averages):
            for weights in {found, found.decoded}:
                with contextlib.suppress(T2TLiteError):
                    names[weights.checksum] = str(weights)
    return names
