"""What records of pairs must be like, in plain numpy.

A record is a pair, or a packed row of pairs; a pair is handled as a row of one.
"""

from collections.abc import Mapping
from typing import NoReturn

import numpy as np

from t2t_lite.errors import T2TLiteError

_EOS_ID = 1


class RecordSide:
    """One side of some records of a shard, checked.

    Attributes:
      is_packed: whether the records are packed rows.
      positions: int64 [records], how long each one is.
      counts: int64 [records], how many sentences it has.
      lengths: int64 [sentences], tokens of each one, EOS counted.

    Args:
      shard: its path, for errors.
      number: of the first of the records in the shard, from 1.
      name: of the side, "inputs" or "targets".
      parts: what the records have as `NAME`, `NAME_segmentation` and
        `NAME_position`, by the ending: ints [tokens], one record after the
        other, and where each begins and the last ends, int64 [records + 1].
      vocab_size: of this side.

    Raises:
      T2TLiteError: a record breaks a rule; names it.
    """

    def __init__(
        self,
        shard: str,
        number: int,
        name: str,
        parts: Mapping[str, tuple[np.ndarray, np.ndarray]],
        vocab_size: int,
    ):
        self._shard, self._number, self._name = shard, number, name
        ids, splits = parts[""]
        self.positions = np.diff(splits)
        self._require(self.positions > 0, "have ids; it has none")
        rows = np.repeat(np.arange(len(self.positions)), self.positions)
        index = np.arange(len(ids))
        self.is_packed = len(parts["_segmentation"][0]) > 0
        numbers, places = np.ones_like(ids), index - splits[rows]
        if self.is_packed:
            for ending in ("_segmentation", "_position"):
                same = np.diff(parts[ending][1]) == self.positions
                self._require(same, f"have as many values of {name}{ending}")
            numbers, places = (parts[e][0] for e in parts if e)
        kept = numbers != 0  # the rest is space between sentences
        begins = kept & (places == 0)
        begun = np.cumsum(begins)
        self.counts = np.add.reduceat(begins, splits[:-1], dtype=np.int64)
        self._require(self.counts > 0, "have a sentence")
        before = np.cumsum(self.counts) - self.counts
        starts = np.flatnonzero(begins)
        fits = numbers == begun - before[rows]
        fits &= places == index - starts[np.maximum(begun, 1) - 1]
        self._require(
            fits | ~kept,
            "have sentences numbered from 1, each in one piece",
            rows,
        )
        self._require(kept | (ids == 0), "have 0 between sentences", rows)
        known = (ids > 0) & (ids < vocab_size)
        self._require(
            known | ~kept,
            f"have ids from 1 to {vocab_size - 1}, as the vocabulary has",
            rows,
            ids,
        )
        self.lengths = np.bincount(begun[kept] - 1)
        ends = starts + self.lengths - 1
        self._require(
            ids[ends] == _EOS_ID, "end in EOS, 1", rows[ends], ids[ends]
        )

    def require_as_many_as(self, other: "RecordSide") -> None:
        """Refuses records whose sides differ in how they are packed."""
        if self.is_packed != other.is_packed:
            self._fail(0, "be packed if the other side is")
        same = self.counts == other.counts
        self._require(same, "have as many sentences as the other side")

    def _require(
        self,
        holds: np.ndarray,
        rule: str,
        rows: np.ndarray | None = None,
        values: np.ndarray | None = None,
    ) -> None:
        """Raises T2TLiteError for the first that does not hold.

        Args:
          holds: bool [N], for records or what they have.
          rule: what must hold, in words.
          rows: int [N], the records that N belong to.
          values: int [N], what to show.
        """
        if holds.all():
            return
        first = int(np.argmin(holds))
        got = "" if values is None else f"; got {values[first]}"
        self._fail(first if rows is None else int(rows[first]), rule + got)

    def _fail(self, record: int, rule: str) -> NoReturn:
        raise T2TLiteError(
            f"{self._shard}, record {self._number + record}: {self._name} must "
            f"{rule}."
        )
