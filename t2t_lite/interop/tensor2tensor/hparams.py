"""Reader of tensor2tensor's training folders; conversion of hyperparameters.

`_HPARAMS` maps the names; `docs/from-tensor2tensor.md` shows the table.
"""

import dataclasses
import json
import math
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.hparam import HParams, ModelHParams
from t2t_lite.validators import parse_key_values

# Each hparam of tensor2tensor with a counterpart: our name, and the default,
# which is the value of transformer_base_v1.
_HPARAMS: dict[str, tuple[str, Any]] = {
    "activation_dtype": ("precision", "float32"),
    "attention_dropout": ("attention_dropout", 0.0),
    "attention_key_channels": ("key_depth", 0),
    "attention_value_channels": ("value_depth", 0),
    "batch_size": ("batch_tokens", 4096),
    "clip_grad_norm": ("clip_norm", 0.0),
    "filter_size": ("filter_size", 2048),
    "hidden_size": ("hidden_size", 512),
    "label_smoothing": ("label_smoothing", 0.1),
    "layer_postprocess_sequence": ("norm_placement", "dan"),
    "layer_prepostprocess_dropout": ("residual_dropout", 0.1),
    "layer_preprocess_sequence": ("norm_placement", "none"),
    "learning_rate": ("learning_rate", 0.1),
    "learning_rate_constant": ("learning_rate", 1.0),
    "learning_rate_decay_scheme": ("schedule", "noam"),
    "learning_rate_schedule": ("schedule", "legacy"),
    "learning_rate_warmup_steps": ("warmup_steps", 4000),
    "max_length": ("max_length", 256),
    "max_relative_position": ("max_relative_position", 0),
    "multiply_embedding_mode": ("embedding_scale", "sqrt_depth"),
    "norm_epsilon": ("norm_epsilon", 1e-6),
    "num_decoder_layers": ("num_decoder_layers", 0),
    "num_encoder_layers": ("num_encoder_layers", 0),
    "num_heads": ("num_heads", 8),
    "num_hidden_layers": ("num_hidden_layers", 6),
    "optimizer": ("optimizer", "adam"),
    "optimizer_adam_beta1": ("adam_beta1", 0.9),
    "optimizer_adam_beta2": ("adam_beta2", 0.98),
    "optimizer_adam_epsilon": ("adam_epsilon", 1e-9),
    "pack_dataset": ("packing", False),
    "pos": ("position_encoding", "timing"),
    "relu_dropout": ("relu_dropout", 0.0),
    "self_attention_type": ("max_relative_position", "dot_product"),
    "shared_embedding_and_softmax_weights": ("shared_embedding", True),
    "use_target_space_embedding": ("target_space_embedding", True),
    "vocab_divisor": ("vocab_divisor", 1),
}
NAMES = {name: ours for name, (ours, _) in _HPARAMS.items()}
DEFAULTS = {name: value for name, (_, value) in _HPARAMS.items()}
# Supported values of tensor2tensor and our values.
_VALUES: dict[str, dict[Any, Any]] = {
    "activation_dtype": {"float32": "float32", "bfloat16": "bfloat16"},
    "multiply_embedding_mode": {"sqrt_depth": "sqrt_depth", "none": "none"},
    "optimizer": {
        **dict.fromkeys(("adam", "Adam", "true_adam"), "adam"),
        **dict.fromkeys(("adafactor", "Adafactor"), "adafactor"),
    },
    "pos": {
        **{"timing": "concatenated", "emb": "learned"},
        **dict.fromkeys(("none", "None", None), "none"),
    },
    "self_attention_type": {"dot_product": None, "dot_product_relative": None},
}
_NORM_PLACEMENTS = {("none", "dan"): "post", ("n", "da"): "pre"}
# Supported values of the model's hparams, also of those without a counterpart.
_MODEL_VALUES: dict[str, Collection[Any]] = {
    **{name: known for name, known in _VALUES.items() if name != "optimizer"},
    "attention_variables_3d": (False,),
    "bottom": ({},),
    "causal_decoder_self_attention": (True,),
    "ffn_layer": ("dense_relu_dense",),
    "hard_attention_k": (0,),
    "nbr_decoder_problems": (1,),
    "norm_type": ("layer",),
    "num_area_layers": (0,),
    "prepend_mode": ("none",),
    "proximity_bias": (False,),
    "split_targets_chunk_length": (0,),
    "top": ({},),
    "unidirectional_encoder": (False,),
}
_TRAINING_VALUES: dict[str, Collection[Any]] = {
    "attention_dropout_broadcast_dims": ("",),
    "grad_noise_scale": (0,),
    "layer_prepostprocess_dropout_broadcast_dims": ("",),
    "max_input_seq_length": (0,),
    "max_target_seq_length": (0,),
    "optimizer": _VALUES["optimizer"],
    "optimizer_adafactor_beta1": (0,),
    "optimizer_adafactor_clipping_threshold": (1,),
    "optimizer_adafactor_decay_type": ("pow",),
    "optimizer_adafactor_factored": (True,),
    "optimizer_adafactor_memory_exponent": (0.8,),
    "optimizer_adafactor_multiply_by_parameter_scale": (True,),
    "optimizer_multistep_accumulate_steps": (0, None),
    "relu_dropout_broadcast_dims": ("",),
    "scheduled_sampling_prob": (0,),
    "symbol_dropout": (0,),
    "weight_decay": (0,),  # an L2 term of the loss
    "weight_noise": (0,),
}
# Our schedule for each set of factors that depend on the step.
_SCHEDULES = {
    frozenset(("linear_warmup", "rsqrt_decay")): "inverse_sqrt",
    frozenset(("rsqrt_decay",)): "flat_inverse_sqrt",
    frozenset(("linear_warmup",)): "constant",
    frozenset(): "constant",
}
_WEIGHTS_ONLY = " Use `weights_only` to import only the weights."
_CHECKPOINT = re.compile(r"(.*ckpt)-(\d+)")
_FLAG = re.compile(r"^--(\w+)=(.*)$", re.MULTILINE)


class TrainDir(NamedTuple):
    """A checkpoint in a folder of tensor2tensor's trainer."""

    checkpoint: Path  # prefix of its files
    step: int  # number in its name
    flags: Mapping[str, str]  # flags of the trainer; {} without flags.txt


def read_train_dir(path: Path) -> TrainDir:
    """Find the newest checkpoint in a trainer's folder and read the flags.

    The path may also be a checkpoint, such as `FOLDER/model.ckpt-250000`.
    """
    is_file = path.with_name(f"{path.name}.index").is_file()
    paths = [each.with_suffix("") for each in path.glob("*.index")]
    found = {
        int(match[2]): each
        for each in ([path] if is_file else paths)
        if (match := _CHECKPOINT.fullmatch(each.name))
    }
    if not found:
        raise UsageError(
            "t2t_dir must be a tensor2tensor checkpoint, or a folder with "
            f"model.ckpt-N.index and its data (got {path})."
        )
    step = max(found)
    flags: dict[str, str] = {}
    for name in ("flags.txt", "flags_t2t.txt"):
        if (file := found[step].with_name(name)).is_file():
            flags |= _FLAG.findall(file.read_text("utf-8", "replace"))
    flags = {name: value for name, value in flags.items() if value != "None"}
    return TrainDir(found[step], step, flags)


def read_values(path: Path) -> dict[str, Any]:
    """Read an `hparams.json` file, and check the types of known values."""
    if not path.is_file():
        raise UsageError(
            f"{path} is missing: specify `t2t_hparams=FILE`, or one of "
            "tensor2tensor's sets, such as `t2t_hparams=transformer_base_v3`."
        )
    try:
        values = {**json.loads(path.read_text("utf-8"))}
    except (TypeError, ValueError, RecursionError) as error:
        raise T2TLiteError(f"{path} is not a JSON object: {error}.") from error
    for name, default in DEFAULTS.items():
        value = values.get(name, default)
        if isinstance(value, int | float) != isinstance(default, int | float):
            raise T2TLiteError(
                f"{path}: {name} must have the type of {default!r} (got "
                f"{value!r})."
            )
    return values


def hparams_of(
    values: Mapping[str, Any],
    flags: Mapping[str, str] = {},
    *,
    weights_only: bool = False,
) -> HParams:
    """Return the hparams of the same model and updates as tensor2tensor's.

    Missing values are those of `transformer_base_v1`. The flags of the trainer
    `problem`, `worker_gpu`, `train_steps` and `decode_hparams` count, too. With
    `weights_only` only the hparams of the model are converted.
    """
    values = {**DEFAULTS, **values}
    _check_supported(values, _MODEL_VALUES)
    if not values["shared_embedding_and_softmax_weights"]:
        # shared_embedding would share two of the three matrices.
        _check_supported(values, {"shared_embedding": (False,)})
    converted: dict[str, Any] = {
        ours: _VALUES[name].get(values[name])
        if name in _VALUES
        else values[name]
        for name, ours in NAMES.items()
    }
    converted |= _convert_model(values)
    if weights_only:
        names = {field.name for field in dataclasses.fields(ModelHParams)}
        names.add("precision")
        converted = {k: v for k, v in converted.items() if k in names}
    else:
        _check_supported(values, _TRAINING_VALUES, _WEIGHTS_ONLY)
        gpus = max(1, int(flags.get("worker_gpu") or 1))
        problem = flags.get("problem", "").removesuffix("_rev")
        converted |= _convert_schedule(values) | {
            "batch_tokens": values["batch_size"] * gpus,
            "gradient_accumulation_steps": gpus,  # one pass per GPU
            "clip_norm": values["clip_grad_norm"] or None,
            "packing": values["pack_dataset"] or problem.endswith("_packed"),
            "train_steps": int(flags.get("train_steps") or 250000),
        }
    given = parse_key_values(flags.get("decode_hparams", ""), "decode_hparams")
    converted |= {
        "beam_size": given.get("beam_size", 4),
        "length_penalty_alpha": given.get("alpha", 0.6),
        "extra_decode_length": given.get("extra_length", 100),
        "max_source_length": 2048,  # tensor2tensor's decoder has no limit
    }
    return HParams(**converted)


def _check_supported(values, supported, fix=""):
    for name, known in supported.items():
        if name in values and values[name] not in known:
            raise UsageError(
                f"tensor2tensor's {name} must be "
                f"{' or '.join(map(repr, known))} (got {values[name]!r}).{fix}"
            )


def _convert_model(values: Mapping[str, Any]) -> dict[str, Any]:
    sequences = (
        values["layer_preprocess_sequence"] or "none",
        values["layer_postprocess_sequence"],
    )
    if sequences not in _NORM_PLACEMENTS:
        raise UsageError(
            "tensor2tensor's layer_preprocess_sequence and "
            "layer_postprocess_sequence must be 'none' and 'dan', or 'n' and "
            f"'da' (got {sequences[0]!r} and {sequences[1]!r})."
        )
    heads = max(1, values["num_heads"])  # HParams rejects a smaller value
    is_relative = values["self_attention_type"] == "dot_product_relative"
    distance = values["max_relative_position"] if is_relative else None
    return {
        "key_depth": values["attention_key_channels"] // heads or None,
        "value_depth": values["attention_value_channels"] // heads or None,
        "num_encoder_layers": values["num_encoder_layers"] or None,
        "num_decoder_layers": values["num_decoder_layers"] or None,
        "norm_placement": _NORM_PLACEMENTS[sequences],
        "max_relative_position": distance,
        "max_length": values["max_length"] or values["batch_size"],
        "shift_across_segments": True,
    }


def _convert_schedule(values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the learning rate schedule, a product of named factors."""
    text = values["learning_rate_schedule"]
    factors = [name.strip() for name in text.split("*") if name.strip()]
    warmup = values["learning_rate_warmup_steps"]
    if factors == ["legacy"]:
        supported = {"learning_rate_decay_scheme": ("noam",)}
        _check_supported(values, supported, _WEIGHTS_ONLY)
        # noam multiplies by 5000; "adam", but not "Adam", by 0.002.
        factor = 10.0 if "adam" in values["optimizer"] else 5000.0
        return {
            "schedule": "paper",
            "learning_rate": factor * values["learning_rate"],
        }
    scale = {
        "constant": values["learning_rate_constant"],
        "rsqrt_hidden_size": max(1, values["hidden_size"]) ** -0.5,
    }
    shape = frozenset(factors).difference(scale)
    if shape not in _SCHEDULES or len(set(factors)) < len(factors):
        raise UsageError(
            "tensor2tensor's learning_rate_schedule must be legacy, or a "
            "product of constant, linear_warmup, rsqrt_decay and "
            f"rsqrt_hidden_size (got {text!r}).{_WEIGHTS_ONLY}"
        )
    schedule = _SCHEDULES[shape]
    if schedule == "inverse_sqrt" and "rsqrt_hidden_size" in factors:
        schedule = "paper"  # includes rsqrt_hidden_size
        del scale["rsqrt_hidden_size"]
    elif schedule != "constant":
        scale["rsqrt_decay"] = max(1, warmup) ** -0.5  # value at the peak
    return {
        "schedule": schedule,
        "learning_rate": math.prod(scale.get(name, 1.0) for name in factors),
        "warmup_steps": warmup if shape else 1,
        "schedule_offset": 1 if shape else 0,
    }
