"""The examples of `examples/clusters/` that need no cluster to be checked."""

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
