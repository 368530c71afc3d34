"""The largest batch is tried before training."""

import pytest
import tensorflow as tf

from support.tiny_run import TinyRun, ToyModel
from support.tiny_training import make_trainer, require_same, steps, train
from t2t_lite.errors import T2TLiteError
from t2t_lite.training.memory import try_largest_batch


class _Large(ToyModel):
    """Model that runs out of memory on more than 30 tokens in one pass."""

    def loss_sum(self, features, label_smoothing=0.0, seed=None):
        def allocate():
            return tf.reduce_sum(tf.random.uniform([2**45]))

        loss, tokens = super().loss_sum(features, label_smoothing, seed)
        large = tf.size(features["inputs"]) > 30  # made-up data has 28
        return loss + tf.cond(large, allocate, lambda: 0.0), tokens


@pytest.mark.slow
def test_too_large_batch_is_refused_and_smaller_ones_fit(tmp_path):
    # The largest micro-batch has 4 rows of 16 tokens, then 1 row.
    sizes = {"make_model": _Large, "batch_tokens": 192, "max_length": 16}
    with pytest.raises(
        T2TLiteError, match="3 x 4 .*gradient_accumulation_steps=6"
    ):
        train(TinyRun(tmp_path, **sizes))
    run = TinyRun(tmp_path, gradient_accumulation_steps=12, **sizes)
    train(run)
    assert steps(run) == [6]


def test_the_largest_batch_may_have_shorter_texts(tmp_path):
    # One text of 16 tokens has fewer positions than two of 15.
    sizes = {"batch_tokens": 31, "gradient_accumulation_steps": 1}
    run, shown = TinyRun(tmp_path, max_length=16, **sizes), []
    try_largest_batch(make_trainer(run).updater, shown.append)
    assert "1 x 2 sentences of 15 tokens" in shown[0]


@pytest.mark.parametrize(
    ("replicas", "changes"),
    [(2, {}), (1, {"gradient_accumulation_steps": 1})],
)
def test_try_largest_batch_does_not_change_state(tmp_path, replicas, changes):
    changes = {"residual_dropout": 0.3, "ema_decay": 0.9, **changes}
    tried, plain = (
        make_trainer(TinyRun(tmp_path, **changes), replicas) for _ in range(2)
    )
    try_largest_batch(tried.updater, print)
    for _ in range(2):
        require_same(tried.tensors(), plain.tensors(), within=0)
        for each in (tried, plain):
            each.update()
    averages = tried.updater.averages(), plain.updater.averages()
    require_same(*averages, within=0)
