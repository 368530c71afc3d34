"""What a running server says of its models."""

import json
import urllib.request

import grpc
from tensorflow_serving.apis import (
    get_model_status_pb2,
    model_service_pb2_grpc,
)

from support.served_model import save, serving


def test_why_a_version_is_broken_is_told_by_the_log_alone(tmp_path):
    save(tmp_path / "1")
    broken = tmp_path / "2" / "saved_model.pb"
    broken.parent.mkdir()
    broken.write_bytes(b"no graph")
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "m"
    with serving(tmp_path) as (server, _):
        url = f"http://127.0.0.1:{server.rest_api_port}/v1/models/m"
        by_rest = urllib.request.urlopen(url, timeout=30).read().decode()
        with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            models = model_service_pb2_grpc.ModelServiceStub(channel)
            by_grpc = models.GetModelStatus(request, timeout=30)
        logged = server.models.by_name["m"].versions[2].error
    assert str(tmp_path) in logged
    states = by_grpc.model_version_status
    assert [(one.version, one.state) for one in states] == [(2, 50), (1, 30)]
    message = "It cannot be loaded; the server's log says why."
    assert states[0].status.error_message == message
    assert json.loads(by_rest)["model_version_status"][0]["status"] == {
        "error_code": "UNAVAILABLE",
        "error_message": message,
    }
