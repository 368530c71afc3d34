"""A micro-batch in halves gives what it gives as a whole."""

import numpy as np
import pytest
import tensorflow as tf

from support.tiny_run import VOCAB_SIZE, packed, tiny_hparams
from t2t_lite.data.packing import feature_names
from t2t_lite.model.transformer import Transformer
from t2t_lite.training.optimizer.gradients import Gradients


def _gradients(**changes):
    hparams = tiny_hparams(**changes)
    model = Transformer.from_hparams(hparams, VOCAB_SIZE, VOCAB_SIZE)
    model.build_weights()
    # A weight that the loss does not know has no gradient.
    weights = [tf.Variable(1.0), *(v.value for v in model.trainable_variables)]
    names = feature_names(hparams.packing)
    return Gradients(model, names, weights, label_smoothing=0.1)


def _rows(count, width=5):
    """Sentences of several lengths, as features."""
    random = np.random.default_rng(count)
    ids = random.integers(2, VOCAB_SIZE, (count, width)).astype(np.int32)
    for row, line in enumerate(ids):
        line[width - row % 3 :] = 0
    return {"inputs": tf.constant(ids), "targets": tf.constant(ids[:, ::-1])}


def _assert_alike(make, features):
    whole, halves = (
        tf.function(each, autograph=False)(features)
        for each in (make, make.in_halves)
    )
    loss, tokens, gradients = whole
    assert tokens == halves[1] > 0
    np.testing.assert_allclose(halves[0], loss, rtol=1e-5)
    assert gradients[0] is halves[2][0] is None
    for one, other in zip(gradients[1:], halves[2][1:], strict=True):
        np.testing.assert_allclose(
            other, tf.convert_to_tensor(one), rtol=0, atol=1e-5
        )


@pytest.mark.parametrize("seed", [[7, 8], [7, 8, 3]])
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_halves_lose_what_the_whole_loses_and_add_up_to_it(rows, seed):
    make = _gradients(residual_dropout=0.5, attention_dropout=0.3)
    _assert_alike(make, _rows(rows) | {"seed": np.array(seed, np.int32)})


def test_halves_of_packed_rows_are_attended_alone():
    make = _gradients(packing=True, residual_dropout=0.5)
    rows = [packed(_rows(count)) for count in (4, 4, 4)]
    features = {
        name: tf.concat([row[name] for row in rows], axis=0) for name in rows[0]
    }
    _assert_alike(make, features | {"seed": np.array([7, 8], np.int32)})
