"""The devices of several machines, as one strategy of TensorFlow."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import collective_all_reduce_strategy
from tensorflow.python.eager import context

from t2t_lite.training.cluster.devices import make_logical_cpus
from t2t_lite.training.cluster.members import Members

# Sums that are on their way for longer do not arrive any more. All workers
# start them together, see `Updater`, so that this is the network's time alone.
_TIMEOUT_SECONDS = 45.0
# All are here when they join; TensorFlow starts within seconds of another.
_JOIN_SECONDS = 45
# A main thread that waits for a lost worker is let go by then, or ended.
_GRACE_SECONDS = 10.0


def join_machines(
    members: Members, replicas: int | None
) -> tf.distribute.Strategy:
    """All GPUs of all workers, else one CPU or `replicas` of each.

    Call it before anything runs on TensorFlow's devices, and once.

    Args:
      members: all at hand, see `Workers`.
      replicas: logical CPU devices of each worker.
    """
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
    with _ended_if_late():
        if replicas:
            return _OnLogicalCpus(resolver, options, replicas)
        return tf.distribute.MultiWorkerMirroredStrategy(resolver, options)


@contextlib.contextmanager
def _ended_if_late() -> Iterator[None]:
    """Ends this process if what is inside takes too long.

    While workers join, TensorFlow waits for one who is lost with Python's lock
    held: no thread and no signal handler runs. So another process watches.
    """
    told = (
        f"t2t-lite-trainer: the workers have not joined within "
        f"{_JOIN_SECONDS} s: one that was here is gone. Start the same "
        "command on all of them again."
    )
    script = 'sleep "$1"; echo "$2" >&2; kill -KILL "$3"'
    words = [str(_JOIN_SECONDS), told, str(os.getpid())]
    watch = subprocess.Popen(
        ["sh", "-c", script, "watch", *words], start_new_session=True
    )
    try:
        yield
    finally:
        os.killpg(watch.pid, signal.SIGKILL)
        watch.wait()


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
