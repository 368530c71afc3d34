"""The devices of several machines, as one strategy of TensorFlow."""

import atexit
import contextlib
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python import _pywrap_tensorflow_internal
from tensorflow.python.distribute import collective_all_reduce_strategy
from tensorflow.python.eager import context

from t2t_lite.errors import T2TLiteError
from t2t_lite.training.cluster.cluster import Workers
from t2t_lite.training.cluster.devices import make_logical_cpus
from t2t_lite.training.cluster.early_stop import keep_sigterm

# Sums that are on their way for longer do not arrive any more. All workers
# start them together, see `Updater`, so that this is the network's time alone.
_TIMEOUT_SECONDS = 45.0
# All are here when they join; TensorFlow starts within seconds of another.
_JOIN_SECONDS = 50.0
# Who looks for its GPUs keeps Python's lock for a while, and is silent.
_JOIN_SILENCE_SECONDS = 40.0
_LOOK_SECONDS = 0.2
# A main thread that waits for a lost worker is let go by then, or ended.
_GRACE_SECONDS = 10.0


def join_machines(
    cluster: Workers, replicas: int | None
) -> tf.distribute.Strategy:
    """All GPUs of all workers, else one CPU or `replicas` of each.

    Call it before anything runs on TensorFlow's devices, and once. From then
    on a worker that is lost ends the wait for its sums.

    Args:
      cluster: of this process, entered.
      replicas: logical CPU devices of each worker.

    Raises:
      T2TLiteError: a worker is lost meanwhile, or it takes too long.
    """
    members = cluster.members
    spec = tf.train.ClusterSpec({"worker": list(members.addresses)})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        spec,
        task_type="worker",
        task_id=members.index,
        rpc_layer="grpc",
        num_accelerators={"GPU": len(tf.config.list_physical_devices("GPU"))},
    )
    options = tf.distribute.experimental.CommunicationOptions(
        timeout_seconds=_TIMEOUT_SECONDS
    )
    if replicas:
        make_logical_cpus(replicas)
    atexit.register(_silence_stderr)
    with cluster.patient(_JOIN_SILENCE_SECONDS), _joined_beside(cluster):
        strategy = (
            _OnLogicalCpus(resolver, options, replicas)
            if replicas
            else tf.distribute.MultiWorkerMirroredStrategy(resolver, options)
        )
    cluster.when_lost = let_go
    cluster.require_all()
    return strategy


def _silence_stderr() -> None:
    """Keeps a command's last line the last.

    While Python ends, TensorFlow's threads log that the others leave.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


@contextlib.contextmanager
def _joined_beside(cluster: Workers) -> Iterator[None]:
    """Lets this thread hear of losses and signals while TensorFlow joins.

    Its own binding keeps Python's lock as long as it waits for the workers,
    so that no thread could tell who is lost. What ctypes calls does not.
    """

    def enable(handle: Any, server: bytes) -> None:
        _wait_beside(cluster, lambda: _enable_collectives(handle, server))

    binding = context.pywrap_tfe.TFE_EnableCollectiveOps
    context.pywrap_tfe.TFE_EnableCollectiveOps = enable
    try:
        yield
    finally:
        context.pywrap_tfe.TFE_EnableCollectiveOps = binding


def _wait_beside(cluster: Workers, work: Callable[[], None]) -> None:
    """Waits for work that another thread does, unless a worker is lost.

    Nothing ends that thread then but the end of the process.

    Raises:
      T2TLiteError: what went wrong, there or in the cluster.
    """
    failed: list[Exception] = []
    ended = threading.Event()

    def do() -> None:
        try:
            work()
        except Exception as error:
            failed.append(error)
        ended.set()

    threading.Thread(target=do, name="joining", daemon=True).start()
    deadline = time.monotonic() + _JOIN_SECONDS
    while not ended.wait(_LOOK_SECONDS):
        keep_sigterm()
        cluster.require_all()
        if time.monotonic() > deadline:
            raise T2TLiteError(
                "All workers answer, but TensorFlow has not joined them within "
                f"{_JOIN_SECONDS:.0f} s: look at the ports between them."
            )
    keep_sigterm()
    if failed:
        raise failed[0]


def _enable_collectives(handle: Any, server: bytes) -> None:
    """`TFE_EnableCollectiveOps` of TensorFlow's C API.

    Args:
      handle: a capsule around the eager context.
      server: a serialized `ServerDef`.

    Raises:
      T2TLiteError: what TensorFlow says.
    """
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype = ctypes.c_void_p
    pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    library = ctypes.CDLL(_pywrap_tensorflow_internal.__file__)
    library.TF_NewStatus.restype = ctypes.c_void_p
    library.TF_Message.restype = ctypes.c_char_p
    status = ctypes.c_void_p(library.TF_NewStatus())
    try:
        library.TFE_EnableCollectiveOps(
            ctypes.c_void_p(pointer(handle, None)),
            server,
            ctypes.c_size_t(len(server)),
            status,
        )
        if library.TF_GetCode(status):
            told = library.TF_Message(status).decode(errors="replace")
            raise T2TLiteError(f"TensorFlow cannot join the workers: {told}")
    finally:
        library.TF_DeleteStatus(status)


class _OnLogicalCpus(tf.distribute.MultiWorkerMirroredStrategy):
    """Several CPU devices of each worker, to try distribution without GPUs.

    TensorFlow's own takes one CPU of each.
    """

    def __init__(self, resolver: Any, options: Any, replicas: int):
        class OnLogicalCpus(
            collective_all_reduce_strategy.CollectiveAllReduceExtended
        ):
            def _initialize_local_devices(
                self, cluster_resolver: Any, worker_device: str
            ) -> tuple[tuple[str, ...], str]:
                del cluster_resolver
                cpus = (f"/device:CPU:{i}" for i in range(replicas))
                return tuple(worker_device + cpu for cpu in cpus), "CPU"

        tf.distribute.Strategy.__init__(
            self, OnLogicalCpus(self, resolver, options)
        )


def let_go(text: str) -> None:
    """Ends the wait for a lost worker's sums, and this process if that fails.

    Args:
      text: what is told if the main thread cannot be let go.
    """
    context.context().abort_collective_ops(tf.errors.UNAVAILABLE, text)
    timer = threading.Timer(_GRACE_SECONDS, _end_process, [text])
    timer.daemon = True
    timer.start()


def _end_process(text: str) -> None:
    sys.stderr.write(f"\n{text}\n")
    sys.stderr.flush()
    os._exit(1)
