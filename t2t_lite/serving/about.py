"""`assets.extra/t2t-lite.json`: what an export says of itself.

Servers and pages read it. Nothing in it names a folder of this machine.
"""

import math
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import t2t_lite
from t2t_lite.decoding.translator import Translator
from t2t_lite.model.ensemble import Ensemble
from t2t_lite.serving.options import ServingOptions
from t2t_lite.training.checkpoints.checkpoint import Checkpoint
from t2t_lite.training.model_card import CARD, scores_of
from t2t_lite.training.run import Run

# In the folder of a version.
ABOUT_FILE = pathlib.Path("assets.extra", "t2t-lite.json")
EXPORTED_CARD = pathlib.Path("assets.extra", CARD)
_FORMAT = 1


def about_run(run: Run, weights: Sequence[Checkpoint]) -> dict[str, Any]:
    """What a run says of the model that is exported, fit for JSON.

    Args:
      run: its folder is read.
      weights: the checkpoint of the run, and those of an ensemble's others.
    """
    source, target = getattr(run.problem, "languages", ("", ""))
    return {
        "problem": run.problem.name,
        "source_language": source or None,
        "target_language": target or None,
        "step": weights[0].step,
        "averaged": weights[0].averaged,
        "moving_average": weights[0].is_ema,
        "training": run.config.get("training_cost"),
        "scores": scores_of(run, weights[0]) if len(weights) == 1 else [],
    }


def about_export(
    translator: Translator,
    options: ServingOptions,
    signatures: Iterable[str],
    run: Mapping[str, Any],
) -> dict[str, Any]:
    """The content of the file, fit for JSON.

    Args:
      translator: from `translator_to_serve`.
      options: likewise.
      signatures: names.
      run: from `about_run`; or {}, where the translator is of no run.
    """
    model = translator.model
    models = model.models if isinstance(model, Ensemble) else [model]
    form = translator.form
    unknown = dict.fromkeys(
        ("problem", "source_language", "target_language", "step", "averaged")
    )
    return {
        "format": _FORMAT,
        "t2t_lite": t2t_lite.__version__,
        **unknown,
        "training": None,
        "scores": [],
        **run,
        "hparams": models[0].hparams.model_part(),
        "models": len(models),
        "parameters": sum(math.prod(weight.shape) for weight in model.weights),
        "precision": options.precision,
        "search": {
            "beam_size": translator.settings.beam_size,
            "alpha": translator.settings.alpha,
            **translator.settings.changed(),
            "extra_decode_length": translator.extra_decode_length,
        },
        "max_batch": options.max_batch,
        "max_length": translator.max_length,
        "form": None if form is None else form.kind,
        "signatures": list(signatures),
    }
