"""Exports a translator for TensorFlow Serving or CTranslate2."""

import contextlib
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf

from t2t_lite import files
from t2t_lite.decoding.translator import Translator
from t2t_lite.errors import T2TLiteError, UsageError, in_words
from t2t_lite.interop.ctranslate2_model import (
    require_runnable,
    write_ctranslate2,
)
from t2t_lite.interop.quantization import Quantization
from t2t_lite.serving import about, requests, servable, verify, versions
from t2t_lite.serving.options import ServingOptions
from t2t_lite.serving.served import ServedTranslator, translator_to_serve
from t2t_lite.training.checkpoints.checkpoint import Checkpoint
from t2t_lite.training.model_card import CARD, card_to_export
from t2t_lite.training.run import Run

_VERIFIED_TEXTS = 10


def export_saved_model(
    translator: Translator,
    export_dir: str | os.PathLike,
    version: int | None = None,
    options: ServingOptions | None = None,
    *,
    run: Run | None = None,
    weights: Sequence[Checkpoint] = (),
    warmup: int = 0,
    verified: bool = False,
    note: Callable[[str], None] = lambda text: None,
) -> pathlib.Path:
    """Write a SavedModel to `EXPORT_DIR/<version>/`; see `write_version`.

    Args:
      translator: the model, its vocabularies and its search.
      export_dir: created if it does not exist.
      version: a positive integer; by default the largest version plus one.
      options: signatures, precision and limits.
      run: the run of the translator, which the export then describes.
      weights: the checkpoints of its weights.
      warmup: number of text lengths in the warm-up requests; 0 for none.
      verified: whether to `verify` the export.
      note: receives a line about the verification.

    Returns:
      the folder of the version.

    Raises:
      UsageError: see `translator_to_serve` and `check_warmup`.
      T2TLiteError: the version exists, the folder cannot be written, the stock
        server does not link an op, or the verification fails.
    """
    options = options or ServingOptions()
    translator = translator_to_serve(translator, options)
    served = ServedTranslator(translator, options)
    signatures = dict(served.answers)
    requests.check_warmup(warmup, signatures)
    description = about.about_export(
        translator,
        options,
        signatures,
        about.about_run(run, weights) if run else {},
    )

    def write(folder: pathlib.Path) -> None:
        servable.save(served, folder, signatures)
        ops = servable.check_servable(folder)
        (folder / about.ABOUT_FILE).parent.mkdir()
        files.write_json(folder / about.ABOUT_FILE, description)
        if run:
            card = card_to_export(run, description["scores"])
            files.write_text(folder / about.EXPORTED_CARD, card)
        if warmup or verified:
            pairs = requests.sample_pairs(translator, run)
            sent = requests.warmup_requests(pairs, warmup, signatures)
        if warmup:
            requests.write_warmup(folder / requests.WARMUP_FILE, sent)
        if verified:
            some = requests.at_several_lengths(pairs, _VERIFIED_TEXTS)
            for batch in (some, []):
                sent += requests.requests_for(batch, signatures)
            one = getattr(translator.model, "models", [translator.model])[0]
            verify.verify(folder, served, sent, one.compute_dtype)
            note(
                f"Verified in a process without t2t-lite: {len(sent)} answers "
                f"of {len(signatures)} signatures are equal; TensorFlow "
                f"Serving links all {len(ops)} ops."
            )

    with _one_line_errors(export_dir):
        return versions.write_version(
            export_dir, versions.SAVED_MODEL, write, version
        )


def export_ctranslate2(
    translator: Translator,
    export_dir: str | os.PathLike,
    quantization: Quantization = "float32",
    version: int | None = None,
    *,
    run: Run | None = None,
    weights: Sequence[Checkpoint] = (),
) -> pathlib.Path:
    """Write a CTranslate2 model to `EXPORT_DIR/<version>/`.

    Args:
      translator: the model, its vocabularies and its search.
      export_dir: created if it does not exist.
      quantization: the type of the weights.
      version: a positive integer; by default the largest version plus one.
      run: the run of the translator, whose card is copied.
      weights: the checkpoints of its weights.

    Returns:
      the folder of the version.

    Raises:
      UsageError: CTranslate2 does not support the model or its search.
      T2TLiteError: it is not installed, the version exists, or the folder
        cannot be written.
    """
    require_runnable(translator)
    if translator.form is not None:
        raise UsageError(
            "CTranslate2 does not support the constrained search for trees: "
            "export with --format=saved_model."
        )

    def write(folder: pathlib.Path) -> None:
        write_ctranslate2(translator, folder, quantization)
        if run:
            scores = about.about_run(run, weights)["scores"]
            files.write_text(folder / CARD, card_to_export(run, scores))

    with _one_line_errors(export_dir):
        return versions.write_version(
            export_dir, versions.CTRANSLATE2, write, version
        )


@contextlib.contextmanager
def _one_line_errors(export_dir: str | os.PathLike) -> Iterator[None]:
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        raise T2TLiteError(
            f"Cannot write the export to {export_dir}: {in_words(error)}."
        ) from error
