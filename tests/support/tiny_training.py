"""Trains a `TinyRun`, and reads what the training left in its folder."""

import json

import numpy as np
import tensorflow as tf

from t2t_lite.training import trainer
from t2t_lite.training.checkpoints import checkpoint, checkpoint_choice
from t2t_lite.training.options import TrainingOptions


def train(run, evaluate_text=lambda: {}, **options):
    options = TrainingOptions(**{"log_steps": 2, **options})
    return trainer.train(run, options, evaluate_text)


def metrics(run):
    lines = (run.output_dir / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def steps(run):
    return [c.step for c in checkpoint.list_checkpoints(run.checkpoints_dir)]


def weights(run, step):
    """All that a checkpoint holds, by name."""
    path = checkpoint_choice.resolve(run.checkpoints_dir, step).path
    reader = tf.train.load_checkpoint(str(path / "tensors"))
    return {
        name: reader.get_tensor(name)
        for name in reader.get_variable_to_shape_map()
    }


def require_same(ours, theirs, within=1e-6):
    """Refuses arrays by name that differ by more than the order of sums."""
    assert ours.keys() == theirs.keys()
    for name, wanted in theirs.items():
        np.testing.assert_allclose(
            ours[name], wanted, rtol=0, atol=within, err_msg=name
        )
