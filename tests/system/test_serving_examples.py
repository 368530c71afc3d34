"""The configuration files of `examples/serving/`."""

import re

import pytest
import yaml

from support.places import ROOT
from t2t_lite.serving.options import ServerOptions

EXAMPLES = ROOT / "examples" / "serving"
KUBERNETES = EXAMPLES / "kubernetes"


def document(name):
    return yaml.safe_load((KUBERNETES / name).read_text("utf-8"))


@pytest.fixture
def pod():
    return document("deployment.yaml")["spec"]["template"]


@pytest.fixture
def server(pod):
    (server,) = pod["spec"]["containers"]
    return server


def test_pod_is_valid_and_requests_a_core_per_batch_thread(pod, server):
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    kubernetes_validate.validate(document("deployment.yaml"), "1.31")
    kubernetes_validate.validate(document("service.yaml"), "1.31")
    config = (KUBERNETES / "batching.config").read_text()
    (threads,) = re.findall(r"^num_batch_threads \{ value: (\d+)", config, re.M)
    assert server["resources"]["requests"]["cpu"] == threads


def test_probes_service_and_prometheus_use_the_ports_of_the_server(pod, server):
    flags = dict(arg.partition("=")[::2] for arg in server["args"])
    ports = {each["name"]: each["containerPort"] for each in server["ports"]}
    assert ports == {
        "grpc": int(flags["--port"]),
        "rest": int(flags["--rest_api_port"]),
    }
    status = f"/v1/models/{flags['--model_name']}"
    for probe in ("startupProbe", "readinessProbe"):
        assert server[probe]["httpGet"] == {"path": status, "port": "rest"}
    service = document("service.yaml")["spec"]
    assert service["selector"] == pod["metadata"]["labels"]
    assert {p["targetPort"]: p["port"] for p in service["ports"]} == ports
    notes = pod["metadata"]["annotations"]
    assert int(notes["prometheus.io/port"]) == ports["rest"]
    config = (KUBERNETES / "monitoring.config").read_text()
    assert f'path: "{notes["prometheus.io/path"]}"' in config


def test_every_file_that_the_server_reads_is_mounted(server):
    flags = dict(arg.partition("=")[::2] for arg in server["args"])
    mounts = {m["name"]: m["mountPath"] for m in server["volumeMounts"]}
    (generated,) = document("kustomization.yaml")["configMapGenerator"]
    assert {
        flags["--batching_parameters_file"],
        flags["--monitoring_config_file"],
    } == {f"{mounts['config']}/{name}" for name in generated["files"]}
    assert flags["--model_base_path"].startswith(f"{mounts['models']}/")


@pytest.mark.parametrize("name", ["nginx.conf", "Caddyfile"])
def test_a_proxy_hides_the_metrics_and_waits_longer_than_the_server(name):
    text = (EXAMPLES / name).read_text()
    assert f"127.0.0.1:{ServerOptions.rest_api_port}" in text
    assert "/monitoring/" in text
    (seconds,) = re.findall(r"timeout (\d+)s", text)
    assert 1000 * int(seconds) > ServerOptions.rest_api_timeout_in_ms
