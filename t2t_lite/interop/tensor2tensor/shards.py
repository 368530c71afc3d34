"""Check shards that tensor2tensor wrote, and use them in place.

The records are tf.train.Example with int64 `inputs` and `targets`, EOS last.
In problems `..._packed` a record is a row of several pairs, and each side also
has `SIDE_segmentation`, the number of the sentence, and `SIDE_position`.
"""

import collections
import pathlib
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

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
    tokens = np.zeros(2, int)
    packed = None
    for path in paths:
        count = 0
        for features in _batches(path):
            if packed is None:
                packed = bool(features["targets_position"].row_lengths()[0])
            sides = (
                _measure(features, side, size, packed)
                for side, size in zip(SIDES, sizes, strict=True)
            )
            valid, sentences, measured = zip(*sides, strict=True)
            good = valid[0] & valid[1] & (sentences[0] == sentences[1])
            if not good.all():
                raise T2TLiteError(
                    f"{path}, record {count + 1 + good.argmin()}: both sides "
                    "must have ids of the vocabulary that end in EOS, 1; all "
                    "records must be pairs, or all be packed rows."
                )
            tokens += np.sum(measured, axis=1)
            lengths.update(np.max(measured, axis=0).tolist())
            widths = [features[side].row_lengths() for side in SIDES]
            rows.update(np.max(widths, axis=0).tolist())
            count += len(good)
            counter.advance(len(good))
        if not count:  # each shard has a record in turn
            raise T2TLiteError(f"{path} has no record: copy it again.")
        size = path.stat().st_size
        shards.append(ShardRecord(path.name, count, size, sha256_of(path)))
    return SplitRecord(
        examples=lengths.total(),
        source_tokens=int(tokens[0]),
        target_tokens=int(tokens[1]),
        lengths=dict(sorted(lengths.items())),
        dropped={},
        dropped_samples={},
        shards=tuple(shards),
        row_lengths=dict(sorted(rows.items())) if packed else {},
    )


def _batches(path: pathlib.Path) -> Iterator[dict[str, tf.RaggedTensor]]:
    names = [side + part for side in SIDES for part in PARTS]
    kinds = {name: tf.io.RaggedFeature(tf.int64) for name in names}
    count = 0
    try:
        for batch in tf.data.TFRecordDataset(str(path)).batch(1024):
            yield tf.io.parse_example(batch, kinds)
            count += len(batch)
    except tf.errors.OpError as error:
        raise T2TLiteError(
            f"{path} is damaged, or its features are not int64, after record "
            f"{count}: {in_words(error)}. Copy it again."
        ) from error


def _measure(
    features: Mapping[str, tf.RaggedTensor],
    side: str,
    vocab_size: int,
    packed: bool,
) -> tuple[np.ndarray, ...]:
    """Check one side of B records.

    Returns:
      Whether each record is valid, bool [B]; its number of sentences, [B]; and
      the lengths of all sentences.
    """
    width = max(features[side + part].bounding_shape()[1] for part in PARTS)
    ids, numbers, positions = (
        features[side + part].to_tensor(shape=[None, width]).numpy()
        for part in PARTS
    )
    valid = numbers.any(axis=1) == packed
    if not packed:  # one sentence in each row
        positions = np.tile(np.arange(width), (len(ids), 1))
        numbers = 1 * (
            positions < features[side].row_lengths().numpy()[:, None]
        )
    real = (ids != 0) | (numbers != 0)  # neither separator nor padding
    before, place_before = (
        np.pad(values, ((0, 0), (1, 0)))[:, :-1]
        for values in (numbers, positions)
    )
    follows = (
        (numbers > 0) & (numbers == before) & (positions == place_before + 1)
    )
    begins = (positions == 0) & (
        numbers == np.maximum.accumulate(before, axis=1) + 1
    )
    ends = real & ~np.pad(follows, ((0, 0), (0, 1)))[:, 1:]
    right = (begins | follows) & (ids > 0) & (ids < vocab_size)
    right &= ~ends | (ids == EOS_ID)
    sentences = begins.sum(axis=1)
    valid &= (right | ~real).all(axis=1) & (sentences > 0)
    return valid, sentences, positions[ends] + 1
