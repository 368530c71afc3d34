"""Attention weights as a self-contained page; see arXiv:1706.03762."""

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_lite.decoding.stream import translate_lines
from t2t_lite.decoding.token_info import END
from t2t_lite.decoding.translator import Translator
from t2t_lite.errors import UsageError
from t2t_lite.model.attention_weights import attention_weights
from t2t_lite.serving import page
from t2t_lite.tokenizers.base import EOS_ID, Tokenizer

_DIGITS = 4  # decimals of a weight


def attention_of(
    translator: Translator, source: str, target: str | None = None
) -> dict[str, Any]:
    """Compute the attention weights of all heads for a pair of texts.

    Args:
      translator: the model, its tokenizers and its search settings.
      source: source text.
      target: target text; None: the translation of the source.

    Returns:
      A dict of JSON values: `texts`; the tokens `read` [S] and `written` [T];
      the weights `cross` [N, H, T, S], `encoder` [N, H, S, S] and `decoder`
      [N, H, T, T], where column t is the token before row t.

    Raises:
      UsageError: a text has more than `max_length` tokens.
    """
    inputs = _ids(translator, translator.source_encoder, source)
    if target is None:
        (answer,) = translate_lines(translator, [source])
        target = answer.hypotheses[0].text
        tokens = answer.hypotheses[0].tokens or []
        targets = [token for token in tokens if token != EOS_ID]
    else:
        targets = _ids(translator, translator.target_encoder, target)
    features = {"inputs": inputs, "targets": targets}
    weights = attention_weights(
        translator.single_model,
        {side: tf.constant([[*x, EOS_ID]]) for side, x in features.items()},
    )
    return {
        "texts": [source, target],
        "read": [*translator.source_encoder.ids_to_pieces(inputs), END],
        "written": [*translator.target_encoder.ids_to_pieces(targets), END],
        **{
            name: np.round(
                np.asarray(value, np.float64)[:, 0], _DIGITS
            ).tolist()
            for name, value in weights.items()
        },
    }


def _ids(translator: Translator, encoder: Tokenizer, text: str) -> list[int]:
    """Tokenize a text, without EOS."""
    ids = encoder.encode([text])[0].tolist()
    if len(ids) >= translator.max_length:
        raise UsageError(
            f"A text must have at most {translator.max_length} tokens "
            f"(max_length, EOS included), got {len(ids) + 1}: {text[:40]!r}..."
        )
    return ids


def render_page(attention: Mapping[str, Any]) -> str:
    """Render a self-contained HTML page.

    Args:
      attention: from `attention_of`.
    """
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
