"""Attention weights as one self-contained page, after figures 3-5."""

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

_DIGITS = 4  # of a weight


def attention_of(
    translator: Translator, source: str, target: str | None = None
) -> dict[str, Any]:
    """Return the weights of every head while a text is translated.

    Args:
      translator: the model, its encoders and the search.
      source: a text.
      target: its translation; None takes the search's.

    Returns:
      As JSON values, `texts`, the tokens `read` [S] and `written` [T], and the
      weights `cross` [N, H, T, S], `encoder` [N, H, S, S] and `decoder`
      [N, H, T, T], whose columns are the tokens before those of the rows.

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
    """Return the tokens of a text, without EOS."""
    ids = encoder.encode([text])[0].tolist()
    if len(ids) >= translator.max_length:
        raise UsageError(
            f"A text may have {translator.max_length} tokens (max_length, EOS "
            f"included); this one has {len(ids) + 1}: {text[:40]!r}..."
        )
    return ids


def render_page(attention: Mapping[str, Any]) -> str:
    """Return a page of HTML that loads nothing.

    Args:
      attention: from `attention_of`.
    """
    # Inside a script element, only "</" could end it early.
    data = json.dumps(attention, ensure_ascii=False).replace("<", "\\u003c")
    parts = {
        "STYLE": (page.FOLDER / "heads.css").read_text("utf-8"),
        "SCRIPT": (page.FOLDER / "heads.js").read_text("utf-8"),
        "DATA": data,
    }
    template = (page.FOLDER / "attention_page.html").read_text("utf-8")
    # In one pass, so that no text of a user is taken for a mark.
    return re.sub(r"__(\w+)__", lambda mark: parts[mark[1]], template)
