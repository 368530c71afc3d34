"""Train a run with Ray Train, which restarts lost workers.

    python examples/clusters/ray_train.py --num_workers=2 --gpus_per_worker=8 \
      '{"problem": "wmt_ende", "hparams": "transformer_big",
        "data_dir": "/shared/data", "output_dir": "/shared/runs/ende"}'

The JSON object holds parameters of `t2t_lite.train`. Ray sets TF_CONFIG on each
worker; both folders must be shared by all of them. After a failure, Ray
restarts all workers, and they resume from the last checkpoint.
"""

import argparse
import json

from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.tensorflow import TensorflowTrainer


def train(options):
    """Train on one of the workers."""
    import t2t_lite

    t2t_lite.train(**options)


def main():
    """Start the workers and wait for the end of the run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num_workers", type=int, default=2)
    parser.add_argument("--gpus_per_worker", type=int, default=0)
    parser.add_argument("--max_failures", type=int, default=100)
    parser.add_argument("options", type=json.loads)
    args = parser.parse_args()
    gpus = args.gpus_per_worker
    TensorflowTrainer(
        train,
        train_loop_config=args.options,
        scaling_config=ScalingConfig(
            num_workers=args.num_workers,
            use_gpu=gpus > 0,
            resources_per_worker={"GPU": gpus} if gpus else None,
        ),
        run_config=RunConfig(
            failure_config=FailureConfig(max_failures=args.max_failures)
        ),
    ).fit()


if __name__ == "__main__":
    main()
