"""Check shards that tensor2tensor wrote, and use them in place.

The records are tf.train.Example with int64 `inputs` and `targets`, EOS last.
In problems `..._packed` a record is a row of several pairs, and each side also
has `SIDE_segmentation`, the number of the sentence, and `SIDE_position`.
"""

import collections
import glob
import pathlib
import shutil
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from t2t_lite.data.manifest import Manifest, SplitRecord, sha256_of
from t2t_lite.data.packing import PARTS, SIDES, feature_names, join_texts
from t2t_lite.data.pipeline import unpack
from t2t_lite.datagen.generate import describe_vocabulary, versions
from t2t_lite.datagen.tfrecords import describe_shard
from t2t_lite.errors import T2TLiteError, in_words
from t2t_lite.problem import Problem
from t2t_lite.progress import Counter
from t2t_lite.text.encoder import EOS_ID
from t2t_lite.text.vocabulary import open_vocabulary

_MADE_BY = "tensor2tensor"  # an entry of the manifest's versions
_FEATURES = feature_names(packing=True)
_RECORDS = 1024  # that are checked together


def adopt(
    folder: pathlib.Path,
    problem: Problem,
    vocabulary: Sequence[pathlib.Path],
    progress: bool = True,
) -> Manifest:
    """Check the shards of a problem in a folder and write their manifest.

    A vocabulary of another folder is copied.

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
    if (
        Manifest.path(folder, problem).exists()
        and _MADE_BY not in Manifest.load(folder, problem).versions
    ):
        raise T2TLiteError(
            f"{folder} holds data of {name} that t2t-lite-datagen made: it is "
            "ready, leave --adopt out."
        )
    shards = {s: _shards(folder, name, s) for s in ("train", "dev", "test")}
    encoders = [open_vocabulary(path) for path in vocabulary]
    sizes = [encoders[0].vocab_size, encoders[-1].vocab_size]
    names = list(dict.fromkeys(problem.vocabulary_files().values()))
    if len(names) != len(vocabulary):
        raise T2TLiteError(
            f"{name} has {len(names)} vocabularies; got {len(vocabulary)}: "
            "give --vocabulary=SOURCE,TARGET for two."
        )
    copies = {
        folder / n: path for n, path in zip(names, vocabulary, strict=True)
    }
    for there, path in copies.items():
        if there.exists() and sha256_of(there) != sha256_of(path):
            raise T2TLiteError(f"{there} differs from {path}: remove one.")
    splits = {}
    for split, paths in shards.items():
        if paths:
            with Counter(f"{name} {split}", "records", progress) as counter:
                splits[split] = _read_split(paths, sizes, counter)
    for there, path in copies.items():
        if not there.exists():
            shutil.copyfile(path, there)
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
    found = sorted(folder.glob(f"{glob.escape(name)}-{split}-?????-of-?????"))
    prefix, count = f"{name}-{split}", len(found) or split != "test"
    names = [f"{prefix}-{i:05d}-of-{count:05d}" for i in range(count)]
    if [path.name for path in found] != names:
        there = ", ".join(path.name for path in found) or "none"
        raise T2TLiteError(
            f"{folder} must hold all shards of {prefix}, and of no other copy; "
            f"got {there}."
        )
    return found


def _read_split(
    paths: Sequence[pathlib.Path], sizes: Sequence[int], counter: Counter
) -> SplitRecord:
    """Check and count all records of a split, given V of both sides."""
    lengths, rows = collections.Counter[int](), collections.Counter[int]()
    tokens, shards, is_packed = np.zeros(2, int), [], None
    form = dict.fromkeys(_FEATURES, tf.io.RaggedFeature(tf.int64))
    for path in paths:
        count = 0
        try:
            for batch in tf.data.TFRecordDataset(str(path)).batch(_RECORDS):
                features = tf.io.parse_example(batch, form)
                if is_packed is None:
                    is_packed = len(features["targets_position"][0]) > 0
                sides = [
                    _measure(features, side, size, is_packed)
                    for side, size in zip(SIDES, sizes, strict=True)
                ]
                if not np.array_equal(sides[0][0], sides[1][0]):
                    raise ValueError("both sides must have as many texts")
                measured = [lengths for _, lengths in sides]
                tokens += np.sum(measured, axis=1)
                lengths.update(np.max(measured, axis=0).tolist())
                widths = [features[side].row_lengths() for side in SIDES]
                rows.update(np.max(widths, axis=0).tolist())
                count += len(batch)
                counter.advance(len(batch))
        except (tf.errors.OpError, ValueError) as error:
            raise T2TLiteError(
                f"{path} is damaged or of another kind, in the {_RECORDS} "
                f"records from number {count + 1} on: {in_words(error)}."
            ) from error
        if not count:  # tensor2tensor gives records to all shards in turn
            raise T2TLiteError(f"{path} has no record: copy it again.")
        shards.append(describe_shard(path, count))
    return SplitRecord(
        examples=lengths.total(),
        source_tokens=int(tokens[0]),
        target_tokens=int(tokens[1]),
        lengths=dict(sorted(lengths.items())),
        dropped={},
        dropped_samples={},
        shards=tuple(shards),
        row_lengths=dict(sorted(rows.items())) if is_packed else {},
    )


def _measure(
    features: Mapping[str, tf.RaggedTensor],
    side: str,
    vocab_size: int,
    is_packed: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of texts in each record, and their lengths.

    Raises:
      ValueError: the records break a rule.
    """
    parts = [features[side + part] for part in PARTS]
    ids, segments, positions = (part.values.numpy() for part in parts)
    texts, splits = parts[0], parts[0].row_splits
    counts = np.ones(parts[0].nrows(), int)
    if not is_packed and len(segments) + len(positions):
        raise ValueError("all records must be pairs, or all be packed rows")
    if is_packed:
        counts = tf.reduce_max(parts[1], axis=1).numpy()
        texts = unpack(*parts[:2])
        _, *joined = join_texts(
            texts.row_lengths().numpy(), np.cumsum([0, *counts])
        )
        kept = segments > 0
        first = np.append(True, ~kept[:-1]) & kept  # after a separator
        if (
            not all(np.array_equal(part.row_splits, splits) for part in parts)
            or not np.array_equal(joined, [segments[kept], positions[kept]])
            or positions[first].any()
            or ids[~kept].any()
        ):
            raise ValueError("packed texts must be numbered from 1 on")
        ids = ids[kept]
    lengths = texts.row_lengths().numpy()
    if not (lengths.all() and (ids > 0).all() and (ids < vocab_size).all()):
        raise ValueError("texts must have ids of the vocabulary")
    if (ids[np.cumsum(lengths) - 1] != EOS_ID).any():
        raise ValueError("texts must end in EOS, 1")
    return counts, lengths
