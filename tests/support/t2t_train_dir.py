"""Training folders in the format of tensor2tensor, with random weights.

Names and shapes follow tensor2tensor's code and recorded lists of variables,
and are independent of the importer.
"""

import json

import numpy as np
import tensorflow as tf

# A vocabulary with the characters of escapes, and some letters.
PIECES = [
    "<pad>_",
    "<EOS>_",
    *"\\_u;0123456789abcdefghijklm",
    "ab_",
    "cde",
    "f_",
]
VALUES = {
    "hidden_size": 8,
    "filter_size": 12,
    "num_heads": 2,
    "num_hidden_layers": 2,
    "symbol_modality_num_shards": 3,
}
_SLOTS = ("Adam", "Adam_1")


def variables_of(values, vocab_size, seed=0):
    """Return random variables by name for tensor2tensor's hparams."""
    random = np.random.default_rng(seed)
    size, filter_size = values["hidden_size"], values["filter_size"]
    pieces = values["symbol_modality_num_shards"]
    shapes = {}

    def table(rows, scope):
        rows += -rows % values.get("vocab_divisor", 1)
        for i in range(pieces):
            shapes[
                f"transformer/symbol_modality_{rows}_{size}/{scope}/weights_{i}"
            ] = (rows // pieces + (i < rows % pieces), size)

    if values.get("shared_embedding_and_softmax_weights", True):
        table(vocab_size, "shared")
    else:
        for scope in ("input_emb", "target_emb", "softmax"):
            table(vocab_size, scope)
    body = "transformer/body"
    if values.get("use_target_space_embedding", True):
        shapes[f"{body}/target_space_embedding/kernel"] = (32, size)
    if values.get("pos", "timing") == "emb":
        for side in ("inputs", "targets"):
            shapes[f"{body}/{side}_positional_embedding"] = (
                values.get("max_length", 256),
                size,
            )
    is_pre = values.get("layer_preprocess_sequence", "none") == "n"
    norm = "layer_prepostprocess" if is_pre else "layer_postprocess"

    def normalization(scope):
        for part in ("scale", "bias"):
            shapes[f"{scope}/{norm}/layer_norm/layer_norm_{part}"] = (size,)

    def attention(scope, is_self):
        normalization(scope)
        scope += "/multihead_attention"
        keys = values.get("attention_key_channels") or size
        channels = values.get("attention_value_channels") or size
        shapes[f"{scope}/q/kernel"] = (size, keys)
        shapes[f"{scope}/k/kernel"] = (size, keys)
        shapes[f"{scope}/v/kernel"] = (size, channels)
        shapes[f"{scope}/output_transform/kernel"] = (channels, size)
        if is_self and values.get("self_attention_type", "").endswith(
            "relative"
        ):
            rows = 2 * values["max_relative_position"] + 1
            scope += "/dot_product_attention_relative/relative_positions_"
            shapes[f"{scope}keys/embeddings"] = (
                rows,
                keys // values["num_heads"],
            )
            shapes[f"{scope}values/embeddings"] = (
                rows,
                channels // values["num_heads"],
            )

    for stack, others in (("encoder", []), ("decoder", ["encdec_attention"])):
        layers = (
            values.get(f"num_{stack}_layers") or values["num_hidden_layers"]
        )
        for number in range(layers):
            layer = f"{body}/{stack}/layer_{number}"
            for name in ["self_attention", *others]:
                attention(f"{layer}/{name}", name == "self_attention")
            normalization(f"{layer}/ffn")
            shapes[f"{layer}/ffn/conv1/kernel"] = (size, filter_size)
            shapes[f"{layer}/ffn/conv1/bias"] = (filter_size,)
            shapes[f"{layer}/ffn/conv2/kernel"] = (filter_size, size)
            shapes[f"{layer}/ffn/conv2/bias"] = (size,)
        if is_pre:
            normalization(f"{body}/{stack}")
    return {
        name: random.normal(0.0, 0.4, shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def slots_of(variables, seed=1, space=0):
    """Return Adam's slots; only one row of the target spaces is not zero."""
    random = np.random.default_rng(seed)
    slots = {}
    for name, value in variables.items():
        for slot in _SLOTS:
            kept = random.uniform(0.01, 0.1, value.shape).astype(np.float32)
            if "target_space" in name:
                kept[np.arange(32) != space] = 0
            slots[f"training/{name}/{slot}"] = kept
    return slots


def counters_of(step, beta1=0.9, beta2=0.98):
    """Return the counters and statistics of the trainer."""
    return {
        "global_step": np.int64(step),
        "losses_avg/problem_0/total_loss": np.float32(1),
        "train_stats/problem_0_steps": np.int32(step),
        "training/beta1_power": np.float32(beta1 ** (step + 1)),
        "training/beta2_power": np.float32(beta2 ** (step + 1)),
    }


def write_train_dir(folder, values, variables, step=7, flags=()):
    """Write a training folder; return the path of its vocabulary."""
    folder.mkdir(parents=True, exist_ok=True)
    write_checkpoint(folder / f"model.ckpt-{step}", variables)
    path = f"/elsewhere/train/model.ckpt-{step}"
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "{path}"\n')
    (folder / "hparams.json").write_text(json.dumps(values))
    (folder / "flags.txt").write_text("\n".join(["--nopdb", *flags]))
    vocabulary = folder / "vocab.test.subwords"
    vocabulary.write_text("".join(f"'{piece}'\n" for piece in PIECES))
    return vocabulary


def write_checkpoint(path, variables):
    names = list(variables)
    tf.raw_ops.SaveV2(
        prefix=str(path),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[tf.constant(variables[name]) for name in names],
    )
