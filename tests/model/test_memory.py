"""What training holds at once, by TensorFlow's own count of its memory."""

import keras
import pytest
import tensorflow as tf
from keras import ops

from t2t_lite.model import losses
from t2t_lite.model.layers.product import project
from t2t_lite.model.losses import BLOCK_ROWS


def peak_bytes(function, *arguments):
    """The most that a call of a graph holds beside what was there before."""
    graph = tf.function(function, autograph=False)
    graph(*arguments)  # traced, and its kernels set out
    try:
        before = tf.config.experimental.get_memory_info("CPU:0")["current"]
        tf.config.experimental.reset_memory_stats("CPU:0")
    except ValueError:
        pytest.skip("without oneDNN TensorFlow does not count its memory")
    graph(*arguments)
    return tf.config.experimental.get_memory_info("CPU:0")["peak"] - before


def peak_of_gradients(function, *arguments):
    def gradients(*arguments):
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            loss = function(*arguments)
        return tape.gradient(loss, arguments)

    return peak_bytes(gradients, *arguments)


def test_the_softmax_holds_the_scores_of_one_block():
    vocab, blocks, size = 4096, 4, 512
    hidden = keras.random.normal((blocks * BLOCK_ROWS, size)) / size
    table = keras.random.normal((vocab, size))
    targets = ops.ones(blocks * BLOCK_ROWS, "int32")
    scores = 4 * BLOCK_ROWS * vocab

    def loss(hidden, table):
        return losses.fused_cross_entropy_sum(hidden, table, targets, 0.1)

    # As large as the scores are here the table turned, its gradient and what a
    # block adds to it. A second block at once would make it more than 8.
    assert peak_of_gradients(loss, hidden, table) < 7.8 * scores


def test_kernels_are_turned_when_their_gradient_is_there():
    size, columns, layers = 256, 2048, 16
    kernels = [
        keras.random.normal((size, columns)) / size for _ in range(layers)
    ]

    def loss(x):
        for kernel in kernels:
            wide = project(x, kernel)
            x = x + wide[..., :size]
        return ops.sum(x)

    x = keras.random.normal((1, 2, size))
    assert peak_of_gradients(loss, x) < layers / 2 * 4 * size * columns
