"""Trains a `TinyRun`, and reads what the training left in its folder."""

import json

import numpy as np

from t2t_lite.training import checkpoints, trainer
from t2t_lite.training.distribute import choose_strategy
from t2t_lite.training.options import TrainingOptions


def train(run, evaluate_text=dict, **options):
    run.evaluate_text = evaluate_text
    trainer.train_run(run, TrainingOptions(**{"log_steps": 2, **options}))


def make_trainer(run, replicas=None, **options):
    """A trainer of a run, with fresh weights."""
    trainer.seed_everything(run.seed)
    options = TrainingOptions(**options)
    return trainer.Trainer(run, options, choose_strategy(replicas))


def metrics(run):
    lines = (run.output_dir / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def steps(run):
    return [c.step for c in checkpoints.list_checkpoints(run.checkpoints_dir)]


def tensors_of(path):
    """All tensors of a checkpoint, by name."""
    reader = checkpoints.Reader(path)
    return {name: reader[name] for name in reader.shapes if name != "state"}


def weights(run, step):
    """All that a checkpoint holds, by name."""
    return tensors_of(checkpoints.resolve(run.checkpoints_dir, step).path)


def require_same(ours, theirs, within=1e-6):
    """Refuses arrays by name that differ by more than the order of sums."""
    assert ours.keys() == theirs.keys()
    for name, wanted in theirs.items():
        np.testing.assert_allclose(
            ours[name], wanted, rtol=0, atol=within, err_msg=name
        )
