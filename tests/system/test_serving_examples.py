"""The files of `examples/serving/` are what the programs read."""

import re
import shutil
import subprocess

import pytest
import yaml

from support.places import ROOT

EXAMPLES = ROOT / "examples" / "serving"
KUBERNETES = EXAMPLES / "kubernetes"
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


def documents(name):
    return list(yaml.safe_load_all((KUBERNETES / name).read_text("utf-8")))


@pytest.fixture
def pod():
    (deployment,) = documents("deployment.yaml")
    return deployment["spec"]["template"]


@pytest.fixture
def server(pod):
    (server,) = pod["spec"]["containers"]
    return server


def flags_of(server):
    return dict(arg.partition("=")[::2] for arg in server["args"])


def message(name, **fields):
    """An empty message of TensorFlow Serving that no package of ours has.

    Args:
      name: of the message.
      fields: name to kind, where "*int64" is repeated and a name with a
        capital is a message of google.protobuf.
    """
    from google.protobuf import (
        descriptor_pb2,
        descriptor_pool,
        message_factory,
        wrappers_pb2,
    )

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=f"{name}.proto")
    file.dependency.append(wrappers_pb2.DESCRIPTOR.name)
    made = file.message_type.add(name=name)
    for number, (each, kind) in enumerate(fields.items(), 1):
        added = made.field.add(name=each, number=number)
        added.label = 3 if kind.startswith("*") else 1
        kind = kind.removeprefix("*")
        if kind[0].isupper():
            added.type = field.TYPE_MESSAGE
            added.type_name = f".google.protobuf.{kind}"
        else:
            added.type = field.Type.Value(f"TYPE_{kind.upper()}")
    pool = descriptor_pool.Default()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))()


def test_the_batching_settings_are_those_of_tensorflow_serving():
    from google.protobuf import text_format

    # Of session_bundle_config.proto, in their order.
    settings = message(
        "BatchingParameters",
        max_batch_size="Int64Value",
        batch_timeout_micros="Int64Value",
        max_enqueued_batches="Int64Value",
        num_batch_threads="Int64Value",
        thread_pool_name="StringValue",
        allowed_batch_sizes="*int64",
        pad_variable_length_inputs="bool",
    )
    text_format.Parse((KUBERNETES / "batching.config").read_text(), settings)
    from t2t_lite.bin.query import make_parser

    # A request of the client is never larger than a batch may be.
    assert settings.max_batch_size.value >= make_parser().get_default(
        "batch_size"
    )
    assert settings.batch_timeout_micros.value == 5000
    assert settings.max_enqueued_batches.value > 0
    assert not settings.allowed_batch_sizes
    assert not settings.pad_variable_length_inputs


def test_the_pod_asks_for_as_many_cores_as_batches_run_at_once(server):
    config = (KUBERNETES / "batching.config").read_text()
    (threads,) = re.findall(r"^num_batch_threads \{ value: (\d+)", config, re.M)
    assert server["resources"]["requests"]["cpu"] == threads


def test_the_models_are_read_by_tensorflow_serving():
    from google.protobuf import text_format
    from tensorflow_serving.config import model_server_config_pb2

    page = (ROOT / "docs" / "serving.md").read_text("utf-8")
    (text,) = re.findall(r"```\n(model_config_list.*?)```", page, re.DOTALL)
    config = text_format.Parse(
        text, model_server_config_pb2.ModelServerConfig()
    ).model_config_list.config
    assert [model.name for model in config] == ["ende", "parser"]
    (ende, _) = config
    versions = ende.model_version_policy.specific.versions
    assert set(ende.version_labels.values()) <= set(versions)
    assert ende.version_labels == {"stable": 4, "canary": 5}


def test_probes_look_where_the_server_answers(server):
    flags = flags_of(server)
    ports = {each["name"]: each["containerPort"] for each in server["ports"]}
    assert ports == {
        "grpc": int(flags["--port"]),
        "rest": int(flags["--rest_api_port"]),
    }
    status = f"/v1/models/{flags['--model_name']}"
    startup, readiness, liveness = (server[probe] for probe in PROBES)
    for probe in (startup, readiness):
        assert probe["httpGet"] == {"path": status, "port": "rest"}
    assert liveness["tcpSocket"] == {"port": "rest"}


def test_every_file_that_the_server_reads_is_mounted(pod, server):
    mounts = {m["name"]: m["mountPath"] for m in server["volumeMounts"]}
    assert mounts.keys() == {v["name"] for v in pod["spec"]["volumes"]}
    (kustomization,) = documents("kustomization.yaml")
    (generated,) = kustomization["configMapGenerator"]
    config = pod["spec"]["volumes"][1]["configMap"]
    assert config == {"name": generated["name"]}
    flags = flags_of(server)
    read = {flags["--batching_parameters_file"]}
    read.add(flags["--monitoring_config_file"])
    files = {f"{mounts['config']}/{name}" for name in generated["files"]}
    assert read == files
    assert flags["--model_base_path"].startswith(f"{mounts['models']}/")
    for name in (*kustomization["resources"], *generated["files"]):
        assert (KUBERNETES / name).is_file()


def test_the_service_and_prometheus_find_the_pods(pod, server):
    (service,) = documents("service.yaml")
    (deployment,) = documents("deployment.yaml")
    labels = pod["metadata"]["labels"]
    assert service["spec"]["selector"] == labels
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    ports = {
        port["targetPort"]: port["port"] for port in service["spec"]["ports"]
    }
    own = {each["name"]: each["containerPort"] for each in server["ports"]}
    assert ports == own
    notes = pod["metadata"]["annotations"]
    assert int(notes["prometheus.io/port"]) == own["rest"]
    config = (KUBERNETES / "monitoring.config").read_text()
    assert f'path: "{notes["prometheus.io/path"]}"' in config


def test_kustomize_puts_them_together():
    kubectl = shutil.which("kubectl")
    if not kubectl:
        pytest.skip("kubectl is not installed")
    done = subprocess.run(
        [kubectl, "kustomize", KUBERNETES],
        capture_output=True,
        text=True,
        check=True,
    )
    kinds = [each["kind"] for each in yaml.safe_load_all(done.stdout)]
    assert sorted(kinds) == ["ConfigMap", "Deployment", "Service"]


@pytest.mark.parametrize("name", ["nginx.conf", "Caddyfile"])
def test_a_proxy_hides_the_metrics_and_asks_the_port_of_the_server(name):
    from t2t_lite.bin.server import make_parser

    text = (EXAMPLES / name).read_text()
    assert text.count("{") == text.count("}")
    usual = make_parser().parse_args([])
    assert f"127.0.0.1:{usual.rest_api_port}" in text
    assert "/monitoring/" in text
    # It waits longer than the server, whose own word then reaches the user.
    (seconds,) = re.findall(r"timeout (\d+)s", text)
    assert 1000 * int(seconds) > usual.rest_api_timeout_in_ms
