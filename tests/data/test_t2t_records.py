"""Shards as tensor2tensor writes them, byte for byte, in our pipeline."""

import json

import numpy as np
import pytest
import tensorflow as tf

from support.places import SHARED_DATA
from t2t_lite.data import input_pipeline
from t2t_lite.data.manifest import Manifest, ShardRecord, SplitRecord, sha256_of
from t2t_lite.datagen.worker_pool import encode_chunk
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


@pytest.fixture(scope="module")
def pairs():
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
    recorded = json.loads((RECORDED / "info.json").read_text("utf-8"))["sha256"]
    records = []
    for index in (0, 1):
        file = f"translate_ende_m30k-train-{index:05d}-of-00002"
        path = folder / file
        with tf.io.TFRecordWriter(str(path)) as writer:
            for pair in pairs[index::2]:
                writer.write(record_of(pair))
        assert sha256_of(path) == recorded[file]
        records.append(
            ShardRecord(file, 100, path.stat().st_size, recorded[file])
        )
    longest = [max(map(len, pair.values())) for pair in pairs]
    lengths = {length: longest.count(length) for length in longest}
    split = SplitRecord(200, 0, 0, lengths, {}, {}, tuple(records))
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


class Given:
    """An encoder whose texts are ids in JSON."""

    def encode(self, texts):
        return [np.array(json.loads(text), np.int32) for text in texts]


def test_our_records_say_what_tensor2tensors_say(pairs):
    texts = [
        tuple(str(pair[side][:-1]) for side in ("inputs", "targets"))
        for pair in pairs
    ]
    chunk = encode_chunk({"inputs": Given(), "targets": Given()}, texts)
    for ours, pair in zip(chunk.examples, pairs, strict=True):
        theirs = record_of(pair)
        assert len(ours) == len(theirs)  # the order of the sides apart
        assert tf.train.Example.FromString(ours) == (
            tf.train.Example.FromString(theirs)
        )
