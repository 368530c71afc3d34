"""Statistics of data, read back from its shards: padding, lengths, texts."""

import itertools
import os
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from t2t_lite.data.manifest import Manifest, check_data, check_shards
from t2t_lite.data.packing import SIDES
from t2t_lite.data.pipeline import read_pairs, training_batches
from t2t_lite.errors import T2TLiteError
from t2t_lite.problem import Problem

SAMPLED_BATCHES = 500  # of an epoch, for padding
SAMPLED_PAIRS = 20_000  # of a split, for words
DRAWN_PAIRS = 10  # of these, to show
_COPIED = (
    *("examples", "dropped", "dropped_samples"),
    *("damaged", "damaged_samples", "lengths"),
)


class PaddingReport(NamedTuple):
    """How well the train split fits its batches; see `padding_report`."""

    examples: int  # pairs of the split, or packed rows of pairs
    unit: str  # of the examples
    too_long: int  # number of these left out for `max_length`
    batches: int  # of an epoch; an estimate from its first ones
    share: float  # real tokens / positions of both sides together, 0-1

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
    max_length: int,
    packing: bool = False,
    **options: Any,
) -> PaddingReport:
    """Count the real tokens of the first `SAMPLED_BATCHES` of an epoch.

    Args: as in `pipeline.training_batches`.
    """
    record, unit = manifest.split("train"), "pairs"
    if packing and record.is_packed:
        record, unit = record.by_row, "packed rows"
    options |= {"max_length": max_length, "packing": packing}
    dataset = training_batches(data_dir, problem, manifest, **options)
    examples = real = positions = batches = 0
    for batch in dataset.take(SAMPLED_BATCHES).as_numpy_iterator():
        sides = [batch[name] for name in SIDES]
        real += sum(map(np.count_nonzero, sides))
        positions += sum(side.size for side in sides)
        numbers = sides[0] > 0  # [B, S], of the example of a token in its row
        if packing and unit == "pairs":
            numbers = batch["inputs_segmentation"]
        examples += int(numbers.max(axis=1).sum())
        batches += 1
        if batch["position"][0]:  # the next batch is of the next epoch
            break
    too_long = record.too_long(max_length)
    used = record.examples - too_long
    share, total = real / positions, round(batches * used / examples)
    return PaddingReport(record.examples, unit, too_long, total, share)


def inspect_data(
    data_dir: str | os.PathLike, problem: Problem, seed: int = 0
) -> dict[str, Any]:
    """Describe the data of a problem; generate none.

    Args:
      data_dir: the folder of the data.
      problem: in either direction.
      seed: of the pairs that are drawn.

    Returns:
      `problem`, `data_dir`, `seed`, and by name of the split `splits`, each:
        examples, dropped, dropped_samples, damaged, damaged_samples, lengths:
          as in `SplitRecord`, so with the sides of the name without `_rev`.
        sampled: number of pairs in the sample, the first ones of the shards;
          those of train are shuffled.
        source, target: `tokens` of the split, and of the sample what
          `_describe` returns.
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
        count = len(sides[0])
        numbers = np.random.default_rng([seed, index]).permutation(count)
        splits[split] = {name: getattr(record, name) for name in _COPIED} | {
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
                for i in numbers[:DRAWN_PAIRS].tolist()
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
    """Return the texts and the statistics of one side of a sample.

    These are `file` and `pieces` of the vocabulary; `lengths`, number of texts
    by their tokens, EOS included; without EOS `tokens_per_word`, None without a
    word, and `byte_share`, 0-1, of tokens that are bytes of characters that the
    vocabulary lacks, None if it has no pieces for bytes.
    """
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
    pieces = enumerate(encoder.pieces(range(size)))
    bytes_ = [i for i, piece in pieces if piece in names]
    share = int(np.isin(ids, bytes_).sum()) / max(tokens, 1)
    return texts, {
        "file": file,
        "pieces": size,
        "lengths": dict(sorted(Counter(map(len, rows)).items())),
        "tokens_per_word": tokens / words if words else None,
        "byte_share": share if bytes_ else None,
    }
