"""Conversion to CTranslate2, and translation with it.

CTranslate2 (https://github.com/OpenNMT/CTranslate2) is an inference engine that
supports 8-bit weights. Its own classes write the folder of a model:

```
FOLDER/model.bin, config.json, *_vocabulary.json   files of CTranslate2
       *.vocab.*                                   copies of the vocabularies
       t2t-lite.json                               search settings and limits
```
"""

import copy
import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self, TypeAlias

import ml_dtypes
import numpy as np
import tensorflow as tf
from keras import ops

from t2t_lite import files
from t2t_lite.decoding.search.scores import NEG_INF, length_penalty
from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.decoding.translator import (
    Translator,
    encode_sources,
    on_one_line,
    with_eos,
)
from t2t_lite.errors import T2TLiteError, UsageError, explain, requires_extra
from t2t_lite.files import PathLike
from t2t_lite.interop.quantization import Quantization
from t2t_lite.tf_setup import num_cpus
from t2t_lite.tokenizers.base import EOS_ID, PAD_ID, Tokenizer
from t2t_lite.tokenizers.closed import SPECIAL_TOKENS
from t2t_lite.tokenizers.vocabulary import open_vocabulary

_SETTINGS = "t2t-lite.json"
_PAD, _EOS, _UNK = SPECIAL_TOKENS
# CTranslate2 ends a search of K beams when it has _PATIENCE * K finished
# hypotheses and the best candidate of a step is finished. `beam_search` ends by
# an upper bound of scores instead.
_PATIENCE = 2


def load_ctranslate2() -> Any:
    """Import `ctranslate2`; raise T2TLiteError if it is not installed."""
    with requires_extra("ctranslate2"):
        import ctranslate2
    return ctranslate2


def require_runnable(translator: Translator) -> None:
    """Raise UsageError if CTranslate2 does not support a translator."""
    load_ctranslate2()
    hparams = translator.single_model.hparams
    attention = translator.single_model.decoder_layers[0].self_attention
    window, encoding = hparams.attention_window, hparams.position_encoding
    score = hparams.attention_score
    is_relative = hparams.max_relative_position is not None
    has_both = is_relative and encoding != "none"
    not_both = "position_encoding=none with max_relative_position"
    depths = attention.key_depth, attention.value_depth
    side = getattr(translator.source_encoder, "side", "source")  # MarianMT's
    for is_supported, rule, got in (
        (window is None, "attention_window=none", window),
        (not has_both, not_both, encoding),
        (score == "scaled", "attention_score=scaled", score),
        (depths[0] == depths[1], "key_depth=value_depth", depths),
        (side == "source", "a run in its vocabulary's direction", "_rev"),
        (not translator.settings.constrained, "`constrained=false`", "true"),
    ):
        if not is_supported:
            raise UsageError(f"CTranslate2 requires {rule} (got {got}).")
    _check_options(
        translator.settings.changed().keys() - {"beam_size", "alpha"}
    )


def _check_options(options: Iterable[str]) -> None:
    for name in sorted(options):
        raise UsageError(f"CTranslate2 does not support {name}: remove it.")


def write_ctranslate2(
    translator: Translator,
    folder: PathLike,
    quantization: Quantization = "float32",
) -> None:
    """Write the model, the vocabularies and the settings into an empty folder.

    The conversion is exact, except for the quantization of the weights.

    Raises:
      UsageError: CTranslate2 does not support the model or its settings.
      T2TLiteError: CTranslate2 is not installed.
    """
    require_runnable(translator)
    folder = Path(folder)
    spec = _build_spec(translator)
    spec.validate()
    # CTranslate2 would need PyTorch to convert weights to bfloat16.
    is_bfloat16 = quantization.endswith("bfloat16")
    spec.optimize(quantization.replace("bfloat16", "float32"))
    for name, value in spec.variables().items() if is_bfloat16 else ():
        is_alias = isinstance(value, str)
        if is_alias or name.endswith("_scale") or value.dtype != "float32":
            continue
        value.array = value.array.astype(ml_dtypes.bfloat16)
    spec.save(str(folder))
    source, target = translator.source_encoder, translator.target_encoder
    for path in {source.path, target.path}:
        shutil.copyfile(path, folder / path.name)
    names = {"source": source.path.name, "target": target.path.name}
    search = translator.settings
    settings = {
        "vocabularies": names,
        "search": {"beam_size": search.beam_size, "alpha": search.alpha},
        "extra_decode_length": translator.extra_decode_length,
        "max_length": translator.max_length,
    }
    files.write_json(folder / _SETTINGS, settings)


def token_names(encoder: Tokenizer, count: int = 0) -> list[str]:
    """Return a unique name of each id for CTranslate2: usually its piece.

    Special ids have the same names in all vocabularies. If another id already
    has the name, a line end and the id follow the piece. Ids beyond the
    vocabulary, up to `count`, the vocabulary size of the model, are named by a
    line end and the id.
    """
    special = {PAD_ID: _PAD, EOS_ID: _EOS}
    if encoder.unknown_id is not None:
        special[encoder.unknown_id] = _UNK
    size = encoder.vocab_size
    ids: dict[str, int] = {name: index for index, name in special.items()}
    for index, piece in enumerate(encoder.ids_to_pieces(range(size))):
        if index not in special:
            ids[f"{piece}\n{index}" if piece in ids else piece] = index
    names = sorted(ids, key=ids.__getitem__)
    return names + [f"\n{index}" for index in range(size, count)]


def _build_spec(translator: Translator) -> Any:
    model = translator.single_model
    spec = _new_spec(model)
    _set_vocabularies(spec, translator)
    max_length = translator.max_length + translator.extra_decode_length
    _set_embeddings(spec, model, max_length)
    for layer_spec, layer in zip(
        [*spec.encoder.layer, *spec.decoder.layer],
        [*model.encoder_layers, *model.decoder_layers],
        strict=True,
    ):
        _set_layer(layer_spec, layer)
    if spec.encoder.pre_norm:
        _set_norm(spec.encoder.layer_norm, model.encoder_norm)
        _set_norm(spec.decoder.layer_norm, model.decoder_norm)
    return spec


def _new_spec(model):
    """Return a specification of the architecture, without weights."""
    hparams, specs = model.hparams, load_ctranslate2().specs
    attention = model.decoder_layers[0].self_attention
    sizes = {
        "activation": getattr(specs.Activation, hparams.activation.upper()),
        "num_heads": attention.num_heads,
        "pre_norm": hparams.norm_placement == "pre",
        "relative_position": hparams.max_relative_position is not None,
    }
    if attention.num_heads * attention.key_depth != hparams.hidden_size:
        sizes["head_dim"] = attention.key_depth
    module, (encoder, decoder) = specs.transformer_spec, hparams.num_layers
    spec = module.TransformerSpec(
        module.TransformerEncoderSpec(encoder, **sizes),
        module.TransformerDecoderSpec(decoder, **sizes),
    )
    norm = model.decoder_layers[0].feed_forward_norm
    spec.config.layer_norm_epsilon = norm.epsilon
    spec.decoder.start_from_zero_embedding = not hparams.learned_start
    return spec


def _set_vocabularies(spec, translator):
    sizes = translator.single_model.vocab_sizes
    source = token_names(translator.source_encoder, sizes[0])
    target = token_names(translator.target_encoder, sizes[1])
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    spec.config.bos_token = spec.config.decoder_start_token = _PAD
    spec.config.eos_token = _EOS
    # A vocabulary that covers all texts may have no unknown token.
    spec.config.unk_token = _UNK if _UNK in source and _UNK in target else _EOS
    spec.config.add_source_eos = True


def _set_embeddings(spec, model, max_length):
    hparams = model.hparams
    start = np.zeros((1, max_length, hparams.hidden_size), np.float32)
    for side, table, embedding, positions in zip(
        (spec.encoder, spec.decoder),
        (spec.encoder.embeddings[0], spec.decoder.embeddings),
        (model.source_embedding, model.target_embedding),
        (model.encoder_positions, model.decoder_positions),
        strict=True,
    ):
        side.scale_embeddings = embedding.scaled
        table.weight = _values(embedding.table)
        if not hparams.learned_start:
            table.weight[PAD_ID] = 0.0  # only the softmax uses this row
        if hparams.max_relative_position is None:
            encodings = _values(positions(start))[0]  # [max_length, D]
            side.position_encodings.encodings = encodings
    if hparams.target_space_embedding:
        vector = _values(model.target_space_embedding.vector)
        scaled = vector / model.source_embedding.scale
        spec.encoder.embeddings[0].weight += scaled
    softmax, projection = model.softmax_embedding, spec.decoder.projection
    projection.weight = _values(softmax.table)
    if hparams.logits_bias:
        projection.bias = _values(softmax.bias)
    elif hparams.learned_start:
        projection.bias = np.zeros(len(projection.weight), np.float32)
    if hparams.learned_start:  # as in our search, but renormalized
        projection.bias[PAD_ID] = -6e4  # within float16


def _set_layer(spec, layer):
    attention = layer.self_attention
    inputs, output = spec.self_attention.linear
    _set_linear(inputs, attention, "query", "key", "value")
    _set_linear(output, attention, "output")
    if attention.max_relative_position is not None:
        keys, values = attention.relative_keys, attention.relative_values
        spec.self_attention.relative_position_keys = _values(keys)
        spec.self_attention.relative_position_values = _values(values)
    _set_norm(spec.self_attention.layer_norm, layer.self_attention_norm)
    if hasattr(spec, "attention"):
        query, memory, output = spec.attention.linear
        _set_linear(query, layer.cross_attention, "query")
        _set_linear(memory, layer.cross_attention, "key", "value")
        _set_linear(output, layer.cross_attention, "output")
        _set_norm(spec.attention.layer_norm, layer.cross_attention_norm)
    _set_linear(spec.ffn.linear_0, layer.feed_forward, "hidden")
    _set_linear(spec.ffn.linear_1, layer.feed_forward, "output")
    _set_norm(spec.ffn.layer_norm, layer.feed_forward_norm)


def _set_linear(spec, layer, *names):
    """Transpose and concatenate kernels [D, C]; concatenate their biases."""
    kernels = [_values(getattr(layer, f"{name}_kernel")) for name in names]
    spec.weight = np.concatenate([kernel.T for kernel in kernels])
    biases = [getattr(layer, f"{name}_bias") for name in names]
    if biases[0] is not None:
        spec.bias = np.concatenate([_values(bias) for bias in biases])


def _set_norm(spec, norm):
    spec.gamma, spec.beta = _values(norm.scale), _values(norm.bias)


def _values(tensor):
    return np.array(ops.convert_to_numpy(tensor), np.float32)


# A hypothesis: ids, with EOS unless truncated, and score.
_Hypothesis: TypeAlias = tuple[list[int], float]


class CTranslate2Translator:
    """Translates tensors of text; implements `decoding.translator.Engine`.

    Results equal those of `beam_search`, except for two rules of CTranslate2:
    EOS must be among the K best candidates of a step, not the 2 K best; and a
    search ends when it has enough finished hypotheses, even if a better one is
    still possible. Concurrent `searches` share the batch and the CPU cores.

    Raises:
      T2TLiteError: CTranslate2 is not installed, or the folder is damaged.
    """

    constraint: Any = None

    def __init__(self, folder: PathLike, searches: int = 1):
        path = Path(folder, _SETTINGS)
        try:
            settings = json.loads(path.read_text("utf-8"))
            names = settings["vocabularies"]
            source, target = names["source"], names["target"]
            self.settings = SearchSettings(**settings["search"])
            self.extra_decode_length = settings["extra_decode_length"]
            self.max_length = settings["max_length"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise T2TLiteError(
                f"{path} is missing or damaged: export again."
            ) from error
        names = {source, target}
        encoders = {n: open_vocabulary(path.with_name(n)) for n in names}
        self.source_encoder = encoders[source]
        self.target_encoder = encoders[target].for_targets()
        self._searches = searches
        self._source_names = token_names(self.source_encoder)
        self._target_names = token_names(self.target_encoder)
        self._target_ids = {n: i for i, n in enumerate(self._target_names)}
        problem = f"CTranslate2 cannot load {folder}"
        with explain(problem, RuntimeError, ValueError):
            self._engine: Any = load_ctranslate2().Translator(
                str(folder),
                device="auto",
                inter_threads=searches,
                intra_threads=max(1, num_cpus() // searches),
            )

    @classmethod
    def convert(
        cls,
        translator: Translator,
        quantization: Quantization = "float32",
        searches: int = 1,
    ) -> Self:
        """Convert a translator, by way of a temporary folder."""
        with tempfile.TemporaryDirectory(prefix="t2t_lite_") as folder:
            write_ctranslate2(translator, folder, quantization)
            other = cls(folder, searches)
        other.constraint = translator.constraint
        return other

    def searching(
        self, beam_size: int | None = None, alpha: float | None = None
    ) -> Self:
        """Copy the translator with other settings; None keeps a setting."""
        other, old = copy.copy(self), self.settings
        other.settings = SearchSettings(
            beam_size=old.beam_size if beam_size is None else beam_size,
            alpha=old.alpha if alpha is None else alpha,
        )
        return other

    def check_supported(self, options: Iterable[str]) -> None:
        """Raise UsageError for any request option."""
        _check_options(options)

    def translate(
        self,
        texts: tf.Tensor,
        num_hypotheses: int = 1,
        options: Mapping[str, Any] | None = None,
    ) -> dict[str, tf.Tensor]:
        """Translate texts; see `Translator.translate`."""
        _check_options(options or ())
        names, source_info = self._encode_sources(texts)
        missing: list[_Hypothesis] = [([], NEG_INF)] * num_hypotheses
        found = [(x + missing)[:num_hypotheses] for x in self._search(names)]
        shape = (len(found), num_hypotheses)  # [B, N]
        tokens = _pad([ids for each in found for ids, _ in each], tf.int32)
        outputs = on_one_line(self.target_encoder.decode_tf(tokens))
        scores = [[score for _, score in each] for each in found]
        return {
            "outputs": tf.reshape(outputs, shape),
            "scores": tf.constant(scores, tf.float32, shape=shape),
            # [B * N, L] -> [B, N, L]
            "tokens": tf.reshape(tokens, (*shape, tokens.shape[1])),
            **source_info,
        }

    def score(
        self, sources: tf.Tensor, targets: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Score pairs of texts; see `Translator.score`."""
        names, source_info = self._encode_sources(sources)
        ids, lengths, targets_truncated = with_eos(
            self.target_encoder.encode_tf(targets), self.max_length
        )
        results = self._engine.score_batch(
            names,
            _ids_to_names(self._target_names, ids, lengths),
            max_batch_size=-(-len(names) // self._searches),
            max_input_length=0,
        )
        token_log_probs = _pad([x.log_probs for x in results], tf.float32)
        log_probs = tf.reduce_sum(token_log_probs, axis=1)
        return {
            **source_info,
            "log_probabilities": log_probs,
            "scores": log_probs
            / length_penalty(tf.cast(lengths, tf.float32), self.settings.alpha),
            "lengths": lengths,
            "tokens": ids,
            "token_log_probabilities": token_log_probs,
            "cut": source_info["cut"] | targets_truncated,
        }

    def _encode_sources(self, texts):
        """Return the token names of each text, without EOS, and outputs."""
        ids, lengths, truncated = encode_sources(self, texts)
        source_info = {"source_lengths": lengths, "cut": truncated}
        return _ids_to_names(self._source_names, ids, lengths), source_info

    def _search(self, sources: list[list[str]]) -> list[list[_Hypothesis]]:
        empty: list[_Hypothesis] = [([], 0.0)] * self.settings.beam_size
        found = [empty for _ in sources]
        # Maximum number of target tokens; the EOS of the source counts.
        max_lengths = {
            row: len(names) + 1 + self.extra_decode_length
            for row, names in enumerate(sources)
            if names
        }
        if not max_lengths:
            return found
        # A call has one maximum. A text that exceeds its own is searched again,
        # alone.
        results = self._translate(
            [sources[row] for row in max_lengths], max(max_lengths.values())
        )
        for row, result in zip(max_lengths, results, strict=True):
            if max(map(len, result.hypotheses)) > max_lengths[row]:
                (result,) = self._translate([sources[row]], max_lengths[row])
            found[row] = self._sort_by_score(result)
        return found

    def _translate(self, sources, max_length):
        beam_size = self.settings.beam_size
        finished = beam_size * (_PATIENCE if beam_size > 1 else 1)
        return self._engine.translate_batch(
            sources,
            max_batch_size=-(-len(sources) // self._searches),
            beam_size=beam_size,
            num_hypotheses=finished,
            patience=finished / beam_size,
            length_penalty=0,  # `_sort_by_score` applies our length penalty
            return_scores=True,
            return_end_token=True,
            max_input_length=0,
            min_decoding_length=0,
            max_decoding_length=max_length,
        )

    def _sort_by_score(self, result: Any) -> list[_Hypothesis]:
        """Sort hypotheses by our score; hypotheses without EOS come last."""
        found = []
        pairs = zip(result.hypotheses, result.scores, strict=True)
        for names, log_prob in pairs:
            # The name of an id beyond the vocabulary is the id.
            ids = [int(self._target_ids.get(name, name)) for name in names]
            penalty = length_penalty(len(ids), self.settings.alpha)
            found.append((ids, log_prob / penalty))
        return sorted(found, key=lambda x: (x[0][-1] != EOS_ID, -x[1]))


def _ids_to_names(names, ids, lengths):
    rows = zip(ids.numpy().tolist(), lengths.numpy().tolist(), strict=True)
    return [[names[token] for token in row[: end - 1]] for row, end in rows]


def _pad(rows, dtype):
    return tf.ragged.constant(rows, dtype=dtype, ragged_rank=1).to_tensor()
