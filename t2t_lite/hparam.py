"""`HParams`: a frozen record of hyperparameters, each with its type and rule.

This module is the type; the values live in the registered sets (`hparams/`).
"""

import dataclasses
import json
import math
import numbers
import typing
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

from t2t_lite.errors import UsageError, nearest
from t2t_lite.values import parse_key_values


class Rule(NamedTuple):
    """What a value must be: in words, and as a test."""

    text: str
    holds: Callable[[Any], bool]


_AT_LEAST_0 = Rule("at least 0", lambda value: value >= 0)

Count = Annotated[int, Rule("at least 1", lambda value: value >= 1)]
CountOrZero = Annotated[int, _AT_LEAST_0]
Share = Annotated[float, Rule("in [0, 1)", lambda value: 0 <= value < 1)]
Positive = Annotated[
    float,
    # As float32 holds it with all its digits.
    Rule("above 0, from 1e-37 to 1e38", lambda value: 1e-37 <= value <= 1e38),
]
PositiveOrZero = Annotated[float, _AT_LEAST_0]

# Those whose rate falls to 0 at the end of training.
FALLING_SCHEDULES = ("linear", "cosine")
# That without a warm-up.
FLAT_SCHEDULE = "flat_inverse_sqrt"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelHParams:
    """The hyperparameters of a model.

    The defaults are the base model of arXiv:1706.03762, table 3.

    Raises:
      UsageError: a value of the wrong type, or one that breaks a rule; the
        message states the rule, then the value.
    """

    hidden_size: Count = 512  # d_model
    filter_size: Count = 2048  # d_ff
    num_heads: Count = 8  # h
    key_depth: Count | None = None  # d_k of a head; none: d_model / h
    value_depth: Count | None = None  # d_v of a head; none: d_model / h
    num_hidden_layers: Count = 6  # N, of the encoder and of the decoder
    num_encoder_layers: Count | None = None  # none: num_hidden_layers
    num_decoder_layers: Count | None = None  # none: num_hidden_layers
    shared_embedding: bool = True  # one matrix: source, target, softmax
    vocab_divisor: Count = 1  # V is the vocabulary's rounded up to a multiple
    # Section 3.4: embeddings times the root of d_model; or as they are.
    embedding_scale: Literal["sqrt_depth", "none"] = "sqrt_depth"
    source_vector: bool = False  # one more vector, added to source embeddings
    norm_placement: Literal["post", "pre"] = "post"  # the paper has "post"
    norm_epsilon: Positive = 1e-6  # added to the variance, inside the root
    # Section 3.5; tensor2tensor's, all sines first; table 3, row E; none.
    position_encoding: Literal[
        "interleaved", "concatenated", "learned", "none"
    ] = "interleaved"
    max_relative_position: Count | None = None  # k of arXiv:1803.02155
    attention_window: Count | None = None  # r, self-attention's; none: all
    max_length: Count = 256  # tokens a side, EOS included, that are trained on
    # Packed: a later sentence is first fed the id before it, not padding.
    shift_whole_rows: bool = False
    residual_dropout: Share = 0.1  # P_drop; also on embedding + position
    attention_dropout: Share = 0.0  # on the attention weights
    relu_dropout: Share = 0.0  # inside the feed-forward layer

    def __post_init__(self) -> None:
        fields = dataclasses.fields(self)
        for field in fields:
            value = getattr(self, field.name)
            value = _checked(field.name, field.type, value)
            object.__setattr__(self, field.name, value)
        for rule, names, holds in _RULES_ACROSS:
            known = set(names) <= {field.name for field in fields}
            if known and not holds(self):
                values = ", ".join(f"{n}={getattr(self, n)}" for n in names)
                raise UsageError(f"{rule}; got {values}.")

    @property
    def layers(self) -> tuple[int, int]:
        """Those of the encoder and those of the decoder."""
        return (
            self.num_encoder_layers or self.num_hidden_layers,
            self.num_decoder_layers or self.num_hidden_layers,
        )

    def vocab_sizes(self, source: int, target: int) -> tuple[int, int]:
        """The model's V of either side, for vocabularies of so many ids.

        Raises:
          UsageError: a size is no whole number of at least 1.
        """
        for size in (source, target):
            if not isinstance(size, numbers.Integral) or size < 1:
                raise UsageError(
                    "The size of a vocabulary must be a whole number of at "
                    f"least 1; got {size!r}."
                )
        divisor = self.vocab_divisor
        return -(-source // divisor) * divisor, -(-target // divisor) * divisor

    def model_part(self) -> dict[str, Any]:
        """The hyperparameters of the model by name, without any others."""
        names = [field.name for field in dataclasses.fields(ModelHParams)]
        return {name: getattr(self, name) for name in names}


@dataclasses.dataclass(frozen=True, kw_only=True)
class HParams(ModelHParams):
    """The hyperparameters of a model, its training and its decoding."""

    # One update.
    label_smoothing: Share = 0.1  # eps_ls, spread over the V - 1 others
    batch_tokens: Count = 25000  # positions of one update, each side, in all
    micro_batches: Count = 8  # passes an update is cut into
    packing: bool = False  # several pairs in a row of max_length; else buckets
    clip_norm: Positive | None = None  # most of the gradient's; none: any
    schedule: Literal[
        "paper",
        "inverse_sqrt",
        "flat_inverse_sqrt",
        "linear",
        "cosine",
        "constant",
    ] = "paper"
    # Factor on equation 3, the schedule "paper"; of any other the peak rate.
    learning_rate: Positive = 1.0
    warmup_steps: Count = 4000  # optimizer updates until the peak rate
    rate_delay: CountOrZero = 0  # update n has the rate of n - this
    optimizer: Literal["adam", "adamw", "adafactor"] = "adam"
    weight_decay: PositiveOrZero = 0.0  # times the rate, of matrices; adamw's
    adam_beta1: Share = 0.9  # also adamw's
    adam_beta2: Share = 0.98
    adam_epsilon: Positive = 1e-9
    # Of the activations; weights are float32 in either case.
    precision: Literal["float32", "bfloat16"] = "float32"

    # The whole run.
    train_steps: Count = 100000  # optimizer updates
    cooldown: Share = 0.0  # last share of them, in which the rate falls to 0
    average_checkpoints: Count = 5  # last checkpoints averaged at the end
    ema_decay: Share = 0.0  # of the moving average of the weights; 0: none

    # Decoding.
    beam_size: Count = 4
    # score = log p / ((5 + n) / 6) ** alpha
    length_penalty_alpha: PositiveOrZero = 0.6
    extra_decode_length: CountOrZero = 50  # most tokens beyond the source's
    # Tokens of a source, EOS included, that are translated; none: max_length.
    longest_source: Count | None = None
    constrained_search: bool = False  # of a problem whose answers have a form

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
        """The inverse of `to_dict`; a missing key has its default."""
        return cls().replace(**values)

    def __str__(self) -> str:
        return "\n".join(
            f"{name}={_text(value)}" for name, value in self.to_dict().items()
        )


_RULES_ACROSS: tuple[
    tuple[str, tuple[str, ...], Callable[[Any], bool]], ...
] = (
    (
        "num_heads must divide hidden_size, unless key_depth and value_depth "
        "are given",
        ("num_heads", "hidden_size"),
        lambda hparams: (
            hparams.hidden_size % hparams.num_heads == 0
            or None not in (hparams.key_depth, hparams.value_depth)
        ),
    ),
    (
        "hidden_size must be even with position_encoding=interleaved, where "
        "sines and cosines come in pairs",
        ("hidden_size", "position_encoding"),
        lambda hparams: (
            hparams.hidden_size % 2 == 0
            or hparams.position_encoding != "interleaved"
        ),
    ),
    (
        "max_relative_position must be at most max_length: no two tokens of a "
        "pair that is trained on are farther apart",
        ("max_relative_position", "max_length"),
        lambda hparams: (
            (hparams.max_relative_position or 0) <= hparams.max_length
        ),
    ),
    (
        "max_relative_position needs attention_window=none",
        ("max_relative_position", "attention_window"),
        lambda hparams: (
            None in (hparams.max_relative_position, hparams.attention_window)
        ),
    ),
    (
        "micro_batches must not exceed batch_tokens",
        ("micro_batches", "batch_tokens"),
        lambda hparams: hparams.micro_batches <= hparams.batch_tokens,
    ),
    (
        "weight_decay needs optimizer=adamw",
        ("weight_decay", "optimizer"),
        lambda hparams: (
            not hparams.weight_decay or hparams.optimizer == "adamw"
        ),
    ),
    (
        "cooldown must be 0 with a schedule that falls to 0 by itself",
        ("cooldown", "schedule"),
        lambda hparams: (
            not hparams.cooldown or hparams.schedule not in FALLING_SCHEDULES
        ),
    ),
    (
        "warmup_steps must be below train_steps with a schedule that falls "
        "from there to the end",
        ("warmup_steps", "train_steps", "schedule"),
        lambda hparams: (
            hparams.warmup_steps < hparams.train_steps
            or hparams.schedule not in FALLING_SCHEDULES
        ),
    ),
    (
        "learning_rate is the peak rate itself with any schedule but paper, "
        "and must be below 1",
        ("learning_rate", "schedule"),
        lambda hparams: (
            hparams.learning_rate < 1 or hparams.schedule == "paper"
        ),
    ),
)


_TYPES = {
    bool: Rule("true or false", lambda value: type(value) is bool),
    int: Rule("a whole number", lambda value: type(value) is int),
    float: Rule(
        "a finite number",
        lambda value: type(value) is float and math.isfinite(value),
    ),
    str: Rule("text", lambda value: type(value) is str),
}
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}


def _checked(name: str, annotation: Any, value: Any) -> Any:
    """A field's value, parsed if it is text, that keeps the field's rules."""
    or_none = ""
    if type(None) in typing.get_args(annotation):
        if value in (None, "none"):
            return None
        annotation, or_none = typing.get_args(annotation)[0], ", or none"
    kind, *rules = _type_and_rules(annotation)
    value = _parsed(kind, value)
    for rule in (_TYPES[kind], *rules):
        if not rule.holds(value):
            raise UsageError(
                f"{name} must be {rule.text}{or_none}; got {value!r}."
            )
    return value


def _type_and_rules(annotation: Any) -> tuple[Any, ...]:
    parts = typing.get_args(annotation)
    if typing.get_origin(annotation) is Literal:
        return str, Rule(f"one of {', '.join(parts)}", parts.__contains__)
    return parts or (annotation,)


def _parsed(kind: type, value: Any) -> Any:
    """The value that text stands for, and 1 as a float; else `value` itself."""
    try:
        if isinstance(value, str):
            return _BOOLEANS[value.lower()] if kind is bool else kind(value)
        return float(value) if (kind, type(value)) == (float, int) else value
    except (ValueError, KeyError):
        return value


def _text(value: Any) -> str:
    """A value as `override` reads it."""
    return "none" if value is None else json.dumps(value).strip('"')
