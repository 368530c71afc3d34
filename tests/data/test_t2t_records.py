"""Shards as tensor2tensor writes them, byte for byte, in our pipeline."""

import json

import numpy as np
import pytest
import tensorflow as tf

from support.places import SHARED_DATA
from t2t_lite.data import input_pipeline
from t2t_lite.data.manifest import Manifest, ShardRecord, SplitRecord, sha256_of
from t2t_lite.datagen.tfrecords import serialize_pairs
from t2t_lite.problem import Problem

RECORDED = SHARED_DATA / "t2t/records"


class Recorded(Problem):
    name = base_name = "translate_ende_m30k"


def features_of(side, ids):
    feature = tf.train.Feature(int64_list=tf.train.Int64List(value=ids))
    return tf.train.Features(feature={side: feature}).SerializeToString()


def record_of(pair):
    """The example as tensor2tensor's Python wrote it: targets come first."""
    features = b"".join(
        features_of(side, pair[side]) for side in ("targets", "inputs")
    )
    low, high = len(features) & 127, len(features) >> 7  # a varint
    size = bytes([low | 128, high]) if high else bytes([low])
    return b"\n" + size + features


# A record worked out by hand: Example 0a, its Features 0a, each feature's name
# 0a and value 12, in it the int64 list 1a of packed varints 0a.
PAIRS = [
    {"inputs": [5, 300, 1], "targets": [7, 1]},
    {"inputs": [1], "targets": [2**20, 1]},
    {"inputs": list(range(2, 90)) + [1], "targets": [3, 1]},
]
FIRST_RECORD = bytes.fromhex(
    "0a 27"
    "0a 11 0a 07 74617267657473 12 06 1a 04 0a 02 07 01"
    "0a 12 0a 06 696e70757473 12 08 1a 06 0a 04 05 ac02 01"
)


def test_first_record_is_the_one_worked_out_by_hand():
    assert record_of(PAIRS[0]) == FIRST_RECORD


@pytest.fixture(scope="module", params=["by hand", "recorded"])
def pairs(request):
    if request.param == "by hand":
        return PAIRS
    if not RECORDED.is_dir():
        pytest.skip(f"needs tensor2tensor's recordings in {RECORDED}")
    lines = (RECORDED / "pairs.jsonl").read_text("utf-8").split("\n")
    return [json.loads(line) for line in lines if line]


@pytest.fixture(scope="module")
def shards(pairs, tmp_path_factory):
    """tensor2tensor's two shards of train, and what our manifest would say.

    The recorded checksums prove that they are what t2t-datagen wrote.
    """
    folder = tmp_path_factory.mktemp("shards")
    records = []
    for index in (0, 1):
        file = f"translate_ende_m30k-train-{index:05d}-of-00002"
        path = folder / file
        with tf.io.TFRecordWriter(str(path)) as writer:
            for pair in pairs[index::2]:
                writer.write(record_of(pair))
        sha256 = sha256_of(path)
        if pairs is not PAIRS:
            info = json.loads((RECORDED / "info.json").read_text("utf-8"))
            assert sha256 == info["sha256"][file]
        size = len(pairs[index::2])
        records.append(ShardRecord(file, size, path.stat().st_size, sha256))
    longest = [max(map(len, pair.values())) for pair in pairs]
    lengths = {length: longest.count(length) for length in longest}
    split = SplitRecord(len(pairs), 0, 0, lengths, {}, {}, tuple(records))
    return folder, Manifest(Recorded.name, "", {}, {}, {"train": split}, 0, {})


def as_pairs(rows):
    return [
        {"inputs": source.tolist(), "targets": target.tolist()}
        for source, target in rows
    ]


def test_pairs_come_in_the_order_of_the_files(pairs, shards):
    folder, manifest = shards
    read = input_pipeline.read_pairs(folder, Recorded(), manifest, "train")
    assert as_pairs(read) == pairs[0::2] + pairs[1::2]


def test_an_epoch_of_batches_has_every_pair_once(pairs, shards):
    folder, manifest = shards
    rows = []
    for batch in input_pipeline.eval_batches(
        folder,
        Recorded(),
        manifest,
        "train",
        max_positions=1024,
        max_length=128,
    ):
        for sides in zip(batch["inputs"], batch["targets"], strict=True):
            rows.append([side[side != 0] for side in sides])

    def key(pair):
        return pair["inputs"], pair["targets"]

    assert sorted(
        as_pairs([r[0].numpy(), r[1].numpy()] for r in rows), key=key
    ) == (sorted(pairs, key=key))


def test_our_records_say_what_tensor2tensors_say(pairs):
    sources, targets = (
        [np.array(pair[side][:-1], np.int32) for pair in pairs]
        for side in ("inputs", "targets")
    )
    examples = serialize_pairs(sources, targets, last=1)
    for ours, pair in zip(examples, pairs, strict=True):
        theirs = record_of(pair)
        assert len(ours) == len(theirs)  # the order of the sides apart
        assert tf.train.Example.FromString(ours) == (
            tf.train.Example.FromString(theirs)
        )
