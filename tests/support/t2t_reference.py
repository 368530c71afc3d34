"""tensor2tensor's Transformer in numpy, as an independent reference.

It computes the same as tensor2tensor 1.15.7, with its names of variables and
hyperparameters, and shares no code with `t2t_lite`. Everything is float64,
without dropout.
"""

import re

import numpy as np

MASKED = -1e9


def reference_logits(variables, hparams, inputs, targets, packed=None, space=0):
    """Return the logits [B, T, V] of complete targets.

    Args:
      variables: arrays by name, as in a checkpoint.
      hparams: a dict, as in `hparams.json`.
      inputs: int [B, S].
      targets: int [B, T].
      packed: `inputs_segmentation`, `inputs_position` and the same for the
        targets, if rows hold several pairs.
      space: the target space, a row of `target_space_embedding`.
    """
    model = _Model(variables, hparams)
    inputs, targets = np.asarray(inputs), np.asarray(targets)
    packed = packed or {}
    source, source_positions = _side(packed, "inputs")
    target, target_positions = _side(packed, "targets")

    # The encoder.
    x = model.embedded("input_emb", inputs)
    if source is None:
        to_source = np.where(inputs == 0, MASKED, 0.0)[:, None, None]
        source_bias = to_source
    else:
        source_bias = _segment_bias(source, source)
        to_source = _segment_bias(target, source)
    if hparams.get("use_target_space_embedding", True):
        x = x + model["target_space_embedding/kernel"][space]
    x = x + model.positions("inputs", x.shape[1], source_positions)
    for number in range(model.layers("encoder")):
        scope = f"encoder/layer_{number}"
        x = model.attend(x, f"{scope}/self_attention", source_bias)
        x = model.feed_forward(x, f"{scope}/ffn")
    memory = model.before(x, "encoder")

    # The decoder: its inputs are the targets, shifted by one.
    x = model.embedded("target_emb", targets)
    x = np.pad(x, ((0, 0), (1, 0), (0, 0)))[:, :-1]
    length = x.shape[1]
    bias = np.triu(np.full((length, length), MASKED), 1)[None, None]
    if target is not None:
        bias = bias + _segment_bias(target, target)
    x = x + model.positions("targets", length, target_positions)
    for number in range(model.layers("decoder")):
        scope = f"decoder/layer_{number}"
        x = model.attend(x, f"{scope}/self_attention", bias)
        x = model.attend(x, f"{scope}/encdec_attention", to_source, memory)
        x = model.feed_forward(x, f"{scope}/ffn")
    return model.before(x, "decoder") @ model.table("softmax").T


class _Model:
    def __init__(self, variables, hparams):
        self.variables = {
            name: np.asarray(value, np.float64)
            for name, value in variables.items()
        }
        self.hparams = hparams

    def __getitem__(self, name):
        return self.variables[f"transformer/body/{name}"]

    def layers(self, stack):
        given = self.hparams.get(f"num_{stack}_layers", 0)
        return given or self.hparams["num_hidden_layers"]

    def table(self, kind):
        """Concatenate the shards `weights_0`, `weights_1`, ... to [V, D]."""
        shards = {}
        for name, value in self.variables.items():
            found = re.search(rf"/(?:shared|{kind})/weights_(\d+)$", name)
            if found:
                shards[int(found[1])] = value
        return np.concatenate([shards[number] for number in sorted(shards)])

    def embedded(self, kind, ids):
        x = self.table(kind)[ids]
        if self.hparams["multiply_embedding_mode"] == "sqrt_depth":
            x = x * self.hparams["hidden_size"] ** 0.5
        return x * (ids != 0)[..., None]

    def positions(self, side, length, positions):
        """Return the position encoding [1 or B, T, D], or 0."""
        kind, size = self.hparams["pos"], self.hparams["hidden_size"]
        positions = np.arange(length)[None] if positions is None else positions
        if kind == "timing":
            count = size // 2
            steps = np.arange(count) / max(count - 1, 1)
            angles = positions[..., None] * np.exp(-np.log(1e4) * steps)
            signal = np.concatenate([np.sin(angles), np.cos(angles)], -1)
            return np.pad(signal, ((0, 0), (0, 0), (0, size % 2)))
        if kind == "emb":
            table = self[f"{side}_positional_embedding"]
            beyond = max(0, positions.max() + 1 - len(table))
            return np.pad(table, ((0, beyond), (0, 0)))[positions]
        assert kind in (None, "none")
        return 0.0

    def before(self, x, scope):
        """Preprocess the input of a sublayer or the output of a stack."""
        if self.hparams["layer_preprocess_sequence"] != "n":
            return x
        return self._norm(x, f"{scope}/layer_prepostprocess/layer_norm")

    def behind(self, x, y, scope):
        """Postprocess the output y of a sublayer with the input x."""
        if self.hparams["layer_postprocess_sequence"] == "da":
            return x + y
        return self._norm(x + y, f"{scope}/layer_postprocess/layer_norm")

    def _norm(self, x, scope):
        centered = x - x.mean(-1, keepdims=True)
        variance = (centered**2).mean(-1, keepdims=True)
        centered = centered / np.sqrt(variance + self.hparams["norm_epsilon"])
        scale, bias = (self[f"{scope}/layer_norm_{n}"] for n in _SCALE_BIAS)
        return centered * scale + bias

    def feed_forward(self, x, scope):
        hidden = self.before(x, scope) @ self[f"{scope}/conv1/kernel"]
        hidden = np.maximum(hidden + self[f"{scope}/conv1/bias"], 0.0)
        y = hidden @ self[f"{scope}/conv2/kernel"]
        return self.behind(x, y + self[f"{scope}/conv2/bias"], scope)

    def attend(self, x, scope, bias, memory=None):
        y = self.before(x, scope)
        of_memory = y if memory is None else memory
        inner = f"{scope}/multihead_attention"
        query = self._heads(y @ self[f"{inner}/q/kernel"])
        keys = self._heads(of_memory @ self[f"{inner}/k/kernel"])
        values = self._heads(of_memory @ self[f"{inner}/v/kernel"])
        query = query * query.shape[-1] ** -0.5
        scores = np.einsum("bhtd,bhsd->bhts", query, keys)
        kind = self.hparams["self_attention_type"]
        relative = memory is None and kind == "dot_product_relative"
        if relative:
            columns = np.arange(x.shape[1])
            reach = self.hparams["max_relative_position"]
            rows = np.clip(columns - columns[:, None], -reach, reach) + reach
            tables = [
                self[
                    f"{inner}/dot_product_attention_relative/"
                    f"relative_positions_{side}/embeddings"
                ][rows]
                for side in ("keys", "values")
            ]  # [T, S, d]
            scores = scores + np.einsum("bhtd,tsd->bhts", query, tables[0])
        scores = scores + bias
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights = weights / weights.sum(-1, keepdims=True)
        context = np.einsum("bhts,bhsd->bthd", weights, values)
        if relative:
            context = context + np.einsum("bhts,tsd->bthd", weights, tables[1])
        context = context.reshape(*context.shape[:2], -1)
        y = context @ self[f"{inner}/output_transform/kernel"]
        return self.behind(x, y, scope)

    def _heads(self, x):
        """Reshape [B, T, H * d] to [B, H, T, d]: heads are column blocks."""
        x = x.reshape(*x.shape[:2], self.hparams["num_heads"], -1)
        return x.swapaxes(1, 2)


_SCALE_BIAS = ("scale", "bias")


def _side(packed, side):
    return packed.get(f"{side}_segmentation"), packed.get(f"{side}_position")


def _segment_bias(queries, keys):
    """Return the bias [B, 1, T, S] that masks other pairs of a row."""
    same = np.asarray(queries)[:, :, None] == np.asarray(keys)[:, None]
    return np.where(same, 0.0, MASKED)[:, None]
