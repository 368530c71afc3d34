"""gRPC calls made of ready bytes, over HTTP/2 (RFC 9113)."""

import asyncio
import struct

_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _WINDOW = 0, 1, 3, 4, 6, 8
_ACK = _END_STREAM = 1
_END_HEADERS, _PADDED = 4, 8
_LARGE = 1 << 30  # bytes that the server may send before it hears from us


def _frame(kind, flags, stream, content=b""):
    head = struct.pack("!BBI", kind, flags, stream)
    return len(content).to_bytes(3, "big") + head + content


def _field(name, value):
    """A header that the other side need not remember (RFC 7541, 6.2.2)."""
    strings = (bytes([len(each)]) + each.encode() for each in (name, value))
    return b"\0" + b"".join(strings)


class Channel(asyncio.Protocol):
    """One connection for all calls, and a stream for each.

    Args:
      address: of the server.
      method: that is called, `/SERVICE/NAME`.
    """

    def __init__(self, address, method):
        self.headers = b"".join(
            _field(name, value)
            for name, value in {
                ":method": "POST",
                ":scheme": "http",
                ":path": method,
                ":authority": address,
                "te": "trailers",
                "content-type": "application/grpc",
                "grpc-timeout": "60S",
            }.items()
        )
        self.calls = {}  # stream: [message so far, future of all]
        self.stream = -1
        self.rest = b""
        self.room = 65535  # that the server has for requests
        self.taken = 0  # bytes of answers that the server was not told of

    def connection_made(self, transport):
        # No table of headers (1): so its answers have all of them as they are.
        settings = struct.pack("!HIHI", 1, 0, 4, _LARGE)
        more = struct.pack("!I", _LARGE)
        transport.write(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            + _frame(_SETTINGS, 0, 0, settings)
            + _frame(_WINDOW, 0, 0, more)
        )
        self.transport = transport

    def ask(self, content):
        """A future of the answer's bytes; it fails if the call does.

        Args:
          content: bytes of a message, with gRPC's prefix: see `prefixed`.
        """
        self.stream += 2
        self.room -= len(content)
        assert len(content) <= 16384 and self.room >= 0, "too much at once"
        self.transport.write(
            _frame(_HEADERS, _END_HEADERS, self.stream, self.headers)
            + _frame(_DATA, _END_STREAM, self.stream, content)
        )
        answer = asyncio.get_running_loop().create_future()
        self.calls[self.stream] = [b"", answer]
        return answer

    def data_received(self, data):
        data, at = self.rest + data, 0
        while len(data) >= at + 9:
            end = at + 9 + int.from_bytes(data[at : at + 3], "big")
            if len(data) < end:
                break
            head = struct.unpack_from("!BBI", data, at + 3)
            self.received(*head, data[at + 9 : end])
            at = end
        self.rest = data[at:]

    def received(self, kind, flags, stream, content):
        """Takes a frame."""
        if kind == _DATA:
            assert not flags & (_PADDED | _END_STREAM)
            self.calls[stream][0] += content
            self.taken += len(content)
            if self.taken > _LARGE // 2:
                more = struct.pack("!I", self.taken)
                self.transport.write(_frame(_WINDOW, 0, 0, more))
                self.taken = 0
        elif kind == _HEADERS and flags & _END_STREAM:
            message, answer = self.calls.pop(stream)
            # Without a table, and as these bytes cannot be in any message of
            # an error, they are there if and only if all is well.
            if (
                b"\x0bgrpc-status\x010" in content
                and prefixed(message[5:]) == message
            ):
                answer.set_result(message[5:])
            else:
                answer.set_exception(ValueError(content))
        elif kind == _RESET and stream in self.calls:
            _, answer = self.calls.pop(stream)
            answer.set_exception(ValueError(f"reset: {content.hex()}"))
        elif kind == _WINDOW and not stream:
            self.room += int.from_bytes(content, "big")
        elif kind in (_SETTINGS, _PING) and not flags & _ACK:
            reply = content if kind == _PING else b""
            self.transport.write(_frame(kind, _ACK, 0, reply))

    def connection_lost(self, error):
        for _, answer in self.calls.values():
            answer.set_exception(error or EOFError())


def prefixed(message):
    """A message as gRPC sends it: not compressed, its length before it."""
    return struct.pack("!BI", 0, len(message)) + message
