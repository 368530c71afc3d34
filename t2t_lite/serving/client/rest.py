"""TensorFlow Serving's REST API, with the standard library alone."""

import http.client
import json
import ssl
import threading
import urllib.parse
from collections.abc import Sequence

from t2t_lite.errors import in_words
from t2t_lite.serving.client.address import Address
from t2t_lite.serving.client.columns import Columns
from t2t_lite.serving.client.patience import Busy, Late, Refused

# Too many requests, a proxy without its server, a full queue.
_BUSY = (429, 502, 503)
# A text that is wrong, requests that are too large, or take too long.
_FOR_A_TEXT = (400, 413, 422, 500, 504)
_LEAST_SECONDS = 0.001


class RestModel:
    """A model behind REST.

    Each thread has a connection of its own, which stays open.

    Args:
      address: of the server.
      name: of the model.
      version: of it; None takes the newest.
    """

    def __init__(self, address: Address, name: str, version: int | None):
        self._address = address
        chosen = "" if version is None else f"/versions/{version}"
        name = urllib.parse.quote(name, safe="")
        self._path = f"{address.path}/v1/models/{name}{chosen}:predict"
        self._context = ssl.create_default_context() if address.secure else None
        self._of_thread = threading.local()

    def predict(
        self, signature: str, texts: Sequence[str], seconds: float
    ) -> Columns:
        asked = {
            "signature_name": signature,
            "inputs": {"inputs": list(texts)},
        }
        status, retry_after, content = self._post(
            json.dumps(asked).encode(), seconds
        )
        try:
            found = json.loads(content)
        except ValueError:
            found = None
        told = found if isinstance(found, dict) else {}
        error = told.get("error", f"the server answered {status}")
        error = " ".join(str(error).split())
        if status in _BUSY:
            wait = float(retry_after) if retry_after.isdecimal() else 0.0
            raise Busy(error, wait)
        if status != 200 or not isinstance(told.get("outputs"), dict):
            raise Refused(error, for_a_text=status in _FOR_A_TEXT)
        return told["outputs"]

    def _post(self, body: bytes, seconds: float) -> tuple[int, str, bytes]:
        """The status, Retry-After or "", and the content of an answer."""
        connection = self._connection()
        # A connection that was left open may have been closed by the server.
        reused = connection.sock is not None
        connection.timeout = max(seconds, _LEAST_SECONDS)
        if connection.sock is not None:
            connection.sock.settimeout(connection.timeout)
        headers = {"Content-Type": "application/json"}
        try:
            connection.request("POST", self._path, body, headers)
            response = connection.getresponse()
            content = response.read()
        except TimeoutError as error:
            connection.close()
            raise Late(f"no answer within {seconds:.0f} seconds") from error
        except ssl.SSLError as error:
            connection.close()
            raise Refused(f"{self._address.netloc}: {error}") from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            if reused:
                return self._post(body, seconds)
            where = self._address.netloc
            raise Busy(f"{where}: {in_words(error, place=False)}") from error
        return response.status, response.getheader("Retry-After", ""), content

    def _connection(self) -> http.client.HTTPConnection:
        """The one of this thread."""
        found = getattr(self._of_thread, "connection", None)
        if found is None:
            host, port = self._address.host, self._address.port
            found = (
                http.client.HTTPSConnection(host, port, context=self._context)
                if self._context
                else http.client.HTTPConnection(host, port)
            )
            self._of_thread.connection = found
        return found
