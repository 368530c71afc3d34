"""A probe of the memory: the largest batch, run before training."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator

import psutil
import tensorflow as tf

from t2t_lite.data.bucketing import bucket_batch_size, length_boundaries
from t2t_lite.data.packing import feature_names, packed_shape
from t2t_lite.errors import T2TLiteError
from t2t_lite.hparam import HParams
from t2t_lite.model import flops
from t2t_lite.model.transformer import Transformer
from t2t_lite.progress import duration, gib
from t2t_lite.training import distribute
from t2t_lite.training.options import TrainingOptions
from t2t_lite.training.update import Updater


def _largest_batch(hparams: HParams) -> tuple[tuple[int, int], str]:
    passes = hparams.gradient_accumulation_steps
    positions = hparams.batch_tokens // passes
    rows, columns = packed_shape(positions, hparams.max_length)
    if not hparams.packing:
        boundaries = length_boundaries(columns).tolist()
        shapes = [(bucket_batch_size(n, positions), n) for n in boundaries]
        # In proportion to activations: attention has n columns per position.
        rows, columns = max(
            shapes, key=lambda x: x[0] * x[1] * (x[1] + hparams.hidden_size)
        )
    text = f"{passes} x {rows} sentences of {columns} tokens per side"
    return (rows, columns), text


def _full_batch(shape, packing, target=1):
    """Return features without padding; a packed row has one pair."""
    ones = tf.ones(shape, tf.int32)
    positions = tf.broadcast_to(tf.range(shape[1]), shape)
    features = {
        name: positions if name.endswith("_position") else ones
        for name in feature_names(packing)
    }
    return features | {"targets": target * ones}


def try_largest_batch(
    updater: Updater, show_status: Callable[[str], None]
) -> None:
    """Run an update of the largest micro-batches without changing weights."""
    shape, text = _largest_batch(updater.hparams)
    if not distribute.is_gpu():  # the kernel may kill the process
        text += f" ({gib(psutil.virtual_memory().available)} free)"
    show_status(f"Trying the largest batch: {text}.")
    # An update without target tokens is skipped.
    batch = _full_batch(shape, updater.hparams.packing, target=0)
    with _memory_errors(updater.hparams):
        updater.update([batch] * updater.replicas, step=1).read()


@contextlib.contextmanager
def _memory_errors(hparams: HParams) -> Iterator[None]:
    """Turn an out-of-memory error into one line with the size and a fix."""
    try:
        yield
    except (MemoryError, tf.errors.ResourceExhaustedError) as error:
        steps = 2 * hparams.gradient_accumulation_steps
        raise T2TLiteError(
            f"Out of memory: the largest batch, {_largest_batch(hparams)[1]} "
            "on each device, does not fit into the memory of "
            f"{distribute.device_name()}. "
            "Use `gradient_checkpointing`; or train a new run with "
            f"`hparams_override=gradient_accumulation_steps={steps}`, a "
            "smaller max_length or a smaller model."
        ) from error


def measure_update(
    hparams: HParams, vocab_sizes: tuple[int, int], options: TrainingOptions
) -> str:
    """Measure one micro-batch of the largest size, and report a whole update.

    All micro-batches of an update take the same time and memory.
    """
    strategy = distribute.choose_strategy(options.replicas, hparams)
    with strategy.scope():
        model = Transformer.from_hparams(hparams, *vocab_sizes).build_weights()
    model.gradient_checkpointing = options.gradient_checkpointing
    updater = Updater(model, hparams, strategy, 1, options.freeze)
    shape, description = _largest_batch(hparams)
    with _memory_errors(hparams):
        # The first update traces the graphs. The second measures the optimizer,
        # the third a full micro-batch and the optimizer.
        times = [time.monotonic()]
        for step, each in enumerate(((1, 1), (1, 1), shape), start=1):
            batch = _full_batch(each, hparams.packing)
            stats = updater.update([batch] * updater.replicas, step).read()
            times.append(time.monotonic())
    optimizer, update = times[2] - times[1], times[3] - times[2]
    rounds = math.ceil(hparams.gradient_accumulation_steps / updater.replicas)
    seconds = update + (rounds - 1) * max(update - optimizer, 0)
    steps = options.train_steps or hparams.train_steps
    step_flops = flops.count_step_flops(hparams, model.vocab_sizes[1], shape[1])
    parameters = f"{model.count_params():,}"
    if options.freeze:
        parameters += f", {updater.trained_parameters:,} of them trained"
    lines = {
        "parameters": parameters,
        "vocabulary": " and ".join(f"{v:,}" for v in model.vocab_sizes),
        "replicas": updater.replicas,
        "largest batch": description,
        "peak memory": gib(distribute.peak_bytes()),
        "seconds per update": f"{seconds:.2f}",
        f"time for {steps:,} updates": duration(seconds * steps),
        "FLOPs per update": f"{step_flops:.3g}",
        f"FLOPs of {steps:,} updates": f"{step_flops * steps:.3g}",
        "loss": f"{stats.loss_sum / stats.target_tokens:.3f}",
    }
    return "\n".join(f"{key}: {value}" for key, value in lines.items())
