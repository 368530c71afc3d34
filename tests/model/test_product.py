"""Products over positions: their written-out gradients, rows spread out."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_lite.model.layers import product


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


@pytest.mark.parametrize("width", [24, 256, 512])
@pytest.mark.parametrize("biased", [False, True])
def test_gradients_of_a_product_equal_autodiff(width, biased):
    x = tf.constant(random(2, 3, 8))
    kernel = tf.Variable(random(8, width, seed=1))
    bias = tf.Variable(random(width, seed=2)) if biased else None
    weights = [x, kernel] + ([bias] if biased else [])

    def plain():
        out = tf.einsum("btd,dc->btc", x, kernel)
        return out if bias is None else out + bias

    results = []
    for function in (lambda: product.project(x, kernel, bias), plain):
        with tf.GradientTape() as tape:
            tape.watch(x)
            out = function()
            total = tf.reduce_sum(out * random(2, 3, width, seed=3))
        results.append([out, *tape.gradient(total, weights)])
    for ours, expected in zip(*results, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("width", [24, 256, 768])
def test_spread_rows_add_nothing_but_zeros(width, monkeypatch):
    monkeypatch.setattr(product, "has_accelerator", lambda: False)
    x = random(3, width)
    spread = product.spread_rows(tf.constant(x)).numpy()
    np.testing.assert_array_equal(spread[:, :width], x)
    assert not spread[:, width:].any()
    assert spread.shape[1] * 4 % 1024 != 0


def test_only_whole_kib_of_float32_on_a_processor_are_spread(monkeypatch):
    x = tf.constant(random(3, 256))
    monkeypatch.setattr(product, "has_accelerator", lambda: False)
    assert product.spread_rows(x).shape[1] == 256 + product.LINE
    assert product.spread_rows(x[:, :64]).shape[1] == 64
    assert product.spread_rows(tf.cast(x, tf.bfloat16)).shape[1] == 256
    monkeypatch.setattr(product, "has_accelerator", lambda: True)
    assert product.spread_rows(x).shape[1] == 256
