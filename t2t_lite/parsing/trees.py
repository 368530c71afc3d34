"""Bracketed trees: walked, written as text, and stripped of annotation.

A tree in brackets, as treebanks write it, and as a `Tree`:

    (NP (DT the) (NN end))
    Tree("NP", (Tree("DT", (), "the"), Tree("NN", (), "end")))
"""

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from t2t_lite.errors import T2TLiteError

NO_TAG = "XX"  # the tag of a word whose part of speech is not known
TRACE = "-NONE-"  # the tag of what is not written: traces, empty subjects
TOP = "TOP"  # the root over several constituents
ROOTS = ("", TOP, "ROOT", "S1")  # outermost brackets that name no constituent

OPEN, LEAF, CLOSE = "open", "leaf", "close"

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
    """The brackets and words of a tree in the order of the text.

    Yields: `(OPEN, constituent)`, `(LEAF, word)` or `(CLOSE, constituent)`;
    trees of any depth, because no call waits for another.
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
    """The value of a tree, computed from its words up.

    `of_leaf` gives that of a word; `of_bracket` that of a constituent, from it
    and the values of its parts.
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


def leaves_of(tree: Tree) -> list[Tree]:
    """The words of a tree with their tags, in order."""
    return [part for event, part in walk(tree) if event is LEAF]


def words(tree: Tree) -> list[str]:
    """The words of a tree, in order; traces are among them."""
    return [leaf.word or "" for leaf in leaves_of(tree)]


def format_tree(tree: Tree) -> str:
    """A tree on one line; `tree_reader.parse_trees` reads it back.

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
            "A word, tag or label of a tree must not be empty, nor contain "
            f"brackets or white space; got {text!r}. Write -LRB- and -RRB- for "
            "brackets."
        )
    return text


def escape_brackets(word: str) -> str:
    """A word as trees can hold it: `(` is `-LRB-`, and `)` is `-RRB-`."""
    return word.replace("(", "-LRB-").replace(")", "-RRB-")


def strip_annotation(tree: Tree) -> Tree | None:
    """A tree without traces, function tags and the bracket around it all.

    Example, before and after:

        ( (S (NP-SBJ-1 (PRP It)) (VP (VBZ works) (NP (-NONE- *-1)))))
        (S (NP (PRP It)) (VP (VBZ works)))

    Users of EVALB do the same. A constituent without words goes, too. A
    label ends at its first `-` or `=`, unless it begins with `-`; tags stay as
    they are. Of the outermost brackets that name no constituent (no label,
    TOP, ROOT or S1), those with one part go; over several parts it is TOP.

    Returns: None if no words are left.
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
    """A label without function tags and indices: `NP-SBJ-1` is `NP`."""
    return label if label.startswith("-") else _FUNCTION.sub("", label)
