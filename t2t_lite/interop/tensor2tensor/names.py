"""What tensor2tensor calls the weights of a Transformer.

Its kernels lie as ours do, heads side by side. Two things differ: an embedding
is cut into pieces by rows, `weights_0`, `weights_1`, ...; and the vector that
is added to the source is one row of a table with 32 of them.
"""

import itertools
from collections.abc import Iterator

from t2t_lite.hparam import ModelHParams

BODY = "transformer/body"
TARGET_SPACES = f"{BODY}/target_space_embedding/kernel"
SOURCE_VECTOR = "source_vector/vector"
# An embedding by our name: the last scope of its pieces.
EMBEDDINGS = {
    "shared_embedding/table": "shared",
    "source_embedding/table": "input_emb",
    "target_embedding/table": "target_emb",
    "softmax/table": "softmax",
}
POSITIONS = {
    "encoder_positions/table": f"{BODY}/inputs_positional_embedding",
    "decoder_positions/table": f"{BODY}/targets_positional_embedding",
}
_STACKS = {
    "encoder": {"self_attention": "self_attention", "feed_forward": "ffn"},
    "decoder": {
        "self_attention": "self_attention",
        "cross_attention": "encdec_attention",
        "feed_forward": "ffn",
    },
}
_ATTENTION = {
    "query_kernel": "q/kernel",
    "key_kernel": "k/kernel",
    "value_kernel": "v/kernel",
    "output_kernel": "output_transform/kernel",
}
_RELATIVE = {
    "relative_keys": "relative_positions_keys/embeddings",
    "relative_values": "relative_positions_values/embeddings",
}
_FEED_FORWARD = {
    "hidden_kernel": "conv1/kernel",
    "hidden_bias": "conv1/bias",
    "output_kernel": "conv2/kernel",
    "output_bias": "conv2/bias",
}
_NORM = {"scale": "layer_norm_scale", "bias": "layer_norm_bias"}


def names_of_weights(hparams: ModelHParams) -> dict[str, str]:
    """The name in tensor2tensor of each weight by ours, without the model's.

    All but the embeddings and the source vector, which are made of others.
    """
    return dict(_names(hparams))


def _names(hparams: ModelHParams) -> Iterator[tuple[str, str]]:
    if hparams.position_encoding == "learned":
        yield from POSITIONS.items()
    layers = hparams.num_hidden_layers
    depths = {
        "encoder": hparams.num_encoder_layers or layers,
        "decoder": hparams.num_decoder_layers or layers,
    }
    is_pre = hparams.norm_placement == "pre"
    norm = "layer_prepostprocess" if is_pre else "layer_postprocess"
    for stack, sublayers in _STACKS.items():
        for number, (ours, theirs) in itertools.product(
            range(depths[stack]), sublayers.items()
        ):
            layer = f"{stack}_layer_{number}"
            scope = f"{BODY}/{stack}/layer_{number}/{theirs}"
            yield from _pairs(
                f"{layer}/{ours}_norm", f"{scope}/{norm}/layer_norm", _NORM
            )
            if ours == "feed_forward":
                yield from _pairs(f"{layer}/{ours}", scope, _FEED_FORWARD)
                continue
            scope = f"{scope}/multihead_attention"
            yield from _pairs(f"{layer}/{ours}", scope, _ATTENTION)
            if ours == "self_attention" and hparams.max_relative_position:
                yield from _pairs(
                    f"{layer}/{ours}",
                    f"{scope}/dot_product_attention_relative",
                    _RELATIVE,
                )
        if is_pre:
            yield from _pairs(
                f"{stack}_norm", f"{BODY}/{stack}/{norm}/layer_norm", _NORM
            )


def _pairs(
    ours: str, theirs: str, names: dict[str, str]
) -> Iterator[tuple[str, str]]:
    for name, original in names.items():
        yield f"{ours}/{name}", f"{theirs}/{original}"
