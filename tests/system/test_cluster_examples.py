"""The files of `examples/clusters/` are what schedulers read."""

import os
import shlex
import subprocess

import pytest
import yaml

from support.places import ROOT
from t2t_lite.bin import trainer
from t2t_lite.training.cluster.members import find_members

EXAMPLES = ROOT / "examples" / "clusters"

# What the training operator's own definition of a TFJob demands, beside the
# pods, which are those of Kubernetes.
TFJOB = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "additionalProperties": False,
    "properties": {
        "apiVersion": {"const": "kubeflow.org/v1"},
        "kind": {"const": "TFJob"},
        "metadata": {"type": "object", "required": ["name"]},
        "spec": {
            "type": "object",
            "required": ["tfReplicaSpecs"],
            "additionalProperties": False,
            "properties": {
                "runPolicy": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "backoffLimit": {"type": "integer"},
                        "cleanPodPolicy": {"enum": ["All", "Running", "None"]},
                    },
                },
                "tfReplicaSpecs": {
                    "type": "object",
                    "additionalProperties": {
                        "type": "object",
                        "required": ["template"],
                        "additionalProperties": False,
                        "properties": {
                            "replicas": {"type": "integer"},
                            "restartPolicy": {
                                "enum": [
                                    "Always",
                                    "OnFailure",
                                    "Never",
                                    "ExitCode",
                                ]
                            },
                            "template": {"type": "object"},
                        },
                    },
                },
            },
        },
    },
}


def documents(name):
    return list(yaml.safe_load_all((EXAMPLES / name).read_text("utf-8")))


def validate(document):
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    kubernetes_validate.validate(document, "1.31", strict=True)


def assert_is_a_command(words):
    """The trainer takes these flags."""
    name, *flags = words
    assert name == "t2t-lite-trainer"
    return trainer.make_parser().parse_args(flags)


def test_the_indexed_job_is_kubernetes_own_and_its_workers_find_each_other():
    service, job = documents("indexed_job.yaml")
    for document in (service, job):
        validate(document)
    spec = job["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    _, *words = shlex.split(container["args"][0])
    number = spec["completions"] - 1
    line = [
        word.replace("$JOB_COMPLETION_INDEX", str(number)) for word in words
    ]
    args = assert_is_a_command(line)
    members = find_members(args.workers, args.worker)
    assert spec["parallelism"] == len(members.addresses)
    names = [
        f"{job['metadata']['name']}-{n}.{pod['subdomain']}:2222"
        for n in range(number + 1)
    ]
    assert list(members.addresses) == names
    assert service["metadata"]["name"] == pod["subdomain"]
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    codes = {
        rule["action"]: rule["onExitCodes"]["values"]
        for rule in spec["podFailurePolicy"]["rules"]
        if "onExitCodes" in rule
    }
    assert codes == {"FailJob": [2], "Ignore": [75]}


def test_the_tfjob_has_workers_alone_and_pods_as_kubernetes_wants_them():
    jsonschema = pytest.importorskip("jsonschema")
    (job,) = documents("tfjob.yaml")
    jsonschema.validate(job, TFJOB)
    (replicas,) = job["spec"]["tfReplicaSpecs"].values()
    template = replicas["template"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "worker"},
        **template,
    }
    validate(pod)
    (container,) = template["spec"]["containers"]
    assert container["name"] == "tensorflow"
    assert_is_a_command([*container["command"], *container["args"]])
    assert replicas["restartPolicy"] == "OnFailure"  # as 75 asks for


SCONTROL = """#!/bin/sh
case "$1" in
  show) printf 'node-a\\nnode-b\\n' ;;
  requeue) echo "requeue $2" >> "$LOG" ;;
esac
"""
SRUN = """#!/bin/sh
shift  # --kill-on-bad-exit=0
for SLURM_PROCID in 0 1; do
  export SLURM_PROCID
  "$@" || code=$?
done
exit ${code:-0}
"""
TRAINER = """#!/bin/sh
for word; do printf '%s\\n' "$word" >> "$LOG"; done
exit $CODE
"""


@pytest.mark.parametrize("code, requeued", [(0, False), (75, True), (1, False)])
def test_slurm_starts_a_worker_on_each_node_and_requeues_what_was_stopped(
    tmp_path, code, requeued
):
    tools = {"scontrol": SCONTROL, "srun": SRUN, "t2t-lite-trainer": TRAINER}
    for name, text in tools.items():
        tool = tmp_path / name
        tool.write_text(text)
        tool.chmod(0o755)
    log = tmp_path / "log"
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "LOG": str(log),
        "CODE": str(code),
        "SLURM_JOB_ID": "17",
        "SLURM_JOB_NODELIST": "node-[a-b]",
    }
    flags = ["--problem=text", "--name=a b"]
    script = ["bash", str(EXAMPLES / "slurm.sh"), *flags]
    done = subprocess.run(script, env=environment, timeout=30)
    assert done.returncode == code
    expected = [
        word
        for number in range(2)
        for word in (
            "--workers=node-a:2222,node-b:2222",
            f"--worker={number}",
            *flags,
        )
    ]
    expected += ["requeue 17"] * requeued
    assert log.read_text().splitlines() == expected
    assert_is_a_command(["t2t-lite-trainer", *expected[:4]])
