"""A tree drawn for people: branches above the words, or indented if too wide.

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
from t2t_lite.parsing.trees import CLOSE, LEAF, fold, walk, words

_LEAST_COLUMNS = 4  # of a word in a drawing, its distance to the next counted
_MOST_LEVELS = 100  # the library calls itself for each level


def draw_tree(
    text: str, width: int | None = None, unicode_lines: bool | None = None
) -> str:
    """The drawing of a tree: lines without spaces at their ends.

    A tree that is too wide or too deep is written a constituent a line,
    indented, and the first line says so; words are never cut. `...` stands
    where a constituent is empty. A character counts as a column.

    Args:
      text: the brackets of the tree, on one line.
      width: columns that there are; None asks the terminal.
      unicode_lines: lines of box-drawing characters; False draws in ASCII; None
        takes what stdout can show.

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
    why = f"{width} columns are too few to draw it"
    if levels > _MOST_LEVELS:
        why = f"{levels} levels are too many to draw"
    elif _LEAST_COLUMNS * len(words(tree)) <= width + 1:
        lines = _branches(tree, unicode_lines)
        if max(map(len, lines)) <= width:
            return "\n".join(lines)
    return "\n".join([f"(indented: {why})", *_indented(tree, unicode_lines)])


def _branches(tree, unicode_lines):
    """The lines of a drawing of any width, flush left."""
    from nltk.tree import Tree as Drawn
    from nltk.tree.prettyprinter import TreePrettyPrinter

    drawn = fold(
        tree,
        lambda leaf: Drawn(leaf.label, [leaf.word]),
        lambda bracket, parts: Drawn(bracket.label, parts),
    )
    text = TreePrettyPrinter(drawn).text(
        unicodelines=unicode_lines, maxwidth=None
    )
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    margin = min(len(line) - len(line.lstrip()) for line in lines)
    return [line[margin:] for line in lines]


def _indented(tree, unicode_lines):
    """A line for each constituent, one for each word with its tag."""
    last, more, down = "`- ", "|- ", "|  "
    if unicode_lines:
        last, more, down = "└─ ", "├─ ", "│  "
    lines: list[str] = []
    left: list[int] = []  # of each open constituent, the parts still to come
    for event, part in walk(tree):
        if event is CLOSE:
            left.pop()
            continue
        margin = ""
        if left:
            left[-1] -= 1
            margin = "".join(down if n else "   " for n in left[:-1])
            margin += more if left[-1] else last
        word = f" {part.word}" if event is LEAF else ""
        lines.append(f"{margin}{part.label}{word}")
        if event is not LEAF:
            left.append(len(part.children))
    return lines
