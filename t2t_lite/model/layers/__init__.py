"""The parts of the Transformer, on `keras.ops` alone."""

from t2t_lite.model.layers.attention import MultiHeadAttention
from t2t_lite.model.layers.blocks import DecoderLayer, EncoderLayer
from t2t_lite.model.layers.dropout import DropoutMasks
from t2t_lite.model.layers.embedding import SourceVector, TokenEmbedding
from t2t_lite.model.layers.feed_forward import FeedForward
from t2t_lite.model.layers.normalization import LayerNormalization
from t2t_lite.model.layers.position import (
    LearnedPositions,
    SinusoidalPositions,
    no_positions,
)

__all__ = [
    "DecoderLayer",
    "DropoutMasks",
    "EncoderLayer",
    "FeedForward",
    "LayerNormalization",
    "LearnedPositions",
    "MultiHeadAttention",
    "SinusoidalPositions",
    "SourceVector",
    "TokenEmbedding",
    "no_positions",
]
