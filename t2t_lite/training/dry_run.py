"""One pass over the largest batch: does it fit, how long does training take?"""

import dataclasses
import math
import time

from t2t_lite.hparam import HParams
from t2t_lite.model import costs
from t2t_lite.model.transformer import Transformer
from t2t_lite.progress import duration
from t2t_lite.training.devices import choose_strategy, peak_bytes
from t2t_lite.training.memory import (
    explaining_shortage,
    full_batch,
    largest_shape,
)
from t2t_lite.training.options import TrainingOptions
from t2t_lite.training.trainer import prepare
from t2t_lite.training.update import Updater


@dataclasses.dataclass(frozen=True)
class DryRun:
    """The measurements of a pass; as text, a line for each.

    Attributes:
      data: the state of the data, in lines.
      hparams: of the model and its training.
      vocab_sizes: the model's V of source and target.
      train_steps: planned updates.
      parameters: of the model.
      trained_parameters: those that are not frozen.
      replicas: devices, each of which had a micro-batch.
      passes: passes of an update.
      micro_batch: rows and columns of a pass.
      seconds_per_update: of all its passes, from the time of those made.
      peak_memory_bytes: of the first GPU, or of this process without one.
      loss: in nats a token, of an untrained model.
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
    options: TrainingOptions,
    data: str = "",
) -> DryRun:
    """Make an update of the largest possible micro-batch; save nothing.

    The micro-batches of an update are alike, so the time of one is multiplied,
    and its peak of memory is that of them all.

    Args:
      hparams: of the model and its training.
      vocab_sizes: ids of the source's vocabulary and of the target's.
      options: of training.
      data: what the report says of the data.

    Raises:
      T2TLiteError: it does not fit.
    """
    prepare(options.seed, deterministic=False)
    strategy = choose_strategy(options.replicas, hparams)
    with strategy.scope():
        model = Transformer.from_hparams(hparams, *vocab_sizes).build_weights()
    slices = options.slices(hparams.micro_batches)
    updater = Updater(
        model,
        hparams,
        strategy,
        options.seed,
        options.freeze,
        slices,
        recompute=options.recompute,
    )
    with explaining_shortage(hparams, slices):
        seconds, loss = _measure(updater, hparams)
    rows, columns = largest_shape(hparams)
    return DryRun(
        data=data,
        hparams=hparams,
        vocab_sizes=model.vocab_sizes,
        train_steps=options.train_steps or hparams.train_steps,
        parameters=model.count_params(),
        trained_parameters=updater.trained_parameters,
        replicas=updater.replicas,
        passes=slices * hparams.micro_batches,
        micro_batch=(-(-rows // slices), columns),
        seconds_per_update=seconds,
        peak_memory_bytes=peak_bytes(),
        loss=loss,
    )


def _measure(updater: Updater, hparams: HParams) -> tuple[float, float]:
    """Return the seconds of an update, and the loss of a token."""
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
