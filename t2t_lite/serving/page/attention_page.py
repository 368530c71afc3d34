"""Attention weights as one self-contained page, after figures 3-5."""

import importlib.resources
import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_lite.decoding.lines import translate_lines
from t2t_lite.decoding.token_details import END, START
from t2t_lite.decoding.translator import Translator
from t2t_lite.errors import UsageError
from t2t_lite.model.attention_weights import attention_weights
from t2t_lite.text.encoder import EOS_ID, TextEncoder

_TEMPLATE = "attention_page.html"
# Of a weight; more could not be seen.
_DIGITS = 4


def attention_of(
    translator: Translator, source: str, target: str | None = None
) -> dict[str, Any]:
    """What every head attends to while a text is translated.

    Args:
      translator: the model, its encoders and the search.
      source: a text.
      target: its translation; None takes the search's.

    Returns: `{"texts": [source, target], "views": [...]}`, fit for JSON. A
      view is one kind of attention: its `name`, a sentence `about` it, the
      tokens that attend (`rows`, of the `row_side`) and that are attended
      (`columns`, of the `column_side`), and `weights` [N, H, rows, columns].
      Where the decoder attends, a row is the token it chooses there.

    Raises:
      UsageError: a text has more tokens than the model was trained on.
    """
    inputs = _ids(translator, translator.source_encoder, source)
    if target is None:
        (answer,) = translate_lines(translator, [source])
        target = answer.hypotheses[0].text
        tokens = answer.hypotheses[0].tokens or []
        targets = [token for token in tokens if token != EOS_ID]
    else:
        targets = _ids(translator, translator.target_encoder, target)
    tensors = attention_weights(
        translator.one_model,
        {
            "inputs": tf.constant([[*inputs, EOS_ID]]),
            "targets": tf.constant([[*targets, EOS_ID]]),
        },
    )
    weights = {name: np.array(value)[:, 0] for name, value in tensors.items()}
    pieces = (
        translator.source_encoder.pieces(inputs),
        translator.target_encoder.pieces(targets),
    )
    return {"texts": [source, target], "views": _views(weights, *pieces)}


def _views(
    weights: Mapping[str, np.ndarray],
    source_tokens: list[str],
    target_tokens: list[str],
) -> list[dict[str, Any]]:
    """The three kinds of attention, see `attention_of`."""
    read, written = [*source_tokens, END], [*target_tokens, END]
    return [
        _view(
            "Cross",
            "What the decoder looks at in the source when it chooses the next "
            "token.",
            ("next token", written),
            ("source", read),
            weights["cross"],
        ),
        _view(
            "Encoder",
            "What the encoder looks at when it reads a token of the source.",
            ("source", read),
            ("source", read),
            weights["encoder"],
        ),
        _view(
            "Decoder",
            "What the decoder looks at in the target so far when it chooses "
            "the next token.",
            ("next token", written),
            ("target so far", [START, *target_tokens]),
            weights["decoder"],
        ),
    ]


def _ids(translator: Translator, encoder: TextEncoder, text: str) -> list[int]:
    """The tokens of a text, without EOS."""
    ids = encoder.encode([text])[0].tolist()
    if len(ids) >= translator.max_length:
        raise UsageError(
            f"A text may have {translator.max_length} tokens (max_length, EOS "
            f"included); this one has {len(ids) + 1}: {text[:40]!r}..."
        )
    return ids


def _view(name, about, left, right, weights):
    return {
        "name": name,
        "about": about,
        "row_side": left[0],
        "rows": left[1],
        "column_side": right[0],
        "columns": right[1],
        "weights": np.round(weights.astype("float64"), _DIGITS).tolist(),
    }


def render_page(attention: Mapping[str, Any]) -> str:
    """The page, HTML without anything to load.

    Args:
      attention: from `attention_of`.
    """
    folder = importlib.resources.files("t2t_lite.serving.page")
    # Inside a script element, only "</" could end it early.
    data = json.dumps(attention, ensure_ascii=False).replace("<", "\\u003c")
    parts = {
        "STYLE": (folder / "heads.css").read_text("utf-8"),
        "SCRIPT": (folder / "heads.js").read_text("utf-8"),
        "DATA": data,
    }
    template = (folder / _TEMPLATE).read_text("utf-8")
    # In one pass, so that no text of a user is taken for a place.
    return re.sub(r"__(\w+)__", lambda place: parts[place[1]], template)
