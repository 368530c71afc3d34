"""The largest batch first: it fits, or it is cut finer, or nothing begins."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from t2t_lite.data.packing import feature_names, packed_shape
from t2t_lite.errors import T2TLiteError
from t2t_lite.hparam import HParams
from t2t_lite.training.distribute import device_name, exchange, worker_index
from t2t_lite.training.fit import memory
from t2t_lite.training.optimizer.updates import Updater

FACT = "largest_batch"  # in the run's config
# What a kernel or a driver raises when memory is short.
_SHORT = (MemoryError, tf.errors.ResourceExhaustedError)


def largest_shape(hparams: HParams) -> tuple[int, int]:
    """Rows and columns of the micro-batch that takes the most memory."""
    positions = hparams.batch_tokens // hparams.micro_batches
    return packed_shape(positions, hparams.max_length)


def full_batch(shape: tuple[int, int], packing: bool) -> dict[str, tf.Tensor]:
    """Rows without padding; packed: of one pair each."""
    places = tf.broadcast_to(tf.range(shape[1]), shape)
    return {
        name: places if name.endswith("_position") else tf.ones_like(places)
        for name in feature_names(packing)
    }


def fitting_slices(
    updater: Updater,
    hparams: HParams,
    asked: int | None,
    config: Mapping[str, Any],
    record: Callable[..., None],
) -> int:
    """Into how many slices a micro-batch is cut so that training fits.

    The largest one is tried before the first update, and its gradients are
    thrown away: weights, dropout and the place in the data stay. A run
    remembers for each kind of device what was tried.

    Args:
      updater: of the model that is trained.
      hparams: of the run.
      asked: slices; None finds the fewest.
      config: of the run; may know the answer.
      record: adds facts to it.

    Raises:
      T2TLiteError: it does not fit; says what was tried and what to do.
    """
    rows, columns = largest_shape(hparams)
    key = (
        f"{device_name()} x {updater.replicas}, {hparams.precision}, "
        f"{rows} x {columns}" + ", recomputed" * updater.recompute
    )
    tried: dict[str, Any] = config.get(FACT, {})
    known = _known(tried.get(key), asked)
    if all(exchange(updater.strategy, known is not None)):
        return known or 1
    trial = Trial(updater, hparams)
    slices = trial.fewest() if asked is None else trial.require(asked)
    if worker_index(updater.strategy) == 0:
        found = {
            "slices": slices,
            "fewest": asked is None or slices == 1,
            "peak_memory_bytes": trial.peak,
        }
        record(**{FACT: {**tried, key: found}})
    return slices


def _known(found: Mapping[str, Any] | None, asked: int | None) -> int | None:
    """What was found before, if it holds for this machine, too."""
    limit = memory.limit_bytes()
    if not found or (limit and found["peak_memory_bytes"] > limit):
        return None
    if asked is None:
        return found["slices"] if found["fewest"] else None
    return asked if asked >= found["slices"] else None


class Trial:
    """Passes over ever more rows, until it is known what fits.

    A GPU raises when its memory is short. A process on a CPU is ended by the
    kernel; so smaller passes come first there, and one that by them would take
    more than there is is not made.

    Args:
      updater: makes them, and takes nothing from them.
      hparams: of the training.

    Attributes:
      peak: the memory of the largest pass that fitted, in bytes.
      needed: of the last one that did not, as far as it is known.
    """

    def __init__(self, updater: Updater, hparams: HParams):
        self._updater = updater
        self._hparams = hparams
        self._rows, self._columns = largest_shape(hparams)
        self._limit = memory.limit_bytes()
        self._peaks: dict[int, int] = {}  # by the rows that fitted
        self.peak = self.needed = 0

    def require(self, slices: int) -> int:
        """The same number, if it fits.

        Raises:
          T2TLiteError: it does not.
        """
        if not self._fits(slices):
            raise self._does_not_fit(slices)
        return slices

    def fewest(self) -> int:
        """The smallest number of slices that fits.

        Raises:
          T2TLiteError: not even single rows do.
        """
        too_few, enough = 0, 1
        while not self._fits(enough):
            if enough >= self._rows:
                raise self._does_not_fit(enough)
            too_few, enough = enough, min(2 * enough, self._rows)
        while enough - too_few > 1:
            middle = (too_few + enough) // 2
            if self._fits(middle):
                enough = middle
            else:
                too_few = middle
        return enough

    def _rows_of(self, slices: int) -> int:
        return -(-self._rows // slices)

    def _fits(self, slices: int) -> bool:
        added_up = self._updater.adds_up
        self._updater.slices = slices
        if self._updater.adds_up != added_up:
            self._peaks.clear()  # the sums take memory, too
        rows = self._rows_of(slices)
        smaller = [1, rows // 8, rows // 4, rows // 2]
        steps = [] if memory.is_on_gpu() else sorted({*smaller} - {0, rows})
        for count in steps:
            if self._surely_fits(rows):
                break
            if not self._pass_fits(count):
                return False
        return self._pass_fits(rows)

    def _pass_fits(self, rows: int) -> bool:
        """Makes a pass over so many rows, unless it is known how it ends."""
        if rows <= max(self._peaks, default=0):
            return True
        fits = self._would_fit(rows)
        if self._all_workers(fits):
            memory.restart_peak()
            batch = full_batch((rows, self._columns), self._hparams.packing)
            fits = True
            try:
                self._updater.try_pass(batch)
            except _SHORT:
                fits = False
            self.needed = memory.peak_bytes()
            if self._all_workers(fits):
                self._updater.try_update()
                self.peak = self._peaks[rows] = memory.peak_bytes()
                return True
        self._updater.forget()
        return False

    def _all_workers(self, fits: bool) -> bool:
        return all(exchange(self._updater.strategy, fits))

    def _surely_fits(self, rows: int) -> bool:
        """By a smaller pass, as memory grows by no more than the rows do."""
        most = max(self._peaks, default=0)
        peak = self._peaks.get(most, 0)
        fits = bool(self._limit and most and peak * rows <= self._limit * most)
        return self._all_workers(fits)

    def _would_fit(self, rows: int) -> bool:
        """By the memory that the last two passes differed in."""
        if memory.is_on_gpu() or self._limit is None or len(self._peaks) < 2:
            return True
        (few, before), (more, after) = sorted(self._peaks.items())[-2:]
        slope = max(0.0, (after - before) / (more - few))
        self.needed = round(after + slope * (rows - more))
        return self.needed <= self._limit

    def _does_not_fit(self, slices: int) -> T2TLiteError:
        rows, planned = self._rows_of(slices), self._hparams.micro_batches
        limit = f"has {_in_gib(self._limit)}" if self._limit else "has less"
        advice = (
            "Give --micro_batches=auto, or --micro_batches="
            f"{2 * slices * planned}: more passes, the same update."
        )
        if rows == 1:
            advice = "Lower max_length or the sizes of the model in a new run."
        return T2TLiteError(
            f"The largest batch, {rows} x {self._columns} tokens a side on "
            f"each of {self._updater.replicas} device(s), does not fit: it "
            f"takes {_in_gib(self.needed)} or more, and {device_name()} "
            f"{limit}. {advice}"
        )


def _in_gib(count: int) -> str:
    return f"{count / 2**30:.2f} GiB of memory"
