"""`HParams`: one frozen, typed and validated record of hyperparameters.

This module is the type; the values live in the registered sets (`hparams/`).
"""

import dataclasses
import json
import math
import typing
from typing import Any

from t2t_lite.errors import UsageError, nearest
from t2t_lite.key_values import parse_key_values

NORM_PLACEMENTS = ("post", "pre")
POSITION_ENCODINGS = ("interleaved", "concatenated", "learned")
PRECISIONS = ("float32", "bfloat16")


@dataclasses.dataclass(frozen=True, kw_only=True)
class HParams:
    """Hyperparameters of a model, its training and its decoding.

    The defaults are the base model of arXiv:1706.03762, table 3.

    Raises:
      UsageError: a value of the wrong type or outside its range; the message
        states the rule, then the value.
    """

    # The model.
    hidden_size: int = 512  # d_model
    filter_size: int = 2048  # d_ff
    num_heads: int = 8  # h
    key_depth: int | None = None  # d_k of a head; none: d_model / h
    value_depth: int | None = None  # d_v of a head; none: d_model / h
    num_hidden_layers: int = 6  # N, of the encoder and of the decoder
    shared_embedding: bool = True  # one matrix: source, target, softmax
    norm_placement: str = "post"  # "post" as in the paper, or "pre"
    position_encoding: str = "interleaved"  # "concatenated", "learned"
    attention_window: int | None = None  # r, self-attention's; none: all
    max_length: int = 256  # tokens a side, EOS included, that are trained on

    # Regularization, each a share in [0, 1).
    residual_dropout: float = 0.1  # P_drop; also on embedding + position
    attention_dropout: float = 0.0  # on the attention weights
    relu_dropout: float = 0.0  # inside the feed-forward layer
    label_smoothing: float = 0.1  # eps_ls, spread over the V - 1 others

    # One update.
    batch_tokens: int = 25000  # positions of one update, each side, in all
    micro_batches: int = 8  # passes an update is cut into
    packing: bool = False  # several pairs in a row of max_length; else buckets
    learning_rate: float = 1.0  # factor on the schedule of equation 3
    warmup_steps: int = 4000  # optimizer updates until the peak rate
    adam_beta1: float = 0.9
    adam_beta2: float = 0.98
    adam_epsilon: float = 1e-9
    precision: str = "float32"  # of activations; "bfloat16" keeps weights f32

    # The whole run.
    train_steps: int = 100000  # optimizer updates
    cooldown: float = 0.0  # last share of them, in which the rate falls to 0
    average_checkpoints: int = 5  # last checkpoints averaged at the end

    # Decoding.
    beam_size: int = 4
    length_penalty_alpha: float = 0.6  # score = log p / ((5 + n) / 6) ** alpha
    extra_decode_length: int = 50  # most tokens beyond the source's length
    constrained_search: bool = False  # of a problem whose answers have a form

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            object.__setattr__(self, field.name, _typed(field, value))
        self._check_ranges()

    def _check_ranges(self):
        for name in _AT_LEAST_ONE:
            _require(name, getattr(self, name), "at least 1", lambda v: v >= 1)
        for name in _AT_LEAST_ONE_IF_GIVEN:
            _require(
                name,
                getattr(self, name),
                "at least 1, or none",
                lambda v: v is None or v >= 1,
            )
        for name in _SHARES:
            _require(name, getattr(self, name), "in [0, 1)", _is_share)
        for name in ("learning_rate", "adam_epsilon"):
            _require(name, getattr(self, name), "above 0", lambda v: v > 0)
        for name in ("length_penalty_alpha", "extra_decode_length"):
            _require(name, getattr(self, name), "at least 0", lambda v: v >= 0)
        for name, choices in _CHOICES.items():
            _require(
                name,
                getattr(self, name),
                f"one of {', '.join(choices)}",
                choices.__contains__,
            )
        depths = (self.key_depth, self.value_depth)
        if None in depths and self.hidden_size % self.num_heads:
            raise UsageError(
                "num_heads must divide hidden_size, unless key_depth and "
                f"value_depth are given; got num_heads={self.num_heads}, "
                f"hidden_size={self.hidden_size}."
            )
        if self.hidden_size % 2:
            raise UsageError(
                "hidden_size must be even, for pairs of sine and cosine; got "
                f"hidden_size={self.hidden_size}."
            )
        if self.batch_tokens < self.micro_batches:
            raise UsageError(
                "micro_batches must not exceed batch_tokens; got "
                f"micro_batches={self.micro_batches}, "
                f"batch_tokens={self.batch_tokens}."
            )

    def replace(self, **changes: Any) -> "HParams":
        """A copy with other values; an unknown key is a UsageError."""
        names = [field.name for field in dataclasses.fields(self)]
        for name in changes:
            if name not in names:
                raise UsageError(
                    f"Unknown hparam {name!r}.{nearest(name, names)}"
                )
        return dataclasses.replace(self, **changes)

    def override(self, text: str) -> "HParams":
        """A copy with the values of `"key=value,key=value"` put in.

        Raises:
          UsageError: not of that form, an unknown or repeated key, a value
            that is not of the key's type.
        """
        return self.replace(**parse_key_values(text, "hparams"))

    def to_dict(self) -> dict[str, Any]:
        """Every hparam with its value, in the order of the declaration."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "HParams":
        """The inverse of `to_dict`; a key that is absent has its default."""
        return cls().replace(**values)

    def __str__(self):
        return "\n".join(
            f"{name}={_text(value)}" for name, value in self.to_dict().items()
        )


_AT_LEAST_ONE = (
    "hidden_size",
    "filter_size",
    "num_heads",
    "num_hidden_layers",
    "max_length",
    "batch_tokens",
    "micro_batches",
    "warmup_steps",
    "train_steps",
    "average_checkpoints",
    "beam_size",
)
_AT_LEAST_ONE_IF_GIVEN = ("key_depth", "value_depth", "attention_window")
_SHARES = (
    "cooldown",
    "residual_dropout",
    "attention_dropout",
    "relu_dropout",
    "label_smoothing",
    "adam_beta1",
    "adam_beta2",
)
_CHOICES = {
    "norm_placement": NORM_PLACEMENTS,
    "position_encoding": POSITION_ENCODINGS,
    "precision": PRECISIONS,
}
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}


def _is_share(value):
    return 0 <= value < 1


def _require(name, value, rule, holds):
    if not holds(value):
        raise UsageError(f"{name} must be {rule}; got {value!r}.")


def _typed(field, value):
    """`value` as the field's type; text is parsed, 1 is a fine float."""
    wanted, optional = _kind(field)
    if optional and (value is None or value == "none"):
        return None
    try:
        if isinstance(value, str) and wanted is not str:
            value = (
                _BOOLEANS[value.lower()] if wanted is bool else wanted(value)
            )
        elif wanted is float and type(value) is int:
            value = float(value)
    except (ValueError, KeyError):
        value = _bad_type(field, value)
    if type(value) is not wanted:
        _bad_type(field, value)
    if wanted is float and not math.isfinite(value):
        raise UsageError(f"{field.name} must be finite; got {value!r}.")
    return value


def _kind(field):
    """The type of a field's values, and whether it may also be None."""
    kinds = typing.get_args(field.type) or (field.type,)
    return kinds[0], type(None) in kinds


def _bad_type(field, value):
    wanted, optional = _kind(field)
    kind = {int: "a whole number", float: "a number", bool: "true or false"}
    rule = kind.get(wanted, "text") + (" or none" if optional else "")
    raise UsageError(f"{field.name} must be {rule}; got {value!r}.")


def _text(value):
    """A value as `override` reads it."""
    if value is None:
        return "none"
    return json.dumps(value).strip('"')
