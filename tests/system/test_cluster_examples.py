"""Checks of `examples/clusters/` that require no cluster."""

import os
import pathlib
import runpy
import shlex
import subprocess
import sys
from unittest.mock import Mock

import pytest
import yaml

from support.places import ROOT
from t2t_lite.bin import trainer

EXAMPLES = ROOT / "examples" / "clusters"


def manifest(name):
    return yaml.safe_load((EXAMPLES / name).read_text("utf-8"))


def container_of(template):
    """Validate a pod template; return its only container."""
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "worker"}}
    kubernetes_validate.validate(pod | template, "1.31")
    (container,) = template["spec"]["containers"]
    return container


def parse_trainer(arguments):
    return trainer.main.make_parser().parse_args(arguments)


def test_the_tfjob_runs_the_trainer_in_a_valid_pod():
    job = manifest("tfjob.yaml")
    replicas = job["spec"]["tfReplicaSpecs"]["Worker"]
    container = container_of(replicas["template"])
    assert container["name"] == "tensorflow"
    assert container["command"] == ["t2t-lite-trainer"]
    assert parse_trainer(container["args"])
    assert replicas["restartPolicy"] == "OnFailure"  # restarts after code 75


def test_the_rayjob_runs_the_ray_example_on_all_gpus_of_its_pods(monkeypatch):
    spec = manifest("rayjob.yaml")["spec"]
    cluster = spec["rayClusterSpec"]
    assert container_of(cluster["headGroupSpec"]["template"])
    (group,) = cluster["workerGroupSpecs"]
    container = container_of(group["template"])
    # A mock of Ray that records the arguments.
    ray = Mock(ScalingConfig=dict)
    for name in ("ray", "ray.train", "ray.train.tensorflow"):
        monkeypatch.setitem(sys.modules, name, ray)
    python, path, *arguments = shlex.split(spec["entrypoint"])
    script = str(EXAMPLES / pathlib.PurePosixPath(path).name)
    monkeypatch.setattr(sys, "argv", [script, *arguments])
    runpy.run_path(script, run_name="__main__")
    given = ray.TensorflowTrainer.call_args.kwargs
    assert python == "python"
    assert given["scaling_config"] == {
        "num_workers": group["replicas"],
        "use_gpu": True,
        "resources_per_worker": {
            "GPU": container["resources"]["limits"]["nvidia.com/gpu"]
        },
    }
    options = given["train_loop_config"]
    assert parse_trainer([f"--{key}={options[key]}" for key in options])
    (mount,) = container["volumeMounts"]
    for key in ("data_dir", "output_dir"):
        assert options[key].startswith(f"{mount['mountPath']}/")


SRUN = """#!/bin/sh
shift  # --kill-on-bad-exit=0
export SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST='node[7-8]'
export SLURM_STEP_TASKS_PER_NODE='1(x2)'
for SLURM_PROCID in 0 1; do export SLURM_PROCID; "$@"; done
"""
TRAINER = """#!/bin/sh
echo "$@" > arguments$SLURM_PROCID
env | grep ^SLURM_ > environment$SLURM_PROCID
exit $CODE
"""


@pytest.mark.parametrize("code", [0, 1, 75])
def test_slurm_starts_a_worker_on_each_node_and_requeues_a_saved_run(
    tmp_path, monkeypatch, code
):
    from t2t_lite.training.distribute import find_workers

    programs = {
        "srun": SRUN,
        "scontrol": '#!/bin/sh\necho "$2" > "$1"\n',
        "t2t-lite-trainer": TRAINER,
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    given = {"PATH": path, "SLURM_JOB_ID": "20042", "CODE": str(code)}
    script = ["bash", EXAMPLES / "slurm.sh", "--problem=wmt_ende"]
    done = subprocess.run(script, cwd=tmp_path, env=os.environ | given)
    assert done.returncode == code
    for number in range(2):
        arguments = (tmp_path / f"arguments{number}").read_text()
        assert arguments == "--problem=wmt_ende\n"
        environment = (tmp_path / f"environment{number}").read_text()
        for line in environment.splitlines():
            monkeypatch.setenv(*line.split("=", 1))
        assert find_workers() == (["node7:10042", "node8:10042"], number)
    requeued = tmp_path / "requeue"
    assert requeued.exists() == (code == 75)
    assert code != 75 or requeued.read_text() == "20042\n"
