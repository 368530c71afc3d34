"""A vocabulary and a model, shared by all tests, which must not change them."""

import pytest

from support.random_translator import random_model, train_encoder


@pytest.fixture(scope="session")
def encoder(tmp_path_factory):
    return train_encoder(tmp_path_factory.mktemp("vocabulary"))


@pytest.fixture(scope="session")
def model(encoder):
    return random_model(encoder.vocab_size)
