"""Bracketed trees: read, walked, written, drawn and stripped of annotation.

A tree in brackets, as treebanks write it, and as a `Tree`:

    (NP (DT the) (NN end))
    Tree("NP", (Tree("DT", (), "the"), Tree("NN", (), "end")))
"""

import functools
import itertools
import os
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from t2t_lite.corpus.lines import read_byte_lines
from t2t_lite.errors import T2TLiteError

NO_TAG = "XX"  # the tag of a word whose part of speech is not known
TRACE = "-NONE-"  # the tag of traces and empty subjects, which are not written
TOP = "TOP"  # the root over several constituents
ROOTS = ("", TOP, "ROOT", "S1")  # outermost brackets that name no constituent

OPEN, LEAF, CLOSE = "open", "leaf", "close"

_MAX_LINES = 10_000  # of a tree, in case it never ends
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
    """Return the value of a tree, computed from its words up.

    Args:
      tree: of any depth.
      of_leaf: returns the value of a word.
      of_bracket: returns the value of a constituent, given the constituent and
        the values of its parts.
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
    """Return the words of a tree with their tags, in order."""
    return [part for event, part in walk(tree) if event is LEAF]


def words(tree: Tree) -> list[str]:
    """Return the words of a tree, in order, traces included."""
    return [leaf.word or "" for leaf in leaves_of(tree)]


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
            "A word, tag or label of a tree must not be empty, nor contain "
            f"brackets or white space; got {text!r}. Write -LRB- and -RRB- for "
            "brackets."
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

    Users of EVALB do the same. Constituents without words are removed, too. A
    label ends at its first `-` or `=`, unless it begins with `-`; tags do not
    change. An outermost bracket that names no constituent (no label, TOP, ROOT
    or S1) is removed if it has one part, and becomes TOP if it has several.

    Returns:
      The tree; None if no words are left.
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


class _Bracket:
    """An open bracket: its place, and its label, words and trees."""

    def __init__(self, place: tuple[int, int]):
        self.place = place  # line and column
        self.parts: list[Any] = []  # strings and trees
        self.last_word = place


def read_trees(path: str | os.PathLike) -> Iterator[Tree]:
    """Yield the trees of a UTF-8 file, compressed or not.

    Trees may take several lines or share one. Memory holds one tree at a time.

    Raises:
      T2TLiteError: see `tree_lines` and `parse_trees`.
    """
    return parse_trees(tree_lines(path), str(path))


def parse_trees(lines: Iterable[str], name: str = "The text") -> Iterator[Tree]:
    """Yield the trees of some lines, exactly as written.

    Example: `["( (S (NP-SBJ (PRP It))", "(VP (VBZ is)) ))"]` gives one tree,
    with the label `""` and one child.

    A tree in which a bracket holds several words, `(NP the end)`, has no tags:
    each of its words gets the tag `XX`, `(NP (XX the) (XX end))`.

    Args:
      lines: text, with or without line ends.
      name: of the file, for errors.

    Raises:
      T2TLiteError: brackets are not balanced, a word contains one, a tree has
        no words, or text stands outside of brackets. The message names the
        line and the column (of characters, from 1).
    """
    for place, tree in _parse(lines, name, "text"):
        if all(event != LEAF for event, _ in walk(tree)):
            raise _fault(
                name,
                place,
                "a tree must have at least one word; got one without. Take it "
                "out of the file.",
            )
        yield tree


def parse_line(
    line: str, name: str = "The text", number: int = 1
) -> list[Tree]:
    """Return the trees of a line, which may have no words.

    Args:
      line: the text.
      name: of the file, for errors.
      number: of the line, for errors.

    Raises:
      T2TLiteError: see `parse_trees`.
    """
    return [tree for _, tree in _parse([line], name, "line", number)]


def _parse(lines, name, unit, first_number=1):
    """Yield the place and the tree of each outermost bracket."""
    opened: list[_Bracket] = []
    untagged = False  # a bracket of this tree holds several words
    for number, line in enumerate(lines, first_number):
        if opened and number - opened[0].place[0] > _MAX_LINES:
            raise _unclosed(name, opened, f"after {_MAX_LINES:,} lines")
        for match in _TOKEN.finditer(line):
            token, place = match[0], (number, match.start() + 1)
            if token == "(":
                opened.append(_Bracket(place))
            elif not opened:
                raise _fault(
                    name,
                    place,
                    f"{reprlib.repr(token)} stands outside of brackets; a tree "
                    "is written like (S (NP (PRP It)) (VP (VBZ works))). In "
                    "words, write -LRB- and -RRB- for brackets.",
                )
            elif token != ")":
                opened[-1].parts.append(token)
                opened[-1].last_word = place
            else:
                bracket = opened.pop()
                tree, several_words = _tree_of(bracket, name)
                untagged = untagged or several_words
                if opened:
                    opened[-1].parts.append(tree)
                    continue
                yield bracket.place, _without_tags(tree) if untagged else tree
                untagged = False
    if opened:
        raise _unclosed(name, opened, f"at the end of the {unit}")


def _tree_of(bracket, name):
    """Return the tree of a bracket, and whether it holds several words."""
    label, *parts = bracket.parts or [""]
    if not isinstance(label, str):
        label, parts = "", bracket.parts
    found = [part for part in parts if isinstance(part, str)]
    if not found:
        return Tree(label, tuple(parts)), False
    if len(found) < len(parts):
        raise _fault(
            name,
            bracket.last_word,
            "a bracket must hold words or brackets, not both; got the word "
            f"{reprlib.repr(found[-1])} beside a bracket. In words, write "
            "-LRB- and -RRB- for brackets.",
        )
    if len(found) == 1:
        return Tree(label, (), found[0]), False
    return Tree(label, tuple(Tree(NO_TAG, (), word) for word in found)), True


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


def _unclosed(name, opened, where):
    return _fault(
        name,
        opened[0].place,
        "each opening bracket must be closed; the tree that begins here has "
        f"{len(opened)} open {where}. Close them, write -LRB- for the sign, or "
        "get the file again if it is incomplete.",
    )


def _fault(name, place, text):
    number, column = place
    return T2TLiteError(f"{name}, line {number}, column {column}: {text}")


def tree_lines(path: str | os.PathLike) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, compressed or not, without their ends.

    Unlike `corpus.lines.read_lines`, it does not replace bytes that are not
    UTF-8: in another encoding, all words of a treebank would be damaged.

    Raises:
      T2TLiteError: the file is missing, unreadable, damaged or not UTF-8.
    """
    for number, line in enumerate(read_byte_lines(path), 1):
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            column = len(line[: error.start].decode("utf-8")) + 1
            raise _fault(
                path,
                (number, column),
                f"trees must be UTF-8 text; got byte 0x{line[error.start]:02x}."
                " Convert the file first, for example with iconv.",
            ) from error


def one_tree_a_line(
    path: str | os.PathLike, sentences: int | None = None
) -> tuple[list[str], bool]:
    """Return the trees of a file, one on each line.

    In a treebank's file a tree may take several lines, of which all but the
    first begin with a space. Other files are returned line by line, so that an
    empty or damaged line stays the answer to its sentence.

    Args:
      path: of the file.
      sentences: number of trees expected. A file of so many lines has one tree
        a line.

    Returns:
      The lines, and whether the file is a treebank's.

    Raises:
      T2TLiteError: see `tree_lines` and `parse_trees`.
    """
    lines = list(tree_lines(path))
    is_treebank = len(lines) != sentences and any(
        line[:1].isspace()
        and line.strip()
        and before.count("(") > before.count(")")
        for before, line in itertools.pairwise(lines)
    )
    if is_treebank:
        lines = [format_tree(tree) for tree in parse_trees(lines, str(path))]
    return lines, is_treebank


def without_outer_brackets(lines: Iterable[str]) -> Iterator[str]:
    """Remove the bracket without a label that treebanks put around each tree.

    Example: `"( (S (NP (PRP It)) (VP (VBZ works))))"` ->
    `"(S (NP (PRP It)) (VP (VBZ works)))"`. A line that is not a tree stays.
    """
    for line in lines:
        try:
            trees = parse_line(line)
        except T2TLiteError:
            yield line
        else:
            yield " ".join(
                format_tree(
                    tree.children[0]
                    if tree.label == "" and len(tree.children) == 1
                    else tree
                )
                for tree in trees
            )
