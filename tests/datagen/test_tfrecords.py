import numpy as np
import pytest

from t2t_lite.datagen.tfrecords import serialize_pairs, write_shard


def test_pairs_are_examples_that_tensorflow_reads(tmp_path):
    import tensorflow as tf

    sources = [np.array([5, 300]), np.array([], np.int32)]
    targets = [np.array([7], np.int32), np.array([2**31 - 1])]
    path = tmp_path / "toy-train-00000-of-00001"
    record = write_shard(path, serialize_pairs(sources, targets, last=1))
    assert (record.file, record.examples) == (path.name, 2)
    assert record.bytes == path.stat().st_size
    found = []
    for serialized in tf.data.TFRecordDataset(str(path)):
        feature = tf.train.Example.FromString(
            serialized.numpy()
        ).features.feature
        found.append(
            [list(feature[n].int64_list.value) for n in ("inputs", "targets")]
        )
    assert found == [[[5, 300, 1], [7, 1]], [[1], [2**31 - 1, 1]]]


def test_a_shard_that_cannot_be_written_is_an_os_error(tmp_path):
    with pytest.raises(OSError, match="missing"):
        write_shard(tmp_path / "missing" / "shard", [b"record"])
