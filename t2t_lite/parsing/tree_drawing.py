"""Draw a tree for people, by nltk.

```
      S
 ┌────┴────┐
 NP        VP
 │         │
PRP       VBZ
 │         │
 It      works
```
"""

import shutil
import sys

from t2t_lite.errors import T2TLiteError
from t2t_lite.parsing.tree_reader import parse_line
from t2t_lite.parsing.trees import fold

_MOST_LEVELS = 100  # nltk calls itself for each level


def draw_tree(
    text: str, width: int | None = None, unicode_lines: bool | None = None
) -> str:
    """Return the drawing of a tree: lines without spaces at their ends.

    A tree that is too wide is indented brackets, a constituent a line; one that
    is too deep stays as it is.

    Args:
      text: the brackets of the tree, on one line.
      width: columns of the drawing; None means those of the terminal.
      unicode_lines: use box-drawing characters, not ASCII; None means if stdout
        can show them.

    Raises:
      T2TLiteError: the text is not exactly one tree.
    """
    trees = parse_line(text)
    if len(trees) != 1:
        raise T2TLiteError(f"One tree can be drawn; got {len(trees)}: {text!r}")
    (tree,) = trees
    if width is None:
        width = shutil.get_terminal_size().columns
    if unicode_lines is None:
        encoding = getattr(sys.stdout, "encoding", None) or "ascii"
        unicode_lines = encoding.lower().startswith("utf")
    levels = fold(tree, lambda _: 1, lambda _, parts: 1 + max(parts, default=0))
    if levels > _MOST_LEVELS:
        return text
    from nltk.tree import Tree
    from nltk.tree.prettyprinter import TreePrettyPrinter

    drawn = fold(
        tree,
        lambda leaf: Tree(leaf.label, [leaf.word]),
        lambda bracket, parts: Tree(bracket.label, parts),
    )
    picture = TreePrettyPrinter(drawn).text(
        unicodelines=unicode_lines, maxwidth=None
    )
    lines = [line.rstrip() for line in picture.splitlines() if line.strip()]
    margin = min(len(line) - len(line.lstrip()) for line in lines)
    lines = [line[margin:] for line in lines]
    if max(map(len, lines)) > width:
        return drawn.pformat(margin=width)
    return "\n".join(lines)
