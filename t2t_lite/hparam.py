"""`HParams`: a frozen dataclass of hyperparameters with types and rules.

The values are in the registered sets (`hparams/`).
"""

import dataclasses
import json
import re
from typing import Annotated, Any, Literal, NoReturn

from t2t_lite.errors import UsageError
from t2t_lite.validators import (
    check,
    integer,
    parse_key_values,
    real,
    require_known,
    validate,
)

Count = Annotated[int, integer(1)]
CountOrZero = Annotated[int, integer(0)]
Fraction = Annotated[float, real(at_least=0, below=1)]
# The range of normal float32 numbers.
Positive = Annotated[float, real(at_least=1e-37, at_most=1e38)]
PositiveOrZero = Annotated[float, real(at_least=0)]

# Schedules whose rate decays to 0 at the end of training.
FALLING_SCHEDULES = ("linear", "cosine")
# The schedule without a warm-up.
FLAT_SCHEDULE = "flat_inverse_sqrt"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelHParams:
    """The hyperparameters of a model.

    The defaults are the base model of arXiv:1706.03762, table 3.

    Raises:
      UsageError: a value has the wrong type or breaks a rule.
    """

    hidden_size: Count = 512  # d_model
    filter_size: Count = 2048  # d_ff
    num_heads: Count = 8  # h
    key_depth: Count | None = None  # d_k per head; none: d_model / h
    value_depth: Count | None = None  # d_v per head; none: d_model / h
    num_hidden_layers: Count = 6  # N, of the encoder and of the decoder
    num_encoder_layers: Count | None = None  # none: num_hidden_layers
    num_decoder_layers: Count | None = None  # none: num_hidden_layers
    shared_embedding: bool = True  # one matrix for source, target and softmax
    vocab_divisor: Count = 1  # V is rounded up to a multiple of this
    # Factor of embeddings: the square root of d_model (section 3.4), or none.
    embedding_scale: Literal["sqrt_depth", "none"] = "sqrt_depth"
    # Add a learned vector to all source embeddings (tensor2tensor).
    target_space_embedding: bool = False
    norm_placement: Literal["post", "pre"] = "post"  # the paper uses "post"
    norm_epsilon: Positive = 1e-6  # added to the variance
    # Section 3.5; all sines first (tensor2tensor); table 3, row E; none.
    position_encoding: Literal[
        "interleaved", "concatenated", "learned", "none"
    ] = "interleaved"
    max_relative_position: Count | None = None  # k of arXiv:1803.02155
    attention_window: Count | None = None  # r of self-attention; none: all
    max_length: Count = 256  # tokens per side, EOS included, in training
    # Packed rows: sentences start with the previous sentence's last id.
    shift_across_segments: bool = False
    residual_dropout: Fraction = 0.1  # P_drop; also on embedding + position
    attention_dropout: Fraction = 0.0  # on the attention weights
    relu_dropout: Fraction = 0.0  # inside the feed-forward layer

    def __post_init__(self) -> None:
        validate(self)
        if self.hidden_size % self.num_heads and None in (
            self.key_depth,
            self.value_depth,
        ):
            self._refuse(
                "num_heads must divide hidden_size, unless key_depth and "
                "value_depth are given"
            )
        if self.position_encoding == "interleaved" and self.hidden_size % 2:
            self._refuse(
                "hidden_size must be even with position_encoding=interleaved, "
                "which pairs sines and cosines"
            )
        if (self.max_relative_position or 0) > self.max_length:
            self._refuse("max_relative_position must be at most max_length")
        if self.max_relative_position and self.attention_window:
            self._refuse("max_relative_position requires attention_window=none")

    def _refuse(self, rule: str) -> NoReturn:
        """Raise UsageError with the rule and the values of its hparams."""
        names = [field.name for field in dataclasses.fields(self)]
        found = [word for word in re.findall(r"\w+", rule) if word in names]
        values = ", ".join(f"{name}={getattr(self, name)}" for name in found)
        raise UsageError(f"{rule} (got {values}).")

    @property
    def num_layers(self) -> tuple[int, int]:
        """The numbers of layers of encoder and decoder."""
        return (
            self.num_encoder_layers or self.num_hidden_layers,
            self.num_decoder_layers or self.num_hidden_layers,
        )

    def vocab_sizes(self, source: int, target: int) -> tuple[int, int]:
        """Return V of source and target, given sizes of vocabularies."""
        for size in (source, target):
            check("The size of a vocabulary", size, integer(1))
        divisor = self.vocab_divisor
        return -(-source // divisor) * divisor, -(-target // divisor) * divisor

    def model_kwargs(self) -> dict[str, Any]:
        """Return the hyperparameters of `ModelHParams` by name."""
        names = [field.name for field in dataclasses.fields(ModelHParams)]
        return {name: getattr(self, name) for name in names}


@dataclasses.dataclass(frozen=True, kw_only=True)
class HParams(ModelHParams):
    """The hyperparameters of a model, its training and its decoding."""

    # One update.
    label_smoothing: Fraction = 0.1  # eps_ls, spread over V - 1 other tokens
    batch_tokens: Count = 25000  # positions of one update per side, in total
    gradient_accumulation_steps: Count = 8  # passes per update
    packing: bool = False  # several pairs per row of max_length; else buckets
    clip_norm: Positive | None = None  # maximum global gradient norm; none: off
    schedule: Literal[
        "paper",
        "inverse_sqrt",
        "flat_inverse_sqrt",
        "linear",
        "cosine",
        "constant",
    ] = "paper"
    # Schedule "paper": factor on equation 3; other schedules: peak rate.
    learning_rate: Positive = 1.0
    warmup_steps: Count = 4000  # optimizer updates until the peak rate
    schedule_offset: CountOrZero = 0  # delay of the schedule in updates
    optimizer: Literal["adam", "adamw", "adafactor"] = "adam"
    weight_decay: PositiveOrZero = 0.0  # of matrices, times the rate; adamw
    adam_beta1: Fraction = 0.9  # adam and adamw
    adam_beta2: Fraction = 0.98
    adam_epsilon: Positive = 1e-9
    # Type of the activations; weights are always float32.
    precision: Literal["float32", "bfloat16"] = "float32"

    # The whole run.
    train_steps: Count = 100000  # optimizer updates
    cooldown: Fraction = 0.0  # last fraction of updates, with a falling rate
    average_checkpoints: Count = 5  # checkpoints averaged after training
    ema_decay: Fraction = 0.0  # of the moving average of the weights; 0: none

    # Decoding.
    beam_size: Count = 4
    # score = log p / ((5 + n) / 6) ** alpha
    length_penalty_alpha: PositiveOrZero = 0.6
    # Maximum target length minus source length, in tokens.
    extra_decode_length: CountOrZero = 50
    # Tokens to which sources are truncated, EOS included; none: max_length.
    max_source_length: Count | None = None
    constrained_search: bool = False  # for problems with an output constraint

    def __post_init__(self) -> None:
        super().__post_init__()
        falls = self.schedule in FALLING_SCHEDULES
        if self.gradient_accumulation_steps > self.batch_tokens:
            self._refuse(
                "gradient_accumulation_steps must not exceed batch_tokens"
            )
        if self.weight_decay and self.optimizer != "adamw":
            self._refuse("weight_decay requires optimizer=adamw")
        if self.cooldown and falls:
            self._refuse(
                "cooldown requires a schedule that does not decay to 0"
            )
        if self.warmup_steps >= self.train_steps and falls:
            self._refuse(
                "warmup_steps must be below train_steps with a schedule that "
                "decays to 0"
            )
        if self.learning_rate >= 1 and self.schedule != "paper":
            self._refuse(
                "learning_rate is the peak rate with any schedule but paper, "
                "and must be below 1"
            )

    def replace(self, **changes: Any) -> "HParams":
        """Return a copy with other values; an unknown key is a UsageError."""
        require_known(changes, type(self), "The set of hparams")
        return dataclasses.replace(self, **changes)

    def override(self, text: str) -> "HParams":
        """Return a copy with the values in "key=value,key=value".

        Raises:
          UsageError: the text does not have this form, a key is unknown or
            repeated, or a value is not valid.
        """
        return self.replace(**parse_key_values(text, "hparams"))

    def to_dict(self) -> dict[str, Any]:
        """Return all hparams with their values, in declaration order."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "HParams":
        """Return the hparams of `to_dict`, with defaults for missing keys."""
        return cls().replace(**values)

    def __str__(self) -> str:
        return "\n".join(
            f"{name}={_text(value)}" for name, value in self.to_dict().items()
        )


def _text(value: Any) -> str:
    """Return a value in the format that `override` parses."""
    return "none" if value is None else json.dumps(value).strip('"')
