"""Export of a translator for TensorFlow Serving and other engines."""

import contextlib
import functools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import tensorflow as tf

import t2t_lite
from t2t_lite import files
from t2t_lite.decoding.translator import Translator
from t2t_lite.errors import UsageError, explain
from t2t_lite.interop.ctranslate2 import require_runnable, write_ctranslate2
from t2t_lite.interop.huggingface import write_huggingface
from t2t_lite.interop.quantization import Quantization
from t2t_lite.model.ensemble import Ensemble
from t2t_lite.serving import requests, verify, versions
from t2t_lite.serving.options import ExportOptions
from t2t_lite.serving.signatures import ServingModule, translator_to_serve
from t2t_lite.training.checkpoints import Checkpoint
from t2t_lite.training.model_card import CARD, make_card, scores_of
from t2t_lite.training.run import Run

_VERIFIED_TEXTS = 10


def export_saved_model(
    translator: Translator,
    export_dir: str | os.PathLike,
    options: ExportOptions | None = None,
    *,
    run: Run | None = None,
    weights: Sequence[Checkpoint] = (),
    verified: bool = False,
    note: Callable[[str], None] = lambda text: None,
) -> Path:
    """Write a SavedModel to `EXPORT_DIR/<version>/`, complete or not at all.

    Args:
      translator: the model, its tokenizers and its search settings.
      export_dir: parent folder of the versions; created if it does not exist.
      options: signatures, precision, limits and warm-up, which is a request for
        each signature and text length.
      run: the run of the translator; adds a description to the export.
      weights: the checkpoints of the weights.
      verified: compare the export's outputs with the translator's.
      note: called with a message about the verification.

    Returns:
      The folder of the version.

    Raises:
      UsageError: the model, its settings or `options` cannot be exported.
      T2TLiteError: the folder cannot be written or contains another format, the
        stock server does not link an op, or the verification fails.
    """
    options = options or ExportOptions()
    translator = translator_to_serve(translator, options)
    served = ServingModule(translator, options)
    signatures = served.functions
    with _new_version(export_dir, versions.SAVED_MODEL) as (target, folder):
        # Gradients would be a tenth of the graph.
        save = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
        tf.saved_model.save(served, str(folder), signatures, save)
        ops = verify.check_servable(folder)
        about = _describe(translator, options, signatures, run, weights)
        (folder / versions.ABOUT).parent.mkdir()
        files.write_json(folder / versions.ABOUT, about)
        if run:
            card = make_card(run, weights)
            files.write_text(folder / "assets.extra" / CARD, card)
        pairs, sent = [], []
        if options.warmup or verified:
            pairs = requests.sample_pairs(translator, run)
        for pair in requests.select_lengths(pairs, options.warmup):
            sent += requests.requests_for([pair], signatures)
        if options.warmup:
            requests.write_warmup(folder / requests.WARMUP_FILE, sent)
        if verified:
            selected = requests.select_lengths(pairs, _VERIFIED_TEXTS)
            for batch in (selected, []):
                sent += requests.requests_for(batch, signatures)
            model = getattr(translator.model, "models", [translator.model])[0]
            verify.verify(folder, signatures, sent, model.compute_dtype)
            note(
                f"Verified in a process without t2t-lite: {len(sent)} results "
                f"of {len(signatures)} signatures equal the model's; "
                f"TensorFlow Serving links all {len(ops)} ops."
            )
    return target


def export_to_engine(
    translator: Translator,
    export_dir: str | os.PathLike,
    engine: str,
    quantization: Quantization = "float32",
    *,
    run: Run | None = None,
    weights: Sequence[Checkpoint] = (),
) -> Path:
    """Write a model for another engine to `EXPORT_DIR/<version>/`.

    The engine is "ctranslate2", "huggingface" (transformers) or "keras_hub".
    The quantization is for CTranslate2 only. The other arguments and the result
    are those of `export_saved_model`.

    Raises:
      UsageError: the engine does not support the model or its settings.
      T2TLiteError: a package is not installed, or the folder cannot be written
        or contains another format.
    """
    write: Callable[[Path], None]
    if engine == "ctranslate2":
        require_runnable(translator)
        if translator.constraint is not None:
            raise UsageError(
                "CTranslate2 does not support constrained search: export with "
                "`format=saved_model`."
            )
        write = functools.partial(
            write_ctranslate2, translator, quantization=quantization
        )
    elif engine == "huggingface":
        languages = getattr(run and run.problem, "languages", ("", ""))
        write = functools.partial(
            write_huggingface, translator, languages=languages
        )
    else:
        from t2t_lite.keras_hub import T2TSeq2SeqLM  # takes seconds

        write = T2TSeq2SeqLM.from_translator(translator).save_to_preset
    with _new_version(export_dir, versions.MARKS[engine]) as (target, folder):
        write(folder)
        if run:
            name, text = CARD, make_card(run, weights)
            if engine == "huggingface":
                name, ours = "README.md", "library_name: t2t-lite"
                text = text.replace(ours, "library_name: transformers", 1)
            files.write_text(folder / name, text)
    return target


@contextlib.contextmanager
def _new_version(
    export_dir: str | os.PathLike, mark: str
) -> Iterator[tuple[Path, Path]]:
    """Yield the folder of a new version and the temporary folder to write.

    `mark` is the file that identifies the format.
    """
    problem = f"Cannot write the export to {export_dir}"
    with explain(problem, OSError, tf.errors.OpError):
        target = versions.next_version(export_dir, mark)
        with files.write_folder(target, replace=False) as folder:
            yield target, folder


def _describe(translator, options, signatures, run, weights):
    model = translator.model
    first_model = model.models[0] if isinstance(model, Ensemble) else model
    languages = getattr(run and run.problem, "languages", ("", ""))
    first, *others = weights if run else [None]
    return {
        "format": 1,
        "t2t_lite": t2t_lite.__version__,
        "problem": run.problem.name if run else None,
        "source_language": languages[0] or None,
        "target_language": languages[1] or None,
        "step": first.step if first else None,
        "averaged": first.averaged if first else None,
        "moving_average": first.is_ema if first else None,
        "training": run.config.get("training_cost") if run else None,
        # Scores belong to one checkpoint, so ensembles have none.
        "scores": scores_of(run, weights[0]) if run and not others else [],
        "hparams": first_model.hparams.model_kwargs(),
        "models": len(model.models) if isinstance(model, Ensemble) else 1,
        "parameters": sum(math.prod(weight.shape) for weight in model.weights),
        "precision": options.precision,
        "search": {
            "beam_size": translator.settings.beam_size,
            "alpha": translator.settings.alpha,
            **translator.settings.changed(),
            "extra_decode_length": translator.extra_decode_length,
        },
        "max_length": translator.max_length,
        "form": getattr(translator.constraint, "output_format", None),
        "signatures": list(signatures),
    }
