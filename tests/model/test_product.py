"""Products over positions: their gradients, whatever they are made of."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_lite.model.layers.product import project_rows, turns_kernel


def random(*shape, seed):
    values = np.random.default_rng(seed).normal(size=shape)
    return tf.constant(values, "float32")


@pytest.mark.parametrize("columns", [6, 640])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("relu", [False, True])
def test_gradients_are_those_of_plain_operations(columns, with_bias, relu):
    x, kernel = random(2, 3, 4, seed=1), random(4, columns, seed=2)
    bias = [random(columns, seed=3)] if with_bias else []
    share = random(6, columns, seed=4)

    def plain(x, kernel, *bias):
        rows = tf.reshape(x, (6, 4)) @ kernel + sum(bias)
        return tf.nn.relu(rows) if relu else rows

    def ours(x, kernel, *bias):
        return project_rows(x, kernel, *bias, relu=relu)

    @tf.function(autograph=False)
    def of(function):
        assert turns_kernel(kernel) == (columns == 640)
        with tf.GradientTape() as tape:
            tape.watch([x, kernel, *bias])
            rows = function(x, kernel, *bias)
            loss = tf.reduce_sum(rows * share)
        return rows, tape.gradient(loss, [x, kernel, *bias])

    tf.nest.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4),
        of(ours),
        of(plain),
    )
