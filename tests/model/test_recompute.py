"""Activations that the backward pass computes again."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_lite.model.layers import EncoderLayer
from t2t_lite.model.transformer import Transformer

SIZES = {
    "hidden_size": 8,
    "filter_size": 16,
    "num_heads": 2,
    "num_hidden_layers": 2,
}
DROPOUT = {f"{part}_dropout": 0.3 for part in ("residual", "attention", "relu")}


def _packed_batch():
    """Two rows of two sentences each."""
    generator = np.random.default_rng(0)
    batch = {}
    for side in ("inputs", "targets"):
        batch |= {
            side: generator.integers(2, 17, (2, 5)),
            f"{side}_segmentation": [[1, 1, 2, 2, 2]] * 2,
            f"{side}_position": [[0, 1, 0, 1, 2]] * 2,
        }
    return {name: tf.constant(ids, tf.int32) for name, ids in batch.items()}


def _loss_and_gradients(model, seed=(1, 2)):
    weights = [v.value for v in model.trainable_variables]
    with tf.GradientTape() as tape:
        loss, _ = model.loss_sum(_packed_batch(), 0.1, tf.constant(seed))
    gradients = tape.gradient(loss, weights)
    return loss, [tf.convert_to_tensor(gradient) for gradient in gradients]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm_placement": "pre"},
        {"attention_window": 4},
        {"max_relative_position": 2, "position_encoding": "none"},
    ],
    ids=["post", "pre", "window", "relative"],
)
def test_recomputing_changes_no_loss_and_no_gradient(changes):
    model = Transformer(17, **SIZES, **DROPOUT, **changes).build_weights()
    loss, gradients = _loss_and_gradients(model)
    model.recompute = True
    again, recomputed = _loss_and_gradients(model)
    np.testing.assert_allclose(again, loss, rtol=1e-6)
    for ours, theirs in zip(recomputed, gradients, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    other, _ = _loss_and_gradients(model, seed=(1, 3))
    assert other != loss


def test_each_layer_is_computed_a_second_time_for_its_gradients(monkeypatch):
    calls = []
    compute = EncoderLayer.with_attentions

    def counted(self, *inputs, **options):
        calls.append(self.name)
        return compute(self, *inputs, **options)

    monkeypatch.setattr(EncoderLayer, "with_attentions", counted)
    model = Transformer(17, **SIZES).build_weights()
    names = [layer.name for layer in model.encoder_layers]
    _loss_and_gradients(model)
    assert calls == names
    calls.clear()
    model.recompute = True
    _loss_and_gradients(model)
    assert calls == names + names[::-1]
    # What is evaluated has no backward pass.
    calls.clear()
    model.loss_sum(_packed_batch())
    assert calls == names
