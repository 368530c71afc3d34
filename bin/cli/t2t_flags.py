"""Flags of tensor2tensor that have another name here, or are not needed."""

_EARLY_STOPPING = "use --stop_after, in evaluations, and --best_metric"
_WORKERS = "use --workers=HOST:PORT,... and --worker=N"
FLAGS = {
    "--bleu_variant": "use --lowercase for uncased",
    "--checkpoint_path": "use --checkpoint",
    "--data_dir": "leave it out, a run holds its vocabulary",
    "--decode_hparams": "use --beam_size, --alpha, --batch_size, --nbest",
    "--decode_interactive": "use --interactive",
    "--decode_reference": "use t2t-lite-bleu on the decoded file",
    "--decode_shards": "use --replicas",
    "--eval_early_stopping_metric": _EARLY_STOPPING,
    "--eval_early_stopping_steps": _EARLY_STOPPING,
    "--eval_steps": "leave it out, all of dev is evaluated",
    "--eval_throttle_seconds": "use --eval_steps_every",
    "--eval_use_test_set": "use --split=test",
    "--generate_data": "leave it out, missing data is generated",
    "--hparams_set": "use --hparams",
    "--keep_checkpoint_every_n_hours": "use --keep_checkpoints, --keep_best",
    "--keep_checkpoint_max": "use --keep_checkpoints",
    "--local_eval_frequency": "use --eval_steps_every",
    "--log_step_count_steps": "use --log_steps",
    "--master": _WORKERS,
    "--model": "leave it out, transformer is the only model",
    "--model_dir": "use --output_dir",
    "--n": "use --num_checkpoints",
    "--num_concurrent_processes": "use --processes",
    "--num_last_checkpoints": "use --num_checkpoints",
    "--only_list": "use t2t-lite-registry",
    "--problems": "use --problem",
    "--ps_replicas": _WORKERS,
    "--random_seed": "use --seed",
    "--registry_help": "use t2t-lite-registry",
    "--save_checkpoints_secs": "use --save_minutes",
    "--schedule": "leave it out, training includes evaluation",
    "--score_file": "use --score with --decode_from_file",
    "--servable_name": "use --model_name",
    "--t2t_usr_dir": "use --usr_dir",
    "--timeout_secs": "use --timeout",
    "--tmp_dir": "use --raw_dir",
    "--translation": "use --hypothesis",
    "--use_tpu": "leave it out, GPUs and CPUs are supported",
    "--warm_start_from": "use --init_from",
    "--worker_gpu": "use --replicas, or CUDA_VISIBLE_DEVICES to choose GPUs",
    "--worker_id": _WORKERS,
    "--worker_replicas": _WORKERS,
    "--xla_compile": "leave it out, or use --jit of t2t-lite-decoder",
}


def advice(flag: str) -> str | None:
    """Return what to do instead of a flag of tensor2tensor, or None.

    Example: "--t2t_usr_dir" gives "use --usr_dir". `--noNAME` is `--NAME`.
    """
    return FLAGS.get(flag) or FLAGS.get(f"--{flag.removeprefix('--no')}")
