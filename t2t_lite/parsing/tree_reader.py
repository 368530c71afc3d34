"""Reads bracketed trees from text, exactly, or says what is wrong where."""

import functools
import itertools
import os
import re
import reprlib
from collections.abc import Iterable, Iterator
from typing import Any

from t2t_lite.corpus.lines import read_byte_lines
from t2t_lite.errors import T2TLiteError
from t2t_lite.parsing.trees import (
    LEAF,
    NO_TAG,
    Tree,
    fold,
    format_tree,
    strip_annotation,
    walk,
    words,
)

# A tree that does not end is not read on to the end of a long file.
_MOST_LINES = 10_000
# Only ASCII white space: a no-break space is part of its word.
_TOKENS = re.compile(
    r"\(\s*([^\s()]+)\s+([^\s()]+)\s*\)((?:\s*\))*)"  # a word, with its tag,
    r"|\(\s*([^\s()]*)"  # and the brackets that close; an opening one, label
    r"|(\))"
    r"|([^\s()]+)",
    re.ASCII,
)
# Twice as fast as Tree(...): it takes one tuple of all three values.
_new = functools.partial(tuple.__new__, Tree)


def read_trees(path: str | os.PathLike) -> Iterator[Tree]:
    """The trees of a UTF-8 file, packed or not, one after the other.

    Trees may take several lines or share one. Memory holds one tree at a time.
    `tree_lines` and `parse_trees` say what is an error.
    """
    return parse_trees(tree_lines(path), str(path))


def parse_trees(lines: Iterable[str], name: str = "The text") -> Iterator[Tree]:
    """The trees of some lines, exactly as written.

    Example: `["( (S (NP-SBJ (PRP It))", "(VP (VBZ is)) ))"]` gives one tree,
    with the label `""` and one child.

    A tree in which a bracket holds several words, `(NP the end)`, has no tags:
    each of its words gets the tag `XX`, `(NP (XX the) (XX end))`.

    Args:
      lines: text, with or without the ends of lines.
      name: of the file, for errors.

    Raises:
      T2TLiteError: brackets are not balanced, a word contains one, a tree has
        no words, or text stands outside of brackets. It names the line and the
        column (of characters, from 1).
    """
    reader = _Reader(name)
    for number, line in enumerate(lines, 1):
        yield from reader.feed(number, line)
    reader.end()


def parse_line(
    line: str, name: str = "The text", number: int = 1
) -> list[Tree]:
    """As `parse_trees`; no tree, and trees without words, are allowed."""
    reader = _Reader(name, words_needed=False)
    trees = reader.feed(number, line)
    reader.end("line")
    return trees


def sentence_of(line: str) -> str:
    """The words of the trees of a line, traces left out, a space between.

    Example: `"(S (NP (PRP It)) (VP (VBZ works)))"` -> `"It works"`.

    Raises:
      T2TLiteError: as `parse_line`.
    """
    trees = map(strip_annotation, parse_line(line))
    return " ".join(word for tree in trees if tree for word in words(tree))


def tree_lines(path: str | os.PathLike) -> Iterator[str]:
    """The lines of a UTF-8 file, packed or not, without their ends.

    Other than with `corpus.lines.read_lines`, a byte that is not UTF-8 is an
    error: in another encoding, all words of a treebank would be damaged.

    Raises:
      T2TLiteError: the file is missing, unreadable, damaged or not UTF-8.
    """
    for number, line in enumerate(read_byte_lines(path), 1):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            column = len(line[: error.start].decode("utf-8")) + 1
            raise T2TLiteError(
                f"{path}, line {number}, column {column}: trees must be UTF-8 "
                f"text; got byte 0x{line[error.start]:02x}. Convert the file "
                "first, for example with iconv."
            ) from error
        yield text


def one_tree_a_line(
    path: str | os.PathLike, sentences: int | None = None
) -> tuple[list[str], bool]:
    """The trees of a file, a line each, also if the file has them otherwise.

    In a file as treebanks are, a tree takes several lines, of which all but the
    first begin with a space. Other files are taken line by line, so that an
    empty or damaged line stays the answer to its sentence.

    Args:
      path: of the file.
      sentences: how many trees there should be. A file of so many lines is
        taken line by line if it cannot be read as treebanks are.

    Returns: the lines, and whether the file is as treebanks are.

    Raises:
      T2TLiteError: as `tree_lines` and `parse_trees` say.
    """
    lines = list(tree_lines(path))
    depth = 0
    for line in lines:
        continues = line[:1].isspace() and bool(line.strip())
        if continues and depth > 0:
            try:
                trees = parse_trees(lines, str(path))
                return [format_tree(tree) for tree in trees], True
            except T2TLiteError:
                if len(lines) != sentences:
                    raise
                break
        depth = line.count("(") - line.count(")") + (depth if continues else 0)
    return lines, False


def without_outer_brackets(lines: Iterable[str]) -> Iterator[str]:
    """Trees without the bracket that treebanks put around each, if any.

    Example: `"( (S (NP (PRP It)) (VP (VBZ works))))"` ->
    `"(S (NP (PRP It)) (VP (VBZ works)))"`. What is no tree stays.
    """
    for line in lines:
        try:
            trees = parse_line(line)
        except T2TLiteError:
            yield line
        else:
            yield " ".join(format_tree(_unwrapped(tree)) for tree in trees)


class _Reader:
    """Makes trees of the lines that it is fed; keeps the unfinished one."""

    def __init__(self, name, words_needed=True):
        self._name = name
        self._words_needed = words_needed
        self._labels: list[str] = []  # of the open brackets
        # Trees that are complete, then the parts of each open bracket.
        self._levels: list[list[Any]] = [[]]
        # Places are (number, line, index of token).
        self._start: tuple[int, str, int] = (0, "", 0)  # of the tree
        # Of the last word apart from its tag.
        self._loose: tuple[int, str, int] | None = None
        self._untagged = False  # a bracket of the tree holds several words

    def feed(self, number: int, line: str) -> list[Tree]:
        """The trees that end in this line."""
        labels, levels = self._labels, self._levels
        if labels and number - self._start[0] > _MOST_LINES:
            raise self._unclosed(f"after {_MOST_LINES:,} lines")
        for index, token in enumerate(_TOKENS.findall(line)):
            tag, word, closings, label, closing, loose = token
            if not labels:
                self._start = number, line, index
            if word:
                levels[-1].append(_new((tag, (), word)))
            elif loose:
                self._add_loose(loose, (number, line, index))
            elif not closing:
                labels.append(label)
                levels.append([])
            if closings or closing:
                self._close(closings or closing, (number, line, index))
            elif word and not labels:
                self._finish()
        trees, levels[0] = levels[0], []
        return trees

    def end(self, unit: str = "text") -> None:
        """Checks that the last tree is complete."""
        if self._labels:
            raise self._unclosed(f"at the end of the {unit}")

    def _close(self, brackets, place):
        """Closes as many constituents."""
        labels, levels = self._labels, self._levels
        for left in range(brackets.count(")"), 0, -1):
            if not labels:
                raise self._fault(
                    "a closing bracket must have an opening one before it. "
                    "Take it out, or write -RRB- for the sign.",
                    place,
                    closing=-left,
                )
            label, parts = labels.pop(), levels.pop()
            if self._loose:
                node = self._node(label, parts)
            else:
                node = _new((label, tuple(parts), None))
            levels[-1].append(node)
            if not labels:
                self._finish()

    def _add_loose(self, word, place):
        """Takes a word that does not follow its tag on the same line."""
        if not self._labels:
            raise self._fault(
                f"text must stand in brackets; got {reprlib.repr(word)}. A "
                "tree is written like (S (NP (PRP It)) (VP (VBZ works))).",
                place,
            )
        if not self._labels[-1] and not self._levels[-1]:
            self._labels[-1] = word
        else:
            self._levels[-1].append(word)
            self._loose = place

    def _node(self, label, parts):
        """The tree of a bracket that may hold loose words."""
        loose = [part for part in parts if isinstance(part, str)]
        if not loose:
            return _new((label, tuple(parts), None))
        if len(loose) < len(parts):
            raise self._fault(
                "a bracket must hold words or brackets, not both; got the "
                f"word {reprlib.repr(loose[-1])} beside a bracket. In words, "
                "write -LRB- and -RRB- for brackets.",
                self._loose,
            )
        if len(loose) == 1:
            return _new((label, (), loose[0]))
        self._untagged = True
        leaves = (_new((NO_TAG, (), word)) for word in loose)
        return _new((label, tuple(leaves), None))

    def _finish(self):
        """Checks the tree that is complete; gives untagged words their tag."""
        trees = self._levels[0]
        if self._words_needed and all(
            event != LEAF for event, _ in walk(trees[-1])
        ):
            raise self._fault(
                "a tree must have at least one word; got one without. Take it "
                "out of the file.",
                self._start,
            )
        if self._untagged:
            trees[-1] = fold(
                trees[-1],
                _without_tag,
                lambda tree, parts: tree._replace(children=tuple(parts)),
            )
        self._loose, self._untagged = None, False

    def _unclosed(self, where):
        return self._fault(
            "each opening bracket must be closed; the tree that begins here "
            f"has {len(self._labels)} open {where}. Close them, write -LRB- "
            "for the sign, or get the file again if it is cut.",
            self._start,
        )

    def _fault(self, text, place, closing=None):
        """The error at a token, or at that one of its closing brackets."""
        number, line, index = place
        token = next(itertools.islice(_TOKENS.finditer(line), index, None))
        column = token.start() + 1
        if closing is not None:
            column += [m.start() for m in re.finditer(r"\)", token[0])][closing]
        return T2TLiteError(
            f"{self._name}, line {number}, column {column}: {text}"
        )


def _unwrapped(tree):
    if tree.label == "" and len(tree.children) == 1:
        return tree.children[0]
    return tree


def _without_tag(leaf):
    """A bracket over one word is a constituent, as those over several are."""
    if leaf.label == NO_TAG:
        return leaf
    return Tree(leaf.label, (Tree(NO_TAG, (), leaf.word),))
