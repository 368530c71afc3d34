"""Fixtures: a random model and its export."""

import shutil

import pytest
import tensorflow as tf

from support.random_translator import random_translator, train_encoder
from t2t_lite.serving.export import export_saved_model
from t2t_lite.serving.options import ExportOptions


@pytest.fixture(scope="session")
def encoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vocabulary")
    encoder = train_encoder(folder)
    shutil.rmtree(folder)  # an export needs no vocabulary file
    return encoder


@pytest.fixture(scope="session")
def translator(encoder):
    return random_translator(encoder, layers=2)


@pytest.fixture(scope="session")
def exported(translator, tmp_path_factory):
    """An export with all signatures, moved after it was written."""
    folder = tmp_path_factory.mktemp("export")
    options = ExportOptions(attention=True, warmup=3)
    path = export_saved_model(translator, folder / "e", options)
    return path.rename(folder / "7")


@pytest.fixture(scope="session")
def served(exported):
    """The signatures of the loaded export."""
    return tf.saved_model.load(str(exported)).signatures
