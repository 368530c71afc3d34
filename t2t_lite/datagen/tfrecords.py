"""Serialize pairs as tf.train.Examples, and write TFRecord files."""

import errno
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np

from t2t_lite import files
from t2t_lite.data.manifest import ShardRecord, sha256_of


def serialize_pairs(
    sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], last: int
) -> list[bytes]:
    """Return a serialized Example for each pair.

    Example: sources [[5, 6]] and targets [[7]] with last 1 give an Example with
    the int64 features `inputs` [5, 6, 1] and `targets` [7, 1].

    Args:
      sources: ids of each source text, integers [length].
      targets: ids of each target text.
      last: the id to append to each side.
    """
    import tensorflow as tf

    examples = []
    for source, target in zip(sources, targets, strict=True):
        example = tf.train.Example()
        feature = example.features.feature
        for name, ids in (("inputs", source), ("targets", target)):
            feature[name].int64_list.value.extend([*ids.tolist(), last])
        examples.append(example.SerializeToString(deterministic=True))
    return examples


def write_shard(path: pathlib.Path, records: Iterable[bytes]) -> ShardRecord:
    """Write a TFRecord file, whole or not at all; return its record.

    Raises:
      OSError: the file cannot be written.
    """
    import tensorflow as tf

    hidden, count = files.aside(path), 0
    try:
        with tf.io.TFRecordWriter(str(hidden)) as writer:
            for record in records:
                writer.write(record)
                count += 1
    except tf.errors.OpError as error:
        raise OSError(errno.EIO, error.message, str(path)) from error
    files.put_in_place(hidden, path)
    return describe_shard(path, count)


def describe_shard(path: pathlib.Path, examples: int) -> ShardRecord:
    """Return the record of a file with so many examples."""
    size = path.stat().st_size
    return ShardRecord(path.name, examples, size, sha256_of(path))
