"""The devices that share an update, as one TensorFlow strategy.

One process trains on its GPUs or one CPU. Several processes, the *workers*,
train together with `tf.distribute.MultiWorkerMirroredStrategy`. Worker 0 is the
*chief*: it writes all files. Every worker calls the same functions in the same
order; `exchange` is how workers compare values and agree.
"""

import atexit
import contextlib
import faulthandler
import functools
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.hparam import HParams
from t2t_lite.progress import say
from t2t_lite.runtime import share_cores, usable_cores

T = TypeVar("T")

# A model with larger layers gains 3 % from halves, and needs 10 % more memory.
_LARGEST_HALVED = 256
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:\[\],]+):\d{1,5}")
_ROLES = ("chief", "master", "worker")  # of TF_CONFIG
_SECONDS_BETWEEN_LINES = 30.0
_SECONDS_TO_EXIT = 30


def choose_strategy(
    replicas: int | None = None, hparams: HParams | None = None
) -> tf.distribute.Strategy:
    """Return the strategy of one process: all GPUs, else one CPU.

    Call it before TensorFlow computes anything. Afterwards TensorFlow keeps
    its threads, and halves are not faster; see `computes_halves`.

    Args:
      replicas: number of logical CPU devices, to try distribution without
        GPUs; None uses the GPUs, or one CPU.
      hparams: of the model to train; None computes no halves.

    Raises:
      T2TLiteError: TensorFlow already runs with fewer logical devices.
    """
    if (replicas or 1) == 1 and hparams and _has_halves(hparams):
        with contextlib.suppress(RuntimeError):  # the threads exist already
            share_cores(2)
    if replicas is None:
        gpus = tf.config.list_logical_devices("GPU")
        if len(gpus) > 1:
            return tf.distribute.MirroredStrategy([gpu.name for gpu in gpus])
        return tf.distribute.get_strategy()
    if replicas == 1:
        return tf.distribute.OneDeviceStrategy("/cpu:0")
    devices = [tf.config.LogicalDeviceConfiguration()] * replicas
    (cpu,) = tf.config.list_physical_devices("CPU")
    with contextlib.suppress(RuntimeError):  # TensorFlow runs already
        tf.config.set_logical_device_configuration(cpu, devices)
    if len(tf.config.list_logical_devices("CPU")) < replicas:
        raise T2TLiteError(
            f"replicas={replicas} must be set before TensorFlow starts: use a "
            "fresh process."
        )
    cpus = [f"/cpu:{number}" for number in range(replicas)]
    # The default, collectives, allows one group of devices in a process.
    return tf.distribute.MirroredStrategy(
        cpus, cross_device_ops=tf.distribute.ReductionToOneDevice()
    )


def computes_halves(strategy: tf.distribute.Strategy, hparams: HParams) -> bool:
    """Return whether the halves of a pass share a processor (`in_halves`).

    The operations of small models are too small for two cores.
    """
    return strategy.num_replicas_in_sync == 1 and _has_halves(hparams)


def _has_halves(hparams):
    gpus = tf.config.list_physical_devices("GPU")
    small = hparams.hidden_size <= _LARGEST_HALVED
    return not gpus and usable_cores() > 1 and small


def device_name() -> str:
    """Return the name of the first GPU, or `CPU` without one."""
    for gpu in tf.config.list_physical_devices("GPU"):
        details = tf.config.experimental.get_device_details(gpu)
        return details.get("device_name", "GPU")
    return "CPU"


def find_workers(
    workers: str | None = None, worker: int | None = None
) -> tuple[list[str], int]:
    """Return the addresses of all workers, and the index of this one.

    They are also written to `TF_CONFIG`, for `join_workers`.

    Args:
      workers: `host:port,host:port,...`, the chief's first; None reads
        `TF_CONFIG` or, where that is not set, SLURM's variables.
      worker: index of this process in `workers`, from 0.

    Returns:
      `([], 0)` for a process that trains alone.

    Raises:
      UsageError: an address, a role or an index is not valid.
    """
    if workers is not None:
        _set_tf_config(workers.replace(" ", "").split(","), worker)
    cluster_resolver = tf.distribute.cluster_resolver
    try:
        if config := os.environ.get("TF_CONFIG"):
            resolver = cluster_resolver.TFConfigClusterResolver()
        elif int(os.environ.get("SLURM_STEP_NUM_TASKS", 1)) > 1:
            # The resolver only finds addresses here: SLURM itself gives GPUs to
            # tasks. Jobs that share a node get different ports.
            resolver = cluster_resolver.SlurmClusterResolver(
                port_base=10000 + int(os.environ["SLURM_JOB_ID"]) % 20000,
                gpus_per_node=1024,
                gpus_per_task=1,
                auto_set_gpu=False,
            )
        else:
            return [], 0
        roles = resolver.cluster_spec().as_dict()
        addresses = [each for name in _ROLES for each in roles.get(name, [])]
        if sum(map(len, roles.values())) < 2:
            return [], 0
        own = roles[resolver.task_type][resolver.task_id]
        index = addresses.index(own)
        valid = all(map(_ADDRESS.fullmatch, addresses))
        valid &= len(set(addresses)) == len(addresses)
    except (ValueError, LookupError, TypeError, AttributeError):
        valid = False
    if not valid:
        raise UsageError(
            "workers (or TF_CONFIG) must be different addresses host:port with "
            f"the roles {', '.join(_ROLES)}, and this worker one of them (got "
            f"{config})."
        )
    _set_tf_config(addresses, index)
    return addresses, index


def _set_tf_config(addresses, index):
    task = {"type": "worker", "index": index}
    config = {"cluster": {"worker": addresses}, "task": task}
    os.environ["TF_CONFIG"] = json.dumps(config)


def join_workers(
    addresses: Sequence[str], index: int, timeout: float
) -> tf.distribute.Strategy:
    """Return the strategy of all devices of all workers.

    Call it once, before any TensorFlow operation, after `find_workers`.

    Args:
      addresses: of all workers, the same list on each.
      index: of this process in it.
      timeout: seconds to wait for the other workers.

    Raises:
      T2TLiteError: a worker did not start in time; the message names it.
    """
    deadline = time.monotonic() + timeout
    _wait_for_workers(addresses, index, timeout)
    say(f"All {len(addresses)} workers are running.")
    # TensorFlow keeps Python's lock while it joins, so that no Python code can
    # end the wait for a worker that dies now.
    left = max(deadline - time.monotonic(), 1.0)
    faulthandler.dump_traceback_later(left, exit=True, file=2)
    try:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    finally:
        faulthandler.cancel_dump_traceback_later()
    if threading.current_thread() is threading.main_thread():
        # TensorFlow has installed its own handler, which ignores SIGTERM.
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
    atexit.register(_prepare_exit)
    return strategy


def _prepare_exit():
    # TensorFlow's threads log that the other workers leave. The last line on
    # stderr is to be ours.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    # They have kept a process that lost a worker from its exit.
    signal.alarm(_SECONDS_TO_EXIT)


def _wait_for_workers(addresses, index, timeout):
    """Wait until every worker has opened its port.

    TensorFlow waits for missing workers without a word, so each worker listens
    at its address until it has reached all others.
    """
    deadline = time.monotonic() + timeout
    said_at = -_SECONDS_BETWEEN_LINES
    missing = [n for n in range(len(addresses)) if n != index]
    port = int(addresses[index].rpartition(":")[2])
    dual = socket.has_dualstack_ipv6()
    try:
        server = socket.create_server(
            ("", port),
            family=socket.AF_INET6 if dual else socket.AF_INET,
            backlog=len(addresses),
            dualstack_ipv6=dual,
        )
    except OSError as error:
        raise T2TLiteError(
            f"Worker {index} cannot listen at {addresses[index]}: "
            f"{error.strerror}. Use another port, or stop the process there."
        ) from error
    with server:
        while missing := [n for n in missing if not _is_open(addresses[n])]:
            names = ", ".join(f"worker {n} ({addresses[n]})" for n in missing)
            now = time.monotonic()
            if now > deadline:
                raise T2TLiteError(
                    f"Gave up after cluster_timeout={timeout:g} seconds: no "
                    f"answer from {names}. Start the same command there, or "
                    "look at its log."
                )
            if now - said_at >= _SECONDS_BETWEEN_LINES:
                say(f"Waiting for {names}.")
                said_at = now
            time.sleep(0.5)


def _is_open(address):
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError):
        socket.create_connection((host.strip("[]"), int(port)), 2).close()
        return True
    return False


def worker_count(strategy: tf.distribute.Strategy) -> int:
    """Return how many processes share the strategy."""
    return len(_addresses(strategy)) or 1


def worker_index(strategy: tf.distribute.Strategy) -> int:
    """Return the index of this process; 0 is the chief, or the only one."""
    resolver = strategy.cluster_resolver
    return resolver.task_id if resolver else 0


def exchange(strategy: tf.distribute.Strategy, value: T) -> list[T]:
    """Return the values that all workers give, in the order of the workers.

    It waits for all of them.

    Args:
      strategy: from `choose_strategy` or `join_workers`.
      value: fit for JSON.
    """
    count = worker_count(strategy)
    if count == 1:
        return [value]
    line = np.frombuffer(json.dumps(value).encode() + b"\n", np.uint8)
    gathered = _gather(strategy)(line.astype(np.float32)).numpy()
    lines = bytes(gathered.astype(np.uint8)).splitlines()
    # Each replica of a worker gives the same line.
    return [json.loads(line) for line in lines[:: len(lines) // count]]


@functools.cache
def _gather(strategy) -> Callable[[np.ndarray], tf.Tensor]:
    """Return a function that joins the float32 vectors of all replicas."""

    # NCCL gathers floats, but no bytes.
    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.float32)], autograph=False
    )
    def gather(values):
        def on_replica():
            context = tf.distribute.get_replica_context()
            return context.all_gather(tf.identity(values), axis=0)

        return strategy.experimental_local_results(strategy.run(on_replica))[0]

    return gather


def require_equal(
    strategy: tf.distribute.Strategy, facts: Mapping[str, Any], fix: str
) -> None:
    """Require that every worker has the facts of the chief.

    Args:
      strategy: of all workers.
      facts: of this worker; flat and fit for JSON.
      fix: sentence for users about a difference.

    Raises:
      T2TLiteError: on every worker, for the first difference.
    """
    chief, *others = exchange(strategy, dict(facts))
    for number, other in enumerate(others, 1):
        for key in chief | other:
            if chief.get(key) != other.get(key):
                raise T2TLiteError(
                    f"{_name(strategy, number)} has {key}={other.get(key)!r}; "
                    f"the chief has {key}={chief.get(key)!r}. {fix}"
                )


@contextlib.contextmanager
def naming_lost_workers(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Turn TensorFlow's error about a lost worker into one with its address.

    Raises:
      T2TLiteError: instead of TensorFlow's error, which fills a page.
    """
    try:
        yield
    except tf.errors.OpError as error:
        tasks = re.findall(r"/job:worker/replica:0/task:(\d+)", error.message)
        lost = [n for n in map(int, tasks) if n != worker_index(strategy)]
        if not lost and "CoordinationService" in error.message:
            lost = [0]  # which runs that service
        if not lost or worker_count(strategy) == 1:
            raise
        # An error that came through several workers begins with its cause.
        raise T2TLiteError(
            f"{_name(strategy, lost[0])} has stopped or does not answer: look "
            "at its log. Start the same command on all workers again; training "
            "resumes from the last checkpoint."
        ) from error


def _name(strategy, index):
    return f"worker {index} ({_addresses(strategy)[index]})"


def _addresses(strategy):
    resolver = strategy.cluster_resolver
    return resolver.cluster_spec().as_dict()["worker"] if resolver else []
