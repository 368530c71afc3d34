"""What tensor2tensor's hyperparameters are called here: tables.

Of models and training (`--hparams=key=value,...`), and of decoding
(`--decode_hparams=key=value,...`).
"""

from collections.abc import Mapping, Sequence

from t2t_lite.errors import UsageError
from t2t_lite.values import parse_key_values

PREPEND = (
    "with prepend_mode one stack reads the source and the target as one "
    "sequence, and this model has an encoder and a decoder; use "
    "transformer_base_v3"
)


# Same values, other names.
_HPARAM_NAMES = {
    "layer_prepostprocess_dropout": "residual_dropout",
    "learning_rate_warmup_steps": "warmup_steps",
    "optimizer_adam_beta1": "adam_beta1",
    "optimizer_adam_beta2": "adam_beta2",
    "optimizer_adam_epsilon": "adam_epsilon",
    "clip_grad_norm": "clip_norm",
    "shared_embedding_and_softmax_weights": "shared_embedding",
}
_SAME_HPARAMS = {
    *("hidden_size", "filter_size", "num_heads", "num_hidden_layers"),
    *("num_encoder_layers", "num_decoder_layers", "max_relative_position"),
    *("label_smoothing", "max_length", "attention_dropout", "relu_dropout"),
    *("norm_epsilon", "vocab_divisor"),
}
_ZERO_IS_NONE = {
    *("num_encoder_layers", "num_decoder_layers", "max_relative_position"),
    "clip_grad_norm",
}
# What each value is here; "" is what this model always does.
_HPARAM_VALUES = {
    "pos": {
        "timing": "position_encoding=concatenated",
        "emb": "position_encoding=learned",
        "none": "position_encoding=none",
    },
    "layer_preprocess_sequence": {
        "n": "norm_placement=pre",
        "none": "norm_placement=post",
    },
    "layer_postprocess_sequence": {
        "da": "norm_placement=pre",
        "dan": "norm_placement=post",
    },
    "multiply_embedding_mode": {
        "sqrt_depth": "embedding_scale=sqrt_depth",
        "none": "embedding_scale=none",
    },
    "optimizer": {
        "adam": "optimizer=adam",
        "multistep_adam": "optimizer=adam",
        "adafactor": "optimizer=adafactor",
    },
    "learning_rate_schedule": {
        "legacy": "schedule=paper,rate_delay=0",
        "constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size": (
            "schedule=paper,rate_delay=1"
        ),
    },
    "activation_dtype": {
        "float32": "precision=float32",
        "bfloat16": "precision=bfloat16",
    },
    "prepend_mode": {"none": ""},
    "self_attention_type": {"dot_product": ""},
    "ffn_layer": {"dense_relu_dense": ""},
    "norm_type": {"layer": ""},
    "weight_decay": {"0": "", "0.0": ""},
    "attention_key_channels": {"0": ""},
    "attention_value_channels": {"0": ""},
}
# What changes how tensor2tensor computes, and not what.
_NO_EFFECT = {
    *("symbol_modality_num_shards", "use_pad_remover", "summarize_grads"),
    *("summarize_vars", "daisy_chain_variables", "batch_shuffle_size"),
    "eval_drop_long_sequences",
}
_NO_HPARAM = {
    "prepend_mode": PREPEND,
    "self_attention_type": "for dot_product_relative use transformer_relative",
    "weight_decay": "use --hparams_override=optimizer=adamw,weight_decay=...",
    "attention_key_channels": "use key_depth, that of one head, in "
    "--hparams_override",
    "attention_value_channels": "use value_depth, that of one head, in "
    "--hparams_override",
    "learning_rate": "its sets but transformer_base_v1 and _v2 do not read it; "
    "use learning_rate_constant",
    "learning_rate_constant": "with this set it is no factor; use the peak "
    "rate, as in --hparams_override=schedule=inverse_sqrt,learning_rate=0.0008",
    "learning_rate_schedule": "use --hparams_override=schedule=...; "
    "docs/hyperparameters.md lists them",
}
_LEGACY_SETS = ("transformer_base_v1", "transformer_base_v2")
_SETS_BY_PEAK = ("transformer_base_single_gpu", "transformer_parsing_ice")


def hparams_here(text: str, given: Mapping[str, str]) -> str:
    """tensor2tensor's `key=value,...` as an override of ours.

    Args:
      text: keys and values.
      given: the flags of the command line, by name. `batch_size` is there what
        one GPU takes, so that an update is `--worker_gpu` times as much.

    Raises:
      UsageError: a key or a value has no counterpart.
    """
    chosen = given.get("--hparams_set") or given.get("--hparams") or ""
    values = parse_key_values(text, "--hparams")
    passes = int(number_of("--worker_gpu", given.get("--worker_gpu", "1")))
    steps = values.pop("optimizer_multistep_accumulate_steps", "0")
    passes *= int(number_of("optimizer_multistep_accumulate_steps", steps)) or 1
    ours: dict[str, str] = {}
    for key, value in values.items():
        found = _hparam_here(key, value, chosen, passes)
        for name, new in parse_key_values(found, key).items():
            if ours.setdefault(name, new) != new:
                raise UsageError(
                    f"--hparams must give one {name}; got {ours[name]} and "
                    f"{new}."
                )
    return ",".join(f"{name}={value}" for name, value in ours.items())


def _hparam_here(key: str, value: str, chosen: str, passes: int) -> str:
    """One of them as `key=value,...`; "" if it changes nothing."""
    if key in _NO_EFFECT:
        return ""
    if key in _SAME_HPARAMS or key in _HPARAM_NAMES:
        if key in _ZERO_IS_NONE and number_of(key, value) == 0:
            value = "none"
        return f"{_HPARAM_NAMES.get(key, key)}={value}"
    if key == "batch_size":
        tokens = int(number_of(key, value)) * passes
        return f"batch_tokens={tokens},micro_batches={passes}"
    if key == "learning_rate_constant" and chosen not in _SETS_BY_PEAK:
        return f"learning_rate={value}"
    if key == "learning_rate" and chosen in _LEGACY_SETS:
        return f"learning_rate={10 * number_of(key, value):g}"
    known = _HPARAM_VALUES.get(key, {})
    if value.lower() not in known:
        advice = _NO_HPARAM.get(key, "leave it out")
        raise refused(f"--hparams={key}={value}", advice)
    return known[value.lower()]


# Of decode_hparams, what has a value that changes nothing.
_USUAL_DECODING = {
    "batch_size": 0,
    "block_size": 0,
    "eos_penalty": 0,
    "min_length_ratio": 0,
    "num_samples": -1,
    "num_decodes": 1,
    "shards": 1,
    "shard_id": 0,
    "max_input_size": -1,
}
_NO_DECODING = {
    "extra_length": "it is the run's hparam extra_decode_length; "
    "--max_new_tokens=N bounds a translation",
    "write_beam_scores": "use --format=json",
    "num_samples": "use --decode_from_file",
    "num_decodes": "use --nbest",
    "force_decode_length": "use --min_new_tokens and --max_new_tokens",
    "min_length_ratio": "use --min_new_tokens",
}


def search_flags(text: str) -> Sequence[str]:
    """The flags for `--decode_hparams=key=value,...`."""
    values = parse_key_values(text, "--decode_hparams")
    words = []
    for key, value in values.items():
        is_off = value.lower() in ("false", "''", '""', "")
        if key in _USUAL_DECODING:
            number = number_of(f"--decode_hparams: {key}", value)
            is_off = number == _USUAL_DECODING[key]
        if is_off or key == "log_results":
            continue
        if key in ("beam_size", "alpha", "batch_size"):
            words.append(f"--{key}={value}")
        elif key == "return_beams":
            words.append(f"--nbest={values.get('beam_size', 4)}")
        else:
            advice = _NO_DECODING.get(key, "leave it out")
            raise refused(f"--decode_hparams={key}=...", advice)
    return words


def refused(name: str, advice: str) -> UsageError:
    """The error for a name of tensor2tensor that has no counterpart."""
    return UsageError(f"{name} of tensor2tensor is not here: {advice}.")


def number_of(name: str, value: str) -> float:
    """The number that a value is; raises UsageError for any other text."""
    try:
        return float(value)
    except ValueError as error:
        raise UsageError(f"{name} must be a number; got {value!r}.") from error
