"""A translator as a model folder of CTranslate2.

CTranslate2 (https://github.com/OpenNMT/CTranslate2) is an engine of its own,
with weights of 8 bits. The folder is written with its own classes:

```
FOLDER/model.bin, config.json, *_vocabulary.json   CTranslate2's
       *.vocab.*                                   copies of the vocabularies
       t2t-lite.json                               how to search
```
"""

import os
import pathlib
import shutil
from typing import Any

import ml_dtypes
import numpy as np
from keras import ops

from t2t_lite import files
from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.decoding.translator import Translator
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.interop.quantization import Quantization
from t2t_lite.text.encoder import EOS_ID, PAD_ID, TextEncoder
from t2t_lite.text.token_encoder import SPECIAL_TOKENS

SETTINGS = "t2t-lite.json"
PAD, EOS, UNK = SPECIAL_TOKENS


def load_ctranslate2() -> Any:
    """The package `ctranslate2`.

    Raises:
      T2TLiteError: it is not installed.
    """
    try:
        import ctranslate2
    except ImportError as error:
        raise T2TLiteError(
            "CTranslate2 is not installed: pip install 't2t-lite[ctranslate2]'."
        ) from error
    return ctranslate2


def write_ctranslate2(
    translator: Translator,
    folder: str | os.PathLike,
    quantization: Quantization = "float32",
) -> None:
    """Writes the model, the vocabularies and the settings of a translator.

    Nothing is approximated but by the type of the weights.

    Args:
      translator: what to write.
      folder: empty.
      quantization: the type of the weights.

    Raises:
      UsageError: CTranslate2 cannot run it.
      T2TLiteError: CTranslate2 is not installed.
    """
    folder = pathlib.Path(folder)
    spec = _spec(translator)
    spec.validate()
    _quantize(spec, quantization)
    spec.save(str(folder))
    encoders = {
        "source": translator.source_encoder,
        "target": translator.target_encoder,
    }
    for path in {encoder.path for encoder in encoders.values()}:
        shutil.copyfile(path, folder / path.name)
    settings = {
        "vocabularies": {
            side: encoder.path.name for side, encoder in encoders.items()
        },
        "search": {
            "beam_size": translator.settings.beam_size,
            "alpha": translator.settings.alpha,
        },
        "extra_decode_length": translator.extra_decode_length,
        "max_length": translator.max_length,
    }
    files.write_json(folder / SETTINGS, settings)


def token_names(encoder: TextEncoder, count: int = 0) -> list[str]:
    """What CTranslate2 calls the ids of a vocabulary: its pieces.

    The special ids have one name in every vocabulary. A piece that has the name
    of another id is followed by its own. Ids beyond the vocabulary, up to the
    `count` that a model has, are their own names.
    """
    special = {PAD_ID: PAD, EOS_ID: EOS}
    if encoder.unknown_id is not None:
        special[encoder.unknown_id] = UNK
    names: list[str] = []
    taken = set(special.values())
    for index, piece in enumerate(encoder.pieces(range(encoder.vocab_size))):
        if index in special:
            piece = special[index]
        elif piece in taken:
            piece = f"{piece}\n{index}"
        taken.add(piece)
        names.append(piece)
    return names + [f"\n{index}" for index in range(len(names), count)]


def require_runnable(translator: Translator) -> None:
    """Refuses what CTranslate2 cannot run exactly.

    Raises:
      UsageError: names the hparam or the option, and the reason.
      T2TLiteError: CTranslate2 is not installed.
    """
    load_ctranslate2()
    hparams = translator.one_model.hparams
    attention = translator.one_model.decoder_layers[0].self_attention
    if hparams.attention_window is not None:
        raise UsageError(
            "CTranslate2 has no attention of a window to both sides; got "
            f"attention_window={hparams.attention_window}."
        )
    if hparams.max_relative_position and hparams.position_encoding != "none":
        raise UsageError(
            "CTranslate2 has relative attention with position_encoding=none; "
            f"got {hparams.position_encoding}."
        )
    if attention.key_depth != attention.value_depth:
        raise UsageError(
            "CTranslate2 has keys and values of one depth; got "
            f"key_depth={attention.key_depth}, "
            f"value_depth={attention.value_depth}."
        )
    if translator.settings.constrained:
        raise UsageError(
            "CTranslate2 cannot search for answers of the right form only: "
            "give --constrained=false."
        )
    require_known(translator.settings)


def require_known(settings: SearchSettings) -> None:
    """Refuses options of a search that we do not ask of CTranslate2.

    Raises:
      UsageError: names the first of them.
    """
    for name in settings.changed():
        if name not in ("beam_size", "alpha"):
            raise UsageError(f"CTranslate2 searches without {name} here.")


def _spec(translator: Translator) -> Any:
    """The `TransformerSpec` of a translator's model, with its weights."""
    require_runnable(translator)
    model = translator.one_model
    attention = model.decoder_layers[0].self_attention
    sizes = {
        "num_heads": attention.num_heads,
        "pre_norm": model.hparams.norm_placement == "pre",
        "relative_position": model.hparams.max_relative_position is not None,
    }
    if attention.num_heads * attention.key_depth != model.hparams.hidden_size:
        sizes["head_dim"] = attention.key_depth
    transformer = load_ctranslate2().specs.transformer_spec
    encoder_layers, decoder_layers = model.hparams.layers
    spec = transformer.TransformerSpec(
        transformer.TransformerEncoderSpec(encoder_layers, **sizes),
        transformer.TransformerDecoderSpec(decoder_layers, **sizes),
    )
    _name_tokens(spec, translator)
    norm = model.decoder_layers[0].feed_forward_norm
    spec.config.layer_norm_epsilon = norm.epsilon
    longest = translator.max_length + translator.extra_decode_length
    _set_encoder(spec.encoder, model, longest)
    _set_decoder(spec.decoder, model, longest)
    return spec


def _quantize(spec, quantization):
    """Gives the weights their type, and equal ones one place.

    CTranslate2 converts to bfloat16 with PyTorch only, so that is done here.
    """
    if not quantization.endswith("bfloat16"):
        spec.optimize(quantization)
        return
    spec.optimize("float32" if quantization == "bfloat16" else "int8_float32")
    for name, value in spec.variables().items():
        is_alias = isinstance(value, str)
        if is_alias or value.dtype != "float32" or name.endswith("_scale"):
            continue
        value.array = value.array.astype(ml_dtypes.bfloat16)


def _name_tokens(spec, translator):
    sizes = translator.one_model.vocab_sizes
    source = token_names(translator.source_encoder, sizes[0])
    target = token_names(translator.target_encoder, sizes[1])
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    spec.config.bos_token = spec.config.decoder_start_token = PAD
    spec.config.eos_token = EOS
    # A vocabulary that can write everything may have no name for the rest.
    spec.config.unk_token = UNK if UNK in source and UNK in target else EOS
    spec.config.add_source_eos = True


def _set_encoder(spec, model, longest):
    _set_embedding(spec, spec.embeddings[0], model.source_embedding)
    if model.hparams.source_vector:
        embedding = model.source_embedding
        vector = _values(model.source_vector.vector)
        spec.embeddings[0].weight += vector / embedding.scale
    _set_positions(spec, model.encoder_positions, model.hparams, longest)
    for layer_spec, layer in zip(spec.layer, model.encoder_layers, strict=True):
        _set_block(layer_spec, layer)
    _set_last_norm(spec, model.encoder_norm)


def _set_decoder(spec, model, longest):
    # The first position has no token before it.
    spec.start_from_zero_embedding = True
    _set_embedding(spec, spec.embeddings, model.target_embedding)
    _set_positions(spec, model.decoder_positions, model.hparams, longest)
    for layer_spec, layer in zip(spec.layer, model.decoder_layers, strict=True):
        _set_block(layer_spec, layer)
        cross = layer.cross_attention
        _set_kernels(layer_spec.attention.linear[0], cross.query_kernel)
        _set_kernels(
            layer_spec.attention.linear[1], cross.key_kernel, cross.value_kernel
        )
        _set_kernels(layer_spec.attention.linear[2], cross.output_kernel)
        _set_norm(layer_spec.attention.layer_norm, layer.cross_attention_norm)
    _set_last_norm(spec, model.decoder_norm)
    spec.projection.weight = _values(model.softmax_embedding.table)


def _set_block(spec, layer):
    """The sublayers that every block has."""
    attention = layer.self_attention
    _set_kernels(
        spec.self_attention.linear[0],
        attention.query_kernel,
        attention.key_kernel,
        attention.value_kernel,
    )
    _set_kernels(spec.self_attention.linear[1], attention.output_kernel)
    if attention.max_relative_position is not None:
        keys, values = attention.relative_keys, attention.relative_values
        spec.self_attention.relative_position_keys = _values(keys)
        spec.self_attention.relative_position_values = _values(values)
    _set_norm(spec.self_attention.layer_norm, layer.self_attention_norm)
    feed_forward = layer.feed_forward
    _set_kernels(spec.ffn.linear_0, feed_forward.hidden_kernel)
    spec.ffn.linear_0.bias = _values(feed_forward.hidden_bias)
    _set_kernels(spec.ffn.linear_1, feed_forward.output_kernel)
    spec.ffn.linear_1.bias = _values(feed_forward.output_bias)
    _set_norm(spec.ffn.layer_norm, layer.feed_forward_norm)


def _set_kernels(spec, *kernels):
    """Kernels [D, C] side by side, as CTranslate2 has them: [all C, D]."""
    spec.weight = np.concatenate([_values(k).T for k in kernels])


def _set_norm(spec, norm):
    spec.gamma, spec.beta = _values(norm.scale), _values(norm.bias)


def _set_last_norm(spec, norm):
    if spec.pre_norm:
        _set_norm(spec.layer_norm, norm)


def _set_embedding(stack, spec, embedding):
    stack.scale_embeddings = embedding.scaled
    spec.weight = _values(embedding.table)
    spec.weight[PAD_ID] = 0.0  # which the softmax's table need not be


def _set_positions(spec, layer, hparams, longest):
    """The vectors of the first positions, [longest, D], where it has any."""
    if hparams.max_relative_position is not None:
        return
    start = np.zeros((1, longest, hparams.hidden_size), np.float32)
    spec.position_encodings.encodings = _values(layer(start))[0]


def _values(tensor):
    """The values of a weight or a tensor: a float32 array of its own."""
    return np.array(ops.convert_to_numpy(tensor), np.float32)
