"""Import and configuration of TensorFlow."""

import contextlib
import gc
import logging
import os
import sys
import tempfile
from collections.abc import Iterator

from t2t_lite.errors import T2TLiteError

# The environment variable that lets oneDNN cache packed weights.
_FROZEN_WEIGHTS = "TF_ONEDNN_ASSUME_FROZEN_WEIGHTS"
_users: set[int] = set()  # ids of the processes that use TensorFlow


def start_tensorflow(
    verbose: bool = False, frozen_weights: bool | None = None
) -> None:
    """Import TensorFlow as the backend of Keras.

    Call it when work starts, before other code imports TensorFlow.

    Args:
      verbose: show TensorFlow's log messages.
      frozen_weights: see `weights_are_frozen`; no effect after TensorFlow is
        imported. None keeps the environment variable; True keeps a "0" in it.

    Raises:
      T2TLiteError: Keras has another backend, or the process is a fork.
    """
    require_not_forked()
    _users.add(os.getpid())
    keras = sys.modules.get("keras")
    if keras is not None and keras.backend.backend() != "tensorflow":
        raise T2TLiteError(
            "Training and decoding require the Keras backend tensorflow (got "
            f"{keras.backend.backend()}). Restart Python with "
            "KERAS_BACKEND=tensorflow."
        )
    os.environ["KERAS_BACKEND"] = "tensorflow"
    if frozen_weights is not None and "tensorflow" not in sys.modules:
        if frozen_weights:
            os.environ.setdefault(_FROZEN_WEIGHTS, "1")
        else:  # the user may have set the variable for decoding
            os.environ[_FROZEN_WEIGHTS] = "0"
    # TensorFlow disables oneDNN on CPUs without AVX512-VNNI, where oneDNN also
    # speeds up training; all published speeds were measured with it.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    if not verbose:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
        for name in ("tensorflow", "absl", "urllib3"):
            logging.getLogger(name).setLevel(logging.ERROR)
    if "tensorflow" not in sys.modules:
        # Imports create no garbage, and the garbage collector would take a
        # fifth of the import time.
        gc.disable()
        with contextlib.nullcontext() if verbose else _suppress_stderr():
            import tensorflow
        gc.freeze()
        gc.enable()
        # These Grappler passes take more time than they save in our graphs.
        tensorflow.config.optimizer.set_experimental_options(
            {"layout_optimizer": False, "constant_folding": False}
        )


def require_not_forked() -> None:
    """Raise T2TLiteError in a fork, where TensorFlow would wait forever."""
    if _users - {os.getpid()}:
        raise T2TLiteError(
            "TensorFlow does not work in a process that was forked from one "
            "that uses it. Call t2t_lite.load in the new process only, or "
            "start it with multiprocessing.get_context('spawn')."
        )


def weights_are_frozen() -> bool:
    """Return whether weights are constant after a graph has read them.

    TensorFlow then packs the kernel of a matmul with bias once, and not in
    every call.
    """
    return os.environ.get(_FROZEN_WEIGHTS) == "1"


def num_cpus() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def set_num_threads(count: int) -> None:
    """Divide the cores between `count` concurrent operations.

    Call it before TensorFlow runs an operation.
    """
    import tensorflow as tf

    threads = tf.config.threading
    threads.set_intra_op_parallelism_threads(max(1, num_cpus() // count))
    # XLA may compile in the background and block one of them for seconds.
    threads.set_inter_op_parallelism_threads(max(2, count))


@contextlib.contextmanager
def _suppress_stderr() -> Iterator[None]:
    """Discard stderr of C++ code, unless the block fails.

    TensorFlow's libraries log messages before they read their log level.
    """
    sys.stderr.flush()
    original = os.dup(2)
    with tempfile.TemporaryFile() as captured:
        os.dup2(captured.fileno(), 2)
        try:
            yield
        except Exception:
            captured.seek(0)
            os.write(original, captured.read())
            raise
        finally:
            os.dup2(original, 2)
            os.close(original)
