"""What tensor2tensor's flags and hyperparameters are called here: tables.

`habits` applies them. Where something has no counterpart, the table says what
to use instead, and the command is refused.
"""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from t2t_lite.bin.cli.old_hparams import (
    PREPEND,
    hparams_here,
    number_of,
    refused,
    search_flags,
)
from t2t_lite.errors import UsageError


class Old(NamedTuple):
    """A flag of tensor2tensor.

    Attributes:
      flag: today's, where the value stays; "" where there is none.
      told: more to say of it, in words.
      convert: gives today's words for a value, which is text. It takes the
        value and all flags of the command line, by name.
      values: whether it has a value; else it is a switch, "true" or "false".
      needs: the flag that a command must have for this one to count, by
        default `flag`.
    """

    flag: str = ""
    told: str = ""
    convert: Callable[[str, Mapping[str, str]], Sequence[str]] | None = None
    values: bool = True
    needs: str = ""


def _switch(word: str = "", told: str = "") -> Old:
    """A switch: one of ours, or one that is not needed."""

    def convert(value: str, given: Mapping[str, str]) -> Sequence[str]:
        return [word] if word and value == "true" else ()

    flag = word.partition("=")[0]
    return Old(flag, told, convert, values=False)


def _needless(why: str, needs: str = "") -> Old:
    return Old(told=why, convert=lambda value, given: (), needs=needs)


def _no_such(
    flag: str, advice: str, values: bool = True, usual: str = ""
) -> Old:
    """A flag without counterpart; with its usual value it does no harm."""

    def refuse(value: str, given: Mapping[str, str]) -> Sequence[str]:
        if value in ("false", usual):  # a switch that is off
            return ()
        raise refused(flag, advice)

    return Old(convert=refuse, values=values)


def _model(value: str, given: Mapping[str, str]) -> Sequence[str]:
    if value != "transformer":
        raise refused(f"--model={value}", "its one model is transformer")
    return ()


def _set(value: str, given: Mapping[str, str]) -> Sequence[str]:
    if value.startswith("transformer_prepend"):
        raise refused(f"--hparams_set={value}", PREPEND)
    return [f"--hparams={value}"]


def _schedule(value: str, given: Mapping[str, str]) -> Sequence[str]:
    if value in ("train", "train_and_evaluate", "continuous_train_and_eval"):
        return ()
    advice = "training evaluates as it goes"
    if "decode" in value:
        advice = "use t2t-lite-decoder, or t2t-lite-evaluator for dev and test"
    elif "eval" in value:
        advice = "use t2t-lite-evaluator"
    elif value == "test":
        advice = "use --dry_run"
    elif value == "run_std_server":
        advice = "use --workers, see docs/clusters.md"
    raise refused(f"--schedule={value}", advice)


def _save_minutes(value: str, given: Mapping[str, str]) -> Sequence[str]:
    seconds = number_of("--save_checkpoints_secs", value)
    return [f"--save_minutes={seconds / 60:g}"] if seconds else ()


def _train_on(value: str, given: Mapping[str, str]) -> Sequence[str]:
    return () if _has_gpu() else [f"--replicas={value}"]


def _has_gpu() -> bool:
    """Whether the machine has one, without asking TensorFlow."""
    return any(pathlib.Path("/dev").glob("nvidia[0-9]*"))


def _score(value: str, given: Mapping[str, str]) -> Sequence[str]:
    return ["--score", f"--decode_from_file={value}"] if value else ()


def _checkpoint(value: str, given: Mapping[str, str]) -> Sequence[str]:
    _, ckpt, step = value.rpartition("model.ckpt-")
    return [f"--checkpoint={step if ckpt and step.isdigit() else value}"]


def _bleu_variant(value: str, given: Mapping[str, str]) -> Sequence[str]:
    if value == "both":
        raise refused("--bleu_variant=both", "run once more with --lowercase")
    return ["--lowercase"] * (value == "uncased")


def _override(value: str, given: Mapping[str, str]) -> Sequence[str]:
    """The flag for `--hparams=key=value,...`."""
    if "--hparams_override" in given:
        raise UsageError(
            "Give --hparams_override or tensor2tensor's --hparams=key=value; "
            "got both."
        )
    words = hparams_here(value, given)
    return [f"--hparams_override={words}"] if words else ()


_EARLY = "use --stop_after, a number of evaluations, and --stop_on"
_CLUSTER = "use --workers=HOST:PORT,... on each, see docs/clusters.md"
_LATER_BASE = "the paper's values; tensor2tensor's are transformer_base_v3"

FLAGS = {
    "--hparams_set": Old("--hparams", convert=_set),
    "--hparams": Old("--hparams_override", convert=_override),
    "--model": Old(told="there is one model", convert=_model),
    "--t2t_usr_dir": Old("--usr_dir"),
    "--tmp_dir": Old("--raw_dir"),
    "--random_seed": Old("--seed"),
    # t2t-trainer
    "--local_eval_frequency": Old("--eval_steps_every"),
    "--eval_steps": _needless("all of dev is evaluated"),
    "--keep_checkpoint_max": Old("--keep_checkpoints"),
    "--save_checkpoints_secs": Old("--save_minutes", convert=_save_minutes),
    "--log_step_count_steps": Old("--log_steps"),
    "--warm_start_from": Old("--init_from"),
    "--worker_gpu": Old(
        "--replicas",
        "GPUs take part by themselves: CUDA_VISIBLE_DEVICES",
        _train_on,
    ),
    "--schedule": Old(told="training evaluates as it goes", convert=_schedule),
    "--generate_data": _switch(told="data that is missing is made"),
    "--xla_compile": _switch("--jit"),
    "--eval_run_autoregressive": _switch(told="dev is always decoded, too"),
    "--worker_gpu_memory_fraction": _needless("TensorFlow shares memory"),
    "--optionally_use_dist_strat": _switch(told="that is always so"),
    "--eval_throttle_seconds": _no_such(
        "--eval_throttle_seconds", "use --eval_steps_every"
    ),
    "--keep_checkpoint_every_n_hours": _no_such(
        "--keep_checkpoint_every_n_hours",
        "use --keep_checkpoints and --keep_best",
    ),
    "--eval_early_stopping_steps": _no_such(
        "--eval_early_stopping_steps", _EARLY
    ),
    "--eval_early_stopping_metric": _no_such(
        "--eval_early_stopping_metric", _EARLY
    ),
    "--eval_early_stopping_metric_delta": _no_such(
        "--eval_early_stopping_metric_delta", _EARLY
    ),
    "--gpu_automatic_mixed_precision": _no_such(
        "--gpu_automatic_mixed_precision",
        "use --hparams_override=precision=bfloat16",
        values=False,
    ),
    "--use_tpu": _no_such("--use_tpu", "it trains on GPUs and CPUs", False),
    "--master": _no_such("--master", _CLUSTER),
    "--worker_replicas": _no_such("--worker_replicas", _CLUSTER, usual="1"),
    "--worker_id": _no_such("--worker_id", _CLUSTER, usual="0"),
    "--ps_replicas": _no_such("--ps_replicas", _CLUSTER, usual="0"),
    "--ps_gpu": _no_such("--ps_gpu", _CLUSTER, usual="0"),
    "--sync": _no_such("--sync", _CLUSTER, values=False),
    "--hparams_range": _no_such(
        "--hparams_range", "start one run for each value, in its --output_dir"
    ),
    "--registry_help": _no_such(
        "--registry_help", "use t2t-lite-registry", values=False
    ),
    "--export_saved_model": _no_such(
        "--export_saved_model", "use t2t-lite-exporter", values=False
    ),
    "--decode_reference": _no_such(
        "--decode_reference", "use t2t-lite-bleu on what the decoder wrote"
    ),
    # t2t-datagen
    "--num_concurrent_processes": Old("--processes"),
    "--num_shards": _no_such(
        "--num_shards", "it follows from the data", usual="0"
    ),
    "--max_cases": _no_such(
        "--max_cases", "give it a smaller corpus", usual="0"
    ),
    "--task_id": _no_such("--task_id", "use --processes or --runner"),
    "--only_list": _no_such("--only_list", "use t2t-lite-registry", False),
    # t2t-decoder
    "--decode_hparams": Old(
        convert=lambda value, given: search_flags(value), needs="--beam_size"
    ),
    "--decode_interactive": _switch("--interactive"),
    "--decode_in_memory": _switch(told="that is always so"),
    "--score_file": Old("--score", convert=_score),
    "--checkpoint_path": Old("--checkpoint", convert=_checkpoint),
    "--data_dir": _needless("a run holds its vocabulary", needs="--checkpoint"),
    "--keep_timestamp": _no_such(
        "--keep_timestamp", "use touch -r on the file", values=False
    ),
    "--decode_shards": _no_such("--decode_shards", "use --replicas", usual="1"),
    # t2t-eval
    "--eval_use_test_set": _switch("--split=test"),
    # t2t-exporter
    "--export_as_tfhub": _no_such(
        "--export_as_tfhub",
        "a SavedModel is what TensorFlow Serving takes",
        values=False,
    ),
    # t2t-avg-all and avg_checkpoints
    "--model_dir": Old("--output_dir"),
    "--n": Old("--num_checkpoints"),
    "--num_last_checkpoints": Old("--num_checkpoints"),
    # t2t-bleu
    "--translation": Old(
        "--hypothesis", "with --tokenize=intl it counts as t2t-bleu did"
    ),
    "--bleu_variant": Old("--lowercase", convert=_bleu_variant),
    "--translations_dir": _no_such(
        "--translations_dir",
        "the dev score of each evaluation is in "
        "metrics.jsonl; t2t-lite-report draws it",
    ),
    # t2t-query-server
    "--servable_name": Old("--model_name"),
    "--timeout_secs": Old("--timeout"),
    "--inputs_once": _no_such("--inputs_once", "pipe the text in"),
}
# Names of sets that have other values here.
SETS = {
    "transformer_base": _LATER_BASE,
    "transformer_big": "the paper's values; tensor2tensor's are in "
    "docs/from-tensor2tensor.md",
    "transformer_big_enfr": "the paper's values",
}
