"""The memory that TensorFlow uses on the CPU."""

import pytest
import tensorflow as tf


def peak_memory(work):
    """Return the bytes that a function needs at its second call."""
    work()
    info = tf.config.experimental.get_memory_info
    try:
        before = info("CPU:0")["current"]
        tf.config.experimental.reset_memory_stats("CPU:0")
    except ValueError:
        pytest.skip("without oneDNN TensorFlow does not count its memory")
    work()
    return info("CPU:0")["peak"] - before
