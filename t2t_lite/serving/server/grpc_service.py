"""TensorFlow Serving's gRPC API, with its public protos."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    predict_pb2,
)

from t2t_lite.errors import in_words
from t2t_lite.progress import say
from t2t_lite.serving.server import descriptions, proto_tensors
from t2t_lite.serving.server.batching import Tensors
from t2t_lite.serving.server.monitoring import Monitor, Record
from t2t_lite.serving.server.predict import ModelSpec, Predictor
from t2t_lite.serving.server.refusal import Refusal, Status, invalid
from t2t_lite.serving.server.signature import Signature

_PREDICTION = "tensorflow.serving.PredictionService"
_MODELS = "tensorflow.serving.ModelService"
_CODES = {status: grpc.StatusCode[status.name] for status in Status}
# A proto may have fewer values than elements, and means the last one again and
# again: only so often, as a request of few bytes must not cost seconds.
_MORE_ELEMENTS = 1 << 16
_Answer: TypeAlias = Callable[[Any, Any, Record], Awaitable[Any]]


class GrpcApi:
    """The calls of a server.

    Attributes:
      server: what grpc runs.

    Args:
      predictor: answers.
      monitor: counts.
    """

    def __init__(self, predictor: Predictor, monitor: Monitor):
        self._predictor = predictor
        self._monitor = monitor
        most = predictor.limits.body_bytes
        self.server: Any = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", most),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),  # a port in use is an error
                ("grpc.http2.bdp_probe", 0),  # a ping for each large request
            ]
        )
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.server)
        metadata = get_model_metadata_pb2.GetModelMetadataRequest
        self._add(
            _PREDICTION,
            ("Predict", predict_pb2.PredictRequest, self._predict),
            ("GetModelMetadata", metadata, self._metadata),
        )
        request = get_model_status_pb2.GetModelStatusRequest
        self._add(_MODELS, ("GetModelStatus", request, self._status))

    def _add(self, service: str, *calls: tuple[str, Any, _Answer]) -> None:
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                self._watched(f"{service}/{name}", request, answer)
            )
            for name, request, answer in calls
        }
        self.server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, handlers),)
        )

    async def start(self, address: str) -> None:
        """Accepts calls, and makes one, so that no first one is slow.

        Args:
          address: where the server listens.
        """
        await self.server.start()
        for service in ("", _PREDICTION, _MODELS):
            await self._health.set(
                service, health_pb2.HealthCheckResponse.SERVING
            )
        options = [("grpc.enable_http_proxy", 0)]
        async with grpc.aio.insecure_channel(address, options) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            await stub.Check(health_pb2.HealthCheckRequest(), timeout=10)

    async def stop(self, seconds: float) -> None:
        """Refuses new calls and finishes the others, for so long."""
        await self._health.enter_graceful_shutdown()
        await self.server.stop(seconds)

    def _watched(self, what: str, kind: Any, answer: _Answer) -> Callable:
        """A call that is counted, and says in a status what is wrong."""

        async def call(content: bytes, context: Any) -> bytes:
            record = Record("gRPC", context.peer(), what)
            with self._monitor.watch(record, "OK"):
                record.code = Status.INTERNAL.name
                try:
                    message = kind.FromString(content)
                    response = await answer(message, context, record)
                    written = response.SerializeToString()
                    record.code = "OK"
                    return written
                except asyncio.CancelledError:
                    record.code = Status.CANCELLED.name
                    raise
                except Refusal as refusal:
                    failed = refusal
                except DecodeError:  # gRPC's status for it
                    told = f"The request is no {kind.DESCRIPTOR.name}."
                    failed = Refusal(Status.INTERNAL, told)
                except Exception as error:  # a mistake of ours
                    say(f"{what}: {in_words(error)}")
                    failed = Refusal(Status.INTERNAL, "Internal error.")
                record.code = failed.status.name
                return await context.abort(
                    _CODES[failed.status], failed.message
                )

        return call

    async def _predict(
        self, message: Any, context: Any, record: Record
    ) -> predict_pb2.PredictResponse:
        spec = _spec(message)
        most = message.ByteSize() + _MORE_ELEMENTS

        def read(signature: Signature) -> Tensors:
            _check_filter(message.output_filter, signature)
            return proto_tensors.tensors_of(
                message.inputs, signature.inputs, most
            )

        outputs = await self._predictor.predict(
            spec,
            message.model_spec.signature_name,
            read,
            record,
            context.time_remaining(),
        )
        response = predict_pb2.PredictResponse()
        response.model_spec.name = spec.name
        response.model_spec.version.value = record.version
        response.model_spec.signature_name = record.signature
        for name in message.output_filter or outputs:
            proto_tensors.fill(response.outputs[name], outputs[name])
        return response

    async def _metadata(
        self, message: Any, context: Any, record: Record
    ) -> get_model_metadata_pb2.GetModelMetadataResponse:
        if not message.metadata_field:
            raise invalid(
                "GetModelMetadataRequest must specify at least one "
                "metadata_field"
            )
        for field in message.metadata_field:
            if field != descriptions.SIGNATURE_DEF:
                raise invalid(f"Metadata field {field} is not supported")
        spec = _spec(message)
        version = self._predictor.version(spec)
        record.model = spec.name
        return descriptions.metadata_of(version, spec)

    async def _status(
        self, message: Any, context: Any, record: Record
    ) -> get_model_status_pb2.GetModelStatusResponse:
        spec = _spec(message)
        model = self._predictor.models.by_name.get(spec.name)
        response = descriptions.status_of(model, spec)
        record.model = spec.name
        return response


def _check_filter(names: Sequence[str], signature: Signature) -> None:
    for place, name in enumerate(names):
        if name not in signature.outputs:
            raise invalid(
                f"output tensor alias not found in signature: {name} Outputs "
                f"expected to be in the set {{{','.join(signature.outputs)}}}."
            )
        if name in names[:place]:
            raise invalid(f"duplicate output tensor alias: {name}")


def _spec(message: Any) -> ModelSpec:
    if not message.HasField("model_spec"):
        raise invalid("Missing ModelSpec")
    spec = message.model_spec
    number = spec.version.value if spec.HasField("version") else None
    return ModelSpec(spec.name, number, spec.version_label)
