"""What the system and TensorFlow say, in our words."""

import errno
import os

import pytest
import tensorflow as tf

from t2t_lite.errors import UsageError, in_words


def of_system(number, path="/data/x"):
    return OSError(number, os.strerror(number), path)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            of_system(errno.ENOSPC),
            "/data/x: No space left on device; free some space, then run the "
            "same command again",
        ),
        (
            of_system(errno.EROFS),
            "/data/x: Read-only file system; choose a place on a disk that "
            "can be written to",
        ),
        (
            of_system(errno.ENAMETOOLONG),
            "/data/x: File name too long; choose a shorter name",
        ),
        (of_system(errno.EISDIR), "/data/x: Is a directory"),
        (MemoryError(), "out of memory: in training, lower batch_tokens"),
        (ValueError("bad\nworse"), "ValueError: bad"),
        (KeyError(), "KeyError: KeyError"),
        (
            TypeError("in user code:\n\n  File x\n\n  The reason."),
            "TypeError: The reason",
        ),
        (UsageError("Give a name."), "Give a name"),
        (
            tf.errors.InvalidArgumentError(
                None,
                None,
                "{{function_node __wrapped__MatMul}} Sizes must match "
                "[Op:MatMul] name: ",
            ),
            "Sizes must match",
        ),
        (
            tf.errors.ResourceExhaustedError(
                None, None, "/run/t.data: No space left on device"
            ),
            "No space left on device; free some space",
        ),
        (
            tf.errors.ResourceExhaustedError(
                None, None, "OOM when allocating tensor with shape[1,2]"
            ),
            "out of memory: in training, lower batch_tokens or raise "
            "micro_batches; in decoding, lower --batch_size or --beam_size",
        ),
    ],
)
def test_errors_are_one_clause_and_what_to_do(error, words):
    assert in_words(error).startswith(words)
    assert "\n" not in in_words(error)


def test_a_real_error_of_a_graph_has_no_names_of_nodes():
    any_rows = tf.TensorSpec([None, None], tf.float32)

    @tf.function(input_signature=[any_rows, any_rows])
    def product(a, b):
        return tf.matmul(tf.reshape(a, [2, -1]), b)

    with pytest.raises(tf.errors.OpError) as caught:
        product(tf.zeros([3, 3]), tf.zeros([3, 3]))
    words = in_words(caught.value)
    assert "{{" not in words and "[Op:" not in words and "[[" not in words
