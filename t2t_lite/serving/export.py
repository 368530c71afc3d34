"""A translator as a SavedModel for the stock TensorFlow Serving.

Or as a folder of CTranslate2, which `interop` writes.
"""

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
from t2t_lite.serving.about import (
    ABOUT_FILE,
    EXPORTED_CARD,
    about_export,
    about_run,
)
from t2t_lite.serving.options import ServingOptions
from t2t_lite.serving.requests import (
    WARMUP_FILE,
    at_several_lengths,
    check_warmup,
    requests_for,
    sample_pairs,
    warmup_requests,
    write_warmup,
)
from t2t_lite.serving.servable import check_servable, save
from t2t_lite.serving.served import (
    ServedTranslator,
    translator_to_serve,
)
from t2t_lite.serving.verify import verify
from t2t_lite.serving.versions import CTRANSLATE2, SAVED_MODEL, write_version
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
    note: Callable[[str], None] | None = None,
) -> pathlib.Path:
    """Writes a SavedModel to `EXPORT_DIR/<version>/`; see `write_version`.

    Args:
      translator: what to serve.
      export_dir: made if it is missing.
      version: a positive integer; by default one more than the largest there.
      options: what else it can be asked, and its limits.
      run: that the translator is of; the export then tells of it.
      weights: the checkpoints that its weights are from.
      warmup: of how many lengths a server is to send requests to itself before
        it serves.
      verified: whether to `verify` it, which takes a while.
      note: is told what was verified.

    Returns:
      the folder of the version.

    Raises:
      UsageError: see `translator_to_serve` and `check_warmup`.
      T2TLiteError: the version exists, the folder cannot be written, the graph
        holds what the stock server does not run, or the export does not answer
        as the translator does.
    """
    options = options or ServingOptions()
    translator = translator_to_serve(translator, options)
    served = ServedTranslator(translator, options)
    signatures = dict(served.answers)
    check_warmup(warmup, signatures)
    about = about_run(run, weights) if run else {}
    about = about_export(translator, options, signatures, about)

    def write(folder: pathlib.Path) -> None:
        save(served, folder, signatures)
        ops = check_servable(folder)
        (folder / ABOUT_FILE).parent.mkdir()
        files.write_json(folder / ABOUT_FILE, about)
        if run:
            card = card_to_export(run, about["scores"])
            files.write_text(folder / EXPORTED_CARD, card)
        pairs = sample_pairs(translator, run) if warmup or verified else []
        requests = warmup_requests(pairs, warmup, signatures)
        if requests:
            write_warmup(folder / WARMUP_FILE, requests)
        if note and len(pairs) < warmup:
            note(f"Warm-up at {len(pairs)} lengths: there are no more texts.")
        if verified:
            some = at_several_lengths(pairs, _VERIFIED_TEXTS)
            for batch in (some, []):
                requests += requests_for(batch, signatures)
            complete = run.problem.complete if run else None
            verify(folder, translator, served, requests, complete)
        if verified and note:
            note(
                f"Verified in a process without t2t-lite: {len(requests)} "
                f"answers of {len(signatures)} signatures are the decoder's; "
                f"TensorFlow Serving links all {len(ops)} ops."
            )

    with _in_words(export_dir):
        return write_version(export_dir, SAVED_MODEL, write, version)


def export_ctranslate2(
    translator: Translator,
    export_dir: str | os.PathLike,
    quantization: Quantization = "float32",
    version: int | None = None,
    *,
    run: Run | None = None,
    weights: Sequence[Checkpoint] = (),
) -> pathlib.Path:
    """Writes a folder of CTranslate2 to `EXPORT_DIR/<version>/`.

    Args:
      translator: what to export.
      export_dir: made if it is missing.
      quantization: the type of the weights.
      version: as in `export_saved_model`.
      run: likewise; the folder then holds its card.
      weights: likewise.

    Returns:
      the folder of the version.

    Raises:
      UsageError: CTranslate2 cannot run the model or its search.
      T2TLiteError: it is not installed, the version exists, or the folder
        cannot be written.
    """
    require_runnable(translator)
    if translator.form is not None:
        raise UsageError(
            "An export repairs no answers, and CTranslate2 cannot search for "
            "those of the right form only: export trees with "
            "--format=saved_model."
        )

    def write(folder: pathlib.Path) -> None:
        write_ctranslate2(translator, folder, quantization)
        if run:
            scores = about_run(run, weights)["scores"]
            files.write_text(folder / CARD, card_to_export(run, scores))

    with _in_words(export_dir):
        return write_version(export_dir, CTRANSLATE2, write, version)


@contextlib.contextmanager
def _in_words(export_dir: str | os.PathLike) -> Iterator[None]:
    """Says of an export that cannot be written, in one line, why."""
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        raise T2TLiteError(
            f"Cannot write the export to {export_dir}: {in_words(error)}."
        ) from error
