import dataclasses
from typing import Annotated

import pytest

from t2t_lite.data.manifest import (
    Manifest,
    ShardRecord,
    SplitRecord,
    check_data,
    check_shards,
    find_data,
)
from t2t_lite.errors import T2TLiteError
from t2t_lite.problem import Problem, ProblemOptions
from t2t_lite.validators import integer, setting

# sha256 of "abc", from FIPS 180-2.
ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


class Words(Problem):
    name = base_name = "words"


@dataclasses.dataclass(frozen=True)
class FoldedOptions(ProblemOptions):
    folds: Annotated[int, integer(1)] | None = setting(None, "how many")
    file: str | None = setting(None, "of folds")


class Folded(Words):
    name = base_name = "folded"
    options_type = FoldedOptions


def split_record(*shards, lengths=None):
    return SplitRecord(
        examples=sum(shard.examples for shard in shards),
        source_tokens=7,
        target_tokens=8,
        lengths=lengths or {3: 1, 10: 2},
        dropped={"empty source": 1},
        shards=shards,
    )


def save_manifest(folder, problem, shards=(), vocabulary=()):
    manifest = Manifest(
        problem=problem.base_name,
        fingerprint=problem.fingerprint(),
        definition=problem.definition(),
        vocabulary={name: {"sha256": ABC, "bytes": 3} for name in vocabulary},
        splits={"train": split_record(*shards)},
        seed=0,
        versions={"tensorflow": "1"},
    )
    manifest.save(folder)
    return manifest


@pytest.fixture
def data(tmp_path):
    """Two shards and a vocabulary that fit their manifest."""
    names = [f"words-train-{i:05d}-of-00002" for i in range(2)]
    for name in (*names, "words.vocab"):
        (tmp_path / name).write_bytes(b"abc")
    shards = [ShardRecord(name, 2, 3, ABC) for name in names]
    return tmp_path, save_manifest(tmp_path, Words(), shards, ["words.vocab"])


def test_saved_manifest_loads_again(data):
    folder, manifest = data
    loaded = Manifest.load(folder, Words())
    assert loaded.splits == manifest.splits
    assert loaded.digest == manifest.digest
    assert Manifest.load(folder, Words().reverse()) == loaded


def test_digest_depends_on_the_data_not_on_versions(data):
    _, manifest = data
    newer = dataclasses.replace(manifest, versions={"tensorflow": "2"})
    assert newer.digest == manifest.digest
    other = dataclasses.replace(manifest, seed=1)
    assert other.digest != manifest.digest


def test_lengths_give_the_maximum_and_count_too_long_pairs():
    record = split_record(lengths={3: 1, 10: 2, 11: 5})
    assert record.max_length == 11
    assert [record.too_long(n) for n in (2, 3, 10, 11)] == [8, 7, 5, 0]


def test_the_error_for_an_unknown_split_lists_the_others(data):
    with pytest.raises(T2TLiteError, match="train; got 'valid'"):
        data[1].split("valid")


@pytest.mark.parametrize(
    "content",
    [
        None,
        "{",
        "[]",
        "{}",
        '{"format_version": 99}',
        '{"format_version": 2, "sha256": "0", "splits": {}}',
    ],
)
def test_manifest_that_is_missing_or_unreadable_is_one_clear_error(
    tmp_path, content
):
    if content is not None:
        (tmp_path / "words.manifest.json").write_text(content)
    with pytest.raises(T2TLiteError, match=str(tmp_path)) as error:
        Manifest.load(tmp_path, Words())
    assert "t2t-lite-datagen `problem=words`" in str(error.value)
    assert ("`overwrite" in str(error.value)) == (content is not None)
    assert "\n" not in str(error.value)


def test_the_error_for_other_options_has_a_complete_fix(tmp_path):
    old = Folded().with_options({"folds": 3, "file": "/x" * 40 + "/a"})
    new = Folded().with_options({"folds": 4, "file": "/x" * 40 + "/b"})
    save_manifest(tmp_path, old)
    loaded = Manifest.load(tmp_path, old)
    assert loaded.options == old.options
    with pytest.raises(T2TLiteError) as error:
        check_data(tmp_path, new, loaded)
    message = str(error.value)
    assert f'options.file was "{"/x" * 40}/a", is "{"/x" * 40}/b"' in message
    assert "options.folds was 3, is 4" in message
    assert f"=folds=4,file={'/x' * 40}/b` `data_dir={tmp_path}`" in message


def test_data_of_a_problem_is_found_under_any_name(tmp_path):
    problem = Folded().with_options({"folds": 1})
    for name in ("two", "one"):
        problem.base_name = name
        save_manifest(tmp_path, problem)
    save_manifest(tmp_path, Words())
    save_manifest(tmp_path, Folded())  # without options, as in old versions
    (tmp_path / "bad.manifest.json").write_text("{")
    (tmp_path / "odd.manifest.json").write_text('{"definition": [1]}')
    assert find_data(tmp_path, Folded()) == ["one", "two"]
    assert find_data(tmp_path / "none", Folded()) == []


def change(path, content):
    path.unlink() if content is None else path.write_bytes(content)


@pytest.mark.parametrize("content", [None, b"abd"])
def test_a_changed_vocabulary_is_refused(data, content):
    folder, manifest = data
    change(folder / "words.vocab", content)
    with pytest.raises(T2TLiteError, match="words.vocab"):
        check_data(folder, Words(), manifest)


@pytest.mark.parametrize("content", [None, b"ab", b"abd"])
def test_missing_short_or_changed_shard_is_named(data, content):
    folder, manifest = data
    check_data(folder, Words().reverse(), manifest)
    check_shards(folder, Words(), manifest)
    shard = folder / "words-train-00001-of-00002"
    change(shard, content)
    with pytest.raises(T2TLiteError, match=f"{shard} is (missing|damaged)"):
        check_shards(folder, Words(), manifest)
    if content != b"abd":  # else only the checksum differs
        with pytest.raises(T2TLiteError, match=str(shard)):
            check_data(folder, Words(), manifest)
