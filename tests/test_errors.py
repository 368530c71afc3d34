"""Errors of the system and of TensorFlow become one clause."""

import errno
import os

import pytest
import tensorflow as tf

from t2t_lite.errors import UsageError, format_error


def of_system(number):
    return OSError(number, os.strerror(number), "/data/x")


def of_graph():
    """An error that a graph raises, with the names of its nodes."""
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
        (of_system(errno.ENOSPC), "/data/x: No space", "same command again"),
        (of_system(errno.EROFS), "/data/x: Read-only", "can be written to"),
        (of_system(errno.ENAMETOOLONG), "/data/x: File", "shorter name"),
        (of_system(errno.EISDIR), "/data/x: Is a directory", "Is a directory"),
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
        (of_graph, "", ""),
    ],
)
def test_errors_are_one_clause_and_what_to_do(error, begin, end):
    words = format_error(error() if error is of_graph else error)
    assert words.startswith(begin) and words.endswith(end)
    for part in ("\n", "{{", "[Op:", "[["):
        assert part not in words
