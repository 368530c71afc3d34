"""Labeled bracket F1 of parse trees, by the rules of the EVALB program.

The counts are those of EVALB (Sekine and Collins, 1997, with the correction
of 2006 for quotes), by default with the parameters of its file COLLINS.prm.
Three things differ: a damaged gold tree is an error, not an error sentence; the
length of a sentence has no limit; and error sentences are counted but never
stop the work.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from t2t_lite.errors import T2TLiteError
from t2t_lite.parsing.evalb_parameters import COLLINS, Parameters
from t2t_lite.parsing.tree_reader import parse_line
from t2t_lite.parsing.trees import LEAF, OPEN, Tree, walk

SCORED, ERROR, SKIPPED = 0, 1, 2  # EVALB's status of a sentence
_QUOTES = ("'", '"', "/")  # the words that QUOTE_LABEL is about
# `NP-SBJ` counts as `NP`; in EVALB, a leading `-` ends a label, too.
_FUNCTION = re.compile("[-=].*", re.DOTALL)


class SentenceScore(NamedTuple):
    """What EVALB prints about one sentence.

    Attributes:
      status: SCORED, ERROR (other words than the gold tree's, or no tree) or
        SKIPPED (no words to score); the last two add nothing to the totals.
      length: words of the gold tree, punctuation included, traces not.
      matched: brackets that are in both trees.
      gold, test: brackets of each.
      crossing: test brackets that cross a gold bracket.
      words: that were compared, without punctuation.
      correct_tags: words with the same tag in both trees.
      problem: of an error sentence, in words.
      labels: (label, matched, gold, test) of each label in either tree.
    """

    status: int
    length: int
    matched: int = 0
    gold: int = 0
    test: int = 0
    crossing: int = 0
    words: int = 0
    correct_tags: int = 0
    problem: str = ""
    labels: tuple[tuple[str, int, int, int], ...] = ()


class _Bracket(NamedTuple):
    label: str
    start: int
    end: int


class _Sentence(NamedTuple):
    """What is compared of a tree, after deletions."""

    leaves: list[Tree]
    brackets: list[_Bracket]  # in the order in which they open
    length: int  # for the cutoff
    # Of each word that QUOTE_LABEL is about: its place in the tree, how many
    # kept words stand before it, and its tag.
    quotes: list[tuple[int, int, str]]


def bracket_f1(
    gold_lines: Sequence[str],
    test_lines: Sequence[str],
    parameters: Parameters = COLLINS,
) -> dict:
    """Labeled bracket F1, 0-100, of trees against gold trees.

    Example: `(S (NP (X a)) (VP (X b) (X c)))` against
    `(S (NP (X a) (X b)) (VP (X c)))`: one bracket of three is right, S, so
    recall, precision and F1 are 33.33.

    Args:
      gold_lines: one tree a line; an empty line is a sentence without a tree.
      test_lines: line i is a parse of the same words as gold line i.
      parameters: what counts; EVALB's COLLINS.prm.

    Returns: `score`, and the values of `totals` for all sentences and, under
      `within_cutoff`, for those within the cutoff length.

    Raises:
      T2TLiteError: no lines at all, unequal numbers of them, or a gold line
        that is not a tree.
    """
    return report(score_lines(gold_lines, test_lines, parameters), parameters)


def score_lines(
    gold_lines: Sequence[str],
    test_lines: Sequence[str],
    parameters: Parameters = COLLINS,
    gold_name: str = "The gold trees",
    test_name: str = "The test trees",
) -> list[SentenceScore]:
    """The score of each pair of lines; see `bracket_f1`.

    A test line that is not a tree makes an ERROR sentence.
    """
    if len(gold_lines) != len(test_lines):
        raise T2TLiteError(
            "There must be one test tree for each gold tree, one tree a line; "
            f"got {len(gold_lines)} lines in {gold_name} and "
            f"{len(test_lines)} in {test_name}."
        )
    if not gold_lines:
        raise T2TLiteError(f"{gold_name}: there must be a tree; got none.")
    scores = []
    for number, pair in enumerate(zip(gold_lines, test_lines, strict=True), 1):
        gold = parse_line(pair[0], gold_name, number)
        try:
            test = parse_line(pair[1], test_name, number)
        except T2TLiteError as error:
            length = _read(gold, parameters).length
            scores.append(SentenceScore(ERROR, length, problem=str(error)))
        else:
            scores.append(score_trees(gold, test, parameters))
    return scores


def score_trees(
    gold: Iterable[Tree],
    test: Iterable[Tree],
    parameters: Parameters = COLLINS,
) -> SentenceScore:
    """The score of one sentence: the trees of a line, usually one, each."""
    gold_side, test_side = _read(gold, parameters), _read(test, parameters)
    length = gold_side.length
    if not test_side.leaves:
        return SentenceScore(SKIPPED, length)
    if len(gold_side.leaves) != len(test_side.leaves):
        kept = _misquoted(gold_side.quotes, test_side.quotes, parameters)
        gold_side = _read(gold, parameters, kept[0])
        test_side = _read(test, parameters, kept[1])
    problem = _difference(gold_side.leaves, test_side.leaves, parameters)
    if problem:
        return SentenceScore(ERROR, length, problem=problem)
    tags = zip(gold_side.leaves, test_side.leaves, strict=True)
    matched = _matched(gold_side.brackets, test_side.brackets, parameters)
    return SentenceScore(
        SCORED,
        length,
        len(matched),
        len(gold_side.brackets),
        len(test_side.brackets),
        _crossing(gold_side.brackets, test_side.brackets),
        len(gold_side.leaves),
        sum(parameters.same_label(a.label, b.label) for a, b in tags),
        labels=_by_label(matched, gold_side.brackets, test_side.brackets),
    )


def _read(trees, parameters, kept=None):
    """The `_Sentence` of the trees of one line.

    `kept`, a Counter, says how often to keep the deleted word at a place.
    """
    leaves: list[Tree] = []
    brackets: list[_Bracket] = []
    quotes, opened = [], []
    length = place = 0
    for event, part in (step for tree in trees for step in walk(tree)):
        if event is LEAF:
            if part.label in parameters.quote_labels and part.word in _QUOTES:
                quotes.append((place, len(leaves), part.label))
            length += part.label not in parameters.uncounted_labels
            if not parameters.deletes_leaf(part):
                leaves.append(part)
            elif kept:
                leaves += [part] * kept[place]
            place += 1
        elif event is OPEN:
            opened.append(len(brackets))
            label = _FUNCTION.sub("", part.label)
            brackets.append(_Bracket(label, len(leaves), 0))
        else:
            last = opened.pop()
            brackets[last] = brackets[last]._replace(end=len(leaves))
    counted = [
        x
        for x in brackets
        if x.start < x.end and not parameters.deletes_label(x.label)
    ]
    return _Sentence(leaves, counted, length, quotes)


def _misquoted(gold, test, parameters):
    """The deleted quotes to bring back, on either side, by their places.

    Where one side tags a quote as punctuation, which is deleted, and the other
    as a word, lengths differ through the tag only. The places are counted
    again as EVALB does it: each quote that comes back moves those after it.
    """
    kept: tuple[Counter[int], Counter[int]] = Counter(), Counter()
    gold_indices = [index for _, index, _ in gold]
    test_indices = [index for _, index, _ in test]
    for i, (test_place, _, test_tag) in enumerate(test):
        here = test_indices[i]
        for j, (gold_place, _, gold_tag) in enumerate(gold):
            deleted = [
                tag in parameters.deleted_labels for tag in (gold_tag, test_tag)
            ]
            if gold_indices[j] != here or deleted[0] == deleted[1]:
                continue
            if deleted[0]:
                kept[0][gold_place] += 1
                gold_indices[j:] = [x + 1 for x in gold_indices[j:]]
            else:
                kept[1][test_place] += 1
                test_indices[i:] = [x + 1 for x in test_indices[i:]]
    return kept


def _difference(gold, test, parameters):
    """Why two lists of words cannot be compared; "" if they can."""
    if len(gold) != len(test):
        return (
            f"{len(gold)} words must be left after deletions, as in the gold "
            f"tree; got {len(test)}"
        )
    for a, b in zip(gold, test, strict=True):
        if not parameters.same_word(a.word, b.word):
            return f"the gold tree's word is {a.word!r}; got {b.word!r}"
    return ""


def _matched(gold, test, parameters):
    """The labels of the gold brackets that have a test bracket of their own."""
    unmatched = defaultdict(list)
    for bracket in test:
        unmatched[bracket.start, bracket.end].append(bracket.label)
    matched = []
    for bracket in gold:
        labels = unmatched[bracket.start, bracket.end]
        for label in labels:
            if not parameters.labeled or parameters.same_label(
                bracket.label, label
            ):
                labels.remove(label)
                matched.append(bracket.label)
                break
    return matched


def _by_label(matched, gold, test):
    """What `SentenceScore.labels` says."""
    counts = [
        Counter(matched),
        Counter(bracket.label for bracket in gold),
        Counter(bracket.label for bracket in test),
    ]
    return tuple(
        (label, *(count[label] for count in counts))
        for label in counts[1] | counts[2]
    )


def _crossing(gold, test):
    """How many test brackets hold a part, not all, of a gold one and more."""
    return sum(
        any(
            a.start < b.start < a.end < b.end
            or b.start < a.start < b.end < a.end
            for a in gold
        )
        for b in test
    )


def report(
    scores: Sequence[SentenceScore], parameters: Parameters = COLLINS
) -> dict:
    """The metric's report on a corpus; see `bracket_f1`."""
    everything = totals(scores)
    cutoff = parameters.cutoff_length
    return {
        "metric": "bracket_f1",
        "score": everything["f1"],
        **everything,
        "cutoff_length": cutoff,
        "within_cutoff": totals([x for x in scores if x.length <= cutoff]),
    }


def label_totals(scores: Sequence[SentenceScore]) -> dict[str, dict]:
    """Recall, precision and F1, 0-100, of each label, the most frequent first.

    A bracket that matches one of another label, which some parameters allow,
    counts for the gold tree's label.
    """
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for score in scores:
        for label, *counts in score.labels:
            sums[label] = [
                a + b for a, b in zip(sums[label], counts, strict=True)
            ]
    return {
        label: {
            "gold": gold,
            "test": test,
            "matched": matched,
            "recall": percent(matched, gold),
            "precision": percent(matched, test),
            "f1": percent(2 * matched, gold + test),
        }
        for label, (matched, gold, test) in sorted(
            sums.items(), key=lambda item: (-item[1][1], item[0])
        )
    }


def totals(scores: Sequence[SentenceScore]) -> dict:
    """The sums and averages of a corpus.

    Returns: numbers of `sentences`, `errors`, `skipped` and `valid` ones; over
      these, `recall`, `precision` and `f1` of all brackets, the shares of
      sentences with a `complete_match`, `no_crossing` and
      `two_or_less_crossing`, `tagging_accuracy` (all 0-100; 0 of nothing),
      `average_crossing` brackets a sentence, and the counts behind them.
    """
    valid = [score for score in scores if score.status == SCORED]
    matched = sum(score.matched for score in valid)
    gold = sum(score.gold for score in valid)
    test = sum(score.test for score in valid)
    crossing = sum(score.crossing for score in valid)
    words = sum(score.words for score in valid)
    tags = sum(score.correct_tags for score in valid)
    complete = sum(x.matched == x.gold == x.test for x in valid)
    return {
        "sentences": len(scores),
        "errors": sum(score.status == ERROR for score in scores),
        "skipped": sum(score.status == SKIPPED for score in scores),
        "valid": len(valid),
        "recall": percent(matched, gold),
        "precision": percent(matched, test),
        # 2PR / (P + R), of counts
        "f1": percent(2 * matched, gold + test),
        "complete_match": percent(complete, len(valid)),
        "average_crossing": percent(crossing, len(valid)) / 100,
        "no_crossing": percent(sum(not x.crossing for x in valid), len(valid)),
        "two_or_less_crossing": percent(
            sum(x.crossing <= 2 for x in valid), len(valid)
        ),
        "tagging_accuracy": percent(tags, words),
        "matched_brackets": matched,
        "gold_brackets": gold,
        "test_brackets": test,
        "crossing_brackets": crossing,
        "words": words,
        "correct_tags": tags,
    }


def percent(part: int, whole: int) -> float:
    """A share, 0-100; 0 of nothing, as EVALB counts."""
    return 100 * part / whole if whole else 0.0
