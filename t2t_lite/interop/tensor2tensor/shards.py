"""Import of shards that tensor2tensor wrote, without a copy.

A record is a tf.train.Example with int64 `inputs` and `targets`, EOS last; in
problems `..._packed` a row of several pairs.
"""

import collections
import glob
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from t2t_lite.data.manifest import Manifest, SplitRecord, sha256_of
from t2t_lite.data.packing import feature_names
from t2t_lite.data.pipeline import unpack
from t2t_lite.datagen import generate
from t2t_lite.errors import T2TLiteError, UsageError, format_error
from t2t_lite.problem import Problem
from t2t_lite.tokenizers.base import EOS_ID, Tokenizer
from t2t_lite.tokenizers.vocabulary import open_vocabulary

_MADE_BY = "tensor2tensor"  # an entry of the manifest's versions
_FEATURES = feature_names(packing=True)
_BATCH_SIZE = 1024  # number of records to check together


def import_shards(
    folder: Path, problem: Problem, vocabulary: Sequence[Path]
) -> Manifest:
    """Check the shards `NAME-train-*`, ... of a problem; write their manifest.

    The vocabulary, a shared file or source and target, is copied to the folder.
    """
    name, has_data = problem.base_name, Manifest.path(folder, problem).exists()
    if has_data and _MADE_BY not in Manifest.load(folder, problem).versions:
        raise T2TLiteError(
            f"t2t-lite-datagen generated the data of {name} in {folder}: "
            "remove `import_shards`."
        )
    shards = {s: _shards(folder, name, s) for s in ("train", "dev", "test")}
    tokenizers = open_vocabularies(problem, vocabulary)
    sizes = [tokenizer.vocab_size for tokenizer in tokenizers]
    splits = {s: _read_split(p, sizes) for s, p in shards.items() if p}
    names = dict.fromkeys(problem.vocabulary_files().values())
    for copy, path in zip(map(folder.joinpath, names), vocabulary, strict=True):
        if not copy.exists():
            shutil.copyfile(path, copy)
        elif sha256_of(copy) != sha256_of(path):
            raise T2TLiteError(f"{copy} differs from {path}: remove one.")
    manifest = Manifest(
        problem=name,
        fingerprint=problem.fingerprint(),
        definition=problem.definition(),
        vocabulary=generate.describe_vocabulary(folder, problem),
        splits=splits,
        seed=0,
        versions={_MADE_BY: "unknown", **generate.versions()},
    )
    manifest.save(folder)
    return manifest


def open_vocabularies(
    problem: Problem, paths: Sequence[Path]
) -> list[Tokenizer]:
    """Return the tokenizers of a shared file, or of source and target."""
    count = len(set(problem.vocabulary_files().values()))
    if len(paths) != count:
        raise UsageError(
            f"{problem.base_name} requires {count} vocabularies (got "
            f"{len(paths)}): use `vocabulary=SOURCE,TARGET` for two."
        )
    return [open_vocabulary(path) for path in paths]


def _shards(folder: Path, name: str, split: str) -> list[Path]:
    """Return the shards of a split, in order; only test may be missing."""
    prefix = f"{name}-{split}"
    found = sorted(folder.glob(f"{glob.escape(prefix)}-?????-of-?????"))
    count = len(found) or split != "test"
    names = [f"{prefix}-{i:05d}-of-{count:05d}" for i in range(count)]
    if [path.name for path in found] != names:
        raise T2TLiteError(
            f"{folder} must contain all shards of {prefix}; got {found}."
        )
    return found


def _read_split(paths: Sequence[Path], sizes: Sequence[int]) -> SplitRecord:
    """Check and count all records of a split; `sizes` are vocabulary sizes."""
    lengths, rows = collections.Counter[int](), collections.Counter[int]()
    tokens, shards, is_packed = np.zeros(2, int), [], None
    schema = dict.fromkeys(_FEATURES, tf.io.RaggedFeature(tf.int64))
    for path in paths:
        count = 0
        try:
            for batch in tf.data.TFRecordDataset(str(path)).batch(_BATCH_SIZE):
                parsed = tf.io.parse_example(batch, schema)
                features = [parsed[name] for name in _FEATURES]  # of both sides
                widths = [feature.row_lengths() for feature in features]
                if is_packed is None:
                    is_packed = bool(widths[-1][0] > 0)
                sides = [
                    _measure(features[:3], sizes[0], is_packed),
                    _measure(features[3:], sizes[-1], is_packed),
                ]
                # Fails unless both sides have the same number of texts.
                tokens += np.sum(sides, axis=1)
                lengths.update(np.max(sides, axis=0).tolist())
                rows.update(np.max(widths, axis=0).tolist())
                count += len(batch)
        except (tf.errors.OpError, ValueError) as error:
            raise T2TLiteError(
                f"{path} is damaged or has another format, in the "
                f"{_BATCH_SIZE} records from number {count + 1} on: "
                f"{format_error(error)}."
            ) from error
        if not count:  # tensor2tensor writes records to all shards in turn
            raise T2TLiteError(f"{path} has no records: copy it again.")
        shards.append(generate.describe_shard(path, count))
    return SplitRecord(
        examples=lengths.total(),
        source_tokens=int(tokens[0]),
        target_tokens=int(tokens[1]),
        lengths=dict(sorted(lengths.items())),
        dropped={},
        shards=tuple(shards),
        row_lengths=dict(sorted(rows.items())) if is_packed else {},
    )


def _measure(features, vocab_size, is_packed):
    """Return the lengths of the texts; raise ValueError for an invalid text."""
    texts, *others = features
    splits = texts.row_splits if is_packed else texts.row_splits * 0
    if any((other.row_splits != splits).numpy().any() for other in others):
        raise ValueError("all records must be pairs or all packed rows")
    if is_packed:
        texts = unpack(texts, others[0])
    ids, lengths = texts.values.numpy(), texts.row_lengths().numpy()
    if not (lengths.all() and (ids > 0).all() and (ids < vocab_size).all()):
        raise ValueError("texts must contain ids of the vocabulary")
    if (ids[np.cumsum(lengths) - 1] != EOS_ID).any():
        raise ValueError("texts must end with EOS (id 1)")
    return lengths
