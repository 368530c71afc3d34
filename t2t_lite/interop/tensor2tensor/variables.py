"""Read the variables of a tensor2tensor checkpoint as our weights.

Kernels have the same layout, with heads side by side. Two things differ: an
embedding is split by rows into shards, `weights_0`, `weights_1`, ...; and the
vector that is added to source embeddings is one row, the target space, of a
table with 32 rows.
"""

import itertools
import math
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.hparam import HParams, ModelHParams
from t2t_lite.training.checkpoints.checkpoint import UNREADABLE, short

_BODY = "transformer/body"
_TARGET_SPACES = f"{_BODY}/target_space_embedding/kernel"
_SPACES = 32  # rows of this table
_SOURCE_VECTOR = "source_vector/vector"
# The last scope of the shards of each embedding.
_EMBEDDINGS = {
    "shared_embedding/table": "shared",
    "source_embedding/table": "input_emb",
    "target_embedding/table": "target_emb",
    "softmax/table": "softmax",
}
_SHARD = re.compile(
    r"transformer/symbol_modality_\d+_\d+(?:_\d+)?"
    r"/(shared|input_emb|target_emb|softmax)/weights_(\d+)"
)
_STACKS = {
    "encoder": {"self_attention": "self_attention", "feed_forward": "ffn"},
    "decoder": {
        "self_attention": "self_attention",
        "cross_attention": "encdec_attention",
        "feed_forward": "ffn",
    },
}
_ATTENTION = {
    "query_kernel": "q/kernel",
    "key_kernel": "k/kernel",
    "value_kernel": "v/kernel",
    "output_kernel": "output_transform/kernel",
}
_RELATIVE = {
    "relative_keys": "relative_positions_keys/embeddings",
    "relative_values": "relative_positions_values/embeddings",
}
_FEED_FORWARD = {
    "hidden_kernel": "conv1/kernel",
    "hidden_bias": "conv1/bias",
    "output_kernel": "conv2/kernel",
    "output_bias": "conv2/bias",
}
_NORM = {"scale": "layer_norm_scale", "bias": "layer_norm_bias"}
_COUNTERS = re.compile(
    r"global_step|training/beta[12]_power|losses_avg/.*|train_stats/.*"
)
_OPTIMIZER = "training/"
_SLOTS = ("Adam", "Adam_1")  # the moving averages of gradients and squares


class Variables:
    """The variables of a checkpoint, by our names without the model's name.

    Args:
      checkpoint: its path as TensorFlow writes it, without an ending.
      hparams: of the model.

    Raises:
      T2TLiteError: the checkpoint is damaged or belongs to another model; the
        error names missing and unexpected variables.
    """

    def __init__(self, checkpoint: pathlib.Path, hparams: HParams):
        import tensorflow as tf

        self._checkpoint = checkpoint
        try:
            self._reader = tf.train.load_checkpoint(str(checkpoint))
            self._shapes = self._reader.get_variable_to_shape_map()
        except UNREADABLE as error:
            raise self._damaged(error) from error
        self._parts = {ours: [name] for ours, name in _names(hparams)}
        shards = sorted(
            (match[1], int(match[2]), match[0])
            for match in map(_SHARD.fullmatch, self._shapes)
            if match
        )
        is_shared = hparams.shared_embedding
        for ours, scope in _EMBEDDINGS.items():
            if (ours == "shared_embedding/table") == is_shared:
                found = [name for kind, _, name in shards if kind == scope]
                self._parts[ours] = found or [f".../{scope}/weights_0"]
        known = {name for names in self._parts.values() for name in names}
        foreign = [
            name
            for name in self._shapes.keys() - known - {_TARGET_SPACES}
            if not _COUNTERS.fullmatch(name) and not name.startswith(_OPTIMIZER)
        ]
        self._refuse("it lacks", known - self._shapes.keys())
        self._refuse("it also has", foreign)

    @property
    def has_slots(self) -> bool:
        """Whether the checkpoint has Adam's slots of every weight."""
        names = itertools.chain(*self._parts.values())
        return all(
            f"{_OPTIMIZER}{name}/{slot}" in self._shapes
            for name, slot in itertools.product(names, _SLOTS)
        )

    def choose_space(self, given: int | None) -> tuple[int, str]:
        """Return the target space to use, and a sentence about it.

        Adam's slots show the trained one: only its gradients were not 0.

        Raises:
          UsageError: the given one is out of range.
        """
        if given is not None and not 0 <= given < _SPACES:
            raise UsageError(
                f"target_space must be from 0 to {_SPACES - 1}; got {given}."
            )
        trained = None
        name = f"{_OPTIMIZER}{_TARGET_SPACES}/{_SLOTS[1]}"
        if name in self._shapes:
            (rows,) = np.nonzero(np.any(self._read(name), axis=1))
            trained = int(rows[0]) if len(rows) == 1 else None
        if trained is None:
            return given or 0, f"target space {given or 0}"
        if given not in (None, trained):
            return given, (
                f"warning: Adam never updated target space {given}, only "
                f"{trained}; target space {given} is used"
            )
        return trained, f"target space {trained}, the trained one"

    def weights(
        self, space: int, shapes: Mapping[str, Sequence[int]]
    ) -> dict[str, np.ndarray]:
        """Return each weight in float32, with this row of target spaces.

        Raises:
          T2TLiteError: a weight has another shape than in `shapes`.
        """
        values = self._joined("{}", space)
        wrong = [
            f"{name} {values[name].shape} instead of {tuple(shape)}"
            for name, shape in shapes.items()
            if values[name].shape != tuple(shape)
        ]
        self._refuse("sizes or vocabulary differ:", wrong)
        return values

    def slots(self, space: int) -> list[dict[str, np.ndarray]]:
        """Return Adam's averages of the gradients and of their squares."""
        form = f"{_OPTIMIZER}{{}}/"
        return [self._joined(form + slot, space) for slot in _SLOTS]

    def count_updates(self, beta2: float, step: int) -> int:
        """Return the number of updates that Adam has made.

        `training/beta2_power` holds beta2 ** (updates + 1) until it
        underflows. By then Adam's bias correction is 1, and `step` is returned.
        """
        name = f"{_OPTIMIZER}beta2_power"
        power = float(self._read(name)) if name in self._shapes else 0.0
        if not 1e-30 < power < 1:
            return step
        return round(math.log(power) / math.log(beta2)) - 1

    def global_step(self, default: int) -> int:
        """Return the number of updates, or `default` if it is not stored."""
        if "global_step" not in self._shapes:
            return default
        return int(self._read("global_step"))

    def _joined(self, form, space):
        values = {}
        for ours, parts in self._parts.items():
            arrays = [self._read(form.format(part)) for part in parts]
            if len({array.shape[1:] for array in arrays}) > 1:
                self._refuse(f"the widths of {ours} differ in", parts)
            value = np.concatenate(arrays) if len(arrays) > 1 else arrays[0]
            values[ours] = value[space] if ours == _SOURCE_VECTOR else value
        return values

    def _read(self, name) -> Any:
        try:
            value = np.asarray(self._reader.get_tensor(name))
        except UNREADABLE as error:
            raise self._damaged(error) from error
        if value.dtype.kind in "iu":
            return value
        value = value.astype(np.float32)
        if not np.all(np.isfinite(value)):
            raise T2TLiteError(
                f"{self._checkpoint}: {name} has values that are not finite."
            )
        return value

    def _refuse(self, why, names):
        """Raise T2TLiteError if there are names that contradict the hparams."""
        if names:
            some = ", ".join(sorted(names)[:3])
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise T2TLiteError(
                f"{self._checkpoint} does not match its hparams: {why} "
                f"{some}{more}."
            )

    def _damaged(self, error):
        return T2TLiteError(
            f"{self._checkpoint} is damaged or incomplete ({short(error)}); "
            "copy it again, with all its files."
        )


def _names(hparams: ModelHParams) -> Iterator[tuple[str, str]]:
    """Yield (our name, tensor2tensor's name) of all but the embeddings."""
    if hparams.source_vector:
        yield _SOURCE_VECTOR, _TARGET_SPACES
    if hparams.position_encoding == "learned":
        yield "encoder_positions/table", f"{_BODY}/inputs_positional_embedding"
        yield "decoder_positions/table", f"{_BODY}/targets_positional_embedding"
    is_pre = hparams.norm_placement == "pre"
    norm = "layer_prepostprocess" if is_pre else "layer_postprocess"

    def pairs(ours, theirs, names):
        for name, original in names.items():
            yield f"{ours}/{name}", f"{theirs}/{original}"

    depths = dict(zip(_STACKS, hparams.layers, strict=True))
    for stack, sublayers in _STACKS.items():
        for number, (ours, theirs) in itertools.product(
            range(depths[stack]), sublayers.items()
        ):
            layer = f"{stack}_layer_{number}/{ours}"
            scope = f"{_BODY}/{stack}/layer_{number}/{theirs}"
            yield from pairs(
                f"{layer}_norm", f"{scope}/{norm}/layer_norm", _NORM
            )
            if ours == "feed_forward":
                yield from pairs(layer, scope, _FEED_FORWARD)
                continue
            scope = f"{scope}/multihead_attention"
            yield from pairs(layer, scope, _ATTENTION)
            if ours == "self_attention" and hparams.max_relative_position:
                scope = f"{scope}/dot_product_attention_relative"
                yield from pairs(layer, scope, _RELATIVE)
        if is_pre:
            scope = f"{_BODY}/{stack}/{norm}/layer_norm"
            yield from pairs(f"{stack}_norm", scope, _NORM)
