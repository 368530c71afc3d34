"""A translator as a SavedModel for the stock TensorFlow Serving.

Or as a folder of CTranslate2, which `interop` writes.
"""

import contextlib
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from t2t_lite import files
from t2t_lite.decoding.translator import Translator
from t2t_lite.errors import T2TLiteError, UsageError, in_words
from t2t_lite.interop.ctranslate2_model import (
    require_runnable,
    write_ctranslate2,
)
from t2t_lite.interop.quantization import Quantization
from t2t_lite.serving.about import FILE as ABOUT
from t2t_lite.serving.about import about_export
from t2t_lite.serving.servable import check_servable
from t2t_lite.serving.served import (
    ServedTranslator,
    ServingOptions,
    translator_to_serve,
)
from t2t_lite.serving.versions import CTRANSLATE2, SAVED_MODEL, write_version

ASSETS_EXTRA = "assets.extra"


def export_saved_model(
    translator: Translator,
    export_dir: str | os.PathLike,
    version: int | None = None,
    options: ServingOptions | None = None,
    about: Mapping[str, Any] | None = None,
) -> pathlib.Path:
    """Writes a SavedModel to `EXPORT_DIR/<version>/`; see `write_version`.

    Args:
      translator: what to serve.
      export_dir: made if it is missing.
      version: a positive integer; by default one more than the largest there.
      options: what else it can be asked, and its limits.
      about: what `about_run` says of its run.

    Returns:
      the folder of the version.

    Raises:
      UsageError: see `translator_to_serve`.
      T2TLiteError: the version exists, the folder cannot be written, or the
        graph holds what the stock server does not run.
    """
    options = options or ServingOptions()
    translator = translator_to_serve(translator, options)
    served = ServedTranslator(translator, options)

    def write(folder: pathlib.Path) -> None:
        signatures = dict(served.answers)
        tf.saved_model.save(served, str(folder), signatures)
        check_servable(folder)
        extra = folder / ASSETS_EXTRA
        extra.mkdir()
        told = about_export(translator, options, signatures, about or {})
        files.write_json(extra / ABOUT, told)

    with _in_words(export_dir):
        return write_version(export_dir, SAVED_MODEL, write, version)


def export_ctranslate2(
    translator: Translator,
    export_dir: str | os.PathLike,
    quantization: Quantization = "float32",
    version: int | None = None,
) -> pathlib.Path:
    """Writes a folder of CTranslate2 to `EXPORT_DIR/<version>/`.

    Args:
      translator: what to export.
      export_dir: made if it is missing.
      quantization: the type of the weights.
      version: as in `export_saved_model`.

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
    with _in_words(export_dir):
        return write_version(
            export_dir,
            CTRANSLATE2,
            lambda folder: write_ctranslate2(translator, folder, quantization),
            version,
        )


@contextlib.contextmanager
def _in_words(export_dir: str | os.PathLike) -> Iterator[None]:
    """Says of an export that cannot be written, in one line, why."""
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        raise T2TLiteError(
            f"Cannot write the export to {export_dir}: {in_words(error)}."
        ) from error
