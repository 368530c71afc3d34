"""What the data of a problem looks like, read back from its shards.

One pass over all records: counts, lengths and shares of bytes are those of
every pair. Texts are those of a sample, because decoding takes long.
"""

import collections
import functools
import os
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_lite.data.checks import check_data, verify_shards
from t2t_lite.data.manifest import Manifest
from t2t_lite.data.portions import PORTION_SIZE, ragged_portions
from t2t_lite.errors import T2TLiteError
from t2t_lite.problem import Problem
from t2t_lite.progress import Counter

SAMPLED_PAIRS = 20_000  # of a split, for words
DRAWN_PAIRS = 10  # of these, to show


def inspect_data(
    data_dir: str | os.PathLike,
    problem: Problem,
    seed: int = 0,
) -> dict[str, Any]:
    """Reads all the data of a problem that is there; makes none.

    Args:
      data_dir: where the data is.
      problem: in either direction; its encoders have `vocab_size`, `decode`
        and, where bytes are to be counted, `pieces`.
      seed: of the pairs that are drawn.

    Returns:
      `problem`, `data_dir`, `seed`, and by name of the split `splits`, each:
        examples: pairs in the shards.
        dropped, dropped_samples: as in `SplitRecord`, so with the sides of the
          name without `_rev`.
        damaged, damaged_samples: likewise.
        lengths: number of pairs by the tokens of their longer side, EOS
          counted as in all numbers of tokens but those of shares.
        source, target: `file` and `pieces` of the vocabulary, `tokens`,
          `lengths`; `tokens_per_word` in the sample, None without a word;
          `byte_share`, 0-1, of the tokens those that are bytes of characters
          that the vocabulary lacks, None if it has no pieces for bytes.
        sampled: how many pairs were decoded.
        drawn: pairs at random: `number` from 1 in the shards, `source`,
          `target`, `source_tokens`, `target_tokens`.

    Raises:
      T2TLiteError: there is no data, or a shard or the vocabulary does not fit
        the manifest or the other; names the file.
    """
    data_dir = pathlib.Path(data_dir)
    manifest = Manifest.load(data_dir, problem)
    check_data(data_dir, problem, manifest)
    verify_shards(data_dir, manifest)
    encoders = problem.load_encoders(data_dir)
    names = problem.vocabulary_files()
    files = problem.directed(names["inputs"], names["targets"])
    splits = {}
    for index, (split, record) in enumerate(manifest.splits.items()):
        generator = np.random.default_rng([seed, index])
        sampled = min(SAMPLED_PAIRS, record.examples)
        sample = generator.choice(record.examples, sampled, replace=False)
        source = _Side(files[0], encoders["inputs"], np.sort(sample))
        target = _Side(files[1], encoders["targets"], np.sort(sample))
        with Counter(f"{problem.name} {split}", "pairs") as counter:
            portions = ragged_portions(data_dir, problem, record, PORTION_SIZE)
            for sources, targets in portions:
                source.add(sources)
                target.add(targets)
                counter.advance(int(sources.nrows()))
        splits[split] = {
            "examples": source.lengths.total(),
            "dropped": record.dropped,
            "dropped_samples": record.dropped_samples,
            "damaged": record.damaged,
            "damaged_samples": record.damaged_samples,
            "lengths": record.lengths,
            "source": source.report(),
            "target": target.report(),
            "sampled": sampled,
            "drawn": _drawn(source, target, sample[:DRAWN_PAIRS]),
        }
    return {
        "problem": problem.name,
        "data_dir": str(data_dir),
        "seed": seed,
        "splits": splits,
    }


def _drawn(
    source: "_Side", target: "_Side", numbers: np.ndarray
) -> list[dict[str, Any]]:
    places = np.searchsorted(source.sample, numbers).tolist()
    return [
        {
            "number": number + 1,
            "source_tokens": len(source.rows[place]),
            "target_tokens": len(target.rows[place]),
            "source": source.texts[place],
            "target": target.texts[place],
        }
        for number, place in zip(numbers.tolist(), places, strict=True)
    ]


class _Side:
    """Takes in one side of a split, a portion at a time.

    Attributes:
      sample: the pairs to keep, by number from 0, in order.
      lengths: how many texts have so many tokens.
      rows: the ids of the sample.
    """

    def __init__(self, file: str, encoder: Any, sample: np.ndarray):
        self._file = file
        self._encoder = encoder
        self._is_byte = _byte_table(encoder)
        self._bytes = 0
        self.sample = sample
        self.lengths = collections.Counter[int]()
        self.rows: list[np.ndarray] = []

    def add(self, portion: tf.RaggedTensor) -> None:
        ids, splits = portion.values.numpy(), portion.row_splits.numpy()
        size = self._encoder.vocab_size
        if len(ids) and not 0 <= ids.min() <= ids.max() < size:
            raise T2TLiteError(
                f"Ids must be below the {size} pieces of the vocabulary "
                f"{self._file}; got {ids.min()} to {ids.max()}. The shards "
                "were made with another vocabulary: make them again."
            )
        if self._is_byte is not None:
            self._bytes += int(np.count_nonzero(self._is_byte[ids]))
        before, pairs = self.lengths.total(), len(splits) - 1
        self.lengths.update(np.diff(splits).tolist())
        first, end = np.searchsorted(self.sample, [before, before + pairs])
        for row in self.sample[first:end] - before:
            self.rows.append(ids[splits[row] : splits[row + 1]].copy())

    @functools.cached_property
    def texts(self) -> list[str]:
        return self._encoder.decode(self.rows)

    def report(self) -> dict[str, Any]:
        tokens = sum(n * count for n, count in self.lengths.items())
        words = sum(len(text.split()) for text in self.texts)
        text_tokens = sum(len(row) - 1 for row in self.rows)  # without EOS
        share = self._bytes / max(tokens - self.lengths.total(), 1)
        return {
            "file": self._file,
            "pieces": self._encoder.vocab_size,
            "tokens": tokens,
            "tokens_per_word": text_tokens / words if words else None,
            "byte_share": None if self._is_byte is None else share,
            "lengths": dict(sorted(self.lengths.items())),
        }


def _byte_table(encoder: Any) -> np.ndarray | None:
    """Bool [V], True where a piece is a byte; None if no piece is one."""
    if not hasattr(encoder, "pieces"):
        return None
    names = {f"<0x{byte:02X}>" for byte in range(256)}
    pieces = encoder.pieces(range(encoder.vocab_size))
    table = np.array([piece in names for piece in pieces])
    return table if table.any() else None
