"""Import of tensor2tensor's shards: in place, or an error."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from support.own_text import text
from support.places import SHARED_DATA
from support.t2t_shards import ROWS, VOCABULARY, V, write_shard, write_shards
from t2t_lite import plugins, registry
from t2t_lite.data import pipeline
from t2t_lite.data.manifest import Manifest, sha256_of
from t2t_lite.data.packing import feature_names
from t2t_lite.errors import T2TLiteError
from t2t_lite.interop.tensor2tensor.shards import import_shards

RECORDED = SHARED_DATA / "t2t/records"
RECORDED_VOCABULARY = RECORDED.parent / "vocab.m30k_ende.1000.subwords"
needs_recordings = pytest.mark.skipif(
    not RECORDED.is_dir(), reason=f"needs tensor2tensor's files in {RECORDED}"
)
PAIRS_OF_ROWS = [
    ([5, 1], [8, 9, 1]),
    ([6, 7, 1], [10, 1]),
    ([11, 1], [12, 13, 14, 1]),
    ([5, 5, 1], [7, 1]),
    ([6, 1], [8, 1]),
]
PAIRS = [{"inputs": s, "targets": t} for s, t in PAIRS_OF_ROWS]


def import_data(folder, problem=None, vocabulary=None, name="digits"):
    vocabulary = vocabulary or [folder / VOCABULARY]
    files = ",".join(path.name for path in vocabulary)
    problem = problem or text(name=name, imported=files)
    return problem, import_shards(folder, problem, vocabulary)


def contents(folder):
    files = filter(pathlib.Path.is_file, folder.iterdir())
    return {path.name: path.read_bytes() for path in files}


def pairs_in(folder, problem, manifest, split="train"):
    read = pipeline.read_pairs(folder, problem, manifest, split)
    return [(s.tolist(), t.tolist()) for s, t in read]


def rows_of_an_epoch(folder, problem, manifest, width, height=2):
    """Return the packed rows of an epoch, each as a tuple of its features."""
    batches = pipeline.training_batches(
        folder,
        problem,
        manifest,
        max_positions=width * height,
        max_length=width,
        seed=1,
        packing=True,
    )
    rows = []
    for batch in batches:
        parts = [batch[name].numpy() for name in feature_names(packing=True)]
        assert all(part.shape == (height, width) for part in parts)
        rows += [row for row in zip(*parts, strict=True) if row[0].any()]
        if batch["position"][0] == 1:
            return rows


def padded(row, width):
    return [
        np.pad(row[name], (0, width - len(row[name])))
        for name in feature_names(packing=True)
    ]


def assert_same_rows(ours, theirs):
    def key(row):
        return [part.tolist() for part in row]

    assert sorted(map(key, ours)) == sorted(map(key, theirs))


def test_import_keeps_the_shards_and_writes_a_manifest(tmp_path):
    folder = write_shards(tmp_path, PAIRS)
    before = contents(folder)
    problem, manifest = import_data(folder)
    after = contents(folder)
    assert after.keys() - before.keys() == {"digits.manifest.json"}
    assert {name: after[name] for name in before} == before
    assert Manifest.load(folder, problem).digest == manifest.digest
    train = manifest.splits["train"]
    assert (train.examples, train.records) == (5, 5)
    assert (train.source_tokens, train.target_tokens) == (12, 13)
    assert train.lengths == {2: 1, 3: 3, 4: 1}
    assert [shard.examples for shard in train.shards] == [3, 2]
    assert manifest.splits.keys() == {"train", "dev"}
    assert pairs_in(folder, problem, manifest) == (
        PAIRS_OF_ROWS[0::2] + PAIRS_OF_ROWS[1::2]
    )
    # A repeated import gives the same digest.
    assert import_data(folder)[1].digest == manifest.digest


def test_vocabulary_is_copied_next_to_the_shards(tmp_path):
    folder = write_shards(tmp_path, PAIRS)
    elsewhere = tmp_path / "files"
    elsewhere.mkdir()
    (folder / VOCABULARY).rename(elsewhere / VOCABULARY)
    problem, manifest = import_data(folder, vocabulary=[elsewhere / VOCABULARY])
    assert manifest.vocabulary.keys() == {VOCABULARY}
    copied = sha256_of(folder / VOCABULARY)
    assert manifest.vocabulary[VOCABULARY]["sha256"] == copied
    assert problem.load_encoders(folder)["inputs"].vocab_size == V


def test_each_side_may_have_its_own_vocabulary(tmp_path):
    folder = write_shards(tmp_path, PAIRS)
    (folder / "vocab.other.subwords").write_text(
        (folder / VOCABULARY).read_text() + "'d_'\n"
    )
    names = [VOCABULARY, "vocab.other.subwords"]
    files = [folder / name for name in names]
    problem, manifest = import_data(folder, vocabulary=files)
    encoders = problem.load_encoders(folder)
    assert encoders["targets"].vocab_size == V + 1
    assert list(manifest.vocabulary) == names


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    folder = write_shards(tmp_path_factory.mktemp("packed"), ROWS)
    return folder, *import_data(folder)


def test_pairs_in_packed_rows_are_counted(packed):
    folder, problem, manifest = packed
    train = manifest.splits["train"]
    assert (train.examples, train.records) == (5, 3)
    assert (train.source_tokens, train.target_tokens) == (12, 13)
    assert train.lengths == {2: 1, 3: 3, 4: 1}
    assert train.row_lengths == {4: 1, 5: 1, 7: 1}
    assert pairs_in(folder, problem, manifest) == [
        *PAIRS_OF_ROWS[:2],
        *PAIRS_OF_ROWS[3:],
        PAIRS_OF_ROWS[2],
    ]


def test_reversed_problem_swaps_the_sides_of_packed_rows(packed):
    folder, problem, manifest = packed
    rows = rows_of_an_epoch(folder, problem.reverse(), manifest, width=8)
    swapped = [[*row[3:], *row[:3]] for row in rows]
    assert_same_rows(swapped, [padded(row, 8) for row in ROWS])


def test_rows_wider_than_max_length_are_skipped_and_reported(packed):
    rows = rows_of_an_epoch(*packed, width=5)
    assert_same_rows(rows, [padded(row, 5) for row in ROWS[1:]])
    folder, problem, manifest = packed
    report = pipeline.padding_report(
        folder,
        problem,
        manifest,
        max_positions=10,
        max_length=5,
        packing=True,
        seed=0,
    )
    assert str(report).startswith("3 packed rows, 1 too long; about 1 batches")
    with pytest.raises(T2TLiteError, match="of 3, 3 are longer than max_le"):
        rows_of_an_epoch(*packed, width=3)


def change(rows, number, **parts):
    return [
        {**row, **parts} if index == number else row
        for index, row in enumerate(rows)
    ]


ONE_TARGET = {name: ROWS[1][name] for name in ROWS[1] if name[:7] == "targets"}


@pytest.mark.parametrize(
    ("train", "place"),
    [
        (change(PAIRS, 2, targets=[5, 9]), "00000-of-00002"),
        (change(PAIRS, 3, inputs=[5, V, 1]), "00001-of-00002"),
        (change(PAIRS, 0, inputs=[0, 1]), "00000"),
        (change(PAIRS, 0, inputs=[]), "00000"),
        ([PAIRS[0], PAIRS[1], ROWS[0]], "pairs"),
        ([ROWS[0], ROWS[1], PAIRS[0]], "00000"),
        (change(ROWS, 0, inputs_segmentation=[1, 1, 0, 0, 3, 3, 3]), "00000"),
        (change(ROWS, 0, inputs_position=[0, 1]), "00000"),
        (change(ROWS, 0, inputs=[5, 1, 0, 0, 6, 7, 8]), "EOS"),
        (change(ROWS, 0, targets_position=[0, 1, 2, 0, 0, 0]), "00000"),
        (change(ROWS, 0, **ONE_TARGET), "00000"),
    ],
)
def test_invalid_record_is_rejected(tmp_path, train, place):
    require_error(write_shards(tmp_path, train, dev=PAIRS), place)


def require_error(folder, message, **options):
    """Assert that the import raises an error and writes nothing."""
    before = contents(folder)
    with pytest.raises(T2TLiteError) as error:
        import_data(folder, **options)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert contents(folder) == before


def damage(folder):
    path = folder / "digits-train-00001-of-00002"
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)


def empty(folder):
    (folder / "digits-train-00001-of-00002").write_bytes(b"")


def remove(name):
    return lambda folder: (folder / f"digits-{name}").unlink()


def add(name, rows=PAIRS):
    return lambda folder: write_shard(folder / f"digits-{name}", rows)


def write_text(folder):
    path = folder / "digits-dev-00000-of-00001"
    with tf.io.TFRecordWriter(str(path)) as writer:
        value = tf.train.BytesList(value=[b"text"])
        feature = {"inputs": tf.train.Feature(bytes_list=value)}
        features = tf.train.Features(feature=feature)
        writer.write(tf.train.Example(features=features).SerializeToString())


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (damage, "digits-train-00001-of-00002 is damaged"),
        (remove("train-00001-of-00002"), "digits-train"),
        (remove("dev-00000-of-00001"), "digits-dev"),
        (add("train-00000-of-00003"), "digits-train-00000-of-00003"),
        (add("test-00000-of-00001", []), "digits-test-00000-of-00001"),
        (empty, "digits-train-00001-of-00002 has no record"),
        (write_text, "digits-dev-00000-of-00001"),
    ],
)
def test_incomplete_shards_are_rejected(tmp_path, harm, message):
    folder = write_shards(tmp_path, PAIRS)
    harm(folder)
    require_error(folder, message)


def test_wrong_vocabulary_is_rejected(tmp_path):
    folder = write_shards(tmp_path, PAIRS)
    other = tmp_path / "other"
    other.mkdir()
    lines = (folder / VOCABULARY).read_text()
    (other / VOCABULARY).write_text(lines + "'d_'\n")
    require_error(
        folder, str(folder / VOCABULARY), vocabulary=[other / VOCABULARY]
    )
    (folder / VOCABULARY).write_text("no vocabulary\n")
    require_error(folder, "is not a vocabulary")


def test_data_of_our_datagen_is_not_imported(tmp_path):
    folder = write_shards(tmp_path, PAIRS)
    _, manifest = import_data(folder)
    manifest.versions.pop("tensor2tensor")
    manifest.save(folder)
    require_error(folder, "`import_shards")


@needs_recordings
def test_recorded_shards_are_read_completely(tmp_path):
    info = json.loads((RECORDED / "info.json").read_text("utf-8"))
    for name in info["names"]:
        (tmp_path / name).write_bytes((RECORDED / name).read_bytes())
    problem, manifest = import_data(
        tmp_path, None, [RECORDED_VOCABULARY], "translate_ende_m30k"
    )
    lines = (RECORDED / "pairs.jsonl").read_text("utf-8").splitlines()
    pairs = [json.loads(line) for line in lines]
    as_tuples = [(pair["inputs"], pair["targets"]) for pair in pairs]
    assert pairs_in(tmp_path, problem, manifest) == (
        as_tuples[0::2] + as_tuples[1::2]
    )
    counts = {split: r.examples for split, r in manifest.splits.items()}
    assert counts == {"train": 200, "dev": 20, "test": 5}
    checksums = {
        shard.file: shard.sha256
        for record in manifest.splits.values()
        for shard in record.shards
    }
    assert checksums.items() <= info["sha256"].items()


@needs_recordings
@pytest.mark.parametrize(
    ("file", "width"),
    [("pack_L128_s2_q10.jsonl", 128), ("pack_dataset_L96.jsonl", 96)],
)
def test_recorded_packed_rows_are_read_unchanged(tmp_path, file, width):
    lines = (RECORDED / file).read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    folder = write_shards(tmp_path, rows)
    problem, manifest = import_data(folder, None, [RECORDED_VOCABULARY])
    ours = rows_of_an_epoch(folder, problem, manifest, width, height=4)
    assert_same_rows(ours, [padded(row, width) for row in rows])
    pairs = (RECORDED / "pairs.jsonl").read_text("utf-8").splitlines()
    targets = {str(json.loads(pair)["targets"]) for pair in pairs}
    found = pairs_in(folder, problem, manifest)
    assert {str(target) for _, target in found} <= targets
    assert len(found) == sum(max(r["inputs_segmentation"]) for r in rows)


def test_registered_problem_imports_under_its_own_names(tmp_path):
    plugins.load_plugins()
    problem = registry.problem("multi30k_ende")
    folder = write_shards(tmp_path, PAIRS, name="multi30k_ende")
    _, manifest = import_data(folder, problem)
    assert manifest.fingerprint == problem.fingerprint()
    assert manifest.vocabulary.keys() == {"multi30k_ende.vocab.8000.model"}
    assert problem.load_encoders(folder)["inputs"].vocab_size == V
