"""Small shards in the format of tensor2tensor: pairs or packed rows."""

import tensorflow as tf

VOCABULARY = "vocab.digits.subwords"
PIECES = ["<pad>_", "<EOS>_", *"\\_u;0123456789", "a_", "b_", "c_"]
V = len(PIECES)
# Packed rows: two pairs with a spacing of 2, one pair, two pairs without one.
ROWS = [
    {
        "inputs": [5, 1, 0, 0, 6, 7, 1],
        "inputs_segmentation": [1, 1, 0, 0, 2, 2, 2],
        "inputs_position": [0, 1, 0, 0, 0, 1, 2],
        "targets": [8, 9, 1, 0, 0, 10, 1],
        "targets_segmentation": [1, 1, 1, 0, 0, 2, 2],
        "targets_position": [0, 1, 2, 0, 0, 0, 1],
    },
    {
        "inputs": [11, 1],
        "inputs_segmentation": [1, 1],
        "inputs_position": [0, 1],
        "targets": [12, 13, 14, 1],
        "targets_segmentation": [1, 1, 1, 1],
        "targets_position": [0, 1, 2, 3],
    },
    {
        "inputs": [5, 5, 1, 6, 1],
        "inputs_segmentation": [1, 1, 1, 2, 2],
        "inputs_position": [0, 1, 2, 0, 1],
        "targets": [7, 1, 8, 1],
        "targets_segmentation": [1, 1, 2, 2],
        "targets_position": [0, 1, 0, 1],
    },
]


def write_shard(path, rows):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in rows:
            feature = {
                name: tf.train.Feature(
                    int64_list=tf.train.Int64List(value=values)
                )
                for name, values in row.items()
            }
            features = tf.train.Features(feature=feature)
            writer.write(
                tf.train.Example(features=features).SerializeToString()
            )


def write_shards(folder, train, dev=None, name="digits"):
    """Write two shards of train, one of dev, and the vocabulary."""
    for index in (0, 1):
        path = folder / f"{name}-train-{index:05d}-of-00002"
        write_shard(path, train[index::2])
    write_shard(folder / f"{name}-dev-00000-of-00001", dev or train[:1])
    lines = "".join(f"'{piece}'\n" for piece in PIECES)
    (folder / VOCABULARY).write_text(lines)
    return folder
