"""The model equals tensor2tensor's with every option that both have."""

import json

import numpy as np
import pytest
from keras import ops

from support.places import SHARED_DATA
from support.t2t_reference import reference_logits
from t2t_lite.model.transformer import Transformer

RECORDED = SHARED_DATA / "t2t" / "forward"
VOCAB = 19
SPACE = 4  # the row of the target space that is used
PRE = {"norm_placement": "pre", "position_encoding": "concatenated"}
POST = {"norm_placement": "post", "position_encoding": "concatenated"}
VARIANTS = {
    "pre-norm": PRE,
    "post-norm": POST,
    "a source vector": {**PRE, "target_space_embedding": True},
    "a source vector, post-norm": {**POST, "target_space_embedding": True},
    "other stacks": {**PRE, "num_encoder_layers": 1, "num_decoder_layers": 3},
    "embeddings as they are": {**POST, "embedding_scale": "none"},
    "a large epsilon": {**PRE, "norm_epsilon": 0.1},
    "a large epsilon, post-norm": {**POST, "norm_epsilon": 0.1},
    "an odd size": {**PRE, "hidden_size": 9, "num_heads": 3},
    "a rounded vocabulary": {**PRE, "vocab_divisor": 8},
    "three tables": {**PRE, "shared_embedding": False, "vocab_divisor": 8},
    "no positions": {**PRE, "position_encoding": "none"},
    "learned positions, too few": {
        **POST,
        "position_encoding": "learned",
        "max_length": 5,
    },
    "relative positions": {
        **PRE,
        "position_encoding": "none",
        "max_relative_position": 2,
        "target_space_embedding": True,
    },
    "relative positions, post-norm, depths": {
        **POST,
        "max_relative_position": 20,
        "key_depth": 3,
        "value_depth": 5,
    },
}


def make_model(changes):
    sizes = {"hidden_size": 8, "num_heads": 2, "num_hidden_layers": 1}
    sizes |= {"filter_size": 16, "residual_dropout": 0.0, **changes}
    model = Transformer(VOCAB, VOCAB, **sizes).build_weights()
    generator = np.random.default_rng(1)
    for variable in model.trainable_variables:
        noise = generator.normal(0, 0.4, variable.shape)
        # Scales of norms stay near 1; biases become non-zero.
        variable.assign(noise + variable.path.endswith("scale"))
    return model


# tensor2tensor's names of the parts of our model.
TABLES = {
    "shared_embedding": "shared",
    "source_embedding": "input_emb",
    "target_embedding": "target_emb",
    "softmax": "softmax",
}
POSITIONS = {
    "encoder_positions": "inputs_positional_embedding",
    "decoder_positions": "targets_positional_embedding",
}
SUBLAYERS = {
    "self_attention": "self_attention",
    "cross_attention": "encdec_attention",
    "feed_forward": "ffn",
}
RELATIVE = "dot_product_attention_relative/relative_positions"
WEIGHTS = {
    "query_kernel": "multihead_attention/q/kernel",
    "key_kernel": "multihead_attention/k/kernel",
    "value_kernel": "multihead_attention/v/kernel",
    "output_kernel": "multihead_attention/output_transform/kernel",
    "relative_keys": f"multihead_attention/{RELATIVE}_keys/embeddings",
    "relative_values": f"multihead_attention/{RELATIVE}_values/embeddings",
}
FEED_FORWARD = {
    "hidden_kernel": "conv1/kernel",
    "hidden_bias": "conv1/bias",
    "output_kernel": "conv2/kernel",
    "output_bias": "conv2/bias",
}


def t2t_name(path, pre):
    """Return tensor2tensor's name of a weight in the encoder or decoder."""
    *scope, name = path.split("/")
    stack, _, number = scope[0].partition("_layer_")
    norm = f"layer_{'prepost' if pre else 'post'}process/layer_norm/layer_norm_"
    if scope[0].endswith("_norm"):
        return f"{stack.removesuffix('_norm')}/{norm}{name}"
    part = SUBLAYERS[scope[1].removesuffix("_norm")]
    if scope[1].endswith("_norm"):
        name = norm + name
    else:
        name = (FEED_FORWARD if part == "ffn" else WEIGHTS)[name]
    return f"{stack}/layer_{number}/{part}/{name}"


def t2t_variables(model):
    """Return the weights of a model by tensor2tensor's names."""
    variables, body = {}, "transformer/body"
    for weight in model.trainable_variables:
        path, value = weight.path.partition("/")[2], weight.numpy()
        part = path.partition("/")[0]
        if part in TABLES:
            prefix = f"transformer/symbol_modality/{TABLES[part]}/weights_"
            for number, shard in enumerate(np.array_split(value, 16)):
                variables[prefix + str(number)] = shard
        elif part in POSITIONS:
            variables[f"{body}/{POSITIONS[part]}"] = value
        elif part == "target_space_embedding":
            rows = np.random.default_rng(3).normal(size=(32, len(value)))
            rows[SPACE] = value
            variables[f"{body}/target_space_embedding/kernel"] = rows
        else:
            pre = model.hparams.norm_placement == "pre"
            variables[f"{body}/{t2t_name(path, pre)}"] = value
    return variables


def t2t_hparams(hparams):
    """Return the hparams of a model by tensor2tensor's names."""
    pre = hparams.norm_placement == "pre"
    positions = {"concatenated": "timing", "learned": "emb", "none": None}
    relative = hparams.max_relative_position
    return {
        "hidden_size": hparams.hidden_size,
        "num_heads": hparams.num_heads,
        "num_hidden_layers": hparams.num_hidden_layers,
        "num_encoder_layers": hparams.num_encoder_layers or 0,
        "num_decoder_layers": hparams.num_decoder_layers or 0,
        "multiply_embedding_mode": hparams.embedding_scale,
        "use_target_space_embedding": hparams.target_space_embedding,
        "norm_epsilon": hparams.norm_epsilon,
        "layer_preprocess_sequence": "n" if pre else "none",
        "layer_postprocess_sequence": "da" if pre else "dan",
        "pos": positions[hparams.position_encoding],
        "self_attention_type": f"dot_product{'_relative' * bool(relative)}",
        "max_relative_position": relative or 0,
    }


def wanted(model, features):
    """Return the logits of the reference implementation."""
    features = dict(features)
    batch = [features.pop(side) for side in ("inputs", "targets")]
    return reference_logits(
        t2t_variables(model),
        t2t_hparams(model.hparams),
        *batch,
        features,
        space=SPACE,
    )


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS)
def model(request):
    return make_model(request.param)


def pairs():
    generator = np.random.default_rng(2)
    inputs = generator.integers(2, VOCAB, (3, 9))
    inputs[1, 6:] = 0
    return {"inputs": inputs, "targets": generator.integers(2, VOCAB, (3, 8))}


def test_logits_equal_those_of_tensor2tensor(model):
    features = pairs()
    np.testing.assert_allclose(
        model(features), wanted(model, features), rtol=1e-5, atol=1e-5
    )


def test_cached_steps_equal_those_of_tensor2tensor(model):
    features = pairs()
    memory, mask = model.encode(features["inputs"])
    step_fn, cache = model.init_decoding(memory, mask, 2, 8)
    found, ids = [], np.zeros((3, 2), "int32")
    for index in range(8):
        logits, cache = step_fn(ids, ops.array(index), cache)
        cache = model.reorder_cache(cache, ops.array([[1, 0]] * 3, "int32"))
        found.append(logits[:, 1])
        ids = np.repeat(features["targets"][:, index, None], 2, axis=1)
    np.testing.assert_allclose(
        np.stack(found, axis=1), wanted(model, features), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("spacing", [0, 1])
@pytest.mark.parametrize(
    "changes",
    [
        PRE,
        {**PRE, "position_encoding": "learned", "max_length": 5},
        {**POST, "position_encoding": "none", "max_relative_position": 2},
    ],
    ids=["concatenated", "learned", "relative"],
)
def test_packed_rows_equal_those_of_tensor2tensor(changes, spacing):
    """The decoder starts with the id before the sentence: EOS or padding."""
    model = make_model({**changes, "shift_across_segments": True})
    features = packed(spacing)
    real = features["targets"] > 0
    found, expected = np.array(model(features)), wanted(model, features)
    np.testing.assert_allclose(
        found[real], expected[real], rtol=1e-5, atol=1e-5
    )
    separate = make_model(changes)
    changed = np.abs(np.array(separate(features)) - found)[real].max()
    assert (changed > 1e-3) == (spacing == 0)


def packed(spacing):
    """Return features with a row of three pairs and a row of one pair."""
    generator = np.random.default_rng(4)
    features = {}
    for side, width in (("inputs", 16), ("targets", 18)):
        ids, numbers, positions = np.zeros((3, 2, width), "int32")
        for row, lengths in enumerate([(4, 5, 3), (6,)]):
            start = 0
            for number, length in enumerate(lengths, start=1):
                span = slice(start, start + length)
                ids[row, span] = generator.integers(2, VOCAB, length)
                ids[row, span.stop - 1] = 1
                numbers[row, span] = number
                positions[row, span] = np.arange(length)
                start = span.stop + spacing
        features[side] = ids
        features[f"{side}_segmentation"] = numbers
        features[f"{side}_position"] = positions
    return features


@pytest.mark.skipif(
    not RECORDED.is_dir(), reason="needs the recordings of tensor2tensor"
)
@pytest.mark.parametrize("name", ["tiny", "base_v3_small", "relative"])
def test_reference_implementation_gives_the_recorded_logits(name):
    hparams = json.loads((RECORDED / f"{name}.hparams.json").read_text())
    variables = dict(np.load(RECORDED / f"{name}.variables.npz"))
    recorded = np.load(RECORDED / f"{name}.io.npz")
    space = 8 if name == "base_v3_small" else 0
    for batch in range(3):
        found = reference_logits(
            variables,
            hparams,
            recorded[f"inputs_{batch}"],
            recorded[f"targets_{batch}"],
            space=space,
        )
        expected = recorded[f"logits_{batch}"]
        real = recorded[f"targets_{batch}"] > 0
        np.testing.assert_allclose(found[real], expected[real], atol=1e-5)
