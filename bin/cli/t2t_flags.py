"""Flags of tensor2tensor that have another name here, or none."""

_CLUSTER = "use --workers=HOST:PORT,... and --worker=N"
_EARLY = "use --stop_after=N, in evaluations, and --stop_on"
_REGISTRY = "use t2t-lite-registry"
FLAGS = {
    "--bleu_variant": "use --lowercase for uncased",
    "--checkpoint_path": "use --checkpoint",
    "--data_dir": "leave it out, a run holds its vocabulary",
    "--decode_hparams": "use --beam_size, --alpha, --batch_size, --nbest",
    "--decode_in_memory": "leave it out",
    "--decode_interactive": "use --interactive",
    "--decode_reference": "use t2t-lite-bleu on the decoded file",
    "--decode_shards": "use --replicas",
    "--eval_early_stopping_metric": _EARLY,
    "--eval_early_stopping_metric_delta": _EARLY,
    "--eval_early_stopping_steps": _EARLY,
    "--eval_run_autoregressive": "leave it out, each evaluation decodes dev",
    "--eval_steps": "leave it out, all of dev is evaluated",
    "--eval_throttle_seconds": "use --eval_steps_every",
    "--eval_use_test_set": "use --split=test",
    "--export_as_tfhub": "leave it out, a SavedModel is exported",
    "--export_saved_model": "use t2t-lite-exporter",
    "--generate_data": "leave it out, missing data is generated",
    "--gpu_automatic_mixed_precision": "use "
    "--hparams_override=precision=bfloat16",
    "--hparams_range": "start one run for each value",
    "--hparams_set": "use --hparams",
    "--inputs_once": "pipe the text in",
    "--keep_checkpoint_every_n_hours": "use --keep_checkpoints, --keep_best",
    "--keep_checkpoint_max": "use --keep_checkpoints",
    "--keep_timestamp": "use touch -r",
    "--local_eval_frequency": "use --eval_steps_every",
    "--log_step_count_steps": "use --log_steps",
    "--master": _CLUSTER,
    "--max_cases": "use a smaller corpus",
    "--model": "leave it out, transformer is the one model",
    "--model_dir": "use --output_dir",
    "--n": "use --num_checkpoints",
    "--num_concurrent_processes": "use --processes",
    "--num_last_checkpoints": "use --num_checkpoints",
    "--num_shards": "leave it out, the size of the data decides",
    "--only_list": _REGISTRY,
    "--optionally_use_dist_strat": "leave it out",
    "--problems": "use --problem",
    "--ps_gpu": _CLUSTER,
    "--ps_replicas": _CLUSTER,
    "--random_seed": "use --seed",
    "--registry_help": _REGISTRY,
    "--save_checkpoints_secs": "use --save_minutes",
    "--schedule": "leave it out, training evaluates; "
    "t2t-lite-evaluator evaluates alone",
    "--score_file": "use --score with --decode_from_file",
    "--servable_name": "use --model_name",
    "--sync": _CLUSTER,
    "--t2t_usr_dir": "use --usr_dir",
    "--task_id": "use --processes or --runner",
    "--timeout_secs": "use --timeout",
    "--tmp_dir": "use --raw_dir",
    "--translation": "use --hypothesis",
    "--translations_dir": "see the dev scores in metrics.jsonl",
    "--use_tpu": "leave it out, there are GPUs and CPUs",
    "--warm_start_from": "use --init_from",
    "--worker_gpu": "use --replicas, or CUDA_VISIBLE_DEVICES to choose GPUs",
    "--worker_gpu_memory_fraction": "leave it out",
    "--worker_id": _CLUSTER,
    "--worker_replicas": _CLUSTER,
    "--xla_compile": "use --jit",
}


def advice(flag: str) -> str | None:
    """Return what to do instead of a flag of tensor2tensor, or None.

    Example: "--t2t_usr_dir" gives "use --usr_dir". `--noNAME` is `--NAME`.
    """
    return FLAGS.get(flag) or FLAGS.get(f"--{flag.removeprefix('--no')}")
