"""Bracketed trees: read, walked, written and stripped of annotation.

A tree in brackets, as treebanks write it, and as a `Tree`:

    (NP (DT the) (NN end))
    Tree("NP", (Tree("DT", (), "the"), Tree("NN", (), "end")))
"""

import functools
import os
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from t2t_lite.corpus.lines import Encoding, read_lines
from t2t_lite.errors import T2TLiteError

NO_TAG = "XX"  # the tag of a word whose part of speech is not known
TRACE = "-NONE-"  # the tag of traces and empty subjects, which are not written
TOP = "TOP"  # the root over several constituents
ROOTS = ("", TOP, "ROOT", "S1")  # outermost brackets that name no constituent

OPEN, LEAF, CLOSE = "open", "leaf", "close"

_MAX_LINES = 10_000  # of a tree, in case it never ends
STRICT = Encoding(max_invalid_ratio=0)  # one broken word is a wrong tree
# Only ASCII white space: a no-break space is part of its word.
_TOKEN = re.compile(r"[()]|[^\s()]+", re.ASCII)
_NAME = re.compile(r"[^\s()]+", re.ASCII)
_FUNCTION = re.compile("(?<=.)[-=].*", re.DOTALL)


class Tree(NamedTuple):
    """A constituent with its parts, or one word with its tag.

    Attributes:
      label: of the constituent, `""` where a bracket has none; of a word, its
        part-of-speech tag.
      children: the parts, in order; none for a word or an empty constituent.
      word: None for a constituent.
    """

    label: str
    children: tuple["Tree", ...] = ()
    word: str | None = None


def walk(tree: Tree) -> Iterator[tuple[str, Tree]]:
    """Walk over the brackets and words of a tree in the order of the text.

    It does not recurse, so trees may have any depth.

    Yields:
      `(OPEN, constituent)`, `(LEAF, word)` or `(CLOSE, constituent)`.
    """
    if tree.word is not None:
        yield LEAF, tree
        return
    yield OPEN, tree
    path, rest = [tree], [iter(tree.children)]
    while path:
        for part in rest[-1]:
            if part.word is None:
                yield OPEN, part
                path.append(part)
                rest.append(iter(part.children))
                break
            yield LEAF, part
        else:
            rest.pop()
            yield CLOSE, path.pop()


def fold(
    tree: Tree,
    of_leaf: Callable[[Tree], Any],
    of_bracket: Callable[[Tree, list], Any],
) -> Any:
    """Return the value of a tree of any depth, computed from its words up.

    `of_bracket` is given a constituent and the values of its parts.
    """
    levels: list[list[Any]] = [[]]
    for event, part in walk(tree):
        if event is OPEN:
            levels.append([])
        elif event is LEAF:
            levels[-1].append(of_leaf(part))
        else:
            values = levels.pop()
            levels[-1].append(of_bracket(part, values))
    return levels[0][0]


def words(tree: Tree) -> list[str]:
    """Return the words of a tree, in order, traces included."""
    return [part.word or "" for event, part in walk(tree) if event is LEAF]


def format_tree(tree: Tree) -> str:
    """Write a tree on one line; `parse_trees` reads it back.

    Example: `(TOP (S (NP (PRP It)) (VP (VBZ works))))`.

    Raises:
      T2TLiteError: a word or tag is empty; or it, or a label, holds a bracket
        or white space.
    """

    def of_leaf(leaf):
        return f"({_checked(leaf.label)} {_checked(leaf.word)})"

    def of_bracket(bracket, parts):
        label = bracket.label and _checked(bracket.label)
        return f"({' '.join([label, *parts])})"

    return fold(tree, of_leaf, of_bracket)


def _checked(text):
    if not _NAME.fullmatch(text):
        raise T2TLiteError(
            "A word, tag or label of a tree must not be empty or contain white "
            f"space or brackets, which are -LRB- and -RRB-; got {text!r}."
        )
    return text


def escape_brackets(word: str) -> str:
    """Replace `(` in a word by `-LRB-`, and `)` by `-RRB-`."""
    return word.replace("(", "-LRB-").replace(")", "-RRB-")


def strip_annotation(tree: Tree) -> Tree | None:
    """Remove traces, function tags and the bracket around a tree.

    Example, before and after:

        ( (S (NP-SBJ-1 (PRP It)) (VP (VBZ works) (NP (-NONE- *-1)))))
        (S (NP (PRP It)) (VP (VBZ works)))

    Users of EVALB do the same. Constituents without words are removed, too; if
    nothing is left, it returns None. A label ends at its first `-` or `=`,
    unless it begins with `-`; tags do not change. An outermost bracket of ROOTS
    is removed if it has one part, and becomes TOP if it has several.
    """
    tree = fold(
        tree, lambda leaf: leaf if leaf.label != TRACE else None, _kept_bracket
    )
    while tree and tree.word is None and tree.label in ROOTS:
        if len(tree.children) > 1:
            return Tree(TOP, tree.children)
        (tree,) = tree.children
    return tree


def _kept_bracket(tree, parts):
    parts = tuple(filter(None, parts))
    return Tree(without_function(tree.label), parts) if parts else None


@functools.lru_cache(maxsize=10_000)
def without_function(label: str) -> str:
    """Remove function tags and indices from a label: `NP-SBJ-1` is `NP`."""
    return label if label.startswith("-") else _FUNCTION.sub("", label)


def read_trees(path: str | os.PathLike) -> Iterator[Tree]:
    """Yield the trees of a UTF-8 file, compressed or not.

    Trees may take several lines or share one. Memory holds one tree at a time.

    Raises:
      T2TLiteError: the file cannot be read or is not UTF-8; see `parse_trees`.
    """
    return parse_trees(read_lines(path, STRICT), str(path))


def parse_trees(
    lines: Iterable[str], name: str = "The text", first_line: int = 1
) -> Iterator[Tree]:
    """Yield the trees of some lines, exactly as written.

    Example: `["( (S (NP-SBJ (PRP It))", "(VP (VBZ is)) ))"]` gives one tree,
    with the label `""` and one child.

    A tree in which a bracket holds several words, `(NP the end)`, has no tags:
    each of its words gets the tag `XX`, `(NP (XX the) (XX end))`.

    Args:
      lines: text, with or without line ends.
      name: of the file, for errors.
      first_line: the number of the first line.

    Raises:
      T2TLiteError: brackets are not balanced, a word contains one, or text
        stands outside of brackets. The message names the line and the column
        (of characters, from 1).
    """
    # Of each open bracket: its line and column; its label, word and trees.
    opened: list[tuple[tuple[int, int], list[Any]]] = []
    has_tags = True  # no bracket of this tree holds several words
    for number, line in enumerate(lines, first_line):
        if opened and number - opened[0][0][0] > _MAX_LINES:
            break
        for match in _TOKEN.finditer(line):
            token, place = match[0], (number, match.start() + 1)
            if token == ")" and opened:
                _, parts = opened.pop()
                tree = _tree_of(parts)
                several_words = len(parts) > 2 and isinstance(parts[2], str)
                has_tags = has_tags and not several_words
                if opened:
                    opened[-1][1].append(tree)
                    continue
                yield tree if has_tags else _without_tags(tree)
                has_tags = True
                continue
            parts = opened[-1][1] if opened else []
            if not opened and token != "(":
                raise _error_at(
                    name, place, f"{reprlib.repr(token)} is outside"
                )
            has_word = len(parts) > 1 and isinstance(parts[1], str)
            has_tree = bool(parts) and isinstance(parts[-1], Tree)
            if has_word if token == "(" else has_tree:
                reason = f"{reprlib.repr(token)} is beside words or brackets"
                raise _error_at(name, place, reason)
            if token == "(":
                opened.append((place, []))
            else:
                parts.append(token)
    if opened:
        reason = (
            f"of the tree that begins here, {len(opened)} open brackets are "
            f"not closed at the end of the text, or after {_MAX_LINES:,} lines"
        )
        raise _error_at(name, opened[0][0], reason)


def _error_at(name, place, reason):
    number, column = place
    return T2TLiteError(
        f"{name}, line {number}, column {column}: {reason}. A tree is written "
        "like (S (NP (PRP It)) (VP (VBZ works))); write -LRB- and -RRB- for "
        "brackets in words."
    )


def _tree_of(parts):
    """Return the tree of a bracket with a label or none, and words or trees."""
    has_label = parts and isinstance(parts[0], str)
    label, *rest = parts if has_label else ["", *parts]
    if len(rest) == 1 and isinstance(rest[0], str):
        return Tree(label, (), rest[0])
    leaves = (Tree(NO_TAG, (), x) if isinstance(x, str) else x for x in rest)
    return Tree(label, tuple(leaves))


def _without_tags(tree):
    """Make a constituent of each bracket over one word, with the tag XX."""
    return fold(
        tree,
        lambda leaf: (
            leaf
            if leaf.label == NO_TAG
            else Tree(leaf.label, (Tree(NO_TAG, (), leaf.word),))
        ),
        lambda bracket, parts: bracket._replace(children=tuple(parts)),
    )
