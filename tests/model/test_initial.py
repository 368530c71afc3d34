"""Weights of any values: only within the block that asks for them."""

import keras
import numpy as np
import pytest

from t2t_lite.model.layers import initial
from t2t_lite.model.layers.embedding import TokenEmbedding


@pytest.fixture
def poison(monkeypatch):
    """What is never set shows: it is no number."""
    monkeypatch.setattr(
        initial, "unset_values", lambda shape, dtype: np.full(shape, np.nan)
    )


def is_drawn():
    layer = TokenEmbedding(5, 4)
    layer.build()
    return bool(keras.ops.all(keras.ops.isfinite(layer.table)))


def test_weights_are_unset_within_the_block_only(poison):
    assert is_drawn()
    with initial.unset():
        assert not is_drawn()
        with initial.unset(False):
            assert is_drawn()
        assert not is_drawn()
    assert is_drawn()


def test_an_error_ends_the_block_too(poison):
    with pytest.raises(KeyError), initial.unset():
        raise KeyError
    assert is_drawn()
