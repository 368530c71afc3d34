r"""tensor2tensor's subword vocabularies, learned from a corpus.

The file is the one that tensor2tensor 1.15.7 makes of the same texts, byte for
byte. A vocabulary has every character, and each string that is common enough at
the beginning of a word or where a piece ended. Which pieces words end up with
depends on the vocabulary, so it is found in four rounds; how common is common
enough, by bisection.
"""

import collections
import itertools
import os
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from t2t_lite.errors import T2TLiteError
from t2t_lite.text.cleaning import cleaned
from t2t_lite.text.encoder import write_vocabulary

_RESERVED = ("<pad>_", "<EOS>_")
_ESCAPE_CHARACTERS = "\\_u;0123456789"
_WORD = re.compile(r"[^\W_]+|[\W_]+")  # letters and digits, or none of them
_END = "_"  # of an escaped word, and only there
_LONGEST = 199  # characters of a piece
_ROUNDS = 4
_RAREST, _COMMONEST = 1, 1000  # bounds of what is common enough


def learn_subwords(
    lines: Iterable[str], target_size: int, path: str | os.PathLike
) -> dict[str, int]:
    """Writes the subword file of a corpus, complete or not at all.

    Memory grows with the number of different words, not with that of lines.

    Args:
      lines: the texts, streamed; white space around them does not count, as in
        tensor2tensor's readers.
      target_size: see `build_subwords`.
      path: the file.

    Returns: `lines` and `sampled_lines`, the number of lines: all of them.

    Raises:
      T2TLiteError: there is no text.
    """
    counts, number = count_words(cleaned(line).strip() for line in lines)
    if not counts:
        raise T2TLiteError(
            "A vocabulary needs text; got a corpus without any. Check the "
            "files of the train split."
        )
    write_vocabulary(path, build_subwords(counts, target_size))
    return {"lines": number, "sampled_lines": number}


def count_words(lines: Iterable[str]) -> tuple[dict[str, int], int]:
    """How often tensor2tensor's words stand in the lines; how many lines.

    A single space between two words is none.

    Example: ["a b", "a. "] -> ({"a": 2, "b": 1, ". ": 1}, 2).
    """
    counts: collections.Counter[str] = collections.Counter()
    number = 0
    for line in lines:
        number += 1
        words = _WORD.findall(line)
        counts.update(words)
        counts[" "] -= words[1:-1].count(" ")
    return +counts, number


def build_subwords(counts: Mapping[str, int], target_size: int) -> bytes:
    """The content of a subword file with about `target_size` pieces.

    Args:
      counts: words of the corpus, see `count_words`; at least one.
      target_size: the nearest that the bisection finds is taken. It stops
        within 1%, and cannot leave out a character.
    """
    words = _Words(counts)
    best: list[str] = []
    low, high = _RAREST, _COMMONEST
    while True:
        least = (low + high) // 2
        pieces = [*_RESERVED, *_common_pieces(words, max(least, 1))]
        off = abs(len(pieces) - target_size)
        if not best or off < abs(len(best) - target_size):
            best = pieces
        if off * 100 < target_size or low >= high or least < 2:
            return "".join(f"'{piece}'\n" for piece in best).encode()
        if len(pieces) > target_size:
            low = least + 1
        else:
            high = least - 1


class _Words:
    r"""The words of a corpus as they are matched, one after the other.

    Attributes:
      text: the words, escaped: "a_b" -> "a", "_", "b" -> "a_\u_b_".
      alphabet: all characters that there are, in order.
      codes: the place in the alphabet of each character of `text`, int64 [C],
        and one END more.
      weights: how often the word of each character stands there, int64 [C].
      starts: where words begin, int64 [W].
      order: all places in the text, as what begins there is sorted, int64 [C].
    """

    def __init__(self, counts: Mapping[str, int]):
        escaped = [_escaped(word) for word in counts]
        self.text = "".join(escaped)
        known = {*_ESCAPE_CHARACTERS}.union(*_RESERVED, *counts)
        self.alphabet = sorted(known)
        self.end = self.alphabet.index(_END)
        self.codes = np.searchsorted(
            _code_points("".join(self.alphabet)), _code_points(self.text + _END)
        )
        lengths = np.array([len(word) for word in escaped])
        self.weights = np.repeat(np.fromiter(counts.values(), int), lengths)
        ends = np.cumsum(lengths)
        self.starts = ends - lengths
        self.order = _sorted_places(self.codes, np.repeat(ends, lengths))


def _sorted_places(codes, ends):
    """The places of a text, sorted by the strings that begin there.

    Args:
      codes: see `_Words`.
      ends: where the word of each place ends, int64 [C].
    """
    places = np.arange(len(ends))
    ranks, length = codes[:-1], 1  # by so many characters, in a word
    while length < _LONGEST:
        goes_on = places + length < ends
        if not goes_on.any():
            break
        next_ranks = np.zeros_like(ranks)
        next_ranks[goes_on] = ranks[places[goes_on] + length] + 1
        pairs = ranks * (ranks.max() + 2) + next_ranks
        _, ranks = np.unique(pairs, return_inverse=True)
        length *= 2
    return np.argsort(ranks)


class _Level(NamedTuple):
    """The strings of one length that begin at some places, in a tree.

    Attributes:
      keys: (row of the string without its last character) * size of the
        alphabet + the last character's place in it, ascending, int64 [N].
      counts: how often each begins there, [N].
      places: one in the text where each stands, int64 [N].
    """

    keys: np.ndarray
    counts: np.ndarray
    places: np.ndarray


def _common_pieces(words, least):
    """The pieces if strings that count `least` are common enough."""
    is_start = np.ones(len(words.text), bool)  # every character, at first
    for _ in range(_ROUNDS):
        places = words.order[is_start[words.order]]
        levels = _count_strings(words, places, least)
        lefts = _left_counts(levels, least, len(words.alphabet))
        chosen = [left >= least for left in lefts]
        is_start = _piece_starts(words, levels, chosen)
    pieces = list(zip(lefts[0].tolist(), words.alphabet, strict=True))
    for length, level in enumerate(levels[1:], 2):
        taken = np.flatnonzero(chosen[length - 1])
        pieces += [
            (left, words.text[place : place + length])
            for left, place in zip(
                lefts[length - 1][taken].tolist(),
                level.places[taken].tolist(),
                strict=True,
            )
        ]
    return [piece for _, piece in sorted(pieces, reverse=True)]


def _count_strings(words, places, least):
    """Levels of the strings of 1, 2, ... characters that begin at `places`.

    A string of which less than `least` begin there is not continued. `places`
    are in the words' order, so those of one string follow one another.
    """
    size = len(words.alphabet)
    nodes, weights = words.codes[places], words.weights[places]
    counts = np.bincount(nodes, weights, size)
    levels = [_Level(np.arange(size), counts, np.zeros(size, int))]
    for length in range(2, _LONGEST + 1):
        last = words.codes[places + length - 2]
        goes_on = (counts[nodes] >= least) & (last != words.end)
        places, weights, nodes = (
            values[goes_on] for values in (places, weights, nodes)
        )
        if not len(places):
            break
        keys = nodes * size + words.codes[places + length - 1]
        is_new = np.diff(keys, prepend=-1) > 0
        firsts = np.flatnonzero(is_new)
        counts, nodes = np.add.reduceat(weights, firsts), np.cumsum(is_new) - 1
        levels.append(_Level(keys[firsts], counts, places[firsts]))
    return levels


def _left_counts(levels, least, size):
    """How often each string counts when longer pieces have taken their share.

    The longest first: a string that still counts `least` is a piece, and all
    that it begins with count so much less.
    """
    lefts: list[np.ndarray] = []
    taken: np.ndarray = np.zeros(len(levels[-1].keys))
    for level, shorter in itertools.zip_longest(
        reversed(levels), reversed(levels[:-1])
    ):
        left = level.counts - taken
        lefts.insert(0, left)
        if shorter:
            spent = taken + np.where(left >= least, left, 0)
            taken = np.bincount(level.keys // size, spent, len(shorter.keys))
    return lefts


def _piece_starts(words, levels, chosen):
    """Where pieces begin when each word is covered with the longest ones.

    Returns: bool [C].
    """
    size = len(words.alphabet)
    places, is_start = words.starts, np.zeros(len(words.text), bool)
    while len(places):
        is_start[places] = True
        ends = places + 1  # a character is always a piece
        active, nodes = np.arange(len(places)), words.codes[places]
        for length, (level, is_piece) in enumerate(
            zip(levels[1:], chosen[1:], strict=True), 2
        ):
            # Nothing follows an END in the tree: no match leaves its word.
            keys = nodes * size + words.codes[places[active] + length - 1]
            nodes = np.searchsorted(level.keys, keys)
            nodes = np.minimum(nodes, len(level.keys) - 1)
            known = level.keys[nodes] == keys
            active, nodes = active[known], nodes[known]
            if not len(active):
                break
            matched = active[is_piece[nodes]]
            ends[matched] = places[matched] + length
        places = ends[words.codes[ends - 1] != words.end]
    return is_start


def _escaped(word):
    r"""A word as it is matched: "a_\" -> "a\u\\_"."""
    word = word.replace("\\", "\\\\").replace("_", "\\u")
    return word.replace("\n", "\\10;") + _END


def _code_points(text):
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)
