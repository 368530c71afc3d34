"""A layer whose activations the backward pass computes again.

Of such a layer the forward pass keeps its inputs alone (arXiv:1604.06174).
"""

import copy
from typing import Any

import keras
from keras import ops

from t2t_lite.model.layers.backend import Tensor
from t2t_lite.model.layers.dropout import DropoutMasks


def recomputed(
    layer: keras.layers.Layer,
    *inputs: Tensor,
    dropout: DropoutMasks,
    **options: Any,
) -> Tensor:
    """What `layer(*inputs, dropout=dropout, **options)` gives.

    Its dropout is the same both times.

    Args:
      layer: built.
      inputs: tensors; gradients go back to them.
      dropout: of this pass.
      options: of the call; no gradient goes back to them.
    """
    before = copy.copy(dropout)

    def call(*tensors):
        masks = copy.copy(before)
        values = tensors[len(inputs) :]
        mapping = list(zip(layer.variables, values, strict=True))
        with keras.StatelessScope(state_mapping=mapping):
            output = layer(*tensors[: len(inputs)], dropout=masks, **options)
        dropout.drawn = max(dropout.drawn, masks.drawn)
        return output

    # Reshaped: values, for a variable that is read twice has two gradients.
    weights = [ops.reshape(v, v.shape) for v in layer.variables]
    return keras.remat(call)(*inputs, *weights)
