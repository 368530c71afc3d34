"""The options of exports and of the server, with their validators and help."""

import dataclasses
import functools
from pathlib import Path
from typing import Annotated, Literal

from t2t_lite import validators
from t2t_lite.validators import folder, integer, real, setting

_Count = Annotated[int, integer(1)]
_Port = Annotated[int, integer(0, 65535)]
_address = functools.partial(setting, group="Address")
_limit = functools.partial(setting, group="Batching and limits")


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """The options of a SavedModel."""

    attention: bool = setting(
        False,
        "add the signature 'attention' with the weights of all heads, for the "
        "web page",
    )
    precision: Literal["float32", "bfloat16"] = setting(
        "float32", "type of the stored weights; bfloat16 takes half the space"
    )
    max_length: _Count | None = setting(
        None,
        "number of tokens to which texts are truncated, EOS included (default "
        "and maximum: the run's max_length)",
    )
    # TensorFlow Serving accepts 1000 requests, for up to 4 signatures.
    warmup: Annotated[int, integer(0, 250)] = setting(
        0,
        "number of text lengths in the warm-up requests for each signature; 0: "
        "no warm-up (default: 4)",
    )


@dataclasses.dataclass(frozen=True)
class ServerOptions:
    """The options of the server."""

    model_base_path: Annotated[Path, folder] = setting(
        None, "folder of the versions of an export"
    )
    model_name: str = setting("default", "model name in requests", "NAME")
    host: str = _address(
        "127.0.0.1",
        "address to listen on; use a reverse proxy for other machines",
        "ADDRESS",
    )
    port: _Port = _address(8500, "port of gRPC; 0: any free port")
    rest_api_port: _Port = _address(
        8501, "port of REST and the web page; 0: any free port"
    )
    max_batch_size: _Count = _limit(
        32, "maximum texts per batch; 1: no batching"
    )
    max_queue: _Count = _limit(1024, "maximum queued texts, then error 503")
    workers: _Count = _limit(1, "concurrent batches (default: one per core)")
    max_body_bytes: _Count = _limit(16 << 20, "maximum bytes of a request")
    max_texts: _Count = _limit(1024, "maximum texts of a request")
    max_characters: _Count = _limit(10_000, "maximum characters of a text")
    rest_api_timeout_in_ms: _Count = _limit(30_000, "time until error 504, ms")
    file_system_poll_wait_seconds: Annotated[float, real(at_least=0.01)] = (
        _limit(1.0, "seconds between checks for new versions")
    )
    drain_seconds: Annotated[float, real(at_least=0)] = _limit(
        30.0, "seconds for running requests to finish after SIGTERM"
    )

    def __post_init__(self) -> None:
        validators.validate(self)
