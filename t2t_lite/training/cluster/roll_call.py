"""How the workers of a cluster find each other, before TensorFlow starts."""

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

from t2t_lite.errors import Interrupted, T2TLiteError, in_words
from t2t_lite.training.cluster.early_stop import stopped_early
from t2t_lite.training.cluster.members import Members, split_address
from t2t_lite.training.cluster.peer import Peer

_RETRY_SECONDS = 0.25
_GREETING = "t2t-lite"
_LONGEST_LINE = 1 << 16


class LostWorkerError(T2TLiteError):
    """Another worker is gone, silent, or has failed; the message names it."""


def await_workers(members: Members, timeout: float) -> dict[int, Peer]:
    """The connections of all workers, by their numbers.

    Raises:
      T2TLiteError: the port is taken, or somebody is missing.
    """
    deadline = time.monotonic() + timeout
    peers: dict[int, Peer] = {}
    _, port = split_address(members.addresses[0])
    try:
        server = socket.create_server(("", port), reuse_port=False)
    except OSError as error:
        raise T2TLiteError(
            f"The chief cannot listen on port {port} "
            f"({members.addresses[0]}): {in_words(error, place=False)}."
        ) from error
    with server, _telling(peers, members):
        while len(peers) < len(members.addresses) - 1:
            server.settimeout(max(deadline - time.monotonic(), 0.01))
            try:
                connection, _ = server.accept()
            except TimeoutError:
                missing = [
                    members.name(index)
                    for index in range(1, len(members.addresses))
                    if index not in peers
                ]
                raise T2TLiteError(
                    f"Not all workers have come within {timeout:.0f} s: "
                    f"{', '.join(missing)} missing. Start the same command "
                    "there, or look at its log."
                ) from None
            greeting = _greeting(connection)
            for index in [i for i in peers if peers[i].is_gone()]:
                peers.pop(index).close()  # and may come again
            refusal = _refusal(greeting, members, peers)
            if greeting is None or refusal:
                peer = Peer(connection)
                peer.send({"refused": refusal})
                peer.close()
                continue
            peers[greeting["worker"]] = Peer(connection)
    for peer in peers.values():
        peer.send({"welcome": _GREETING})
    return peers


@contextlib.contextmanager
def _telling(peers: dict[int, Peer], members: Members) -> Iterator[None]:
    """Tells those who have come why the chief does not wait any longer."""
    message: dict[str, Any] = {}
    try:
        yield
    except T2TLiteError as error:
        message = {"lost": str(error)}
        raise
    except KeyboardInterrupt as stopped:
        text = stopped_early(members.name(0), stopped)
        message = {"lost": text, "stopped": True}
        raise
    finally:
        if message:
            for peer in peers.values():
                peer.send(message)
                peer.close()


def _greeting(connection: socket.socket) -> dict[str, Any] | None:
    """Who calls; None if it is none of us."""
    connection.settimeout(5)
    line = b""
    try:
        while not line.endswith(b"\n") and len(line) < _LONGEST_LINE:
            part = connection.recv(_LONGEST_LINE)
            if not part:
                return None
            line += part
        greeting = json.loads(line)
        known = greeting["hello"] == _GREETING
        return greeting if known and type(greeting["worker"]) is int else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _refusal(
    greeting: dict[str, Any] | None,
    members: Members,
    peers: dict[int, Peer],
) -> str | None:
    """Why one who calls does not belong here."""
    if greeting is None:
        return "not a worker"
    if greeting["addresses"] != list(members.addresses):
        return (
            "the chief's list of workers is another one: "
            f"{','.join(members.addresses)}"
        )
    if greeting["worker"] in peers:
        return f"there is a worker {greeting['worker']} already"
    return None


def reach_chief(members: Members, timeout: float) -> Peer:
    """The connection to the chief, when all have come.

    Raises:
      T2TLiteError: it cannot be reached, refuses us, or misses somebody.
      Interrupted: it was stopped.
    """
    deadline = time.monotonic() + timeout
    chief = members.name(0)
    reason = "no answer"
    while time.monotonic() < deadline:
        try:
            address = split_address(members.addresses[0])
            connection = socket.create_connection(address, timeout=5)
            # The chief, who waits as long as we do, says who is missing.
            connection.settimeout(timeout + 10)
            hello = {
                "hello": _GREETING,
                "worker": members.index,
                "addresses": members.addresses,
            }
            connection.sendall(json.dumps(hello).encode() + b"\n")
            with connection.makefile("rb", buffering=0) as stream:
                answer = json.loads(stream.readline(_LONGEST_LINE) or "{}")
        except (OSError, ValueError) as error:
            reason = in_words(error, place=False)
            time.sleep(_RETRY_SECONDS)
            continue
        if answer.get("welcome") == _GREETING:
            return Peer(connection)
        connection.close()
        if "refused" in answer:
            raise T2TLiteError(
                f"{chief}, the chief, refuses worker {members.index}: "
                f"{answer['refused']}."
            )
        if "lost" in answer:
            kind = Interrupted if answer.get("stopped") else LostWorkerError
            raise kind(answer["lost"])
        time.sleep(_RETRY_SECONDS)
    raise T2TLiteError(
        f"{chief}, the chief, cannot be reached within {timeout:.0f} s "
        f"({reason}). Start the same command there, or correct its address."
    )
