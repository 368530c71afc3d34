"""Where a server is: `http://127.0.0.1:8501`, `grpc://127.0.0.1:8500`."""

import dataclasses
import re
import urllib.parse

from t2t_lite.errors import UsageError

# The usual ports of TensorFlow Serving, and whether the way is encrypted.
_PORTS = {
    "http": (8501, False),
    "https": (443, True),
    "grpc": (8500, False),
    "grpcs": (443, True),
}

_PATH = re.compile("[!-~]*")  # what may be sent as it is


@dataclasses.dataclass(frozen=True)
class Address:
    """Where to ask, and how.

    Attributes:
      rest: whether over REST; else gRPC.
      host: a name or an address, without brackets.
      port: of it.
      secure: whether over TLS.
      path: before that of the API, where a proxy has the server: "" or "/x".
    """

    rest: bool
    host: str
    port: int
    secure: bool
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> "Address":
        """The address that a URL stands for.

        Raises:
          UsageError: it stands for none.
        """
        usage = UsageError(
            "--server must be http://HOST:PORT for REST or grpc://HOST:PORT, "
            f"or https:// or grpcs:// with TLS; got {text!r}."
        )
        try:
            parts = urllib.parse.urlsplit(text)
            port = parts.port
            (parts.hostname or "").encode("idna")
        except ValueError as error:  # UnicodeError is one
            raise usage from error
        if (
            parts.scheme not in _PORTS
            or not parts.hostname
            or port == 0
            or not _PATH.fullmatch(parts.path)
            or parts.username
            or parts.query
            or parts.fragment
            or (parts.scheme.startswith("grpc") and parts.path.strip("/"))
        ):
            raise usage
        usual, secure = _PORTS[parts.scheme]
        return cls(
            rest=parts.scheme.startswith("http"),
            host=parts.hostname,
            port=port or usual,
            secure=secure,
            path=parts.path.rstrip("/"),
        )

    @property
    def netloc(self) -> str:
        """Host and port as one word."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"
