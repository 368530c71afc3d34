"""Import of MarianMT models of Hugging Face's transformers, and export to it.

The positions of MarianMT are the paper's with all sines first, so the hidden
units are permuted in all weights. An import also permutes the ids.
"""

import json
import pickle
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from keras import ops

from t2t_lite import files, registry
from t2t_lite.decoding.translator import Translator
from t2t_lite.errors import T2TLiteError, UsageError, explain, requires_extra
from t2t_lite.files import PathLike
from t2t_lite.hparam import HParams
from t2t_lite.interop.ctranslate2 import token_names
from t2t_lite.interop.tensor2tensor.importing import require_empty, write_run
from t2t_lite.model.layers import skip_init
from t2t_lite.tokenizers.base import EOS_ID, PAD_ID, write_vocabulary
from t2t_lite.tokenizers.closed import SPECIAL_TOKENS
from t2t_lite.tokenizers.marian import MarianVocabulary, pack_vocabulary
from t2t_lite.tokenizers.sentencepiece import SentencePieceTokenizer
from t2t_lite.training.config import make_config
from t2t_lite.training.distribute import choose_strategy
from t2t_lite.training.run import Run
from t2t_lite.training.update import Updater

_FILES = ("model.safetensors", "pytorch_model.bin")  # the second needs torch
_SETTINGS = "generation_config.json"
_TOKENIZER = "tokenizer_config.json"
_MODELS = ("source.spm", "target.spm")
_VOCABULARY = "marian.vocab.zip"  # of an imported run
# Our hparams by their names in config.json.
_HPARAMS = {
    "d_model": "hidden_size",
    "encoder_layers": "num_encoder_layers",
    "decoder_layers": "num_decoder_layers",
    **{f"{x}_ffn_dim": "filter_size" for x in ("encoder", "decoder")},
    **{f"{x}_attention_heads": "num_heads" for x in ("encoder", "decoder")},
    "activation_function": "activation",
    "max_position_embeddings": "max_length",
    "dropout": "residual_dropout",
    "attention_dropout": "attention_dropout",
    "activation_dropout": "relu_dropout",
}
_REQUIRED = {
    "model_type": "marian",
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
}
_NORM_EPSILON = 1e-5  # of every MarianMT model
_START = "<start>"  # the start token of an export, embedded as zeros
_EXPORTABLE = {
    "norm_placement": "post",
    "position_encoding": "interleaved",
    "shared_embedding": True,
    "target_space_embedding": False,
    "max_relative_position": None,
    "attention_window": None,
    "attention_score": "scaled",
    "vocabulary": "SentencePiece",
    _START: False,  # not a piece
}
_DEPTHS = ("key_depth", "value_depth")
_NEVER = -1e9  # the logit of a token that is not generated
_TABLE, _BIAS = "shared_embedding/table", "shared_embedding/bias"
# Regular expressions that turn our names of weights into theirs, in order.
_NAMES = {
    _TABLE: "model.shared.weight",
    _BIAS: "final_logits_bias",
    r"(\w+)_layer_(\d+)/": r"model.\1.layers.\2.",
    "_norm/": "_layer_norm/",
    "feed_forward_layer": "final_layer",
    "feed_forward/hidden_": "fc1/",
    "feed_forward/output_": "fc2/",
    "self_attention": "self_attn",
    "cross_attention": "encoder_attn",
    r"/([qkv])\w+_": r".\1_proj/",
    "/output_": ".out_proj/",
    "/(kernel|scale)": ".weight",
    "/bias": ".bias",
}
# Names of the same table.
_TABLES = r"(model\.)?(shared|(en|de)coder\.embed_tokens|lm_head)\.weight"


def import_huggingface(name: str, output_dir: Path, seed: int = 1) -> Run:
    """Convert a MarianMT model to a run for decoding, training and export.

    The name is a folder, or a model of the Hugging Face Hub.

    Raises:
      UsageError: the model is not supported, or `output_dir` is not empty.
      T2TLiteError: files are missing or damaged.
    """
    require_empty(output_dir)
    folder = _find_folder(name)
    causes = OSError, ValueError, TypeError, KeyError
    with explain(f"{folder} is not a complete model", *causes):
        config = _REQUIRED | _read_json(folder / "config.json")
        _require(_REQUIRED, config)
        if (folder / _SETTINGS).is_file():
            config |= _read_json(folder / _SETTINGS)
        source, target = ((folder / name).read_bytes() for name in _MODELS)
        ids = _read_json(folder / "vocab.json")
        order, hparams = _order_of_ids(ids, config), _hparams_of(config)
        tokenizer = _read_json(folder / _TOKENIZER)
        tensors = _read_tensors(folder)
    options = {
        f"{side}_language": tokenizer.get(f"{side}_lang") or None
        for side in ("source", "target")
    }
    options |= {"name": "marian", "vocabulary": f"{output_dir}/{_VOCABULARY}"}
    problem = registry.problem("text").with_options(options)
    with tempfile.TemporaryDirectory(prefix="t2t_lite_") as temporary:
        path = Path(temporary, _VOCABULARY)
        pieces = sorted(ids, key=ids.__getitem__)
        pieces = [pieces[index] for index in order]
        pack_vocabulary(path, source, target, pieces)
        encoder = MarianVocabulary(path)
        encoders = {"inputs": encoder, "targets": encoder.for_targets()}
        data = {"dir": "", "fingerprint": ""}
        run_config = make_config(problem, hparams, seed, data, encoders)
        run_config["imported_from"] = {"toolkit": "transformers", "name": name}
        run_config["has_checkpoints"] = True
        run = Run(output_dir, run_config, problem, encoders)
        with skip_init():
            model = run.model()
        _set_weights(model, tensors, order)
        updater = Updater(model, hparams, choose_strategy(), seed)
        write_run(run, model, updater, [path])
    return run


def _find_folder(name: str) -> Path:
    if (folder := Path(name).expanduser()).is_dir():
        return folder
    with requires_extra("huggingface"):
        from huggingface_hub import snapshot_download
    problem = f"{name} is not a folder, and cannot be downloaded from the Hub"
    with explain(problem, OSError, ValueError):  # all errors of the Hub
        for patterns in (["*.json", "*.spm", _FILES[0]], [_FILES[1]]):
            folder = Path(snapshot_download(name, allow_patterns=patterns))
            if (folder / _FILES[0]).is_file():
                break
    return folder


def _read_json(path: Path) -> dict[str, Any]:
    with explain(f"{path} is damaged", ValueError, TypeError, RecursionError):
        return dict(json.loads(path.read_text("utf-8")))


def _require(required: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    for key, value in required.items():
        if found.get(key, value) not in (value, None):
            raise UsageError(
                f"A MarianMT model requires {key}={value} (got {found[key]})."
            )


def _read_tensors(folder: Path) -> dict[str, np.ndarray]:
    paths = [folder / name for name in _FILES]
    path = next(filter(Path.is_file, paths), paths[0])
    with requires_extra("huggingface"):
        from safetensors import SafetensorError
        from safetensors.numpy import load_file
    causes = OSError, RuntimeError, pickle.UnpicklingError, SafetensorError
    with explain(f"{path} is missing or damaged", *causes):
        if path.name == _FILES[0]:
            tensors = load_file(path)
        else:
            with explain(f"{path} requires `pip install torch`", ImportError):
                import torch
            loaded = torch.load(path, "cpu", weights_only=True)
            tensors = {name: x.float().numpy() for name, x in loaded.items()}
    return {name: x.astype(np.float32) for name, x in tensors.items()}


def _order_of_ids(ids, settings):
    """Return the model's id of each id of the run; without `_START`."""
    special = [ids[token] for token in SPECIAL_TOKENS]
    start = settings["decoder_start_token_id"]
    if not ids.get(_START) == start == len(ids) - 1:
        start = special[PAD_ID]
    never = sorted({special[PAD_ID], start})
    required = {
        # The ids have no gaps.
        "vocab_size": len({*ids.values(), *range(len(ids))}),
        "decoder_vocab_size": len(ids),
        "pad_token_id": special[PAD_ID],
        "eos_token_id": special[EOS_ID],
        "decoder_start_token_id": start,
        "bad_words_ids": [[index] for index in never],
        # A run has no such settings.
        **{"no_repeat_ngram_size": 0, "repetition_penalty": 1.0},
        **dict.fromkeys(("forced_bos_token_id", "suppress_tokens")),
    }
    _require(required, settings)
    first = {*special, start}
    return special + [i for i in range(len(ids)) if i not in first]


def _hparams_of(config: Mapping[str, Any]) -> HParams:
    values = {ours: config[theirs] for theirs, ours in _HPARAMS.items()}
    _require({name: values[ours] for name, ours in _HPARAMS.items()}, config)
    values["activation"] = values["activation"].replace("silu", "swish")
    is_scaled = config.get("scale_embedding")
    return HParams(
        **values,
        embedding_scale="sqrt_depth" if is_scaled else "none",
        learned_start=config["decoder_start_token_id"]
        == config["pad_token_id"],
        logits_bias=True,
        attention_bias=True,
        norm_epsilon=_NORM_EPSILON,
        beam_size=config.get("num_beams") or 1,
        length_penalty_alpha=config.get("length_penalty", 1.0),
    )


def _set_weights(model, tensors, order) -> None:
    """Set all weights of a model; every tensor must belong to one."""
    tables = [tensors.pop(n) for n in [*tensors] if re.fullmatch(_TABLES, n)]
    if not tables or any((table != tables[0]).any() for table in tables):
        raise UsageError("Import requires one table of embeddings and logits.")
    if tables[0][len(order) :].any():
        raise UsageError(f"{_START} must be embedded as zeros.")
    tensors[_name_of(_TABLE)] = tables[0]
    units = _interleaved(model.hparams.hidden_size)
    for weight in model.weights:
        path = weight.path.partition("/")[2]
        try:
            value = tensors.pop(_name_of(path))
            if path in (_TABLE, _BIAS):
                value = value.reshape(-1, *weight.shape[1:])[order]
            value = value.T if path.endswith("_kernel") else value
            weight.assign(_permute(path, value, units))
        except (KeyError, ValueError, IndexError) as error:
            raise T2TLiteError(
                f"{_name_of(path)} is missing or does not fit config.json."
            ) from error
    # The positions are computed.
    if others := [n for n in tensors if "embed_positions" not in n]:
        raise UsageError(f"Unknown MarianMT weights: {', '.join(others)}.")


def _interleaved(hidden_size: int) -> np.ndarray:
    """Return MarianMT's hidden unit of each of ours: 0, D / 2, 1, ..."""
    return np.arange(hidden_size).reshape(2, -1).T.reshape(-1)


def _permute(path: str, value: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Permute the hidden units of one of our weights."""
    inner = re.search("/(query|key|value|hidden)_(kernel|bias)$", path)
    if path == _BIAS or (inner and inner[2] == "bias"):
        return value
    return value.take(units, 0 if inner else -1)


def _name_of(path: str) -> str:
    for pattern, name in _NAMES.items():
        path = re.sub(pattern, name, path)
    return path


def write_huggingface(
    translator: Translator,
    folder: PathLike,
    languages: Sequence[str] = ("", ""),
) -> None:
    """Write a MarianMT model into an empty folder.

    Its `norm_epsilon` is 1e-5. Without a learned start, the last id is a start
    token that is embedded as zeros and never generated.

    Raises:
      UsageError: MarianMT cannot express the model.
      T2TLiteError: safetensors is not installed.
    """
    model, encoder = translator.single_model, translator.source_encoder
    depth = model.hparams.hidden_size // model.hparams.num_heads
    found = model.hparams.model_kwargs() | {
        "vocabulary": "SentencePiece",
        _START: _START in encoder.ids_to_pieces(range(encoder.vocab_size)),
    }
    if not isinstance(encoder, MarianVocabulary | SentencePieceTokenizer):
        found["vocabulary"] = type(encoder).__name__
    if getattr(encoder, "side", "source") != "source":
        found["vocabulary"] = "a vocabulary of the reverse direction"
    _require(_EXPORTABLE | dict.fromkeys(_DEPTHS, depth), found)
    if model.hparams.norm_epsilon > _NORM_EPSILON:
        _require({"norm_epsilon": _NORM_EPSILON}, found)
    with requires_extra("huggingface"):
        from safetensors.numpy import save_file
    folder = Path(folder)
    names, start = token_names(encoder, model.vocab_sizes[0]), PAD_ID
    if not model.hparams.learned_start:
        start = len(names)
        names.append(_START)
    length = translator.max_length + translator.extra_decode_length
    values = found | {"max_length": length}
    stacks = ("num_encoder_layers", "num_decoder_layers")
    values |= dict(zip(stacks, model.hparams.num_layers, strict=True))
    settings: dict[str, Any] = {
        **{"pad_token_id": PAD_ID, "eos_token_id": EOS_ID},
        **{"bos_token_id": None, "forced_eos_token_id": None},
        "decoder_start_token_id": start,
    }
    config = {
        **_REQUIRED,
        "architectures": ["MarianMTModel"],
        "vocab_size": len(names),
        "scale_embedding": values["embedding_scale"] == "sqrt_depth",
        **{theirs: values[ours] for theirs, ours in _HPARAMS.items()},
        **settings,
    }
    settings |= {
        "bad_words_ids": [[index] for index in sorted({PAD_ID, start})],
        "num_beams": translator.settings.beam_size,
        "length_penalty": translator.settings.alpha,
        "max_length": length,
    }
    tokenizer = {
        "tokenizer_class": "MarianTokenizer",
        **dict(zip(("source_lang", "target_lang"), languages, strict=True)),
        "bos_token": names[start],  # omitted from texts
        "model_max_length": translator.max_length,
        "clean_up_tokenization_spaces": False,
    }
    ids = {name: index for index, name in enumerate(names)}
    contents = {"config.json": config, _SETTINGS: settings}
    contents |= {_TOKENIZER: tokenizer, "vocab.json": ids}
    for name, content in contents.items():
        files.write_json(folder / name, content)
    for name in _MODELS:
        spm = getattr(encoder, "models", {}).get(name)
        write_vocabulary(folder / name, spm or encoder.path.read_bytes())
    tensors, metadata = _tensors_of(model), {"format": "pt"}
    save_file(tensors, folder / _FILES[0], metadata)


def _tensors_of(model: Any) -> dict[str, np.ndarray]:
    """Return the weights of MarianMT by name, with zeros for missing biases."""
    weights = {
        weight.path.partition("/")[2]: ops.convert_to_numpy(weight)
        for weight in model.weights
    }
    biases = {p.replace("_kernel", "_bias"): w for p, w in weights.items()}
    biases[_BIAS] = weights[_TABLE].T
    zeros = {p: np.zeros(w.shape[-1]) for p, w in biases.items()}
    weights = zeros | weights
    if not model.hparams.learned_start:
        weights[_TABLE] = np.pad(weights[_TABLE], ((0, 1), (0, 0)))
        weights[_BIAS] = np.append(weights[_BIAS], _NEVER)
    weights[_BIAS] = weights[_BIAS][None]
    units = np.argsort(_interleaved(model.hparams.hidden_size))
    tensors = {}
    for path, value in weights.items():
        value = _permute(path, value, units)
        value = value.T if path.endswith("_kernel") else value
        tensors[_name_of(path)] = np.ascontiguousarray(value, np.float32)
    return tensors
