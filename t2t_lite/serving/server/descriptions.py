"""What the server says of its models: status, metadata, and for the page."""

import functools
from typing import Any

from google.protobuf import json_format
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_pb2,
)

from t2t_lite.serving.server.models import Model, Models, Version
from t2t_lite.serving.server.predict import ModelSpec
from t2t_lite.serving.server.refusal import Refusal, Status

SIGNATURE_DEF = "signature_def"
_BROKEN = "It cannot be loaded; the server's log says why."
# A message as the stock server writes it in JSON.
_as_json = functools.partial(
    json_format.MessageToDict,
    preserving_proto_field_name=True,
    always_print_fields_with_no_presence=True,
)


def status_of(
    model: Model | None, spec: ModelSpec
) -> get_model_status_pb2.GetModelStatusResponse:
    """The state of each version that is asked for.

    Raises:
      Refusal: there is none.
    """
    if model is None:
        raise _no_versions(f"any versions of model {spec.name}")
    number = spec.version
    if spec.label:
        number = model.find(label=spec.label).number
    versions = [
        version
        for version in model.newest_first()
        if number in (None, version.number)
    ]
    if not versions:
        raise _no_versions(f"version {number} of model {spec.name}")
    response = get_model_status_pb2.GetModelStatusResponse()
    for version in versions:
        added = response.model_version_status.add(
            version=version.number, state=int(version.state)
        )
        if version.error:
            added.status.error_code = Status.UNAVAILABLE.number
            added.status.error_message = _BROKEN
        else:
            added.status.error_code = 0
    return response


def _no_versions(what: str) -> Refusal:
    return Refusal(Status.NOT_FOUND, f"Could not find {what}")


def status_json(model: Model | None, spec: ModelSpec) -> dict[str, Any]:
    """The same for REST."""
    return _as_json(status_of(model, spec))


def _model_spec(name: str, version: Version) -> model_pb2.ModelSpec:
    """Who answers."""
    spec = model_pb2.ModelSpec(name=name)
    spec.version.value = version.number
    return spec


def _signature_map(version: Version) -> Any:
    signatures = get_model_metadata_pb2.SignatureDefMap()
    with version.in_use() as model:
        for name, signature in model.signature_defs.items():
            signatures.signature_def[name].CopyFrom(signature)
    return signatures


def metadata_of(
    version: Version, spec: ModelSpec
) -> get_model_metadata_pb2.GetModelMetadataResponse:
    """The signatures of a version."""
    response = get_model_metadata_pb2.GetModelMetadataResponse(
        model_spec=_model_spec(spec.name, version)
    )
    response.metadata[SIGNATURE_DEF].Pack(_signature_map(version))
    return response


def metadata_json(version: Version, spec: ModelSpec) -> dict[str, Any]:
    """The same for REST."""
    return {
        "model_spec": _as_json(_model_spec(spec.name, version)),
        "metadata": {SIGNATURE_DEF: _as_json(_signature_map(version))},
    }


def models_json(models: Models) -> dict[str, Any]:
    """What the page shows of all models."""
    told = []
    for name, model in models.by_name.items():
        newest = model.newest
        told.append(
            {
                "name": name,
                "versions": [
                    {
                        "version": str(v.number),
                        "state": v.state.name,
                        "about": v.model.about if v.model else None,
                    }
                    for v in model.newest_first()
                ],
                "about": newest.model.about if newest else None,
            }
        )
    return {"models": told}
