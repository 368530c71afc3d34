"""Shards that tensor2tensor wrote: read, checked and used where they lie.

All that is written is a manifest, and a copy of a vocabulary that is not beside
them. The records must be of tf.train.Example with int64 `inputs` and `targets`,
EOS last. They may be packed rows of pairs, as the problems `..._packed` have
them: then each side also has `SIDE_segmentation` and `SIDE_position`.
"""

import collections
import os
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from t2t_lite import files
from t2t_lite.data.manifest import Manifest, ShardRecord, SplitRecord, sha256_of
from t2t_lite.data.packing import PARTS, SIDES, feature_names
from t2t_lite.data.portions import READ_BYTES, features
from t2t_lite.datagen.generate import describe_vocabulary, versions
from t2t_lite.datagen.record_checks import RecordSide
from t2t_lite.errors import T2TLiteError, in_words
from t2t_lite.problem import Problem
from t2t_lite.progress import Counter
from t2t_lite.text.vocabulary import open_vocabulary

_NEEDED_SPLITS = ("train", "dev")
_SPLITS = (*_NEEDED_SPLITS, "test")
_MADE_BY = "tensor2tensor"  # among the versions of a manifest
_RECORDS_AT_A_TIME = 16_384


def adopt(
    folder: str | os.PathLike,
    problem: Problem,
    vocabulary: Sequence[str | os.PathLike],
    progress: bool = True,
) -> Manifest:
    """Makes data of the shards in a folder, which stay as they are.

    Args:
      folder: holds `NAME-train-00000-of-000NN` and so on, and those of dev;
        those of test may be missing. NAME is the base name of the problem.
      problem: what the shards are from now on.
      vocabulary: the file that they were made with, for both sides, or those
        of source and target. It is copied into the folder under the problem's
        name for it, unless it is there.
      progress: show progress on stderr.

    Returns:
      The manifest, which is written into the folder.

    Raises:
      T2TLiteError: a shard is missing or damaged or holds something else, the
        vocabulary is another one, or there is data that needs no adoption.
        Nothing is written then.
    """
    folder = pathlib.Path(folder).expanduser().absolute()
    if not folder.is_dir():
        raise T2TLiteError(f"--adopt: there is no folder {folder}.")
    _require_not_made_here(folder, problem)
    name = problem.base_name
    shards = _shards_of_splits(folder, name)
    copies = _copies(folder, problem, vocabulary)
    encoders = [open_vocabulary(path) for path in vocabulary]
    sizes = [encoders[0].vocab_size, encoders[-1].vocab_size]
    splits = {}
    for split, paths in shards.items():
        with Counter(f"{name} {split}", "records", progress) as counter:
            splits[split] = _read_split(paths, sizes, counter)
    for path, copy in copies.items():
        with files.write_file(copy) as file:
            file.write(pathlib.Path(path).read_bytes())
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


def _require_not_made_here(folder: pathlib.Path, problem: Problem) -> None:
    """Refuses data that the generation made; adopted data is read again."""
    if not Manifest.path(folder, problem).exists():
        return
    if _MADE_BY not in Manifest.load(folder, problem).versions:
        raise T2TLiteError(
            f"{folder} holds data of {problem.base_name} that "
            "t2t-lite-datagen made: it is ready, leave --adopt out."
        )


def _shards_of_splits(
    folder: pathlib.Path, name: str
) -> dict[str, list[pathlib.Path]]:
    """The shards of each split that is there.

    Raises:
      T2TLiteError: a needed split is missing, or some shards of a split are.
    """
    found = {split: _shards(folder, name, split) for split in _SPLITS}
    for split in _NEEDED_SPLITS:
        if not found[split]:
            raise T2TLiteError(
                f"{folder} must hold {name}-{split}-00000-of-... and so on; "
                f"{_what_is_there(folder)}."
            )
    return {split: paths for split, paths in found.items() if paths}


def _shards(folder: pathlib.Path, name: str, split: str) -> list[pathlib.Path]:
    """The shards of a split, in order; none if there are none.

    Raises:
      T2TLiteError: some of them are missing.
    """
    form = re.compile(rf"{re.escape(name)}-{split}-\d{{5}}-of-(\d{{5}})")
    found = {
        path.name: int(match[1])
        for path in folder.iterdir()
        if (match := form.fullmatch(path.name)) and path.is_file()
    }
    counts = sorted(set(found.values()))
    if len(counts) > 1:
        raise T2TLiteError(
            f"{folder} must hold one set of {name}-{split} shards; got some "
            f"that are of {' and of '.join(map(str, counts))}."
        )
    names = [
        f"{name}-{split}-{index:05d}-of-{count:05d}"
        for count in counts
        for index in range(count)
    ]
    wrong = sorted(found.keys() ^ set(names))
    if wrong:
        raise T2TLiteError(
            f"{folder} must hold {len(names)} shards of {name}-{split}, "
            f"numbered from 0; it has {len(found)}, and the first that is "
            f"missing or too much is {wrong[0]}."
        )
    return [folder / file for file in names]


def _what_is_there(folder: pathlib.Path) -> str:
    """The names that shards in a folder have, in words."""
    form = re.compile(r"(.+)-(train|dev|test)-\d{5}-of-\d{5}")
    found = map(form.fullmatch, sorted(path.name for path in folder.iterdir()))
    names = dict.fromkeys(f"{f[1]}-{f[2]}" for f in found if f)
    return f"it has {', '.join(names)}" if names else "it has no shards"


def _copies(
    folder: pathlib.Path,
    problem: Problem,
    vocabulary: Sequence[str | os.PathLike],
) -> dict[str | os.PathLike, pathlib.Path]:
    """Where to copy each vocabulary that is not in its place."""
    names = problem.vocabulary_files()
    if len(vocabulary) < len(set(names.values())):
        raise T2TLiteError(
            f"{problem.base_name} has a vocabulary for each side: give "
            "--vocabulary=SOURCE,TARGET."
        )
    copies = {}
    for path, side in zip((vocabulary[0], vocabulary[-1]), SIDES, strict=True):
        place = folder / names[side]
        if not place.exists():
            copies[path] = place
        elif sha256_of(place) != sha256_of(path):
            raise T2TLiteError(
                f"{place} is another vocabulary than {path}: take one away."
            )
    return copies


def _read_split(
    paths: Sequence[pathlib.Path], sizes: Sequence[int], counter: Counter
) -> SplitRecord:
    """Reads every record of a split.

    Args:
      paths: its shards.
      sizes: V of source and target.
      counter: is told of each record.
    """
    shards = []
    lengths, rows = collections.Counter[int](), collections.Counter[int]()
    tokens = np.zeros(2, np.int64)
    are_packed = None
    for path in paths:
        records = 0
        for parsed in _parsed(path):
            sides = _checked_sides(path, records + 1, parsed, sizes)
            source, target = sides
            if are_packed is None:
                are_packed = source.is_packed
            if source.is_packed != are_packed:
                raise T2TLiteError(
                    f"{path} must have packed rows or pairs, as the records "
                    "before; got the other."
                )
            lengths.update(np.maximum(source.lengths, target.lengths).tolist())
            longer = np.maximum(source.positions, target.positions)
            if are_packed:
                rows.update(longer.tolist())
            tokens += [side.lengths.sum() for side in sides]
            records += len(longer)
            counter.advance(len(longer))
        size = path.stat().st_size
        shards.append(ShardRecord(path.name, records, size, sha256_of(path)))
    _require_no_lost_shard(paths, shards)
    if not lengths:
        raise T2TLiteError(f"{paths[0]} and the shards after it have no pair.")
    return SplitRecord(
        examples=lengths.total(),
        source_tokens=int(tokens[0]),
        target_tokens=int(tokens[1]),
        lengths=dict(sorted(lengths.items())),
        dropped={},
        dropped_samples={},
        shards=tuple(shards),
        row_lengths=dict(sorted(rows.items())),
    )


def _require_no_lost_shard(
    paths: Sequence[pathlib.Path], shards: Sequence[ShardRecord]
) -> None:
    """Refuses an empty shard, unless there is not one record for each.

    tensor2tensor deals records out to the shards, one after the other.
    """
    most = max(shard.examples for shard in shards)
    for path, shard in zip(paths, shards, strict=True):
        if most > 1 and not shard.examples:
            raise T2TLiteError(
                f"{path} is cut off: it has no record, and another shard of "
                f"its split has {most}. Copy it again from where it is whole."
            )


def _parsed(path: pathlib.Path) -> Iterator[dict[str, tf.RaggedTensor]]:
    """The features of the records of a shard, many records at a time."""
    dataset = tf.data.TFRecordDataset(str(path), buffer_size=READ_BYTES)
    names = feature_names(packing=True)
    try:
        for serialized in dataset.batch(_RECORDS_AT_A_TIME):
            yield tf.io.parse_example(serialized, features(names))
    except (tf.errors.DataLossError, tf.errors.OutOfRangeError) as error:
        raise T2TLiteError(
            f"{path} is damaged or cut off: {in_words(error)}. Copy it again "
            "from where it is whole."
        ) from error
    except tf.errors.InvalidArgumentError as error:
        raise T2TLiteError(
            f"{path} must hold tf.train.Example with int64 inputs and targets: "
            f"{in_words(error)}."
        ) from error


def _checked_sides(
    path: pathlib.Path,
    number: int,
    parsed: Mapping[str, tf.RaggedTensor],
    sizes: Sequence[int],
) -> tuple[RecordSide, RecordSide]:
    """Source and target of the records from `number` on."""
    source, target = (
        RecordSide(
            str(path),
            number,
            name,
            {
                part: (
                    parsed[name + part].values.numpy(),
                    parsed[name + part].row_splits.numpy(),
                )
                for part in PARTS
            },
            size,
        )
        for name, size in zip(SIDES, sizes, strict=True)
    )
    target.require_as_many_as(source)
    return source, target
