"""Training by several processes, the *workers*, as one TensorFlow strategy.

Worker 0 is the *chief*: it writes all files. All workers call the same
functions in the same order; `exchange` is how they compare values and agree.
"""

import atexit
import contextlib
import faulthandler
import json
import os
import re
import signal
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.hparam import HParams
from t2t_lite.progress import say
from t2t_lite.training.devices import choose_strategy
from t2t_lite.training.options import TrainingOptions

T = TypeVar("T")
cluster_resolver = tf.distribute.cluster_resolver
_ROLES = ("chief", "master", "worker")  # of TF_CONFIG


def make_strategy(
    options: TrainingOptions, hparams: HParams
) -> tf.distribute.Strategy:
    """Return the strategy of all workers, or that of a single process.

    Call it before TensorFlow computes anything.
    """
    addresses, index = find_workers(options.workers, options.worker)
    if not addresses:
        return choose_strategy(options.replicas, hparams)
    if options.replicas:
        raise UsageError(
            "replicas conflicts with workers: each worker trains on its GPUs "
            "or one CPU."
        )
    return join_workers(addresses, index, options.cluster_timeout)


def find_workers(
    workers: str | None = None, worker: int | None = None
) -> tuple[list[str], int]:
    """Return the addresses of all workers, and the index of this one.

    Without `workers`, `host:port,...` with the chief's first, they come from
    `TF_CONFIG` or else from SLURM's variables. A process that trains alone has
    no addresses.

    Raises:
      UsageError: an address, a role or an index is not valid.
    """
    config = workers or os.environ.get("TF_CONFIG")
    try:
        if workers is not None:
            resolver = _resolver(workers.replace(" ", "").split(","), worker)
        elif config:
            resolver = cluster_resolver.TFConfigClusterResolver()
        elif int(os.environ.get("SLURM_STEP_NUM_TASKS", 1)) > 1:
            # SLURM itself gives GPUs to tasks. Jobs that share a node get
            # different ports.
            resolver = cluster_resolver.SlurmClusterResolver(
                port_base=10000 + int(os.environ["SLURM_JOB_ID"]) % 20000,
                gpus_per_node=1024,
                gpus_per_task=1,
                auto_set_gpu=False,
            )
        else:
            return [], 0
        roles = resolver.cluster_spec().as_dict()
        if sum(map(len, roles.values())) < 2:
            return [], 0
        addresses = [each for name in _ROLES for each in roles.get(name, [])]
        index = addresses.index(roles[resolver.task_type][resolver.task_id])
        if len({_split(each) for each in addresses}) == len(addresses):
            return addresses, index
    except (ValueError, LookupError, TypeError, AttributeError):
        pass  # of parsing, reported below
    raise UsageError(
        "workers (or TF_CONFIG) must be different addresses host:port with "
        f"the roles {', '.join(_ROLES)}, and this worker one of them (got "
        f"{config})."
    )


def _resolver(addresses, index):
    # Without the number of GPUs, the strategy would use the CPU.
    gpus = tf.config.list_physical_devices("GPU")
    return cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": addresses}),
        task_type="worker",
        task_id=index,
        num_accelerators={"GPU": len(gpus)},
    )


def _split(address):
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def join_workers(
    addresses: Sequence[str], index: int, timeout: float
) -> tf.distribute.Strategy:
    """Return the strategy of all devices of all workers.

    Call it once, before any TensorFlow operation, after `find_workers`.

    Raises:
      T2TLiteError: a worker did not start within `timeout` seconds; the message
        names it.
    """
    # TensorFlow holds the GIL while it joins, so only a C timer can end the
    # wait for a worker that dies after it opened its port.
    faulthandler.dump_traceback_later(timeout + 5, exit=True, file=2)
    try:
        _wait_for_workers(addresses, index, timeout)
        resolver = _resolver(addresses, index)
        strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver)
    finally:
        faulthandler.cancel_dump_traceback_later()
    with contextlib.suppress(ValueError):  # not in the main thread
        # TensorFlow has installed its own handler, which ignores SIGTERM.
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
    atexit.register(_prepare_exit)
    return strategy


def _prepare_exit():
    # TensorFlow's threads log that the other workers leave, and have kept a
    # process that lost a worker from its exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    signal.alarm(30)


def _wait_for_workers(addresses, index, timeout):
    # TensorFlow waits for missing workers without a word, so each worker
    # listens at its address until it has reached all others.
    deadline = time.monotonic() + timeout
    logged = ""
    dual = socket.has_dualstack_ipv6()
    try:
        server = socket.create_server(
            ("", _split(addresses[index])[1]),
            family=socket.AF_INET6 if dual else socket.AF_INET,
            dualstack_ipv6=dual,
        )
    except OSError as error:
        raise T2TLiteError(
            f"{_name(index, addresses)} cannot listen: {error.strerror}. Use "
            "another port, or stop the process there."
        ) from error
    missing = [n for n in range(len(addresses)) if n != index]
    with server:
        while missing := [n for n in missing if not _is_open(addresses[n])]:
            names = ", ".join(_name(n, addresses) for n in missing)
            if time.monotonic() > deadline:
                raise T2TLiteError(
                    f"cluster_timeout: no answer from {names} in {timeout:g} "
                    "seconds. Start it, or look at its log."
                )
            if names != logged:
                say(f"Waiting for {names}.")
                logged = names
            time.sleep(0.5)
    say(f"All {len(addresses)} workers are running.")


def _is_open(address):
    with contextlib.suppress(OSError):
        socket.create_connection(_split(address), 2).close()
        return True
    return False


def workers_of(strategy: tf.distribute.Strategy) -> tuple[list[str], int]:
    """Return the addresses of all workers and the index of this one.

    A process that trains alone is worker 0 of `[""]`. Worker 0 is the chief.
    """
    if not (resolver := strategy.cluster_resolver):
        return [""], 0
    return resolver.cluster_spec().as_dict()["worker"], resolver.task_id


def exchange(strategy: tf.distribute.Strategy, value: T) -> list[T]:
    """Return the values of all workers, in their order; they fit JSON."""
    count = len(workers_of(strategy)[0])
    if count == 1:
        return [value]
    line = np.frombuffer(json.dumps(value).encode() + b"\n", np.uint8)
    # NCCL gathers floats, but not bytes.
    own = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(line, tf.float32)
    )
    gathered = strategy.gather(own, axis=0).numpy().astype(np.uint8)
    lines = bytes(gathered).splitlines()
    # Each replica of a worker gives the same line.
    return [json.loads(line) for line in lines[:: len(lines) // count]]


def require_equal(
    strategy: tf.distribute.Strategy, facts: Mapping[str, Any], fix: str
) -> None:
    """Require that every worker has the facts of the chief, which fit JSON.

    Raises:
      T2TLiteError: on every worker, for the first difference, with the `fix`.
    """
    addresses, _ = workers_of(strategy)
    chief, *others = exchange(strategy, dict(facts))
    for number, other in enumerate(others, 1):
        for key in chief | other:
            if chief.get(key) != other.get(key):
                raise T2TLiteError(
                    f"{_name(number, addresses)} has {key}={other.get(key)!r}; "
                    f"the chief has {key}={chief.get(key)!r}. {fix}"
                )


@contextlib.contextmanager
def naming_lost_workers(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Turn TensorFlow's page about a lost worker into a line with its address.

    Raises:
      T2TLiteError: instead of TensorFlow's error.
    """
    try:
        yield
    except tf.errors.OpError as error:
        addresses, index = workers_of(strategy)
        tasks = re.findall(r"/job:worker/replica:0/task:(\d+)", error.message)
        lost = [n for n in map(int, tasks) if n != index]
        if not lost and "CoordinationService" in error.message:
            lost = [0]  # which runs that service
        if not lost:
            raise
        # An error that came through several workers begins with its cause.
        raise T2TLiteError(
            f"{_name(lost[0], addresses)} has stopped or does not answer: look "
            "at its log. Start the same command on all workers again; training "
            "resumes from the last checkpoint."
        ) from error


def _name(index, addresses):
    return f"worker {index} ({addresses[index]})"
