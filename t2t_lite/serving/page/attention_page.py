"""Attention weights as a self-contained page; see arXiv:1706.03762."""

import json
import re
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_lite.decoding.results import Attention
from t2t_lite.decoding.stream import translate_lines
from t2t_lite.decoding.translator import Engine, Translator
from t2t_lite.errors import UsageError
from t2t_lite.serving import page
from t2t_lite.serving.signatures import attention
from t2t_lite.tokenizers.base import to_valid_utf8

_DIGITS = 4  # decimals of a weight


def compute_attention(
    translator: Engine, source: str, target: str | None = None
) -> Attention:
    """Compute the attention weights of all heads for a pair of texts.

    Without a target, it is the translation of the source.
    """
    if not isinstance(translator, Translator):
        raise UsageError("Attention requires a run; got an export.")
    for text in (source, "" if target is None else target):
        if not isinstance(text, str):
            raise UsageError(f"A text must be a str; got {text!r}.")
    source = to_valid_utf8(source)
    if target is None:
        (result,) = translate_lines(translator, [source])
        target = result.hypotheses[0].text
    target = to_valid_utf8(target)
    outputs = attention(translator)(*map(tf.constant, ([source], [target])))
    if outputs.pop("cut")[0]:
        raise UsageError(
            f"A text must have at most {translator.max_length} tokens "
            "(max_length, EOS included)."
        )
    values: dict[str, Any] = {k: v[0].numpy() for k, v in outputs.items()}
    for name in ("source_tokens", "target_tokens"):
        values[name] = [piece.decode() for piece in values[name]]
    return Attention((source, target), **values)


def _to_json(weights):
    return np.round(weights.astype(np.float64), _DIGITS).tolist()


def render_page(attention: Attention) -> str:
    """Render a self-contained HTML page of attention weights."""
    data = json.dumps(vars(attention), ensure_ascii=False, default=_to_json)
    data = data.replace("<", "\\u003c")  # "</" could end the script element
    contents = {
        "STYLE": (page.FOLDER / "heads.css").read_text("utf-8"),
        "SCRIPT": (page.FOLDER / "heads.js").read_text("utf-8"),
        "DATA": data,
    }
    template = (page.FOLDER / "attention_page.html").read_text("utf-8")
    # One pass, because the user's texts may contain placeholders.
    return re.sub(r"__(\w+)__", lambda match: contents[match[1]], template)
