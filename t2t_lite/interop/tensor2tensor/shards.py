"""Adopt shards that tensor2tensor wrote: check them and use them in place.

The records are tf.train.Example with int64 `inputs` and `targets`, EOS last.
They may be packed rows of pairs, as of the problems `..._packed`; then each
side also has `SIDE_segmentation` and `SIDE_position`.
"""

import collections
import pathlib
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError

from t2t_lite.data.manifest import Manifest, ShardRecord, SplitRecord, sha256_of
from t2t_lite.data.packing import PARTS, SIDES
from t2t_lite.datagen.generate import describe_vocabulary, versions
from t2t_lite.errors import T2TLiteError, in_words
from t2t_lite.problem import Problem
from t2t_lite.progress import Counter
from t2t_lite.text.encoder import EOS_ID
from t2t_lite.text.vocabulary import open_vocabulary

_MADE_BY = "tensor2tensor"  # an entry of the manifest's versions


def adopt(
    folder: pathlib.Path,
    problem: Problem,
    vocabulary: Sequence[pathlib.Path],
    progress: bool = True,
) -> Manifest:
    """Check the shards of a problem in a folder and write their manifest.

    A vocabulary from another folder is copied; the shards stay unchanged.

    Args:
      folder: has `NAME-train-00000-of-000NN` ..., dev, and maybe test.
      problem: its base name is NAME.
      vocabulary: the file of both sides, or the files of source and target.
      progress: show progress on stderr.

    Raises:
      T2TLiteError: shards or vocabulary are missing, damaged or of another
        kind, or the data was made here. Nothing is written.
    """
    name = problem.base_name
    if Manifest.path(folder, problem).exists():
        if _MADE_BY not in Manifest.load(folder, problem).versions:
            raise T2TLiteError(
                f"{folder} holds data of {name} that t2t-lite-datagen made: it "
                "is ready, leave --adopt out."
            )
    shards = {s: _shards(folder, name, s) for s in ("train", "dev", "test")}
    encoders = [open_vocabulary(path) for path in vocabulary]
    sizes = [encoders[0].vocab_size, encoders[-1].vocab_size]
    targets = list(dict.fromkeys(problem.vocabulary_files().values()))
    if len(targets) != len(vocabulary):
        raise T2TLiteError(
            f"{name} has {len(targets)} vocabularies; got {len(vocabulary)}: "
            "give --vocabulary=SOURCE,TARGET for two."
        )
    for path, target in zip(vocabulary, targets, strict=True):
        there = folder / target
        if there.exists() and sha256_of(there) != sha256_of(path):
            raise T2TLiteError(f"{there} differs from {path}: remove one.")
    splits = {}
    for split, paths in shards.items():
        if paths:
            with Counter(f"{name} {split}", "records", progress) as counter:
                splits[split] = _read_split(paths, sizes, counter)
    for path, target in zip(vocabulary, targets, strict=True):
        if not (folder / target).exists():
            shutil.copyfile(path, folder / target)
    manifest = Manifest(
        problem=name,
        fingerprint=problem.fingerprint(),
        definition=problem.definition(),
        vocabulary=describe_vocabulary(folder, problem),
        splits=splits,
        seed=0,
        versions={_MADE_BY: "unknown", **versions()},
    )
    manifest.save(folder)
    return manifest


def _shards(folder: pathlib.Path, name: str, split: str) -> list[pathlib.Path]:
    """Return the shards of a split in order; only test may be missing."""
    form = re.compile(rf"{re.escape(name)}-{split}-\d{{5}}-of-(\d{{5}})")
    found = [form.fullmatch(path.name) for path in folder.glob(f"{name}-*")]
    counts = {match[0]: int(match[1]) for match in found if match}
    count = max(counts.values(), default=0 if split == "test" else 1)
    names = [f"{name}-{split}-{i:05d}-of-{count:05d}" for i in range(count)]
    if wrong := sorted(counts.keys() ^ set(names)):
        there = sorted(path.name for path in folder.glob("*-of-*"))
        raise T2TLiteError(
            f"{folder} must hold all shards of {name}-{split}; {wrong[0]} is "
            f"missing or unexpected. It holds {', '.join(there[:3]) or 'none'}."
        )
    return [folder / name for name in names]


def _read_split(
    paths: Sequence[pathlib.Path], sizes: Sequence[int], counter: Counter
) -> SplitRecord:
    """Check and count all records of a split, given V of both sides."""
    shards: list[ShardRecord] = []
    lengths, rows = collections.Counter[int](), collections.Counter[int]()
    tokens: collections.Counter[str] = collections.Counter()
    kinds = set()
    for path in paths:
        count = 0
        for count, record in enumerate(_records(path, counter), 1):
            try:
                features = tf.train.Example.FromString(record).features.feature
                kinds.add("targets_position" in features)
                sides = {
                    side: _sentences(features, side, size)
                    for side, size in zip(SIDES, sizes, strict=True)
                }
                if len(kinds) > 1 or len({*map(len, sides.values())}) > 1:
                    raise ValueError(
                        "all records must be pairs, or all packed rows with as "
                        "many sentences on both sides"
                    )
            except (ValueError, DecodeError) as error:
                raise T2TLiteError(
                    f"{path}, record {count}: {error}."
                ) from error
            for side, sentences in sides.items():
                tokens[side] += sum(map(len, sentences))
            for pair in zip(*sides.values(), strict=True):
                lengths[max(map(len, pair))] += 1
            rows[max(len(features[s].int64_list.value) for s in SIDES)] += 1
        size = path.stat().st_size
        shards.append(ShardRecord(path.name, count, size, sha256_of(path)))
    for path, shard in zip(paths, shards, strict=True):
        # tensor2tensor gives each shard a record in turn.
        if not shard.examples and rows.total() != 1:
            raise T2TLiteError(f"{path} has no record: copy it again.")
    return SplitRecord(
        examples=lengths.total(),
        source_tokens=tokens["inputs"],
        target_tokens=tokens["targets"],
        lengths=dict(sorted(lengths.items())),
        dropped={},
        dropped_samples={},
        shards=tuple(shards),
        row_lengths=dict(sorted(rows.items())) if True in kinds else {},
    )


def _records(path: pathlib.Path, counter: Counter) -> Iterator[bytes]:
    try:
        for batch in tf.data.TFRecordDataset(str(path)).batch(1024):
            yield from batch.numpy()
            counter.advance(len(batch))
    except tf.errors.OpError as error:
        raise T2TLiteError(
            f"{path} is damaged or cut off: {in_words(error)}. Copy it again."
        ) from error


def _sentences(
    features: Mapping[str, Any], side: str, vocab_size: int
) -> list[list[int]]:
    """Return the sentences of one side of a record, a pair or a packed row.

    Raises:
      ValueError: an id or the order of the sentences is wrong.
    """
    ids, numbers, positions = (
        list(features[side + part].int64_list.value) for part in PARTS
    )
    if not len(ids) == len(numbers or ids) == len(positions or ids):
        raise ValueError(f"{side} must have as many ids as {side}_position")
    sentences: list[list[int]] = [] if numbers or not ids else [ids]
    for id, *place in zip(ids, numbers, positions, strict=False):
        if place == [len(sentences) + 1, 0]:
            sentences.append([id])
        elif sentences and place == [len(sentences), len(sentences[-1])]:
            sentences[-1].append(id)
        elif id or place[0]:  # not a separator either
            raise ValueError(f"{side} must be sentences in order")
    if not sentences:
        raise ValueError(f"{side} must have int64 ids")
    for ids in sentences:
        if not 0 < min(ids) <= max(ids) < vocab_size:
            raise ValueError(
                f"{side} must have ids from 1 to {vocab_size - 1}; got {ids}"
            )
        if ids[-1] != EOS_ID:
            raise ValueError(f"{side} must end in EOS, 1; got {ids}")
    return sentences
