"""Ids to the bytes of a tf.train.Example, many pairs at a time.

The message objects of protobuf take most of the time in which a corpus is
encoded; this writes their wire format, byte for byte what
`Example.SerializeToString(deterministic=True)` gives.
https://protobuf.dev/programming-guides/encoding
"""

import functools
import uuid
from collections.abc import Iterator, Sequence

import numpy as np

FRAME_BYTES = 16  # of a TFRecord file, around each record
_BITS = 7  # of a number in each of its bytes; the highest bit says "more"
_FIELD_1, _FIELD_2, _FIELD_3 = b"\x0a", b"\x12", b"\x1a"  # with a length


def serialize_pairs(
    sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], last: int
) -> list[bytes]:
    """An Example with int64 `inputs` and `targets` for each pair.

    Args:
      sources: the ids of each text, integers [length], none negative.
      targets: the same of the other side.
      last: an id to put after each side.
    """
    examples = []
    for source, target in zip(
        _packed(sources, last), _packed(targets, last), strict=True
    ):
        first = _before_values(b"inputs", len(source))
        second = _before_values(b"targets", len(target))
        features = b"".join((first, source, second, target))
        examples.append(_before_features(len(features)) + features)
    return examples


def frame(records: Sequence[bytes]) -> list[bytes]:
    """Each record as it lies in a TFRecord file: frames joined make a file.

    A frame is the length of the record, the checksum of the length, the record
    and its checksum. TensorFlow writes them to a file in memory, because its
    checksums are faster than what Python has.
    """
    import tensorflow as tf

    path = f"ram://{uuid.uuid4()}"
    with tf.io.TFRecordWriter(path) as writer:
        for record in records:
            writer.write(record)
    with tf.io.gfile.GFile(path, "rb") as file:
        data = file.read()
    tf.io.gfile.remove(path)
    frames, start = [], 0
    for record in records:
        end = start + FRAME_BYTES + len(record)
        frames.append(data[start:end])
        start = end
    return frames


# The same few sizes come again and again, so what stands before them is cached.


@functools.cache
def _before_features(size: int) -> bytes:
    """The bytes before a value of that size in `Example{features: ...}`."""
    return _FIELD_1 + _varint(size)


@functools.cache
def _before_values(name: bytes, size: int) -> bytes:
    """Those in the map entry `name: Feature{int64_list{value: ...}}`."""
    # The lengths of what lies inside, from the innermost outwards.
    head = _FIELD_1 + _varint(size)
    head = _FIELD_3 + _varint(len(head) + size) + head
    key = _FIELD_1 + _varint(len(name)) + name
    head = key + _FIELD_2 + _varint(len(head) + size) + head
    return _FIELD_1 + _varint(len(head) + size) + head


def _packed(rows: Sequence[np.ndarray], last: int) -> Iterator[bytes]:
    """The numbers of each row and the last one as packed varints."""
    if not rows:
        return
    lengths = np.fromiter(map(len, rows), np.int64, len(rows)) + 1
    tail = np.array([last])
    numbers = np.concatenate([part for row in rows for part in (row, tail)])
    numbers = numbers.astype(np.int64)
    if numbers.min() < 0:
        raise ValueError(f"Ids must not be negative; got {numbers.min()}.")
    sizes = np.ones(len(numbers), np.int64)
    for shift in range(_BITS, int(numbers.max()).bit_length(), _BITS):
        sizes += numbers >= 1 << shift
    ends = np.cumsum(sizes)
    out = np.empty(ends[-1], np.uint8)
    for byte in range(sizes.max()):
        has = np.flatnonzero(sizes > byte)
        more = sizes[has] > byte + 1
        out[ends[has] - sizes[has] + byte] = (
            numbers[has] >> _BITS * byte & 0x7F | more << _BITS
        )
    packed = out.tobytes()
    start = 0
    for end in ends[np.cumsum(lengths) - 1].tolist():
        yield packed[start:end]
        start = end


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >> _BITS:
        out.append(number & 0x7F | 0x80)
        number >>= _BITS
    return bytes([*out, number])
