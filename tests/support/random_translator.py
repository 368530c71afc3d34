"""Random sentences, and a translator with random weights."""

import random

import numpy as np

from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.decoding.translator import Translator
from t2t_lite.model.transformer import Transformer
from t2t_lite.tokenizers.base import EOS_ID
from t2t_lite.tokenizers.sentencepiece import SentencePieceTokenizer

WORDS = "eins zwei drei vier haus katze hund maus rot grün blau weiß".split()


def random_sentences(count, most=12, seed=1):
    generator = random.Random(seed)
    return [
        " ".join(generator.choices(WORDS, k=generator.randint(1, most)))
        for _ in range(count)
    ]


def random_model(vocab_size, seed=1, layers=1, **options):
    """Return a model with random weights, large enough to avoid ties."""
    model = Transformer(
        vocab_size,
        vocab_size,
        hidden_size=16,
        filter_size=32,
        num_heads=2,
        num_hidden_layers=layers,
        norm_placement="pre",
        **options,
    ).build_weights()
    generator = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        if len(variable.shape) == 2:
            size = 1.5 / np.sqrt(variable.shape[0])
            if "table" in variable.path:
                size = 0.7
            value = generator.normal(0, size, variable.shape)
            if "table" in variable.path:
                value[EOS_ID] *= 2  # so that some hypotheses end
            variable.assign(value)
    return model


def train_encoder(folder):
    """Train a vocabulary on random sentences."""
    path = folder / "vocabulary.model"
    return SentencePieceTokenizer.train(random_sentences(300), 320, path)


def random_translator(encoder, layers=1, settings=None, **options):
    """Return a translator with random weights, a beam of 3 and short limits."""
    return Translator(
        random_model(encoder.vocab_size, layers=layers, **options),
        encoder,
        encoder,
        settings or SearchSettings(beam_size=3),
        extra_decode_length=6,
        max_length=20,
    )
