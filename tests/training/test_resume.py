"""A resumed run restores all weights and states from its checkpoint."""

import numpy as np
import pytest
import tensorflow as tf

from support.tiny_run import TinyRun
from support.tiny_training import make_trainer, steps, train, weights
from t2t_lite.model.transformer import Transformer


@pytest.mark.parametrize(
    "hparams",
    [{}, {"optimizer": "adafactor"}, {"ema_decay": 0.5}],
    ids=["adam", "adafactor", "average"],
)
def test_resumed_run_equals_an_uninterrupted_run(tmp_path, hparams):
    whole = TinyRun(tmp_path / "1", make_model=Transformer, **hparams)
    train(whole, train_steps=4, save_steps=2)
    run = TinyRun(tmp_path / "2", make_model=Transformer, **hparams)
    train(run, train_steps=2, save_steps=2)
    train(run, train_steps=4, save_steps=2)
    tf.nest.map_structure(
        np.testing.assert_array_equal, weights(run, 4), weights(whole, 4)
    )


def test_fallback_restores_tensors_set_by_a_damaged_checkpoint(tmp_path):
    run = TinyRun(tmp_path)
    train(run, train_steps=4, save_steps=2)
    saved = weights(run, 2)
    newest = run.checkpoints_dir / "step-00000004"
    # Only a tensor is damaged; the index and the state can be read.
    (data,) = newest.glob("tensors.data-*")
    data.write_bytes(data.read_bytes()[:-4])
    resumed = make_trainer(run)
    resumed.restore()
    assert steps(run) == [2]
    for name, value in resumed.tensors().items():
        np.testing.assert_array_equal(value.numpy(), saved[name])
