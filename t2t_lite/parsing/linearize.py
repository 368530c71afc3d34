"""Trees as token sequences, and any token sequence as a tree.

The sequences of arXiv:1412.7449: closing brackets carry their label, words are
left to the source sentence.

    (S (NP (DT the) (NN cat)) (VP (VBZ sleeps)) (. .))
    (S (NP XX XX )NP (VP XX )VP . )S
"""

import re
from collections import Counter
from collections.abc import Sequence

from t2t_lite.errors import T2TLiteError
from t2t_lite.parsing.trees import CLOSE, NO_TAG, OPEN, TOP, Tree, walk

# The tags that EVALB deletes. They are kept in place of XX: a tree that calls
# a comma a word, or a word a comma, is one that EVALB cannot score.
PUNCTUATION = (",", ":", "``", "''", ".")

# Words with one of the tags of PUNCTUATION wherever they occur, and their tag.
PUNCTUATION_TAGS = {
    **dict.fromkeys((",",), ","),
    **dict.fromkeys((":", ";", "-", "--", "...", "–", "—", "…"), ":"),
    **dict.fromkeys(("`", "``", "‘", "“"), "``"),
    **dict.fromkeys(("''", "”"), "''"),
    **dict.fromkeys((".", "?", "!"), "."),
}
# Quotes or something else, such as apostrophes, depending on the sentence.
MARKS_OR_WORDS = ("'", '"', "’")
# Aligning more pairs of leaf and word would take too long. A sentence of 250
# words with 300 leaves too many has a seventh of them.
_MOST_PAIRS = 1_000_000
_SIGNS = {"(": -1, ")": 1}
_TOKEN = re.compile(r"[()]?[^\s()]*", re.ASCII)


def linearize(tree: Tree, keep_tags: bool = False) -> list[str]:
    """Return the tokens of a tree (arXiv:1412.7449, section 2.2).

    Example: `(S (NP (PRP It)) (VP (VBZ works)) (. .))` gives
    `(S (NP XX )NP (VP XX )VP . )S`, or with `keep_tags`
    `(S (NP PRP )NP (VP VBZ )VP . )S`.

    Args:
      tree: without empty constituents, as of `strip_annotation`.
      keep_tags: each word is its part-of-speech tag; else it is `XX`, unless
        its tag is one of PUNCTUATION.
    """
    tokens = []
    for event, part in walk(tree):
        if event is OPEN:
            tokens.append(f"({part.label}")
        elif event is CLOSE:
            tokens.append(f"){part.label}")
        elif keep_tags or part.label in PUNCTUATION:
            tokens.append(part.label)
        else:
            tokens.append(NO_TAG)
    return tokens


def delinearize(
    tokens: Sequence[str],
    words: Sequence[str],
    correct_tags: bool = False,
) -> tuple[Tree, Counter[str]]:
    """Return the tree over the words that the tokens describe, and repairs.

    `delinearize(linearize(tree), words(tree))` is the tree, with the tag XX
    where one was dropped. Everything else is repaired, in this order:

    1. Empty tokens, and those with white space or a bracket after their first
       character, are left out (`unknown_tokens`).
    2. A closing bracket of another label than the innermost open bracket's is
       left out if the brackets after it close all open ones
       (`surplus_closings`). If they do not, it closes the innermost bracket,
       whose label stays (`mislabeled_closings`). But if even then too few
       follow, and a bracket of its own label is open further out, it closes
       all up to that one (`missing_closings`).
    3. Brackets that are open after the last token close (`missing_closings`).
       If no tokens are left now, the words stand side by side under TOP
       (`empty_output`).
    4. If there are as many leaves as words, leaf i is word i. If not, they are
       aligned from the left, a comma with a comma and so on, so that as few
       leaves as possible are added (`missing_leaves`), in the constituent of
       the leaf before, or left out (`surplus_leaves`). Without any leaf, all
       words come into the first constituent. With more than a million pairs of
       leaf and word, all leaves count as alike.
    5. Constituents without a word are left out (`empty_constituents`).
    6. Several roots come under TOP, which EVALB ignores (`several_roots`).
    7. With `correct_tags`, punctuation gets its own tag, such as `,` for a
       comma, and other words get no such tag (`corrected_tags`).

    Rule 7 saves sentences that EVALB would leave out as errors, because it
    deletes words by their tags. The repairs are counted by name.

    Raises:
      T2TLiteError: there are no words.
    """
    if not words:
        raise T2TLiteError("A tree needs at least one word; got none.")
    counts: Counter[str] = Counter()
    kept = [token for token in tokens if token and _TOKEN.fullmatch(token)]
    counts["unknown_tokens"] += len(tokens) - len(kept)
    tokens = _balanced(kept, counts)
    if tokens:
        tokens = _with_leaves(tokens, words, counts)
    else:
        counts["empty_output"] += 1
        tokens = [f"({TOP}", *map(_default_tag, words), f"){TOP}"]
    tree = _tree(tokens, words, correct_tags, counts)
    return tree, +counts  # without zeros


def _balanced(tokens, counts):
    """Return tokens whose brackets match, by rules 2 and 3."""
    signs = [_SIGNS.get(token[0], 0) for token in tokens]
    to_come = sum(signs)  # closing brackets less opening ones
    balanced: list[str] = []
    labels: list[str] = []  # of the open brackets
    for token, sign in zip(tokens, signs, strict=True):
        to_come -= sign
        if sign > 0:
            number = _closed_by(token[1:], labels, to_come, counts)
            balanced += [f"){labels.pop()}" for _ in range(number)]
            continue
        balanced.append(token)
        if sign < 0:
            labels.append(token[1:])
    counts["missing_closings"] += len(labels)
    return balanced + [f"){label}" for label in reversed(labels)]


def _closed_by(label, labels, to_come, counts):
    """Return the number of brackets that a closing one closes, by rule 2."""
    if labels and labels[-1] == label:
        return 1
    if not labels or to_come >= len(labels):
        counts["surplus_closings"] += 1
        return 0
    if to_come < len(labels) - 1 and label in labels:
        number = labels[::-1].index(label) + 1
        counts["missing_closings"] += number - 1
        return number
    counts["mislabeled_closings"] += 1
    return 1


def _with_leaves(tokens, words, counts):
    """Return tokens with one leaf a word, by rule 4."""
    leaves = [token for token in tokens if token[0] not in "()"]
    if len(leaves) == len(words):
        return tokens
    if not leaves:  # all words come into the first bracket
        counts["missing_leaves"] += len(words)
        return [tokens[0], *map(_default_tag, words), *tokens[1:]]
    places = iter(_aligned(leaves, words, counts))
    filled: list[str] = []
    for token in tokens:
        filled += [token] if token[0] in "()" else next(places)
    return filled


def _aligned(leaves, words, counts):
    """Return for each leaf those that replace it: none or some."""
    usual = list(map(_default_tag, words))
    kinds = [leaf if leaf in PUNCTUATION else NO_TAG for leaf in leaves]
    wanted, edits = usual, []
    if len(leaves) * len(words) > _MOST_PAIRS:
        kinds, wanted = [NO_TAG] * len(leaves), [NO_TAG] * len(words)
    else:
        edits = _edits(kinds, wanted)
    places: list[list[str]] = [[] for _ in leaves]
    i = j = 0
    while i < len(leaves) or j < len(words):
        if i < len(leaves) and j < len(words) and kinds[i] == wanted[j]:
            places[i].append(leaves[i])
            i, j = i + 1, j + 1
        elif i == len(leaves) or (
            j < len(words) and edits[i][j + 1] <= edits[i + 1][j]
        ):
            places[max(i - 1, 0)].append(usual[j])
            counts["missing_leaves"] += 1
            j += 1
        else:
            counts["surplus_leaves"] += 1
            i += 1
    return places


def _edits(kinds, wanted):
    """Return the fewest additions and omissions after leaf i and word j."""
    row = list(range(len(wanted), -1, -1))
    rows = [row]
    for kind in reversed(kinds):
        after, row = row, [len(rows)] * (len(wanted) + 1)
        for j in range(len(wanted) - 1, -1, -1):
            if kind == wanted[j]:
                row[j] = after[j + 1]
            else:
                row[j] = 1 + min(after[j], row[j + 1])
        rows.append(row)
    return rows[::-1]


def _default_tag(word):
    return PUNCTUATION_TAGS.get(word, NO_TAG)


def _tree(tokens, words, correct_tags, counts):
    """Return the tree of balanced tokens with one leaf a word; rules 5 to 7."""
    words = iter(words)
    levels: list[list[Tree]] = [[]]
    for token in tokens:
        if token[0] == "(":
            levels.append([])
        elif token[0] != ")":
            word = next(words)
            tag = _corrected(token, word, counts) if correct_tags else token
            levels[-1].append(Tree(tag, (), word))
        else:
            parts = levels.pop()
            if parts:
                levels[-1].append(Tree(token[1:], tuple(parts)))
            else:
                counts["empty_constituents"] += 1
    (roots,) = levels
    if len(roots) == 1:
        return roots[0]
    counts["several_roots"] += 1
    return Tree(TOP, tuple(roots))


def _corrected(tag, word, counts):
    """Return the tag of rule 7."""
    stays = tag not in PUNCTUATION or word in MARKS_OR_WORDS
    right = PUNCTUATION_TAGS.get(word, tag if stays else NO_TAG)
    counts["corrected_tags"] += right != tag
    return right
