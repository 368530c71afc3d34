import pytest

from t2t_lite.errors import UsageError
from t2t_lite.training.optimizer.freezing import frozen_paths

PATHS = [
    "transformer/source_embedding/table",
    "transformer/softmax/table",
    "transformer/encoder_positions/table",
    "transformer/encoder_layer_0/self_attention/query_kernel",
    "transformer/encoder_layer_0/self_attention_norm/scale",
    "transformer/encoder_norm/bias",
    "transformer/decoder_layer_0/self_attention/query_kernel",
]


def _frozen(*patterns):
    found = frozen_paths(PATHS, patterns)
    return [number for number, path in enumerate(PATHS) if path in found]


@pytest.mark.parametrize(
    ("patterns", "numbers"),
    [
        ((), []),
        (("encoder",), [2, 3, 4, 5]),
        (("decoder",), [6]),
        (("embeddings",), [0, 1]),
        (("embeddings", "decoder"), [0, 1, 6]),
        (("*/self_attention/*",), [3, 6]),
        (("encoder_layer_0/*",), [3, 4]),
        (("softmax/table",), [1]),
        (("*scale", "*bias"), [4, 5]),
    ],
)
def test_patterns_name_parts_of_the_model(patterns, numbers):
    assert _frozen(*patterns) == numbers


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        (("encodr",), "'encodr' matches no weight; .* Did you mean encoder"),
        (("encoder", "softmax"), "'softmax' matches .* mean softmax/"),
        (("encoder_layer_1/*",), "Did you mean encoder_layer_0/"),
        (("*",), "leaves no weight to train"),
    ],
)
def test_a_pattern_that_is_of_no_use_is_refused(patterns, message):
    with pytest.raises(UsageError, match=message):
        _frozen(*patterns)
