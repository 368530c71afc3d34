"""Who trains together: as `TF_CONFIG` says, or `--workers` and `--worker`."""

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from typing import Any

from t2t_lite.errors import UsageError

_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:\[\],]+):(\d{1,5})")
# Roles of TF_CONFIG that train, the chief's first.
_TRAINING_ROLES = ("chief", "master", "worker")


@dataclasses.dataclass(frozen=True)
class Members:
    """The workers of a cluster and which of them this process is."""

    addresses: tuple[str, ...]  # host:port; the first one is the chief's
    index: int

    def name(self, index: int) -> str:
        """How people know a worker: `worker 2 (node-b:2222)`."""
        return f"worker {index} ({self.addresses[index]})"


def find_members(
    workers: str | None,
    worker: int | None,
    environment: Mapping[str, str] = os.environ,
) -> Members | None:
    """The cluster that flags or the environment tell of; None for one process.

    Args:
      workers: `host:port,host:port,...`, the same on all; the first one is
        the chief.
      worker: the number of this process among them, from 0.
      environment: has `TF_CONFIG` where a scheduler set it. The flags go
        before it.

    Raises:
      UsageError: an address or a number that cannot be, or a role that does
        not exist here.
    """
    if workers is not None:
        return _from_flags(workers, worker)
    if worker is not None:
        raise UsageError(
            f"--worker={worker} says which of the workers this is: name them "
            "all with --workers=host:port,host:port."
        )
    if text := environment.get("TF_CONFIG"):
        return _from_tf_config(text)
    return None


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port`; an IPv6 host stands in brackets.

    Raises:
      UsageError: it is not of that form.
    """
    match = _ADDRESS.fullmatch(address)
    if not match or not 0 < int(match[2]) < 65536:
        raise UsageError(
            f"A worker's address is host:port, such as node-a:2222; got "
            f"{address!r}."
        )
    return match[1].strip("[]"), int(match[2])


def _from_flags(workers: str, worker: int | None) -> Members | None:
    if worker is None:
        raise UsageError(
            "--workers needs --worker=N, the number of this process among "
            "them, from 0."
        )
    addresses = tuple(part.strip() for part in workers.split(","))
    return _checked(addresses, worker, "--workers")


def _from_tf_config(text: str) -> Members | None:
    """The roles that train as one list."""
    try:
        config = json.loads(text)
        cluster = config.get("cluster", {})
        role, number = "worker", 0
        if cluster:
            role = config["task"]["type"]
            number = int(config["task"]["index"])
        counts = {name: len(cluster[name]) for name in cluster}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise UsageError(
            'TF_CONFIG is not as TensorFlow describes it (\'{"cluster": '
            '{"worker": ["host:port", ...]}, "task": {"type": "worker", '
            f'"index": 0}}}}\'): {error!r}. Correct it, or unset it.'
        ) from error
    for other in counts.keys() - set(_TRAINING_ROLES):
        if counts[other]:
            raise UsageError(
                f"TF_CONFIG has the role {other!r}, which is not used here: "
                "workers hold the weights and evaluate. Leave it out."
            )
    if role not in (cluster or {"worker": ()}):
        raise UsageError(
            f"TF_CONFIG says that this is {role} {number}, and its cluster "
            f"has {', '.join(counts) or 'nobody'}."
        )
    addresses: tuple[Any, ...] = ()
    index = 0
    for name in _TRAINING_ROLES:
        if name == role:
            index = len(addresses) + number
        addresses += tuple(cluster.get(name, ()))
    return _checked(addresses, index, "TF_CONFIG") if addresses else None


def _checked(
    addresses: tuple[str, ...], index: int, source: str
) -> Members | None:
    for address in addresses:
        split_address(str(address))
    if len(set(addresses)) < len(addresses):
        raise UsageError(
            f"{source} names an address twice: {', '.join(addresses)}."
        )
    if not 0 <= index < len(addresses):
        raise UsageError(
            f"{source} has {len(addresses)} worker(s), counted from 0; this "
            f"one is said to be {index}."
        )
    return Members(addresses, index) if len(addresses) > 1 else None
