"""Trees in brackets: reading, traversal, writing, removal of annotation.

The text of a tree, as in treebanks, and the `Tree`:

    (NP (DT the) (NN end))
    Tree("NP", (Tree("DT", (), "the"), Tree("NN", (), "end")))
"""

import functools
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from t2t_lite.corpus.lines import Encoding, read_lines
from t2t_lite.errors import T2TLiteError
from t2t_lite.files import PathLike

NO_TAG = "XX"  # tag of a word whose part of speech is unknown
TRACE = "-NONE-"  # tag of traces and empty subjects
TOP = "TOP"  # root over several constituents
ROOTS = ("", TOP, "ROOT", "S1")  # outermost brackets that are not constituents

OPEN, LEAF, CLOSE = "open", "leaf", "close"

_MAX_LINES = 10_000  # maximum number of lines of a tree
STRICT = Encoding(max_invalid_ratio=0)  # an invalid word makes a wrong tree
# Only ASCII white space separates words; a no-break space is part of a word.
_TOKEN = re.compile(r"[()]|[^\s()]+", re.ASCII)
_NAME = re.compile(r"[^\s()]+", re.ASCII)
_FUNCTION = re.compile("(?<=.)[-=].*", re.DOTALL)


class Tree(NamedTuple):
    """A constituent with its children, or one word with its tag."""

    label: str  # of a constituent, "" if it has none; tag of a word
    children: tuple["Tree", ...] = ()  # in order; empty for a word
    word: str | None = None  # None for a constituent


def walk(tree: Tree) -> Iterator[tuple[str, Tree]]:
    """Traverse the brackets and words of a tree in the order of the text.

    Yields `(OPEN, constituent)`, `(LEAF, word)` or `(CLOSE, constituent)`. The
    traversal is iterative, so trees may have any depth.
    """
    path: list[Tree] = []
    rest = [iter((tree,))]
    while rest:
        for node in rest[-1]:
            if node.word is None:
                yield OPEN, node
                path.append(node)
                rest.append(iter(node.children))
                break
            yield LEAF, node
        else:
            rest.pop()
            if path:
                yield CLOSE, path.pop()


def fold(
    tree: Tree,
    of_leaf: Callable[[Tree], Any],
    of_bracket: Callable[[Tree, list], Any],
) -> Any:
    """Compute a value of a tree of any depth, bottom-up.

    `of_bracket` takes a constituent and the values of its children.
    """
    levels: list[list[Any]] = [[]]
    for event, node in walk(tree):
        if event is OPEN:
            levels.append([])
        elif event is LEAF:
            levels[-1].append(of_leaf(node))
        else:
            values = levels.pop()
            levels[-1].append(of_bracket(node, values))
    return levels[0][0]


def words(tree: Tree) -> list[str]:
    """Return the words of a tree, in order, traces included."""
    return [node.word or "" for event, node in walk(tree) if event is LEAF]


def format_tree(tree: Tree) -> str:
    """Write a tree on one line; `parse_trees` reads it back.

    Example: `(TOP (S (NP (PRP It)) (VP (VBZ works))))`.

    Raises:
      T2TLiteError: a word or tag is empty; or a word, tag or label contains a
        bracket or white space.
    """
    parts = []
    for event, node in walk(tree):
        if event is OPEN:
            parts.append(f" ({node.label and _check_name(node.label)}")
        elif event is LEAF:
            tag, word = _check_name(node.label), _check_name(node.word)
            parts.append(f" ({tag} {word})")
        else:
            parts.append(")")
    return "".join(parts)[1:]


def _check_name(text):
    if not _NAME.fullmatch(text):
        raise T2TLiteError(
            "A word, tag or label of a tree must not be empty or contain white "
            f"space or brackets (got {text!r}): write brackets as -LRB- and "
            "-RRB-."
        )
    return text


def escape_brackets(word: str) -> str:
    """Replace `(` in a word by `-LRB-`, and `)` by `-RRB-`."""
    return word.replace("(", "-LRB-").replace(")", "-RRB-")


def strip_annotation(tree: Tree) -> Tree | None:
    """Remove traces, function tags and the root bracket, as usual for EVALB.

    Example, before and after:

        ( (S (NP-SBJ-1 (PRP It)) (VP (VBZ works) (NP (-NONE- *-1)))))
        (S (NP (PRP It)) (VP (VBZ works)))

    Constituents without words are removed. A label ends at its first `-` or
    `=`, unless it begins with `-`; tags do not change. An outermost bracket of
    ROOTS is removed if it has one child, and becomes TOP if it has several.

    Returns:
      The stripped tree, or None if no words are left.
    """

    def strip_bracket(bracket, children):
        children = tuple(filter(None, children))
        label = without_function(bracket.label)
        return Tree(label, children) if children else None

    tree = fold(
        tree, lambda leaf: leaf if leaf.label != TRACE else None, strip_bracket
    )
    while tree and tree.word is None and tree.label in ROOTS:
        if len(tree.children) > 1:
            return Tree(TOP, tree.children)
        (tree,) = tree.children
    return tree


@functools.lru_cache(maxsize=10_000)
def without_function(label: str) -> str:
    """Remove function tags and indices from a label: `NP-SBJ-1` -> `NP`."""
    return label if label.startswith("-") else _FUNCTION.sub("", label)


def read_trees(path: PathLike) -> Iterator[Tree]:
    """Yield the trees of a UTF-8 file, compressed or not; see `parse_trees`."""
    return parse_trees(read_lines(path, STRICT), str(path))


def parse_trees(
    lines: Iterable[str],
    name: str = "The text",
    first_line: int = 1,
    allow_empty: bool = False,
) -> Iterator[Tree]:
    """Parse trees from lines of text, with their annotation.

    Example: `["( (S (NP-SBJ (PRP It))", "(VP (VBZ is)) ))"]` gives one tree,
    with the label `""` and one child. A line may hold several trees.

    If a bracket contains several words, `(NP the end)`, the tree has no tags:
    all its words get the tag `XX`, `(NP (XX the) (XX end))`.

    Raises:
      T2TLiteError: brackets are not balanced, a word contains one, a bracket
        has no word (unless `allow_empty`), or text is outside of brackets. The
        message contains `name`, the line, counted from `first_line`, and the
        column (in characters, from 1).
    """
    # For each open bracket: its line and column; its label, word and trees.
    opened: list[tuple[tuple[int, int], list[Any]]] = []
    has_tags = True  # False if a bracket of the tree has several words
    for number, line in enumerate(lines, first_line):
        if opened and number - opened[0][0][0] > _MAX_LINES:
            break
        for match in _TOKEN.finditer(line):
            token, position = match[0], (number, match.start() + 1)
            contents = opened[-1][1] if opened else []
            if not opened and token != "(":
                reason = f"{reprlib.repr(token)} is outside of brackets"
                raise _error_at(name, position, reason)
            if token == ")":
                position, _ = opened.pop()
                tree = _make_tree(contents)
                if not (tree.word or tree.children or allow_empty):
                    reason = f"the bracket ({tree.label}) has no word"
                    raise _error_at(name, position, reason)
                if len(contents) > 2 and isinstance(contents[2], str):
                    has_tags = False
                if opened:
                    opened[-1][1].append(tree)
                else:
                    yield tree if has_tags else _without_tags(tree)
                    has_tags = True
                continue
            has_word = len(contents) > 1 and isinstance(contents[1], str)
            has_tree = bool(contents) and isinstance(contents[-1], Tree)
            if (token == "(" and has_word) or (token != "(" and has_tree):
                reason = f"{reprlib.repr(token)} mixes words and brackets"
                raise _error_at(name, position, reason)
            if token == "(":
                opened.append((position, []))
            else:
                contents.append(token)
    if opened:
        reason = (
            f"the tree has {len(opened)} unclosed brackets at the end of the "
            f"text or after {_MAX_LINES:,} lines"
        )
        raise _error_at(name, opened[0][0], reason)


def _error_at(name, position, reason):
    number, column = position
    return T2TLiteError(
        f"{name}, line {number}, column {column}: {reason}. The format is "
        "(S (NP (PRP It)) (VP (VBZ works))), with -LRB- and -RRB- for brackets "
        "in words."
    )


def _make_tree(contents):
    """Make a tree from an optional label, followed by words or trees."""
    has_label = contents and isinstance(contents[0], str)
    label, *rest = contents if has_label else ["", *contents]
    if len(rest) == 1 and isinstance(rest[0], str):
        return Tree(label, (), rest[0])
    leaves = (Tree(NO_TAG, (), x) if isinstance(x, str) else x for x in rest)
    return Tree(label, tuple(leaves))


def _without_tags(tree):
    """Turn the tag of each word into a constituent with one XX word."""

    def nest(leaf):
        word = Tree(NO_TAG, (), leaf.word)
        return word if leaf.label == NO_TAG else Tree(leaf.label, (word,))

    return fold(tree, nest, lambda node, each: Tree(node.label, tuple(each)))
