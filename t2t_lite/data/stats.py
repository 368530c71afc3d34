"""Statistics of data, read back from its shards: padding, lengths, texts."""

import dataclasses
import itertools
import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_lite.data.manifest import Manifest, check_data, check_shards
from t2t_lite.data.packing import SIDES
from t2t_lite.data.pipeline import (
    PORTION_SIZE,
    Batching,
    read_pairs,
    serialized_portions,
)
from t2t_lite.errors import T2TLiteError
from t2t_lite.problem import Problem

SAMPLED_PAIRS = 20_000  # of a split, for words
DRAWN_PAIRS = 10  # of these, to show


@dataclasses.dataclass(frozen=True)
class PaddingReport:
    """How well the train split fits its batches.

    Attributes:
      examples: pairs of the split, or packed rows of pairs.
      too_long: number of these left out for `max_length`.
      batches: of an epoch; an estimate from its first portions.
      share: real tokens / positions of both sides together, 0-1.
      unit: of the examples.
    """

    examples: int
    too_long: int
    batches: int
    share: float
    unit: str = "pairs"

    def __str__(self) -> str:
        left_out = f", {self.too_long:,} too long" if self.too_long else ""
        return (
            f"{self.examples:,} {self.unit}{left_out}; about "
            f"{self.batches:,} batches an epoch, {self.share:.1%} of their "
            "positions are real tokens"
        )


def padding_report(
    data_dir: str | os.PathLike,
    problem: Problem,
    manifest: Manifest,
    *,
    max_positions: int,
    max_length: int,
    seed: int = 0,
    packing: bool = False,
    portion_size: int = PORTION_SIZE,
    most_portions: int = 4,
) -> PaddingReport:
    """Plan the first `most_portions` portions of train and count real tokens.

    Args: otherwise as in `pipeline.training_batches`.
    """
    record = manifest.split("train")
    batching = Batching(
        problem, record, max_positions, max_length, packing, seed
    )
    portions = serialized_portions(data_dir, record, portion_size)
    record = batching.check_lengths()
    seen = real = positions = batches = 0
    for portion, serialized in enumerate(portions.take(most_portions)):
        texts = batching.parse(serialized)
        sides = [texts[name] for name in SIDES]
        lengths = [side.row_lengths().numpy() for side in sides]
        examples, _, splits, widths = batching.plan(0, portion, *lengths)
        for side in sides:
            tokens = tf.reduce_sum(tf.cast(side != 0, tf.int64), axis=1)
            real += int(tokens.numpy()[examples].sum())
        seen += len(lengths[0])
        heights = np.maximum(np.diff(splits), batching.shape[0] or 0)
        positions += int((heights[:, None] * widths).sum())
        batches += len(heights)
    return PaddingReport(
        examples=record.examples,
        too_long=record.too_long(max_length),
        batches=round(batches * record.examples / seen),
        share=real / max(positions, 1),
        unit="packed rows" if batching.keeps_rows else "pairs",
    )


def inspect_data(
    data_dir: str | os.PathLike, problem: Problem, seed: int = 0
) -> dict[str, Any]:
    """Describe the data of a problem; generate none.

    Args:
      data_dir: the folder of the data.
      problem: in either direction; its encoders have `vocab_size`, `decode`
        and, to count bytes, `pieces`.
      seed: of the pairs that are drawn.

    Returns:
      `problem`, `data_dir`, `seed`, and by name of the split `splits`, each:
        examples, dropped, dropped_samples, damaged, damaged_samples, lengths:
          as in `SplitRecord`, so with the sides of the name without `_rev`.
        sampled: number of pairs in the sample, the first ones of the shards;
          those of train are shuffled.
        source, target: `file` and `pieces` of the vocabulary and `tokens`; of
          the sample: `lengths`, number of texts by their tokens, EOS included;
          `tokens_per_word`, None without a word; `byte_share`, 0-1, of tokens
          that are bytes of characters that the vocabulary lacks, None if it has
          no pieces for bytes. The last two do not count EOS.
        drawn: pairs of the sample at random: `number` from 1 in the shards,
          `source`, `target`, `source_tokens`, `target_tokens`.

    Raises:
      T2TLiteError: there is no data, or a shard or the vocabulary does not fit
        the manifest or the other; names the file.
    """
    manifest = Manifest.load(data_dir, problem)
    check_data(data_dir, problem, manifest)
    check_shards(data_dir, problem, manifest)
    encoders = problem.load_encoders(data_dir)
    names = problem.vocabulary_files()
    files = problem.directed(names["inputs"], names["targets"])
    splits = {}
    for index, (split, record) in enumerate(manifest.splits.items()):
        pairs = read_pairs(data_dir, problem, manifest, split)
        sides = list(zip(*itertools.islice(pairs, SAMPLED_PAIRS), strict=True))
        tokens = problem.directed(record.source_tokens, record.target_tokens)
        texts, described = zip(
            *(
                _describe(rows, encoders[name], file)
                for rows, name, file in zip(sides, SIDES, files, strict=True)
            ),
            strict=True,
        )
        generator = np.random.default_rng([seed, index])
        count = len(sides[0])
        numbers = generator.permutation(count)[:DRAWN_PAIRS].tolist()
        splits[split] = {
            "examples": record.examples,
            "dropped": record.dropped,
            "dropped_samples": record.dropped_samples,
            "damaged": record.damaged,
            "damaged_samples": record.damaged_samples,
            "lengths": record.lengths,
            "source": described[0] | {"tokens": tokens[0]},
            "target": described[1] | {"tokens": tokens[1]},
            "sampled": count,
            "drawn": [
                {
                    "number": i + 1,
                    "source_tokens": len(sides[0][i]),
                    "target_tokens": len(sides[1][i]),
                    "source": texts[0][i],
                    "target": texts[1][i],
                }
                for i in numbers
            ],
        }
    return {
        "problem": problem.name,
        "data_dir": str(data_dir),
        "seed": seed,
        "splits": splits,
    }


def _describe(
    rows: Sequence[np.ndarray], encoder: Any, file: str
) -> tuple[list[str], dict[str, Any]]:
    """Return the texts and the statistics of one side of a sample."""
    ids = np.concatenate(rows)
    size = encoder.vocab_size
    if not 0 <= ids.min() <= ids.max() < size:
        raise T2TLiteError(
            f"Ids must be below the {size} pieces of the vocabulary {file}; "
            f"got {ids.min()} to {ids.max()}. The vocabulary does not belong "
            "to the shards: make them again."
        )
    texts = encoder.decode(rows)
    words = sum(len(text.split()) for text in texts)
    tokens = len(ids) - len(rows)  # without EOS
    names = {f"<0x{byte:02X}>" for byte in range(256)}
    pieces = encoder.pieces(range(size)) if hasattr(encoder, "pieces") else []
    bytes_ = [i for i, piece in enumerate(pieces) if piece in names]
    share = int(np.isin(ids, bytes_).sum()) / max(tokens, 1)
    return texts, {
        "file": file,
        "pieces": size,
        "lengths": dict(sorted(Counter(map(len, rows)).items())),
        "tokens_per_word": tokens / words if words else None,
        "byte_share": share if bytes_ else None,
    }
