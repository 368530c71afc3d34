"""Train a `TinyRun`, and read the files that this writes."""

import json

import numpy as np

from t2t_lite.training import checkpoints, trainer
from t2t_lite.training.distribute import choose_strategy
from t2t_lite.training.options import TrainingOptions


def train(run, evaluate_text=dict, **options):
    run.evaluate_text = evaluate_text
    trainer.train_run(run, TrainingOptions(**{"log_steps": 2, **options}))


def make_trainer(run, replicas=None, **options):
    """Return a trainer of a run, with new weights."""
    trainer.seed_everything(run.seed)
    options = TrainingOptions(**options)
    return trainer.Trainer(run, options, choose_strategy(replicas))


def metrics(run):
    lines = (run.output_dir / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def steps(run):
    return [c.step for c in checkpoints.list_checkpoints(run.checkpoints_dir)]


def tensors_of(path):
    """Return the tensors of a checkpoint by name, without the state."""
    reader = checkpoints.Reader(path)
    return {name: reader[name] for name in reader.shapes if name != "state"}


def weights(run, step):
    """Return the tensors of the run's checkpoint at a step by name."""
    return tensors_of(checkpoints.resolve(run.checkpoints_dir, step).path)


def require_same(ours, theirs, within=1e-6):
    """Assert that arrays by name are equal within the rounding of sums."""
    assert ours.keys() == theirs.keys()
    for name, wanted in theirs.items():
        np.testing.assert_allclose(
            ours[name], wanted, rtol=0, atol=within, err_msg=name
        )
