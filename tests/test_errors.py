"""Errors of the system and of TensorFlow are formatted as one line."""

import errno
import os

import pytest
import tensorflow as tf

from t2t_lite.errors import UsageError, format_error


def os_error(number):
    return OSError(number, os.strerror(number), "/data/x")


def graph_error():
    """Return an error of a graph, whose message has names of nodes."""
    any_rows = tf.TensorSpec([None, None], tf.float32)

    @tf.function(input_signature=[any_rows, any_rows])
    def product(a, b):
        return tf.matmul(tf.reshape(a, [2, -1]), b)

    with pytest.raises(tf.errors.OpError) as caught:
        product(tf.zeros([3, 3]), tf.zeros([3, 3]))
    return caught.value


@pytest.mark.parametrize(
    ("error", "begin", "end"),
    [
        (os_error(errno.ENOSPC), "/data/x: No space", "same command again"),
        (os_error(errno.EROFS), "/data/x: Read-only", "can be written to"),
        (os_error(errno.ENAMETOOLONG), "/data/x: File", "shorter name"),
        (os_error(errno.EISDIR), "/data/x: Is a directory", "Is a directory"),
        (MemoryError(), "out of memory: ", "`beam_size`"),
        (ValueError("bad\nworse"), "ValueError: bad", "bad"),
        (KeyError(), "KeyError", "KeyError"),
        (
            TypeError("in user code:\n\n  File x\n\n  Why."),
            "TypeError: ",
            "Why",
        ),
        (UsageError("Give a name."), "Give a name", "Give a name"),
        (
            tf.errors.ResourceExhaustedError(
                None, None, "/x: No space left on device"
            ),
            "No space",
            "same command again",
        ),
        (
            tf.errors.ResourceExhaustedError(None, None, "OOM when allocating"),
            "out of memory: ",
            "`beam_size`",
        ),
        (graph_error, "", ""),
    ],
)
def test_errors_are_one_line_with_advice(error, begin, end):
    message = format_error(error() if error is graph_error else error)
    assert message.startswith(begin) and message.endswith(end)
    for part in ("\n", "{{", "[Op:", "[["):
        assert part not in message
