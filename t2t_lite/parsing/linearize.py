"""Conversion of trees to token sequences and of any token sequence to a tree.

As in arXiv:1412.7449, closing brackets carry their label, and words appear only
in the source sentence.

    (S (NP (DT the) (NN cat)) (VP (VBZ sleeps)) (. .))
    (S (NP XX XX )NP (VP XX )VP . )S
"""

import re
from collections import Counter
from collections.abc import Sequence

from t2t_lite.errors import T2TLiteError
from t2t_lite.parsing.trees import CLOSE, NO_TAG, OPEN, TOP, Tree, walk

# The tags whose words EVALB deletes. Targets contain these tags instead of XX,
# because EVALB cannot score a tree that tags a comma as a word, or vice versa.
PUNCTUATION = (",", ":", "``", "''", ".")

# Words that always have a tag of PUNCTUATION, and their tag.
PUNCTUATION_TAGS = {
    **dict.fromkeys((",",), ","),
    **dict.fromkeys((":", ";", "-", "--", "...", "–", "—", "…"), ":"),
    **dict.fromkeys(("`", "``", "‘", "“"), "``"),
    **dict.fromkeys(("''", "”"), "''"),
    **dict.fromkeys((".", "?", "!"), "."),
}
# Words that are quotes or not, such as apostrophes, depending on the sentence.
MARKS_OR_WORDS = ("'", '"', "’")
# Maximum number of leaf-word pairs to align. A sentence of 250 words with 300
# surplus leaves has a seventh of it.
_MAX_PAIRS = 1_000_000
_SIGNS = {"(": -1, ")": 1}
_TOKEN = re.compile(r"[()]?[^\s()]*", re.ASCII)


def linearize(tree: Tree, keep_tags: bool = False) -> list[str]:
    """Convert a tree from `strip_annotation` to tokens.

    Example: `(S (NP (PRP It)) (VP (VBZ works)) (. .))` gives
    `(S (NP XX )NP (VP XX )VP . )S`, or with `keep_tags`
    `(S (NP PRP )NP (VP VBZ )VP . )S`. See arXiv:1412.7449, section 2.2.
    """
    tokens = []
    for event, node in walk(tree):
        if event is OPEN:
            tokens.append(f"({node.label}")
        elif event is CLOSE:
            tokens.append(f"){node.label}")
        elif keep_tags or node.label in PUNCTUATION:
            tokens.append(node.label)
        else:
            tokens.append(NO_TAG)
    return tokens


def delinearize(
    tokens: Sequence[str], words: Sequence[str], correct_tags: bool = False
) -> tuple[Tree, Counter[str]]:
    """Convert tokens to a tree over the words; repair invalid sequences.

    `delinearize(linearize(tree), words(tree))` returns the tree, with the tag
    XX for dropped tags. Other sequences are repaired in this order:

    1. Empty tokens, and tokens with white space or a bracket after the first
       character, are dropped (`unknown_tokens`).
    2. A closing bracket whose label differs from the innermost open bracket's
       is dropped if the brackets after it close all open ones
       (`surplus_closings`). Otherwise it closes the innermost bracket, whose
       label stays (`mislabeled_closings`). If even then too few closing
       brackets follow, and a bracket with its label is open further out, it
       closes all brackets up to that one (`missing_closings`).
    3. Brackets still open after the last token are closed
       (`missing_closings`). If no tokens remain, all words become children of
       TOP (`empty_output`).
    4. If the numbers of leaves and words are equal, leaf i is word i. Otherwise
       they are aligned from the left, a comma with a comma and so on, with the
       fewest leaves added (`missing_leaves`) to the previous leaf's constituent
       or dropped (`surplus_leaves`). Without leaves, all words become part of
       the first constituent. With more than a million leaf-word pairs, the
       alignment ignores the leaves' tags.
    5. Constituents without words are dropped (`empty_constituents`).
    6. Several roots become children of TOP, which EVALB ignores
       (`several_roots`).
    7. With `correct_tags`, punctuation gets its own tag, such as `,` for a
       comma, and other words get no such tag (`corrected_tags`).

    Rule 7 prevents EVALB errors: EVALB deletes words by their tags and then
    compares the numbers of words.

    Returns:
      The tree and the number of repairs by name.

    Raises:
      T2TLiteError: there are no words.
    """
    if not words:
        raise T2TLiteError("A tree requires at least one word (got none).")
    counts: Counter[str] = Counter()
    kept = [token for token in tokens if token and _TOKEN.fullmatch(token)]
    counts["unknown_tokens"] += len(tokens) - len(kept)
    tokens = _balance(kept, counts)
    if tokens:
        tokens = _match_leaves(tokens, words, counts)
    else:
        counts["empty_output"] += 1
        tokens = [f"({TOP}", *map(_default_tag, words), f"){TOP}"]
    tree = _build_tree(tokens, words, correct_tags, counts)
    return tree, +counts  # without zeros


def _balance(tokens, counts):
    """Balance the brackets by rules 2 and 3."""
    signs = [_SIGNS.get(token[0], 0) for token in tokens]
    to_come = sum(signs)  # future closing brackets minus opening ones
    balanced: list[str] = []
    labels: list[str] = []  # labels of the open brackets
    opened: Counter[str] = Counter()  # their number by label
    for token, sign in zip(tokens, signs, strict=True):
        to_come -= sign
        if sign > 0:
            label = token[1:]
            is_open = opened[label] > 0
            number = _count_closed(label, labels, is_open, to_come, counts)
            closed = [labels.pop() for _ in range(number)]
            balanced += [f"){label}" for label in closed]
            opened.subtract(closed)
            continue
        balanced.append(token)
        if sign < 0:
            labels.append(token[1:])
            opened[token[1:]] += 1
    counts["missing_closings"] += len(labels)
    return balanced + [f"){label}" for label in reversed(labels)]


def _count_closed(label, labels, is_open, to_come, counts):
    """Return the number of brackets that a closing bracket closes (rule 2)."""
    if labels and labels[-1] == label:
        return 1
    if not labels or to_come >= len(labels):
        counts["surplus_closings"] += 1
        return 0
    if to_come < len(labels) - 1 and is_open:
        depths = enumerate(reversed(labels), 1)
        number = next(depth for depth, each in depths if each == label)
        counts["missing_closings"] += number - 1
        return number
    counts["mislabeled_closings"] += 1
    return 1


def _match_leaves(tokens, words, counts):
    """Add or drop leaves, so that each word has one leaf (rule 4)."""
    leaves = [token for token in tokens if token[0] not in "()"]
    if len(leaves) == len(words):
        return tokens
    if not leaves:  # put all words into the first bracket
        counts["missing_leaves"] += len(words)
        return [tokens[0], *map(_default_tag, words), *tokens[1:]]
    replacements = iter(_align(leaves, words, counts))
    filled: list[str] = []
    for token in tokens:
        filled += [token] if token[0] in "()" else next(replacements)
    return filled


def _align(leaves, words, counts):
    """Return a list of zero or more replacements for each leaf."""
    default_tags = list(map(_default_tag, words))
    leaf_tags = [leaf if leaf in PUNCTUATION else NO_TAG for leaf in leaves]
    word_tags, edits = default_tags, []
    if len(leaves) * len(words) > _MAX_PAIRS:
        leaf_tags, word_tags = [NO_TAG] * len(leaves), [NO_TAG] * len(words)
    else:
        edits = _count_edits(leaf_tags, word_tags)
    replacements: list[list[str]] = [[] for _ in leaves]
    i = j = 0
    while i < len(leaves) or j < len(words):
        if i < len(leaves) and j < len(words) and leaf_tags[i] == word_tags[j]:
            replacements[i].append(leaves[i])
            i, j = i + 1, j + 1
        elif i == len(leaves) or (
            j < len(words) and edits[i][j + 1] <= edits[i + 1][j]
        ):
            replacements[max(i - 1, 0)].append(default_tags[j])
            counts["missing_leaves"] += 1
            j += 1
        else:
            counts["surplus_leaves"] += 1
            i += 1
    return replacements


def _count_edits(leaf_tags, word_tags):
    """Return the minimum number of edits from leaf i and word j to the end."""
    row = list(range(len(word_tags), -1, -1))
    rows = [row]
    for tag in reversed(leaf_tags):
        after, row = row, [len(rows)] * (len(word_tags) + 1)
        for j in range(len(word_tags) - 1, -1, -1):
            if tag == word_tags[j]:
                row[j] = after[j + 1]
            else:
                row[j] = 1 + min(after[j], row[j + 1])
        rows.append(row)
    return rows[::-1]


def _default_tag(word):
    return PUNCTUATION_TAGS.get(word, NO_TAG)


def _build_tree(tokens, words, correct_tags, counts):
    """Build a tree from balanced tokens with one leaf per word; rules 5-7."""
    words = iter(words)
    levels: list[list[Tree]] = [[]]
    for token in tokens:
        if token[0] == "(":
            levels.append([])
        elif token[0] != ")":
            word = next(words)
            tag = _correct_tag(token, word, counts) if correct_tags else token
            levels[-1].append(Tree(tag, (), word))
        else:
            children = levels.pop()
            if children:
                levels[-1].append(Tree(token[1:], tuple(children)))
            else:
                counts["empty_constituents"] += 1
    (roots,) = levels
    if len(roots) == 1:
        return roots[0]
    counts["several_roots"] += 1
    return Tree(TOP, tuple(roots))


def _correct_tag(tag, word, counts):
    """Correct the tag of a word by rule 7."""
    is_allowed = tag not in PUNCTUATION or word in MARKS_OR_WORDS
    correct = PUNCTUATION_TAGS.get(word, tag if is_allowed else NO_TAG)
    counts["corrected_tags"] += correct != tag
    return correct
