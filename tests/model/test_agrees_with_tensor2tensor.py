"""Packed rows have the logits of tensor2tensor.

`interop/tensor2tensor/test_importing.py` compares rows of one pair, with every
option that both models have.
"""

import numpy as np
import pytest

from support.packed_rows import pack
from support.t2t_reference import reference_logits
from support.t2t_train_dir import VALUES, variables_of, write_checkpoint
from t2t_lite.interop.tensor2tensor.checkpoint import Checkpoint
from t2t_lite.interop.tensor2tensor.hparams import DEFAULTS, hparams_of
from t2t_lite.model.transformer import Transformer

VOCAB = 19
PRE = {"layer_preprocess_sequence": "n", "layer_postprocess_sequence": "da"}
RELATIVE = {"self_attention_type": "dot_product_relative", "pos": None}


def random_sentence(generator, length):
    return np.append(generator.integers(2, VOCAB, length - 1), 1)


def packed(spacing):
    """Return features with a row of three pairs and a row of one pair."""
    generator = np.random.default_rng(4)
    rows = [
        [[random_sentence(generator, n) for _ in range(2)] for n in lengths]
        for lengths in ((4, 5, 3), (6,))
    ]
    return pack(rows, 18, spacing)


@pytest.mark.parametrize("spacing", [0, 1])
@pytest.mark.parametrize(
    "changes",
    [
        PRE,
        {**PRE, "pos": "emb", "max_length": 5},
        {**RELATIVE, "max_relative_position": 2},
    ],
    ids=["concatenated", "learned", "relative"],
)
def test_packed_rows_equal_those_of_tensor2tensor(tmp_path, changes, spacing):
    """The decoder starts with the id before the sentence: EOS or padding."""
    values = {**DEFAULTS, **VALUES, **changes}
    variables = variables_of(values, VOCAB)
    write_checkpoint(tmp_path / "model.ckpt-1", variables)
    features = packed(spacing)
    real = features["targets"] > 0

    def logits(hparams):
        model = Transformer.from_hparams(hparams, VOCAB, VOCAB).build_weights()
        weights = {w.path.partition("/")[2]: w for w in model.weights}
        shapes = {name: weight.shape for name, weight in weights.items()}
        stored = Checkpoint(tmp_path / "model.ckpt-1").weights(0, shapes)
        for name, value in stored.items():
            weights[name].assign(value)
        return np.array(model(features))[real]

    hparams = hparams_of(values)
    found = logits(hparams)
    packing = {k: v for k, v in features.items() if "_" in k}
    expected = reference_logits(
        variables, values, features["inputs"], features["targets"], packing
    )
    np.testing.assert_allclose(found, expected[real], rtol=1e-5, atol=1e-5)
    separate = logits(hparams.replace(shift_across_segments=False))
    assert (np.abs(separate - found).max() > 1e-3) == (spacing == 0)
