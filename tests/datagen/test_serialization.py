"""The bytes of examples are those that protobuf writes."""

import numpy as np
import pytest

from t2t_lite.datagen.serialization import FRAME_BYTES, frame, serialize_pairs


def by_protobuf(source, target, last):
    import tensorflow as tf

    example = tf.train.Example()
    for side, ids in (("inputs", source), ("targets", target)):
        values = example.features.feature[side].int64_list.value
        values.extend([*map(int, ids), last])
    return example.SerializeToString(deterministic=True)


def test_the_bytes_are_those_of_protobuf():
    random = np.random.default_rng(0)
    sides = []
    for _ in range(2):
        rows = [
            random.integers(1 << random.integers(1, 31), size=length)
            for length in [0, 1, 2, 60, 127, 128, 2000, 20_000, 0]
        ]
        rows[1] = np.array([2**31 - 1])
        rows[2] = np.array([127, 128], np.int32)
        sides.append(rows)
    for last in (1, 300):
        assert serialize_pairs(*sides, last) == [
            by_protobuf(*pair, last) for pair in zip(*sides, strict=True)
        ]


def test_no_pairs_are_no_examples():
    assert serialize_pairs([], [], 1) == []


def test_an_id_that_no_vocabulary_has_is_refused():
    with pytest.raises(ValueError, match="must not be negative; got -1"):
        serialize_pairs([np.array([3])], [np.array([5, -1])], 1)


def test_frames_in_any_order_are_a_file_of_records(tmp_path):
    import tensorflow as tf

    records = [b"one", b"", b"\0" * 70_000, b"four"]
    frames = frame(records)
    sizes = [len(record) + FRAME_BYTES for record in records]
    assert [len(framed) for framed in frames] == sizes
    path = tmp_path / "records"
    path.write_bytes(b"".join(reversed(frames)))
    dataset = tf.data.TFRecordDataset(str(path))
    assert [r.numpy() for r in dataset] == records[::-1]


def test_no_records_have_no_frames():
    assert frame([]) == []
