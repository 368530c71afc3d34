"""The problem `text` over the user's own text files."""

from t2t_lite.problem import TextFiles
from t2t_lite.registry import register_problem


@register_problem("text")
class Text(TextFiles):
    """Your own files: lines, TSV, JSON lines or TMX; see --source, --pairs."""
