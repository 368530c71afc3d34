"""Early stopping and the best checkpoints."""

import json

from support.tiny_run import TinyRun
from support.tiny_training import metrics, steps, train
from t2t_lite.training import checkpoints


def _scored(run, scores, **options):
    """Train with a score for each evaluation, one every second update."""
    scores = iter(scores)
    train(
        run,
        lambda: {"metric": "bleu", "score": next(scores)},
        eval_steps_every=2,
        save_steps=2,
        **options,
    )


def _evaluations(run):
    return [each["step"] for each in metrics(run) if "dev_loss" in each]


def test_training_ends_after_evaluations_without_improvement(tmp_path, capsys):
    run = TinyRun(tmp_path, train_steps=100)
    scores = [10.0, 30.0, 20.0, 25.0]
    _scored(run, scores, early_stopping_patience=2)
    assert _evaluations(run) == [2, 4, 6, 8]
    assert steps(run)[-1] == 8
    err = capsys.readouterr().err
    assert "update 8" in err and "2 evaluations since update 4" in err
    # The same command does not resume training.
    _scored(run, [], early_stopping_patience=2)
    assert steps(run)[-1] == 8
    # A longer patience does, and keeps the count of evaluations.
    _scored(run, [26.0, 27.0], early_stopping_patience=4)
    assert steps(run)[-1] == 12


def test_patience_is_counted_across_a_restart(tmp_path):
    run = TinyRun(tmp_path, train_steps=100, average_checkpoints=2)
    options = {"early_stopping_patience": 3}
    _scored(run, [30.0, 20.0, 25.0, 1.0], train_steps=6, **options)
    _scored(run, [10.0, 11.0], **options)
    # Early stopping also averages the last checkpoints.
    assert _evaluations(run) == [2, 4, 6, 6, 8, 8]
    found = checkpoints.resolve(run.checkpoints_dir, "default")
    assert (found.averaged, found.step) == (2, 8)


def test_patience_uses_the_loss_if_it_is_the_best_metric(tmp_path):
    # The rate is too small to change any weight in float32.
    run = TinyRun(tmp_path, train_steps=100, learning_rate=1e-30)
    scores = [1.0, 2.0, 3.0, 4.0]
    _scored(run, scores, early_stopping_patience=3, best_metric="loss")
    assert _evaluations(run) == [2, 4, 6, 8]


def test_patience_uses_the_scores_of_the_moving_average(tmp_path):
    run = TinyRun(tmp_path, train_steps=100, ema_decay=0.9)
    scores = [1.0, 9.0, 2.0, 8.0, 3.0, 7.0]  # the raw weights improve
    _scored(run, scores, early_stopping_patience=2)
    assert steps(run)[-1] == 6


def test_best_checkpoints_are_kept_with_the_last(tmp_path):
    run = TinyRun(tmp_path, train_steps=12, average_checkpoints=5)
    scores = [10.0, 30.0, 20.0, 5.0, 20.0, 15.0]
    _scored(run, scores, keep_best=3, keep_checkpoints=1)
    # An average of the old and the last checkpoint would be worse.
    assert not checkpoints.list_checkpoints(run.checkpoints_dir, averages=True)
    # The earlier of two equal scores is better.
    mark = json.loads((run.checkpoints_dir / "best.json").read_text())
    assert mark == {
        "step": 4,
        "metric": "dev_bleu",
        "value": 30.0,
        "others": [
            {"step": 6, "metric": "dev_bleu", "value": 20.0},
            {"step": 10, "metric": "dev_bleu", "value": 20.0},
        ],
    }
    assert steps(run) == [4, 6, 10, 12]
    assert checkpoints.resolve(run.checkpoints_dir, "best").step == 4


def test_best_checkpoints_are_ranked_by_one_metric(tmp_path):
    run = TinyRun(tmp_path, train_steps=8)
    # The loss decides until the score reaches 1.
    _scored(run, [0.0, 0.5, 3.0, 2.0], keep_best=4, keep_checkpoints=1)
    marks = checkpoints.read_marks(run.checkpoints_dir)
    assert [(each["step"], each["value"]) for each in marks] == [
        (6, 3.0),
        (8, 2.0),
    ]
    assert steps(run) == [6, 8]
