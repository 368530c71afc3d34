"""The examples of `examples/clusters/` that need no cluster to be checked."""

import os
import subprocess

import pytest
import yaml

from support.places import ROOT
from t2t_lite.bin import trainer

EXAMPLES = ROOT / "examples" / "clusters"


def test_the_tfjob_runs_the_trainer_in_a_valid_pod():
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    job = yaml.safe_load((EXAMPLES / "tfjob.yaml").read_text("utf-8"))
    replicas = job["spec"]["tfReplicaSpecs"]["Worker"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "worker"}}
    kubernetes_validate.validate(pod | replicas["template"], "1.31")
    (container,) = replicas["template"]["spec"]["containers"]
    assert container["name"] == "tensorflow"
    assert container["command"] == ["t2t-lite-trainer"]
    assert trainer.main.make_parser().parse_args(container["args"])
    assert replicas["restartPolicy"] == "OnFailure"  # starts 75 again


TOOLS = {
    "scontrol": '#!/bin/sh\necho "$@" >> "$LOG"\n',
    "srun": '#!/bin/sh\nshift\n"$@"\n',
    "t2t-lite-trainer": '#!/bin/sh\necho "$@" >> "$LOG"\nexit $CODE\n',
}


@pytest.mark.parametrize("code", [0, 1, 75])
def test_the_slurm_job_is_requeued_when_it_was_saved(tmp_path, code):
    for name, text in TOOLS.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "LOG": str(tmp_path / "log"),
        "CODE": str(code),
        "SLURM_JOB_ID": "17",
    }
    script = ["bash", str(EXAMPLES / "slurm.sh"), "--problem=text", "a b"]
    assert subprocess.run(script, env=environment).returncode == code
    requeued = ["requeue 17"] if code == 75 else []
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines == ["--problem=text a b", *requeued]
