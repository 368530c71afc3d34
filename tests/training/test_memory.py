"""The largest batch is tried first; slices of micro-batches save memory."""

import numpy as np
import pytest
import tensorflow as tf

from support.tiny_run import TinyRun, ToyModel
from support.tiny_training import make_trainer, steps, train
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.model.transformer import Transformer
from t2t_lite.training.devices import choose_strategy
from t2t_lite.training.memory import try_largest_batch
from t2t_lite.training.options import TrainingOptions

# Before anything runs on TensorFlow's devices, for the tests of replicas.
choose_strategy(replicas=3)


class _Large(ToyModel):
    """A pass over more than 16 tokens, half a batch, does not fit."""

    def loss_sum(self, features, label_smoothing=0.0, seed=None):
        def allocate():
            return tf.reduce_sum(tf.random.uniform([2**45]))

        loss, tokens = super().loss_sum(features, label_smoothing, seed)
        large = tf.size(features["inputs"]) > 16
        return loss + tf.cond(large, allocate, lambda: 0.0), tokens


def test_a_batch_that_does_not_fit_is_refused_and_its_slices_fit(tmp_path):
    # The largest micro-batch has 4 rows of 16 tokens.
    run = TinyRun(tmp_path, make_model=_Large, batch_tokens=192, max_length=16)
    with pytest.raises(T2TLiteError, match="3 x 4 .* --micro_batches=6"):
        train(run)
    train(run, micro_batches=6)
    assert steps(run) == [6]


@pytest.mark.parametrize("passes", [2, 4])
def test_passes_are_a_multiple_of_the_planned_micro_batches(passes):
    with pytest.raises(UsageError, match="micro_batches"):
        TrainingOptions(micro_batches=passes).slices(planned=3)


@pytest.mark.parametrize(
    ("replicas", "changes"), [(1, {}), (2, {}), (1, {"micro_batches": 1})]
)
def test_trying_the_largest_batch_changes_nothing(tmp_path, replicas, changes):
    changes = {"residual_dropout": 0.3, "ema_decay": 0.9, **changes}
    tried, plain = (
        make_trainer(TinyRun(tmp_path, **changes), replicas) for _ in range(2)
    )
    try_largest_batch(tried.updater, print)
    for _ in range(2):
        for name, value in tried.tensors().items():
            expected = plain.tensors()[name]
            np.testing.assert_array_equal(value, expected, err_msg=name)
        for each in (tried, plain):
            each.update()
    for ours, theirs in zip(
        tried.updater.averages().values(),
        plain.updater.averages().values(),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("passes", "replicas", "changes"),
    [
        (6, 1, {}),
        (9, 2, {}),
        (27, 1, {"packing": True}),
        pytest.param(
            9,
            2,
            {"make_model": Transformer, "residual_dropout": 0.3},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_slices_do_not_change_an_update(tmp_path, passes, replicas, changes):
    run = TinyRun(tmp_path, **changes)
    whole = make_trainer(run)
    sliced = make_trainer(run, replicas, micro_batches=passes)
    for each in (whole, sliced):
        for _ in range(5):
            each.update()
        each.meter.read()
    whole.meter.totals.seconds = sliced.meter.totals.seconds
    assert whole.meter.totals == sliced.meter.totals
    ours, theirs = (each.meter.record()["loss"] for each in (sliced, whole))
    assert ours == pytest.approx(theirs, rel=1e-5)
    for ours, theirs in zip(
        sliced.model.get_weights(), whole.model.get_weights(), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)
