"""One connection between two processes, over which JSON lines go."""

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

# A peer that takes nothing for so long hangs.
SEND_SECONDS = 20


class Peer:
    """The connection to another process."""

    def __init__(self, connection: socket.socket):
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        limit = struct.pack("ll", SEND_SECONDS, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self.connection = connection
        self.heard = time.monotonic()
        self._lock = threading.Lock()

    def send(self, message: dict[str, Any]) -> None:
        line = json.dumps(message).encode() + b"\n"
        try:
            with self._lock:
                self.connection.sendall(line)
        except OSError:
            # The thread that reads from it tells that it is gone.
            self.close()

    def messages(self) -> Iterator[dict[str, Any]]:
        """What it says, until the connection ends."""
        with contextlib.suppress(OSError, ValueError):
            for line in self.connection.makefile("rb"):
                self.heard = time.monotonic()
                yield json.loads(line)

    def is_gone(self) -> bool:
        """Whether its end is closed; only before `messages` reads from it."""
        flags = socket.MSG_PEEK | socket.MSG_DONTWAIT
        try:
            return not self.connection.recv(1, flags)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()
