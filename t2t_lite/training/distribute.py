"""Devices, and distributed training on several processes, the *workers*.

Worker 0 is the *chief*, which writes all files. All workers call the same
functions in the same order, and share values with `all_gather`.
"""

import atexit
import contextlib
import faulthandler
import json
import os
import platform
import re
import resource
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.hparam import HParams
from t2t_lite.progress import log
from t2t_lite.tf_setup import num_cpus, set_num_threads
from t2t_lite.training.options import TrainingOptions

cluster_resolver = tf.distribute.cluster_resolver
_ROLES = ("chief", "master", "worker")  # roles in TF_CONFIG
# Splitting the cores speeds up larger models by 3 % and takes 10 % more memory.
_MAX_SPLIT_HIDDEN_SIZE = 256


def make_strategy(
    options: TrainingOptions, hparams: HParams
) -> tf.distribute.Strategy:
    """Return the strategy of all workers, or of a single process.

    Call it once, before TensorFlow runs an operation.
    """
    addresses, index = find_workers(options.workers, options.worker)
    if not addresses:
        return choose_strategy(options.replicas, hparams)
    if options.replicas:
        raise UsageError("`replicas` conflicts with `workers`: remove it.")
    timeout = options.cluster_timeout
    try:
        _wait_for_workers(addresses, index, timeout)
        # TensorFlow holds the GIL while it connects, so only a C timer can end
        # the wait for a worker that died after it opened its port.
        faulthandler.dump_traceback_later(timeout + 5, exit=True, file=2)
        # Without the number of GPUs, the strategy would use the CPU.
        gpus = tf.config.list_physical_devices("GPU")
        resolver = cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec({"worker": addresses}),
            task_type="worker",
            task_id=index,
            num_accelerators={"GPU": len(gpus)},
        )
        strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver)
    finally:
        faulthandler.cancel_dump_traceback_later()
    with contextlib.suppress(ValueError):  # not the main thread
        # TensorFlow has installed a C handler that ignores SIGTERM.
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
    # TensorFlow's threads log the exit of other workers, and can block the exit
    # of a process that lost a worker.
    atexit.register(signal.alarm, 30)
    atexit.register(os.dup2, os.open(os.devnull, os.O_WRONLY), 2)
    return strategy


def choose_strategy(
    replicas: int | None = None, hparams: HParams | None = None
) -> tf.distribute.Strategy:
    """Return the strategy of one process: all GPUs, or one CPU.

    Call it before TensorFlow runs an operation, because it sets the threads
    that `splits_cores` requires. `replicas` counts logical CPU devices.
    """
    if hparams and splits_cores(replicas or 1, hparams):
        with contextlib.suppress(RuntimeError):  # the threads already exist
            set_num_threads(2)
    if replicas is None:
        gpus = tf.config.list_logical_devices("GPU")
        if len(gpus) > 1:
            return tf.distribute.MirroredStrategy([gpu.name for gpu in gpus])
        return tf.distribute.get_strategy()
    if replicas == 1:
        return tf.distribute.OneDeviceStrategy("/cpu:0")
    (cpu,) = tf.config.list_physical_devices("CPU")
    with contextlib.suppress(RuntimeError):  # TensorFlow is already running
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * replicas
        )
    if len(tf.config.list_logical_devices("CPU")) < replicas:
        raise T2TLiteError(
            f"`replicas={replicas}` must be set before TensorFlow starts: use "
            "a new process."
        )
    # The default, collectives, allows one group of devices per process.
    return tf.distribute.MirroredStrategy(
        [f"/cpu:{index}" for index in range(replicas)],
        cross_device_ops=tf.distribute.ReductionToOneDevice(),
    )


def splits_cores(replicas: int, hparams: HParams) -> bool:
    """Return whether an `Updater` computes two slices concurrently on a CPU.

    The operations of small models are too small to use all cores.
    """
    small = replicas == 1 and hparams.hidden_size <= _MAX_SPLIT_HIDDEN_SIZE
    return small and not is_gpu() and num_cpus() > 1


def find_workers(
    workers: str | None = None, worker: int | None = None
) -> tuple[list[str], int]:
    """Return the addresses of all workers, and the index of this worker.

    Args:
      workers: "host:port,..." with the chief first; None reads TF_CONFIG, or
        SLURM's variables. A single process has no addresses.
      worker: the index of this worker in `workers`.
    """
    text = workers or os.environ.get("TF_CONFIG") or "{}"
    cluster: dict[str, list[str]] = {"worker": text.replace(" ", "").split(",")}
    task: dict[str, Any] = {"type": "worker", "index": worker}
    try:
        if not workers:
            config = json.loads(text)
            cluster, task = config.get("cluster", {}), config.get("task", {})
            if (role := task.get("type", _ROLES[0])) not in _ROLES:
                raise UsageError(
                    f"The task type {role!r} in TF_CONFIG is not supported, "
                    "because the chief evaluates and there are no parameter "
                    "servers: do not start this process, or unset TF_CONFIG."
                )
        if text == "{}" and int(os.environ.get("SLURM_STEP_NUM_TASKS", 1)) > 1:
            # SLURM assigns the GPUs. Jobs on the same node use different ports.
            resolver = cluster_resolver.SlurmClusterResolver(
                port_base=10000 + int(os.environ["SLURM_JOB_ID"]) % 20000,
                gpus_per_node=1024,
                gpus_per_task=1,
                auto_set_gpu=False,
            )
            cluster = resolver.cluster_spec().as_dict()
            task = {"type": "worker", "index": resolver.task_id}
        if sum(map(len, cluster.values())) < 2:
            return [], 0
        addresses = [each for role in _ROLES for each in cluster.get(role, [])]
        # Not a list, where a negative index would select another worker.
        own = dict(enumerate(cluster[task["type"]]))[int(task["index"])]
        if len({_split(each) for each in addresses}) == len(addresses):
            return addresses, addresses.index(own)
    except (ValueError, LookupError, TypeError, AttributeError):
        pass  # reported below
    raise UsageError(
        "workers (or TF_CONFIG) must have distinct addresses host:port with "
        f"the roles {', '.join(_ROLES)}, and include this worker (got {text}). "
        "Correct the list, or unset TF_CONFIG to train in one process."
    )


def _split(address):
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _wait_for_workers(addresses, index, timeout):
    # TensorFlow does not report missing workers. So each worker listens at its
    # address until it has connected to all other workers.
    deadline = time.monotonic() + timeout
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    own_address = "", _split(addresses[index])[1]
    with socket.create_server(own_address, family=family, dualstack_ipv6=dual):
        for other in {*range(len(addresses))} - {index}:
            address, name = _split(addresses[other]), _name(other, addresses)
            log(f"Waiting for {name}.")
            while True:
                with contextlib.suppress(OSError):
                    socket.create_connection(address, timeout=2).close()
                    break
                if time.monotonic() > deadline:
                    raise T2TLiteError(
                        f"cluster_timeout: {name} did not respond within "
                        f"{timeout:g} seconds. Start it, or check its log."
                    )
                time.sleep(0.5)


def workers_of(strategy: tf.distribute.Strategy) -> tuple[list[str], int]:
    """Return the addresses of all workers and the index of this worker.

    A single process is worker 0 of `[""]`. Worker 0 is the chief.
    """
    if not (resolver := strategy.cluster_resolver):
        return [""], 0
    return resolver.cluster_spec().as_dict()["worker"], resolver.task_id


def all_gather(strategy: tf.distribute.Strategy, value: Any) -> list[Any]:
    """Return the JSON-serializable values of all workers, by index."""
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
    # Each replica of a worker sends the same line.
    return [json.loads(line) for line in lines[:: len(lines) // count]]


def require_equal(
    strategy: tf.distribute.Strategy, facts: Mapping[str, Any], fix: str
) -> None:
    """Raise T2TLiteError on every worker if their facts differ."""
    addresses, _ = workers_of(strategy)
    chief, *others = all_gather(strategy, dict(facts))
    for index, other in enumerate(others, 1):
        for key in chief | other:
            if chief.get(key) != other.get(key):
                raise T2TLiteError(
                    f"{_name(index, addresses)} has {key}={other.get(key)!r}; "
                    f"the chief has {key}={chief.get(key)!r}. {fix}"
                )


@contextlib.contextmanager
def worker_errors(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Turn TensorFlow's error about a lost worker into a T2TLiteError."""
    try:
        yield
    except tf.errors.OpError as error:
        addresses, index = workers_of(strategy)
        tasks = re.findall(r"/job:worker/replica:0/task:(\d+)", error.message)
        # The chief runs the coordination service.
        if "CoordinationService" in error.message:
            tasks.append("0")
        lost = [n for n in map(int, tasks) if n != index]
        if not lost:
            raise
        # An error forwarded by several workers names its cause first.
        raise T2TLiteError(
            f"{_name(lost[0], addresses)} has stopped or does not respond: "
            "check its log. Start the same command on all workers again; "
            "training resumes from the last checkpoint."
        ) from error


def _name(index, addresses):
    return f"worker {index} ({addresses[index]})"


def is_gpu() -> bool:
    """Return whether TensorFlow can use a GPU."""
    return bool(tf.config.list_physical_devices("GPU"))


def processor_name() -> str:
    """Return the name of the CPU, such as "AMD EPYC 7R13"."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def gpu_names() -> list[str]:
    """Return the name of each GPU that TensorFlow can use."""
    return [
        tf.config.experimental.get_device_details(gpu).get("device_name", "GPU")
        for gpu in tf.config.list_physical_devices("GPU")
    ]


def device_name() -> str:
    """Return the name of the first GPU, or "CPU"."""
    return next(iter(gpu_names()), "CPU")


def peak_bytes() -> int:
    """Return the peak memory of the first GPU, or of this process, in bytes."""
    if is_gpu():
        return tf.config.experimental.get_memory_info("GPU:0")["peak"]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
