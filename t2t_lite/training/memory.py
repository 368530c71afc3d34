"""The largest batch, run once: before training, or alone by a dry run."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator

import psutil
import tensorflow as tf

from t2t_lite.data.packing import feature_names, packed_shape
from t2t_lite.errors import T2TLiteError
from t2t_lite.hparam import HParams
from t2t_lite.model import flops
from t2t_lite.model.transformer import Transformer
from t2t_lite.progress import duration, gib
from t2t_lite.training import devices
from t2t_lite.training.options import TrainingOptions
from t2t_lite.training.update import Updater


def _largest_shape(hparams: HParams) -> tuple[int, int]:
    """Return rows and columns of the micro-batch that needs most memory."""
    positions = hparams.batch_tokens // hparams.gradient_accumulation_steps
    return packed_shape(positions, hparams.max_length)


def _full_batch(
    shape: tuple[int, int], packing: bool, target: int = 1
) -> dict[str, tf.Tensor]:
    """Return features without padding; packed: of one pair each row."""
    ones = tf.ones(shape, tf.int32)
    positions = tf.broadcast_to(tf.range(shape[1]), shape)
    features = {
        name: positions if name.endswith("_position") else ones
        for name in feature_names(packing)
    }
    return features | {"targets": target * ones}


def _describe(updater: Updater) -> str:
    """Return the size of the largest pass in words."""
    rows, columns = _largest_shape(updater.hparams)
    passes = updater.hparams.gradient_accumulation_steps
    return f"{passes} x {rows} sentences of {columns} tokens a side"


def try_largest_batch(updater: Updater, phase: Callable[[str], None]) -> None:
    """Make an update of the largest micro-batches, which changes nothing.

    Raises:
      T2TLiteError: it does not fit.
    """
    hparams = updater.hparams
    free = f" ({gib(psutil.virtual_memory().available)} free)" * (
        not devices.is_gpu()
    )
    # The kernel may end a process on a CPU: this is its last line then.
    phase(f"Trying the largest batch: {_describe(updater)}{free}.")
    # Without a target token, an update is skipped.
    batch = _full_batch(_largest_shape(hparams), hparams.packing, target=0)
    with _explaining_shortage(updater):
        updater.update([batch] * updater.replicas, step=1).read()


@contextlib.contextmanager
def _explaining_shortage(updater: Updater) -> Iterator[None]:
    """Turn an out-of-memory error into one line with the size and a fix."""
    try:
        yield
    except (MemoryError, tf.errors.ResourceExhaustedError) as error:
        more = 2 * updater.hparams.gradient_accumulation_steps
        raise T2TLiteError(
            f"The largest batch, {_describe(updater)} on each device, does not "
            f"fit into the memory of {devices.device_name()}. Give "
            "`gradient_checkpointing`; or, in a new run, "
            f"`hparams_override=gradient_accumulation_steps={more}`, or "
            "smaller values of max_length or the model."
        ) from error


def dry_run(
    hparams: HParams, vocab_sizes: tuple[int, int], options: TrainingOptions
) -> str:
    """Measure an update of the largest batch; return a report in lines.

    The micro-batches of an update are alike, so the time of one is multiplied,
    and its peak of memory is that of them all. Raises a `T2TLiteError` if it
    does not fit.
    """
    strategy = devices.choose_strategy(options.replicas, hparams)
    with strategy.scope():
        model = Transformer.from_hparams(hparams, *vocab_sizes).build_weights()
    model.gradient_checkpointing = options.gradient_checkpointing
    updater = Updater(model, hparams, strategy, options.seed, options.freeze)
    shape = _largest_shape(hparams)
    tiny, full = (
        [_full_batch(each, hparams.packing)] * updater.replicas
        for each in ((1, 1), shape)
    )
    times = [time.monotonic()]
    with _explaining_shortage(updater):
        # The first update makes the graphs. The second is hardly more than
        # the optimizer's part, the third has a whole micro-batch before it.
        for step, batches in enumerate((tiny, tiny, full), start=1):
            stats = updater.update(batches, step).read()
            times.append(time.monotonic())
    optimizer, whole = times[2] - times[1], times[3] - times[2]
    more_rounds = (
        math.ceil(hparams.gradient_accumulation_steps / updater.replicas) - 1
    )
    seconds = whole + more_rounds * max(whole - optimizer, 0)
    steps = options.train_steps or hparams.train_steps
    step_flops = flops.count_step_flops(hparams, model.vocab_sizes[1], shape[1])
    parameters = f"{model.count_params():,}"
    if options.freeze:
        trained = updater.trained_parameters
        parameters += f", {trained:,} of them are trained"
    lines = {
        "parameters": parameters,
        "vocabulary": " and ".join(f"{v:,}" for v in model.vocab_sizes),
        "replicas": updater.replicas,
        "largest batch": _describe(updater),
        "peak memory": gib(devices.peak_bytes()),
        "seconds per update": f"{seconds:.2f}",
        f"time for {steps:,} updates": duration(seconds * steps),
        "FLOPs per update": f"{step_flops:.3g}",
        f"FLOPs of {steps:,} updates": f"{step_flops * steps:.3g}",
        "loss": f"{stats.loss_sum / stats.target_tokens:.3f}",
    }
    return "\n".join(f"{key}: {value}" for key, value in lines.items())
