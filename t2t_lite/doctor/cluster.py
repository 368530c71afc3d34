"""Checks of what trains together: replicas, and workers on other machines."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from t2t_lite.doctor.finding import Asked, Finding
from t2t_lite.training.cluster.members import (
    Members,
    find_members,
    split_address,
)

_SELF_TEST_SECONDS = 120
_CONNECT_SECONDS = 2.0
MOST_DIFFERENCE = 1e-5  # of a weight


def check_strategy(asked: Asked) -> Iterator[Finding]:
    """Whether an update of two replicas is that of one."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "t2t_lite.doctor.self_test"],
            capture_output=True,
            text=True,
            timeout=_SELF_TEST_SECONDS,
            check=True,
        )
        told = json.loads(done.stdout.splitlines()[-1])
        difference, devices = told["difference"], told["devices"]
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip() or "no word of why").splitlines()[-1]
        yield Finding("replicas", False, _without_replicas(last))
        return
    except (subprocess.TimeoutExpired, LookupError, ValueError) as error:
        yield Finding("replicas", False, _without_replicas(str(error)))
        return
    text = f"an update of {devices} is that of one; weights differ by at most "
    text += f"{difference:g}"
    if not difference <= MOST_DIFFERENCE:
        text = _without_replicas(
            f"an update of {devices} differs from that of one by "
            f"{difference:.0e}"
        )
    yield Finding("replicas", difference <= MOST_DIFFERENCE, text)


def _without_replicas(reason: str) -> str:
    return (
        f"{reason}. Until that is mended, train on one device: set "
        "CUDA_VISIBLE_DEVICES=0, or leave --replicas out"
    )


def check_cluster(asked: Asked) -> Iterator[Finding]:
    """Whether the workers' addresses are there, and this one's is free."""
    members = find_members(asked.workers, asked.worker)
    if members is None:
        return
    numbers = range(len(members.addresses))
    with ThreadPoolExecutor(max_workers=32) as pool:  # each one may be slow
        yield from pool.map(lambda i: _check_worker(members, i), numbers)


def _check_worker(members: Members, index: int) -> Finding:
    name = members.name(index)
    host, port = split_address(members.addresses[index])
    is_this = index == members.index
    try:
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        told = f"{host} has no address ({error}): correct the name"
        return Finding(name, False, told)
    try:
        with socket.create_connection((host, port), _CONNECT_SECONDS):
            listens = True
    except ConnectionRefusedError:
        listens = False  # the machine is there, and said so
    except OSError as error:
        told = (
            f"cannot be reached ({error}): look at the network, the firewall "
            "and the address"
        )
        return Finding(name, False, told)
    if is_this and listens:
        told = f"port {port} is taken: end what listens there, or use another"
        return Finding(name, False, told)
    if is_this:
        return Finding(name, True, f"this one; port {port} is free")
    state = "it listens" if listens else "its trainer has not started"
    return Finding(name, True, f"can be reached; {state}")
