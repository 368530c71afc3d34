"""One pass over the largest batch: does it fit, how long does training take?"""

import dataclasses
import math
import time
from collections.abc import Sequence

from t2t_lite.hparam import HParams
from t2t_lite.model import costs
from t2t_lite.model.transformer import Transformer
from t2t_lite.progress import duration
from t2t_lite.training.distribute import choose_strategy
from t2t_lite.training.fit.largest import (
    Trial,
    full_batch,
    largest_shape,
)
from t2t_lite.training.optimizer.updates import Updater
from t2t_lite.training.state import prepare


@dataclasses.dataclass(frozen=True)
class DryRun:
    """What a micro-batch on each device showed; as text, a line for each part.

    Attributes:
      data: what is there of the data, or missing, in lines.
      hparams: of the training.
      vocab_sizes: the model's V of source and target.
      train_steps: updates that are planned.
      parameters: of the model.
      trained_parameters: those that are not frozen.
      replicas: devices, each of which had a micro-batch.
      passes: an update is cut into.
      micro_batch: of a pass, its rows and columns.
      seconds_per_update: of all its passes, from the time of those made.
      peak_memory_bytes: of the first GPU, or of this process without one.
      loss: in nats a token, of a model that has learned nothing.
    """

    data: str
    hparams: HParams
    vocab_sizes: tuple[int, int]
    train_steps: int
    parameters: int
    trained_parameters: int
    replicas: int
    passes: int
    micro_batch: tuple[int, int]
    seconds_per_update: float
    peak_memory_bytes: int
    loss: float

    def __str__(self) -> str:
        rows, columns = self.micro_batch
        seconds, steps = self.seconds_per_update, self.train_steps
        flops = costs.count_step_flops(
            self.hparams, self.vocab_sizes[1], columns
        )
        frozen = ""
        if self.trained_parameters < self.parameters:
            frozen = f", {self.trained_parameters:,} of them are trained"
        lines = {
            "parameters": f"{self.parameters:,}" + frozen,
            "vocabulary": " and ".join(f"{v:,}" for v in self.vocab_sizes),
            "replicas": self.replicas,
            "largest batch": f"{self.passes} x {rows} sentences "
            f"of {columns} tokens a side",
            "peak memory": f"{self.peak_memory_bytes / 2**30:.2f} GiB",
            "seconds per update": f"{seconds:.2f}",
            f"time for {steps:,} updates": duration(seconds * steps),
            "FLOPs per update": f"{flops:.3g}",
            f"FLOPs of {steps:,} updates": f"{flops * steps:.3g}",
            "loss": f"{self.loss:.3f}",
        }
        return "\n".join(
            [self.data, *(f"{key}: {value}" for key, value in lines.items())]
        )


def try_update(
    hparams: HParams,
    vocab_sizes: tuple[int, int],
    data: str = "",
    *,
    train_steps: int,
    seed: int = 1,
    freeze: Sequence[str] = (),
    replicas: int | None = None,
    slices: int | None = 1,
    recompute: bool = False,
) -> DryRun:
    """Makes an update of the largest possible micro-batch; saves nothing.

    The micro-batches of an update differ in nothing, so the time of one is
    multiplied, and its peak of memory is that of them all.

    Args:
      hparams: of the model and its training.
      vocab_sizes: ids of the source's vocabulary and of the target's.
      data: what the report says of the data.
      train_steps: updates that are planned.
      seed: of everything random.
      freeze: as in `Updater`.
      replicas: see `TrainingOptions`.
      slices: that each micro-batch is cut into; None: as few as fit.
      recompute: as in `Updater`.

    Raises:
      T2TLiteError: it does not fit.
    """
    prepare(seed, deterministic=False)
    strategy = choose_strategy(replicas, hparams)
    with strategy.scope():
        model = Transformer.from_hparams(hparams, *vocab_sizes).build_weights()
    updater = Updater(
        model, hparams, strategy, seed, freeze, recompute=recompute
    )
    trial = Trial(updater, hparams)
    slices = trial.fewest() if slices is None else trial.require(slices)
    rows, columns = largest_shape(hparams)
    rows = -(-rows // slices)
    passes = slices * hparams.micro_batches
    updater.slices = slices
    seconds, loss = _measure(updater, hparams)
    return DryRun(
        data=data,
        hparams=hparams,
        vocab_sizes=model.vocab_sizes,
        train_steps=train_steps,
        parameters=model.count_params(),
        trained_parameters=updater.trained_parameters,
        replicas=updater.replicas,
        passes=passes,
        micro_batch=(rows, columns),
        seconds_per_update=seconds,
        peak_memory_bytes=trial.peak,
        loss=loss,
    )


def _measure(updater: Updater, hparams: HParams) -> tuple[float, float]:
    """The seconds of an update, and the loss of a token."""
    tiny, full = [
        [full_batch(each, hparams.packing)] * updater.replicas
        for each in ((1, 1), largest_shape(hparams))
    ]
    seconds = []
    # The first update makes the graphs. The second is hardly more than the
    # optimizer's part, the third has a whole micro-batch before it.
    for step, batches in enumerate((tiny, tiny, full), start=1):
        start = time.monotonic()
        stats = updater.update(batches, step).read()
        seconds.append(time.monotonic() - start)
    _, optimizer, whole = seconds
    more_rounds = math.ceil(hparams.micro_batches / updater.replicas) - 1
    return (
        whole + more_rounds * max(whole - optimizer, 0),
        stats.loss_sum / stats.target_tokens,
    )
