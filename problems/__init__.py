"""The built-in problems; importing this package registers them."""

from t2t_lite.problems import multi30k, spellout, text, wmt, wsj_parsing

__all__ = ["multi30k", "spellout", "text", "wmt", "wsj_parsing"]
