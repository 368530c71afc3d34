"""Attention weights as a self-contained page; see arXiv:1706.03762."""

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_lite.decoding.stream import translate_lines
from t2t_lite.decoding.translator import Translator
from t2t_lite.errors import UsageError
from t2t_lite.serving import page
from t2t_lite.serving.signatures import attention

_DIGITS = 4  # decimals of a weight


def attention_of(
    translator: Translator, source: str, target: str | None = None
) -> dict[str, Any]:
    """Compute the attention weights of all heads for a pair of texts.

    Without a target, it is the translation of the source.

    Returns:
      A dict of JSON values: `texts`, and the outputs of the signature
      `attention`, without the batch dimension.
    """
    if target is None:
        (result,) = translate_lines(translator, [source])
        target = result.hypotheses[0].text
    outputs = attention(translator)(*map(tf.constant, ([source], [target])))
    if outputs.pop("cut")[0]:
        raise UsageError(
            f"A text must have at most {translator.max_length} tokens "
            "(max_length, EOS included)."
        )
    values: dict[str, Any] = {"texts": [source, target]}
    for name, (value,) in outputs.items():
        if value.dtype == tf.string:
            values[name] = [piece.decode() for piece in value.numpy()]
        else:
            weights = value.numpy().astype(np.float64)
            values[name] = np.round(weights, _DIGITS).tolist()
    return values


def render_page(attention: Mapping[str, Any]) -> str:
    """Render a self-contained HTML page of the result of `attention_of`."""
    # Escaped because "</" could end the script element.
    data = json.dumps(attention, ensure_ascii=False).replace("<", "\\u003c")
    contents = {
        "STYLE": (page.FOLDER / "heads.css").read_text("utf-8"),
        "SCRIPT": (page.FOLDER / "heads.js").read_text("utf-8"),
        "DATA": data,
    }
    template = (page.FOLDER / "attention_page.html").read_text("utf-8")
    # One pass, because the user's texts may contain placeholders.
    return re.sub(r"__(\w+)__", lambda match: contents[match[1]], template)
