"""What to serve and how: flags, and the config file of TensorFlow Serving."""

import dataclasses
import pathlib
from typing import Any

from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from t2t_lite.errors import UsageError
from t2t_lite.serving.server.batching import Batching
from t2t_lite.serving.server.models import ModelConfig, Policy
from t2t_lite.serving.server.predict import Limits


@dataclasses.dataclass(frozen=True)
class ServerConfig:
    """A server.

    Attributes:
      models: what it serves.
      host: the address that it listens at.
      port: for gRPC; 0 takes a free one.
      rest_api_port: for REST; 0 takes a free one.
      batching: see there.
      limits: of requests.
      poll_seconds: between looks for new versions.
      drain_seconds: for requests to finish in when it is told to stop.
      access_log: None for none.
      log_texts: write texts into it.
    """

    models: tuple[ModelConfig, ...]
    host: str = "127.0.0.1"
    port: int = 8500
    rest_api_port: int = 8501
    batching: Batching = Batching()
    limits: Limits = Limits()
    poll_seconds: float = 1.0
    drain_seconds: float = 30.0
    access_log: pathlib.Path | None = None
    log_texts: bool = False


def read_config_file(path: pathlib.Path) -> tuple[ModelConfig, ...]:
    """The models of a ModelServerConfig in protobuf's text format.

    Raises:
      UsageError: it is none, or asks for what this server does not have.
      OSError: it cannot be read.
    """
    config = model_server_config_pb2.ModelServerConfig()
    try:
        text_format.Parse(path.read_text("utf-8"), config)
    except text_format.ParseError as error:
        raise UsageError(f"{path}: {error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} must be UTF-8 text; it is not at byte {error.start}."
        ) from error
    if config.WhichOneof("config") != "model_config_list":
        raise UsageError(f"{path} must have a model_config_list.")
    models = tuple(
        _model(path, model) for model in config.model_config_list.config
    )
    names = [model.name for model in models]
    if not names or len(set(names)) < len(names):
        raise UsageError(
            f"{path} must name at least one model, and each once; got {names}."
        )
    return models


def _model(path: pathlib.Path, model: Any) -> ModelConfig:
    if not (model.name and model.base_path):
        raise UsageError(f"{path}: a model needs a name and a base_path.")
    if model.model_platform not in ("", "tensorflow"):
        raise UsageError(
            f"{path}: {model.name}: model_platform must be 'tensorflow'; got "
            f"{model.model_platform!r}."
        )
    set_fields = {field.name for field, _ in model.ListFields()}
    for field in ("model_type", "logging_config"):
        if field in set_fields:
            raise UsageError(f"{path}: {model.name}: {field} is not served.")
    return ModelConfig(
        model.name,
        pathlib.Path(model.base_path).expanduser().absolute(),
        _policy(path, model),
        dict(model.version_labels),
    )


def _policy(path: pathlib.Path, model: Any) -> Policy:
    policy = model.model_version_policy
    match policy.WhichOneof("policy_choice"):
        case "all":
            return Policy(newest=None)
        case "specific":
            if not policy.specific.versions:
                raise UsageError(f"{path}: {model.name}: specific is empty.")
            return Policy(only=frozenset(policy.specific.versions))
        case _:
            return Policy(newest=policy.latest.num_versions or 1)
