"""tensor2tensor's hparams sets in its own terms, for folders without values.

A folder of tensor2tensor tells its values in `hparams.json`. Older ones name a
set only, and what differed from it.
"""

import contextlib
from collections.abc import Mapping
from typing import Any

from t2t_lite.errors import UsageError, nearest
from t2t_lite.values import parse_key_values

_LATER_SCHEDULE = "constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size"

# Each is another set with changes; what no set says has no part in the model
# or in one update.
_SETS: dict[str, tuple[str | None, dict[str, Any]]] = {
    "transformer_base_v1": (
        None,
        {
            "activation_dtype": "float32",
            "attention_dropout": 0.0,
            "attention_key_channels": 0,
            "attention_value_channels": 0,
            "batch_size": 4096,
            "clip_grad_norm": 0.0,
            "filter_size": 2048,
            "hidden_size": 512,
            "label_smoothing": 0.1,
            "layer_postprocess_sequence": "dan",
            "layer_prepostprocess_dropout": 0.1,
            "layer_preprocess_sequence": "none",
            "learning_rate": 0.1,
            "learning_rate_constant": 1.0,
            "learning_rate_decay_scheme": "noam",
            "learning_rate_schedule": "legacy",
            "learning_rate_warmup_steps": 4000,
            "max_length": 256,
            "max_relative_position": 0,
            "multiply_embedding_mode": "sqrt_depth",
            "norm_epsilon": 1e-6,
            "num_decoder_layers": 0,
            "num_encoder_layers": 0,
            "num_heads": 8,
            "num_hidden_layers": 6,
            "optimizer": "adam",
            "optimizer_adam_beta1": 0.9,
            "optimizer_adam_beta2": 0.98,
            "optimizer_adam_epsilon": 1e-9,
            "pos": "timing",
            "relu_dropout": 0.0,
            "self_attention_type": "dot_product",
            "shared_embedding_and_softmax_weights": True,
            "use_target_space_embedding": True,
            "vocab_divisor": 1,
        },
    ),
    "transformer_base_v2": (
        "transformer_base_v1",
        {
            "attention_dropout": 0.1,
            "layer_postprocess_sequence": "da",
            "layer_preprocess_sequence": "n",
            "learning_rate": 0.2,
            "learning_rate_warmup_steps": 8000,
            "relu_dropout": 0.1,
        },
    ),
    "transformer_base_v3": (
        "transformer_base_v2",
        {
            "learning_rate_constant": 2.0,
            "learning_rate_schedule": _LATER_SCHEDULE,
            "optimizer_adam_beta2": 0.997,
        },
    ),
    "transformer_base": ("transformer_base_v3", {}),
    "transformer_base_single_gpu": (
        "transformer_base",
        {
            "batch_size": 1024,
            "learning_rate_constant": 0.1,
            "learning_rate_schedule": "constant*linear_warmup*rsqrt_decay",
            "learning_rate_warmup_steps": 16000,
        },
    ),
    "transformer_big": (
        "transformer_base",
        {
            "batch_size": 2048,
            "filter_size": 4096,
            "hidden_size": 1024,
            "layer_prepostprocess_dropout": 0.3,
            "num_heads": 16,
        },
    ),
    "transformer_big_single_gpu": (
        "transformer_big",
        {
            "layer_prepostprocess_dropout": 0.1,
            "learning_rate_warmup_steps": 16000,
        },
    ),
    "transformer_big_enfr": (
        "transformer_big",
        {
            "batch_size": 4096,
            "filter_size": 8192,
            "layer_prepostprocess_dropout": 0.1,
            "shared_embedding_and_softmax_weights": False,
        },
    ),
    "transformer_small": (
        "transformer_base",
        {
            "filter_size": 1024,
            "hidden_size": 256,
            "num_heads": 4,
            "num_hidden_layers": 2,
        },
    ),
    "transformer_tiny": (
        "transformer_base",
        {
            "filter_size": 512,
            "hidden_size": 128,
            "num_heads": 4,
            "num_hidden_layers": 2,
        },
    ),
    "transformer_parsing_base": (
        "transformer_base",
        {
            "attention_dropout": 0.2,
            "hidden_size": 1024,
            "layer_prepostprocess_dropout": 0.2,
            "learning_rate": 0.05,
            "learning_rate_warmup_steps": 16000,
            "max_length": 512,
            "shared_embedding_and_softmax_weights": False,
        },
    ),
    "transformer_relative": (
        "transformer_base",
        {
            "max_relative_position": 20,
            "pos": None,
            "self_attention_type": "dot_product_relative",
        },
    ),
    "transformer_relative_tiny": (
        "transformer_relative",
        {
            "filter_size": 512,
            "hidden_size": 128,
            "num_heads": 4,
            "num_hidden_layers": 2,
        },
    ),
    "transformer_relative_big": (
        "transformer_big",
        {
            "max_relative_position": 20,
            "pos": None,
            "self_attention_type": "dot_product_relative",
        },
    ),
}
# What `transformer_base_v1` says stands behind every value that is not given.
DEFAULTS = _SETS["transformer_base_v1"][1]


def values_of_set(name: str) -> dict[str, Any]:
    """The values of a set of tensor2tensor.

    Raises:
      UsageError: it is not known here.
    """
    if name not in _SETS:
        raise UsageError(
            f"Unknown hparams set of tensor2tensor {name!r}."
            f"{nearest(name, _SETS)} Give its hparams.json instead."
        )
    parent, changes = _SETS[name]
    return {**(values_of_set(parent) if parent else {}), **changes}


def overridden(values: Mapping[str, Any], text: str) -> dict[str, Any]:
    """The values with those of `"key=value,key=value"` put in.

    Raises:
      UsageError: not of that form.
    """
    changes = parse_key_values(text, "hparams of tensor2tensor")
    read = {key: _read(new, values.get(key)) for key, new in changes.items()}
    return {**values, **read}


def _read(text: str, example: Any) -> Any:
    """A value, of the type that the one before it had."""
    if isinstance(example, bool):
        return text.lower() in ("true", "1")
    if isinstance(example, str):
        return text
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return {"true": True, "false": False, "none": None}.get(text.lower(), text)
