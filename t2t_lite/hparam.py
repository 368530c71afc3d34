"""`HParams`: a frozen dataclass of hyperparameters with types and rules.

The values are in the registered sets (`hparams/`).
"""

import dataclasses
import functools
import json
import re
from typing import Annotated, Any, Literal, NoReturn

from t2t_lite import validators
from t2t_lite.errors import UsageError

Count = Annotated[int, validators.integer(1)]
CountOrZero = Annotated[int, validators.integer(0)]
Fraction = Annotated[float, validators.real(at_least=0, below=1)]
# The range of normal float32 numbers.
Positive = Annotated[float, validators.real(at_least=1e-37, at_most=1e38)]
PositiveOrZero = Annotated[float, validators.real(at_least=0)]

_model = functools.partial(validators.setting, group="Model")
_regularization = functools.partial(validators.setting, group="Regularization")
_update = functools.partial(validators.setting, group="Update")
_run = functools.partial(validators.setting, group="Run")
_decoding = functools.partial(validators.setting, group="Decoding")

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

    hidden_size: Count = _model(512, "d_model")
    filter_size: Count = _model(2048, "d_ff")
    num_heads: Count = _model(8, "h, the number of attention heads")
    key_depth: Count | None = _model(None, "d_k per head; none: d_model / h")
    value_depth: Count | None = _model(None, "d_v per head; none: d_model / h")
    num_hidden_layers: Count = _model(6, "N, of encoder and decoder")
    num_encoder_layers: Count | None = _model(None, "none: num_hidden_layers")
    num_decoder_layers: Count | None = _model(None, "none: num_hidden_layers")
    shared_embedding: bool = _model(
        True, "one matrix for source, target and softmax; needs one vocabulary"
    )
    vocab_divisor: Count = _model(1, "V is rounded up to a multiple of this")
    embedding_scale: Literal["sqrt_depth", "none"] = _model(
        "sqrt_depth", "sqrt_depth: embeddings times sqrt(d_model) (section 3.4)"
    )
    learned_start: bool = _model(
        False, "start targets with the embedding of padding; false: with zeros"
    )
    logits_bias: bool = _model(False, "add a learned bias to the logits")
    target_space_embedding: bool = _model(
        False, "add a learned vector to source embeddings, as tensor2tensor"
    )
    norm_placement: Literal["post", "pre"] = _model(
        "post", "layer normalization after (the paper) or before each sublayer"
    )
    norm_epsilon: Positive = _model(1e-6, "added to the variance")
    position_encoding: Literal[
        "interleaved", "concatenated", "learned", "none"
    ] = _model(
        "interleaved",
        "interleaved (section 3.5) or concatenated (tensor2tensor) sines and "
        "cosines, learned positions (table 3, row E), or none",
    )
    activation: Literal["relu", "swish", "gelu"] = _model(
        "relu", "activation function of feed-forward layers"
    )
    attention_bias: bool = _model(
        False, "add biases to queries, keys, values and outputs of attention"
    )
    max_relative_position: Count | None = _model(
        None, "k of relative self-attention (arXiv:1803.02155)"
    )
    attention_window: Count | None = _model(
        None, "size r of the neighborhood in self-attention; none: all"
    )
    attention_score: Literal["scaled", "dot", "additive"] = _model(
        "scaled", "scaled (equation 1), dot, or additive (arXiv:1409.0473)"
    )
    max_length: Count = _model(
        256, "maximum tokens per side, EOS included; longer pairs are dropped"
    )
    shift_across_segments: bool = _model(
        False, "in packed rows, start a sentence with the last id before it"
    )
    residual_dropout: Fraction = _regularization(
        0.1, "P_drop, after sublayers and on embedding + position"
    )
    attention_dropout: Fraction = _regularization(0.0, "of attention weights")
    relu_dropout: Fraction = _regularization(0.0, "in feed-forward layers")

    def __post_init__(self) -> None:
        validators.validate(self)
        depths = self.key_depth, self.value_depth
        if self.hidden_size % self.num_heads and None in depths:
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
        if self.attention_score == "additive" and (
            self.max_relative_position or self.attention_window
        ):
            self._refuse(
                "attention_score=additive requires max_relative_position=none "
                "and attention_window=none"
            )

    def _refuse(self, rule: str) -> NoReturn:
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
            validators.check(
                "The size of a vocabulary", size, validators.integer(1)
            )
        divisor = self.vocab_divisor
        return -(-source // divisor) * divisor, -(-target // divisor) * divisor

    def model_kwargs(self) -> dict[str, Any]:
        """Return the hyperparameters of `ModelHParams` by name."""
        names = [field.name for field in dataclasses.fields(ModelHParams)]
        return {name: getattr(self, name) for name in names}


@dataclasses.dataclass(frozen=True, kw_only=True)
class HParams(ModelHParams):
    """The hyperparameters of a model, its training and its decoding."""

    label_smoothing: Fraction = _regularization(
        0.1, "epsilon_ls, spread over the V - 1 other tokens (section 5.4)"
    )
    bpe_dropout: Fraction = _regularization(
        0.0, "of the merges of BPE, in training only (arXiv:1910.13267)"
    )
    batch_tokens: Count = _update(
        25000, "positions of an update per side, with padding, on all devices"
    )
    gradient_accumulation_steps: Count = _update(8, "passes per update")
    packing: bool = _update(False, "several pairs per row; else buckets")
    clip_norm: Positive | None = _update(
        None, "maximum norm of all gradients together, per target token"
    )
    schedule: Literal[
        "paper",
        "inverse_sqrt",
        "flat_inverse_sqrt",
        "linear",
        "cosine",
        "constant",
    ] = _update("paper", "learning rate schedule")
    learning_rate: Positive = _update(
        1.0, "schedule=paper: factor on equation 3; others: peak rate"
    )
    warmup_steps: Count = _update(4000, "updates until the peak rate")
    schedule_offset: CountOrZero = _update(0, "updates to delay the schedule")
    optimizer: Literal["adam", "adamw", "adafactor"] = _update(
        "adam", "algorithm"
    )
    weight_decay: PositiveOrZero = _update(
        0.0, "adamw: matrices shrink by this times the rate per update"
    )
    adam_beta1: Fraction = _update(0.9, "decay of the mean gradient")
    adam_beta2: Fraction = _update(0.98, "decay of the mean squared gradient")
    adam_epsilon: Positive = _update(1e-9, "added to the root of that mean")
    precision: Literal["float32", "bfloat16"] = _update(
        "float32", "type of activations; weights are always float32"
    )
    train_steps: Count = _run(100000, "optimizer updates")
    cooldown: Fraction = _run(0.0, "rate falls to 0 over this last fraction")
    average_checkpoints: Count = _run(5, "last checkpoints in the average")
    ema_decay: Fraction = _run(0.0, "of the moving average; 0: no average")
    beam_size: Count = _decoding(4, "beams per sentence; 1: greedy search")
    length_penalty_alpha: PositiveOrZero = _decoding(
        0.6, "score = log-probability / ((5 + length) / 6) ** alpha"
    )
    extra_decode_length: CountOrZero = _decoding(
        50, "maximum target length minus source length, in tokens"
    )
    max_source_length: Count | None = _decoding(
        None, "longer sources are truncated, EOS included; none: max_length"
    )
    constrained_search: bool = _decoding(False, "valid outputs only (trees)")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gradient_accumulation_steps > self.batch_tokens:
            self._refuse(
                "gradient_accumulation_steps must not exceed batch_tokens"
            )
        if self.weight_decay and self.optimizer != "adamw":
            self._refuse("weight_decay requires optimizer=adamw")
        is_falling = self.schedule in FALLING_SCHEDULES
        if is_falling and self.cooldown:
            self._refuse("cooldown requires a schedule without decay to 0")
        if is_falling and self.warmup_steps >= self.train_steps:
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
        validators.require_known(changes, type(self), "The set of hparams")
        return dataclasses.replace(self, **changes)

    def override(self, text: str) -> "HParams":
        """Return a copy with the values in "key=value,key=value".

        Raises:
          UsageError: the text does not have this form, a key is unknown or
            repeated, or a value is not valid.
        """
        return self.replace(**validators.parse_key_values(text, "hparams"))

    def to_dict(self) -> dict[str, Any]:
        """Return all hparams with their values, in declaration order."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "HParams":
        """Return the hparams of `to_dict`, with defaults for missing keys."""
        return cls().replace(**values)

    def __str__(self) -> str:
        # The format that `override` parses.
        lines = (f"{k}={json.dumps(v)}" for k, v in self.to_dict().items())
        return "\n".join(lines).replace('"', "").replace("=null", "=none")
