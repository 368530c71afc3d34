"""Attention weights as a self-contained page; see arXiv:1706.03762."""

import json
import re

import numpy as np

from t2t_lite.decoding.attention import Attention
from t2t_lite.serving import page

_DIGITS = 4  # decimals of a weight


def render_page(attention: Attention) -> str:
    """Render a self-contained HTML page of attention weights."""

    def to_json(weights: np.ndarray) -> list:
        return np.round(weights.astype(np.float64), _DIGITS).tolist()

    data = json.dumps(vars(attention), ensure_ascii=False, default=to_json)
    contents = {
        "STYLE": (page.FOLDER / "heads.css").read_text("utf-8"),
        "SCRIPT": (page.FOLDER / "heads.js").read_text("utf-8"),
        # Escaped because "</" could end the script element.
        "DATA": data.replace("<", "\\u003c"),
    }
    template = (page.FOLDER / "attention_page.html").read_text("utf-8")
    # One pass, because the user's texts may contain placeholders.
    return re.sub(r"__(\w+)__", lambda match: contents[match[1]], template)
