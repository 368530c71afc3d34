"""TensorFlow, started as this package needs it and without its chatter."""

import contextlib
import gc
import importlib
import logging
import os
import sys
import tempfile
from collections.abc import Iterator

from t2t_lite.errors import T2TLiteError

# Tells oneDNN that weights stay as they are.
_FIXED_WEIGHTS = "TF_ONEDNN_ASSUME_FROZEN_WEIGHTS"


def start_tensorflow(
    verbose: bool = False, fixed_weights: bool | None = None
) -> None:
    """Imports TensorFlow, for Keras to run on.

    Call it before anything that imports TensorFlow, when work starts.

    Args:
      verbose: show TensorFlow's messages while it starts.
      fixed_weights: whether `weights_are_fixed`. None leaves that to the
        environment. A process that has TensorFlow already may have other
        plans, and stays as it is.

    Raises:
      T2TLiteError: Keras already runs on another backend in this process.
    """
    keras = sys.modules.get("keras")
    if keras is not None and keras.backend.backend() != "tensorflow":
        raise T2TLiteError(
            "Training and decoding need Keras on TensorFlow; here it runs on "
            f"{keras.backend.backend()}. Start Python again with "
            "KERAS_BACKEND=tensorflow."
        )
    os.environ["KERAS_BACKEND"] = "tensorflow"
    if fixed_weights is not None and "tensorflow" not in sys.modules:
        if fixed_weights:
            os.environ.setdefault(_FIXED_WEIGHTS, "1")
        else:  # whoever set it may not have thought of training
            os.environ[_FIXED_WEIGHTS] = "0"
    # TensorFlow leaves oneDNN off on processors without AVX512-VNNI, where it
    # makes training faster too; the published speeds were measured with it.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    if not verbose:
        _keep_quiet()
    if "tensorflow" not in sys.modules:
        silence = contextlib.nullcontext() if verbose else _stderr_held_back()
        with silence, _nothing_is_garbage():
            tensorflow = importlib.import_module("tensorflow")
        # It looks in every graph for images to lay out otherwise, and for
        # what it can compute before: of ours, which read their weights, less
        # than that takes.
        tensorflow.config.optimizer.set_experimental_options(
            {"layout_optimizer": False, "constant_folding": False}
        )


def _keep_quiet() -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    # What these warn of is for developers: graphs made of code that AutoGraph
    # cannot read, each new try of a download.
    for name in ("tensorflow", "absl", "urllib3"):
        logging.getLogger(name).setLevel(logging.ERROR)


def weights_are_fixed() -> bool:
    """Whether no weight changes in this process once a graph has read it.

    TensorFlow then lays out those of a product with a bias for the processor
    once; otherwise it does so in every product.
    """
    return os.environ.get(_FIXED_WEIGHTS) == "1"


def usable_cores() -> int:
    """How many cores this process may use, where the system tells."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def share_cores(count: int) -> None:
    """Leaves to each of so many computations at once its share of the cores.

    Call it before TensorFlow computes anything.
    """
    import tensorflow as tf

    threads = tf.config.threading
    threads.set_intra_op_parallelism_threads(max(1, usable_cores() // count))
    threads.set_inter_op_parallelism_threads(count)


@contextlib.contextmanager
def _stderr_held_back() -> Iterator[None]:
    """Drops what C++ code writes to stderr, unless the block fails.

    TensorFlow's libraries log before they read their own log level.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except Exception:
            os.dup2(kept, 2)
            held.seek(0)
            os.write(2, held.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)


@contextlib.contextmanager
def _nothing_is_garbage() -> Iterator[None]:
    """Keeps Python from looking through what the block makes, now and later.

    It would look through all the modules again and again.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()
