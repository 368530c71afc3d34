"""A vocabulary and a model of it, for the whole room; not to be changed."""

import pytest

from support.random_translator import random_model, train_encoder


@pytest.fixture(scope="session")
def encoder(tmp_path_factory):
    return train_encoder(tmp_path_factory.mktemp("vocabulary"))


@pytest.fixture(scope="session")
def model(encoder):
    return random_model(encoder.vocab_size)
