"""tensor2tensor's hparams in ours, or why a model is another one."""

from collections.abc import Mapping, Sequence
from typing import Any

from t2t_lite.errors import UsageError
from t2t_lite.hparam import HParams
from t2t_lite.interop.tensor2tensor.sets import DEFAULTS
from t2t_lite.values import parse_key_values

# What must have this value, for there is nothing like any other one here.
_ONLY: dict[str, tuple[Any, ...]] = {
    "attention_variables_3d": (False,),
    "bottom": ({},),
    "causal_decoder_self_attention": (True,),
    "ffn_layer": ("dense_relu_dense",),
    "hard_attention_k": (0,),
    "nbr_decoder_problems": (1,),
    "norm_type": ("layer",),
    "num_area_layers": (0,),
    "pos": ("timing", "emb", "none", "None", None),
    "prepend_mode": ("none",),
    "proximity_bias": (False,),
    "self_attention_type": ("dot_product", "dot_product_relative"),
    "split_targets_chunk_length": (0,),
    "top": ({},),
    "unidirectional_encoder": (False,),
}
# The same for an update; a model is as good without.
_ONLY_IN_TRAINING: dict[str, tuple[Any, ...]] = {
    "attention_dropout_broadcast_dims": ("",),
    "grad_noise_scale": (0,),
    "layer_prepostprocess_dropout_broadcast_dims": ("",),
    "max_input_seq_length": (0,),
    "max_target_seq_length": (0,),
    "optimizer": ("adam", "Adam", "true_adam", "adafactor", "Adafactor"),
    "optimizer_multistep_accumulate_steps": (0, None),
    "relu_dropout_broadcast_dims": ("",),
    "scheduled_sampling_prob": (0,),
    "symbol_dropout": (0,),
    "weight_decay": (0,),
    "weight_noise": (0,),
}
_ONLY_WITH_ADAFACTOR: dict[str, tuple[Any, ...]] = {
    "optimizer_adafactor_beta1": (0,),
    "optimizer_adafactor_clipping_threshold": (1,),
    "optimizer_adafactor_decay_type": ("pow",),
    "optimizer_adafactor_factored": (True,),
    "optimizer_adafactor_memory_exponent": (0.8,),
    "optimizer_adafactor_multiply_by_parameter_scale": (True,),
}
_PREPEND = (
    " Its targets begin with the source, for a decoder without an encoder."
)
_NORMS = {("none", "dan"): "post", ("n", "da"): "pre"}
_POSITIONS = {"timing": "concatenated", "emb": "learned"}
_OF_ADAM = ("beta1", "beta2", "epsilon")
# The factors of a schedule that go into its peak, and those that shape it.
_SHAPES = {
    frozenset(("linear_warmup", "rsqrt_decay")): "inverse_sqrt",
    frozenset(("rsqrt_decay",)): "flat_inverse_sqrt",
    frozenset(("linear_warmup",)): "constant",
    frozenset(): "constant",
}
# Where tensor2tensor's decoder has other defaults than ours.
_DECODING = {"beam_size": 4, "alpha": 0.6, "extra_length": 100}
_LONGEST_SOURCE = 2048  # it has no limit


def hparams_of(
    values: Mapping[str, Any],
    flags: Mapping[str, str] = {},
    *,
    weights_only: bool = False,
) -> HParams:
    """What describes the same model, and the same updates of it.

    Args:
      values: tensor2tensor's hparams by name; what is missing is as in
        `transformer_base_v1`.
      flags: of its trainer: `problem`, `worker_gpu`, `train_steps`,
        `decode_hparams`.
      weights_only: take over the model alone, whatever trained it.

    Raises:
      UsageError: a value that says of the model, or of its training, what
        has no counterpart here; names it.
    """
    values = {**DEFAULTS, **values}
    only = dict(_ONLY)
    if not values["shared_embedding_and_softmax_weights"]:
        only["shared_embedding"] = (False,)  # two of three matrices are one
    _require_known(values, only, "the model", "")
    found = {**_model(values), **_decoding(flags)}
    if not weights_only:
        only = dict(_ONLY_IN_TRAINING)
        if "adafactor" in str(values["optimizer"]).lower():
            only |= _ONLY_WITH_ADAFACTOR
        _require_known(
            values,
            only,
            "the training",
            " --weights_only takes over the weights alone.",
        )
        found |= {**_update(values, flags), **_schedule(values)}
    return HParams(**found)


def _require_known(
    values: Mapping[str, Any],
    known: Mapping[str, Sequence[Any]],
    what: str,
    remedy: str,
) -> None:
    for name, allowed in known.items():
        if name in values and values[name] not in allowed:
            asked = " or ".join(map(repr, allowed))
            raise UsageError(
                f"tensor2tensor's {name} makes {what} another one: it must be "
                f"{asked}; got {values[name]!r}."
                f"{_PREPEND if name == 'prepend_mode' else remedy}"
            )


def _count(values: Mapping[str, Any], name: str) -> int:
    """A value by which something is divided."""
    if values[name] < 1:
        raise UsageError(
            f"tensor2tensor's {name} must be at least 1; got {values[name]!r}."
        )
    return values[name]


def _model(values: Mapping[str, Any]) -> dict[str, Any]:
    heads = _count(values, "num_heads")
    sequences = (
        values["layer_preprocess_sequence"] or "none",
        values["layer_postprocess_sequence"],
    )
    if sequences not in _NORMS:
        raise UsageError(
            "tensor2tensor's layer_preprocess_sequence and "
            "layer_postprocess_sequence must be 'none' and 'dan', or 'n' and "
            f"'da'; got {sequences[0]!r} and {sequences[1]!r}."
        )
    relative = values["self_attention_type"] == "dot_product_relative"
    scaled = values["multiply_embedding_mode"] == "sqrt_depth"
    return {
        "hidden_size": _count(values, "hidden_size"),
        "filter_size": values["filter_size"],
        "num_heads": heads,
        "key_depth": values["attention_key_channels"] // heads or None,
        "value_depth": values["attention_value_channels"] // heads or None,
        "num_hidden_layers": values["num_hidden_layers"],
        "num_encoder_layers": values["num_encoder_layers"] or None,
        "num_decoder_layers": values["num_decoder_layers"] or None,
        "shared_embedding": values["shared_embedding_and_softmax_weights"],
        "embedding_scale": "sqrt_depth" if scaled else "none",
        "norm_placement": _NORMS[sequences],
        "norm_epsilon": values["norm_epsilon"],
        "position_encoding": _POSITIONS.get(values["pos"], "none"),
        "max_relative_position": (
            values["max_relative_position"] if relative else None
        ),
        "source_vector": values["use_target_space_embedding"],
        "vocab_divisor": values["vocab_divisor"],
        "shift_whole_rows": True,
        "max_length": values["max_length"] or values["batch_size"],
        "residual_dropout": values["layer_prepostprocess_dropout"],
        "attention_dropout": values["attention_dropout"],
        "relu_dropout": values["relu_dropout"],
        "precision": (
            "bfloat16"
            if values["activation_dtype"] == "bfloat16"
            else "float32"
        ),
    }


def _update(
    values: Mapping[str, Any], flags: Mapping[str, str]
) -> dict[str, Any]:
    replicas = max(1, int(flags.get("worker_gpu") or 1))
    return {
        "label_smoothing": values["label_smoothing"],
        "batch_tokens": values["batch_size"] * replicas,
        "micro_batches": replicas,
        "packing": _is_packed(values, flags),
        "clip_norm": values["clip_grad_norm"] or None,
        "optimizer": values["optimizer"].lower().removeprefix("true_"),
        **{
            f"adam_{name}": values[f"optimizer_adam_{name}"]
            for name in _OF_ADAM
        },
        "train_steps": int(flags.get("train_steps") or 250000),
    }


def _is_packed(values: Mapping[str, Any], flags: Mapping[str, str]) -> bool:
    """Whether it trained on rows with several pairs, which a name tells."""
    name = flags.get("problem", "").removesuffix("_rev")
    return bool(values.get("pack_dataset")) or name.endswith("_packed")


def _schedule(values: Mapping[str, Any]) -> dict[str, Any]:
    """The learning rate, by the product that names its factors."""
    text = values["learning_rate_schedule"]
    factors = [name.strip() for name in text.split("*") if name.strip()]
    warmup, size = values["learning_rate_warmup_steps"], values["hidden_size"]
    if factors == ["legacy"]:
        return {**_legacy(values), "warmup_steps": warmup}
    scale = {
        "constant": values["learning_rate_constant"],
        "rsqrt_hidden_size": size**-0.5,
    }
    shape = frozenset(factors).difference(scale)
    if shape not in _SHAPES or len(set(factors)) < len(factors):
        raise UsageError(
            "tensor2tensor's learning_rate_schedule must be legacy, or a "
            "product of constant, linear_warmup, rsqrt_decay and "
            f"rsqrt_hidden_size; got {text!r}. --weights_only takes over the "
            "weights alone."
        )
    schedule = _SHAPES[shape]
    is_paper = schedule == "inverse_sqrt" and "rsqrt_hidden_size" in factors
    if is_paper:
        del scale["rsqrt_hidden_size"]
    elif schedule != "constant":
        # At its peak.
        scale["rsqrt_decay"] = (
            _count(values, "learning_rate_warmup_steps") ** -0.5
        )
    rate = 1.0
    for name in factors:
        rate *= scale.get(name, 1.0)
    return {
        "schedule": "paper" if is_paper else schedule,
        "learning_rate": rate,
        "warmup_steps": warmup if shape else 1,
        "rate_delay": 1 if shape else 0,
    }


def _legacy(values: Mapping[str, Any]) -> dict[str, Any]:
    scheme = values["learning_rate_decay_scheme"]
    if scheme != "noam":
        raise UsageError(
            "tensor2tensor's learning_rate_decay_scheme must be noam; got "
            f"{scheme!r}. --weights_only takes over the weights alone."
        )
    # 5000, the scheme's own factor, times 0.002, the one that Adam gets.
    is_adam = "adam" in values["optimizer"]
    factor = 10.0 if is_adam else 5000.0
    return {"learning_rate": factor * values["learning_rate"]}


def _decoding(flags: Mapping[str, str]) -> dict[str, Any]:
    given = parse_key_values(flags.get("decode_hparams", ""), "decode_hparams")
    return {
        "beam_size": given.get("beam_size", _DECODING["beam_size"]),
        "length_penalty_alpha": given.get("alpha", _DECODING["alpha"]),
        "extra_decode_length": given.get(
            "extra_length", _DECODING["extra_length"]
        ),
        "longest_source": _LONGEST_SOURCE,
    }
