"""Import TensorFlow with the settings that this package needs."""

import contextlib
import gc
import logging
import os
import sys
import tempfile
from collections.abc import Iterator

from t2t_lite.errors import T2TLiteError

# Tells oneDNN that weights do not change.
_FIXED_WEIGHTS = "TF_ONEDNN_ASSUME_FROZEN_WEIGHTS"


def start_tensorflow(
    verbose: bool = False, frozen_weights: bool | None = None
) -> None:
    """Import TensorFlow as the backend of Keras.

    Call it when work starts, before anything else imports TensorFlow.

    Args:
      verbose: show the messages that TensorFlow logs while it starts.
      frozen_weights: the value of `weights_are_frozen` in this process; None
        keeps the environment variable. It has no effect if TensorFlow is
        already imported.

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
    if frozen_weights is not None and "tensorflow" not in sys.modules:
        if frozen_weights:
            os.environ.setdefault(_FIXED_WEIGHTS, "1")
        else:  # a value of the user's shell may be meant for decoding
            os.environ[_FIXED_WEIGHTS] = "0"
    # TensorFlow leaves oneDNN off on processors without AVX512-VNNI, where it
    # makes training faster too; the published speeds were measured with it.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    if not verbose:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
        for name in ("tensorflow", "absl", "urllib3"):
            logging.getLogger(name).setLevel(logging.ERROR)
    if "tensorflow" not in sys.modules:
        # Modules contain no garbage: the collector takes a fifth of the time.
        gc.disable()
        with contextlib.nullcontext() if verbose else _suppress_stderr():
            import tensorflow
        gc.freeze()
        gc.enable()
        # Grappler's searches for image layouts and for constants cost more
        # time than they save in our graphs.
        tensorflow.config.optimizer.set_experimental_options(
            {"layout_optimizer": False, "constant_folding": False}
        )


def weights_are_frozen() -> bool:
    """Return whether no weight changes after a graph has read it.

    TensorFlow then packs the kernel of a product with a bias once, instead of
    in every product.
    """
    return os.environ.get(_FIXED_WEIGHTS) == "1"


def num_cpus() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def set_num_threads(count: int) -> None:
    """Give each of `count` concurrent computations its share of the cores.

    Call it before TensorFlow computes anything.
    """
    import tensorflow as tf

    threads = tf.config.threading
    threads.set_intra_op_parallelism_threads(max(1, num_cpus() // count))
    threads.set_inter_op_parallelism_threads(count)


@contextlib.contextmanager
def _suppress_stderr() -> Iterator[None]:
    """Drop what C++ code writes to stderr, unless the block fails.

    TensorFlow's libraries log before they read their own log level, and a
    command that fails writes a single line.
    """
    sys.stderr.flush()
    original = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except Exception:
            held.seek(0)
            os.write(original, held.read())
            raise
        finally:
            os.dup2(original, 2)
            os.close(original)
