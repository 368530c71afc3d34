import dataclasses
import hashlib
import json
import os

import pytest

from t2t_lite.data.checks import check_data, verify_shards
from t2t_lite.data.manifest import (
    Manifest,
    ShardRecord,
    SplitRecord,
    find_data,
    sha256_of,
)
from t2t_lite.errors import T2TLiteError
from t2t_lite.problem import Option, Problem
from t2t_lite.values import whole_number

# sha256 of "abc", from FIPS 180-2.
ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


class Words(Problem):
    name = base_name = "words"


def split_record(*shards, lengths=None):
    return SplitRecord(
        examples=sum(shard.examples for shard in shards),
        source_tokens=7,
        target_tokens=8,
        lengths=lengths or {3: 1, 10: 2},
        dropped={"empty source": 1},
        dropped_samples={"empty source": [{"pair": 1, "source": ""}]},
        shards=shards,
    )


@pytest.fixture
def data(tmp_path):
    """Two shards and a vocabulary that fit their manifest."""
    shards = []
    for i in range(2):
        file = f"words-train-{i:05d}-of-00002"
        (tmp_path / file).write_bytes(b"abc")
        shards.append(ShardRecord(file, 2, 3, ABC))
    (tmp_path / "words.vocab").write_bytes(b"abc")
    manifest = Manifest(
        problem="words",
        fingerprint=Words().fingerprint(),
        definition=Words().definition(),
        vocabulary={"words.vocab": {"sha256": ABC, "bytes": 3}},
        splits={"train": split_record(*shards)},
        seed=0,
        versions={"tensorflow": "1"},
    )
    manifest.save(tmp_path)
    return tmp_path, manifest


def test_saved_manifest_loads_again(data):
    folder, manifest = data
    loaded = Manifest.load(folder, Words())
    assert dataclasses.replace(loaded, definition={}) == dataclasses.replace(
        manifest, definition={}
    )
    assert loaded.digest == manifest.digest
    assert Manifest.load(folder, Words().reverse()) == loaded
    assert not [name for name in os.listdir(folder) if name.startswith(".")]


def test_digest_knows_the_data_not_the_versions(data):
    _, manifest = data
    newer = dataclasses.replace(manifest, versions={"tensorflow": "2"})
    assert newer.digest == manifest.digest
    other = dataclasses.replace(manifest, seed=1)
    assert other.digest != manifest.digest


def test_runs_on_data_with_an_older_manifest_know_it_again(data):
    folder, manifest = data
    path = Manifest.path(folder, Words())
    record = json.loads(path.read_text())
    assert record.pop("corpora") == []
    assert record["splits"]["train"].pop("unknown_words") == 0
    for name in ("damaged", "damaged_samples", "row_lengths"):
        assert record["splits"]["train"].pop(name) == {}
    path.write_text(json.dumps(record))
    older = Manifest.load(folder, Words())
    assert older.digest == manifest.digest
    for name in ("format_version", "versions", "sources"):
        del record[name]
    split = record["splits"]["train"]
    split["lengths"] = {int(k): n for k, n in split["lengths"].items()}
    text = json.dumps(record, sort_keys=True)  # the digest of that time
    assert hashlib.sha256(text.encode()).hexdigest() == older.digest
    some = dataclasses.replace(manifest.splits["train"], unknown_words=2)
    other = dataclasses.replace(manifest, splits={"train": some})
    assert other.digest != manifest.digest


def test_lengths_tell_the_longest_and_what_is_too_long():
    record = split_record(lengths={3: 1, 10: 2, 11: 5})
    assert record.longest == 11
    assert [record.too_long(n) for n in (2, 3, 10, 11)] == [8, 7, 5, 0]


def test_unknown_split_is_answered_with_the_known_ones(data):
    with pytest.raises(T2TLiteError, match="words has the splits train; got"):
        data[1].split("valid")


def test_missing_manifest_says_how_to_make_it(tmp_path):
    with pytest.raises(T2TLiteError, match="t2t-lite-datagen --problem=words"):
        Manifest.load(tmp_path, Words())


@pytest.mark.parametrize(
    "content, message",
    [
        ("{", "Cannot read"),
        ("[]", "is not a manifest"),
        ("{}", "is not a manifest"),
        ('{"format_version": 99}', "must have format_version 1; got 99"),
        ('{"format_version": 1, "splits": {}}', "is not a manifest"),
    ],
)
def test_unreadable_manifest_is_one_clear_error(tmp_path, content, message):
    (tmp_path / "words.manifest.json").write_text(content)
    with pytest.raises(T2TLiteError, match=message) as error:
        Manifest.load(tmp_path, Words())
    assert "--overwrite" in str(error.value)
    assert "\n" not in str(error.value)


def complaint(check, *arguments):
    """What a check says about data; None where it has nothing to say."""
    try:
        check(*arguments)
    except T2TLiteError as error:
        return str(error)
    return None


def test_data_that_fits_passes_until_a_byte_of_it_changes(data):
    folder, manifest = data
    assert complaint(check_data, folder, Words(), manifest) is None
    assert complaint(check_data, folder, Words().reverse(), manifest) is None
    assert complaint(verify_shards, folder, manifest) is None
    shard = folder / "words-train-00001-of-00002"
    shard.write_bytes(b"abd")
    assert complaint(check_data, folder, Words(), manifest) is None
    assert f"{shard} is damaged" in complaint(verify_shards, folder, manifest)


def test_another_definition_is_told_key_by_key(data):
    folder, manifest = data
    old = json.loads(json.dumps(manifest.definition))
    del old["attributes"]["version"]
    old["attributes"]["gone"] = [1, 2]
    manifest = dataclasses.replace(manifest, fingerprint="0", definition=old)
    with pytest.raises(T2TLiteError) as error:
        check_data(folder, Words(), manifest)
    message = str(error.value)
    assert "attributes.gone is gone (was [1, 2])" in message
    assert "attributes.version is new (1)" in message
    assert "attributes.vocab_size" not in message
    assert "Use another --data_dir" in message


class Folded(Words):
    name = base_name = "folded"
    known_options = (
        Option("folds", "N", "how many", whole_number(1)),
        Option("file", "FILE", "of folds"),
    )


def manifest_of(problem, folder):
    manifest = Manifest(
        problem=problem.base_name,
        fingerprint=problem.fingerprint(),
        definition=problem.definition(),
        vocabulary={},
        splits={"train": split_record()},
        seed=0,
        versions={},
    )
    manifest.save(folder)
    return manifest


def test_options_are_kept(tmp_path):
    problem = Folded().with_options({"folds": 3, "file": "/x"})
    manifest_of(problem, tmp_path)
    assert Manifest.load(tmp_path, Folded()).options == problem.options
    assert manifest_of(Words(), tmp_path).options == {}


def test_other_options_are_told_in_full(tmp_path):
    there = Folded().with_options({"folds": 3, "file": "/x" * 40 + "/a"})
    here = Folded().with_options({"folds": 4, "file": "/x" * 40 + "/b"})
    manifest_of(there, tmp_path)
    with pytest.raises(T2TLiteError) as error:
        check_data(tmp_path, here, Manifest.load(tmp_path, there))
    assert str(error.value) == (
        f"{tmp_path} holds data of another definition of folded: options.file "
        f'was "{"/x" * 40}/a", is "{"/x" * 40}/b"; options.folds was 3, is 4. '
        "Use another --data_dir or --name, or make the data again with "
        f"t2t-lite-datagen --problem=folded --data_dir={tmp_path} --overwrite "
        "and the flags given here."
    )


def test_data_of_a_problem_is_found_under_any_name(tmp_path):
    for name in ("two", "one"):
        problem = Folded().with_options({"folds": 1})
        problem.base_name = name
        manifest_of(problem, tmp_path)
    manifest_of(Words(), tmp_path)
    manifest_of(Folded(), tmp_path)  # as an older version may have left it
    (tmp_path / "bad.manifest.json").write_text("{")
    (tmp_path / "odd.manifest.json").write_text('{"definition": [1]}')
    assert find_data(tmp_path, Folded()) == ["one", "two"]
    assert find_data(tmp_path / "none", Folded()) == []
    with pytest.raises(T2TLiteError, match="--problem=folded --name=three .*/"):
        problem.base_name = "three"
        Manifest.load(tmp_path, problem)


def test_damage_is_mended_under_the_name_of_the_data(tmp_path):
    problem = Folded().with_options({"folds": 1})
    problem.base_name = "mine"
    manifest = dataclasses.replace(
        manifest_of(problem, tmp_path),
        splits={"dev": split_record(ShardRecord("mine-dev", 1, 3, ABC))},
    )
    with pytest.raises(
        T2TLiteError,
        match="--problem=folded --name=mine --data_dir=.*/.* --over",
    ):
        verify_shards(tmp_path, manifest)


def test_another_vocabulary_is_refused(data):
    folder, manifest = data
    (folder / "words.vocab").write_bytes(b"abd")
    with pytest.raises(T2TLiteError, match="words.vocab is not the one"):
        check_data(folder, Words(), manifest)
    (folder / "words.vocab").unlink()
    with pytest.raises(T2TLiteError, match="words.vocab is missing"):
        check_data(folder, Words(), manifest)


@pytest.mark.parametrize(
    "content, message",
    [
        (None, "words-train-00001-of-00002 is missing"),
        (b"ab", "00001-of-00002 is damaged: it must have 3 bytes; got 2"),
    ],
)
def test_missing_or_short_shard_is_named(data, content, message):
    folder, manifest = data
    path = folder / "words-train-00001-of-00002"
    path.unlink() if content is None else path.write_bytes(content)
    for check in (
        lambda: check_data(folder, Words(), manifest),
        lambda: verify_shards(folder, manifest),
    ):
        with pytest.raises(T2TLiteError, match=message):
            check()


def test_flipped_bit_is_found_by_checksum_in_the_splits_asked_for(data):
    folder, manifest = data
    (folder / "words-train-00000-of-00002").write_bytes(b"abd")
    check_data(folder, Words(), manifest)  # sizes only
    splits = manifest.splits | {"dev": split_record()}
    manifest = dataclasses.replace(manifest, splits=splits)
    verify_shards(folder, manifest, ["dev"])
    with pytest.raises(T2TLiteError, match="00000-of-00002 is damaged"):
        verify_shards(folder, manifest, ["train"])


def test_sha256_of_a_file(data):
    assert sha256_of(data[0] / "words.vocab") == ABC
