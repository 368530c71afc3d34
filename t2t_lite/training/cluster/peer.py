"""One connection between two processes, over which JSON lines go."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any


class Peer:
    """The connection to another process."""

    def __init__(self, connection: socket.socket):
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection = connection
        self.heard = time.monotonic()
        self._lock = threading.Lock()

    def send(self, message: dict[str, Any]) -> None:
        line = json.dumps(message).encode() + b"\n"
        # A peer that is gone is told of by the thread that reads from it.
        with self._lock, contextlib.suppress(OSError):
            self.connection.sendall(line)

    def messages(self) -> Iterator[dict[str, Any]]:
        """What it says, until the connection ends."""
        with contextlib.suppress(OSError, ValueError):
            for line in self.connection.makefile("rb"):
                self.heard = time.monotonic()
                yield json.loads(line)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()
