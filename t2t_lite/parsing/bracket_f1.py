"""Labeled bracket F1 of parse trees, by the rules of the EVALB program.

The counts equal those of EVALB (Sekine and Collins, 1997), by default with the
parameters of its file COLLINS.prm, with three differences: an invalid gold tree
raises an error; sentences have any length; error sentences are counted but
never stop the evaluation.
"""

import dataclasses
import re
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from t2t_lite.corpus.lines import read_lines
from t2t_lite.errors import T2TLiteError, did_you_mean
from t2t_lite.files import PathLike
from t2t_lite.parsing.trees import LEAF, OPEN, Tree, parse_trees, walk

SCORED, ERROR, SKIPPED = 0, 1, 2  # EVALB's status of a sentence
_QUOTES = ("'", '"', "/")  # words that QUOTE_LABEL applies to
# `NP-SBJ` counts as `NP`. EVALB also ends a label at a leading `-`.
_FUNCTION = re.compile("[-=].*", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Parameters:
    """The parameters of EVALB; the default deletes and equates nothing."""

    # Labels whose brackets, and tags whose words, are ignored; ignored words.
    deleted_labels: tuple[str, ...] = ()
    deleted_words: tuple[str, ...] = ()
    # Tags whose words do not count for the cutoff length.
    uncounted_labels: tuple[str, ...] = ()
    # Tags of quotes; a quote that only one tree deletes is kept.
    quote_labels: tuple[str, ...] = ()
    # Pairs of labels or tags, and of words, that count as equal.
    equal_labels: tuple[tuple[str, str], ...] = ()
    equal_words: tuple[tuple[str, str], ...] = ()
    labeled: bool = True  # compare labels and spans, not only spans
    cutoff_length: int = 40  # maximum words for the second block of totals

    def equal_to(self, label: str) -> set[str]:
        """Return the labels that count as equal to a label, itself included."""
        return {label}.union(*(p for p in self.equal_labels if label in p))


def _same(one, other, pairs):
    return one == other or (one, other) in pairs or (other, one) in pairs


# EVALB's file COLLINS.prm, used for published scores.
COLLINS = Parameters(
    deleted_labels=("TOP", "-NONE-", ",", ":", "``", "''", "."),
    uncounted_labels=("-NONE-",),
    equal_labels=(("ADVP", "PRT"),),
)

# The field of each key, and the number of values on a line.
_KEYS = {
    "DEBUG": ("", 1),  # verbosity of EVALB
    "MAX_ERROR": ("", 1),  # number of errors after which EVALB stops
    "CUTOFF_LEN": ("cutoff_length", 1),
    "LABELED": ("labeled", 1),
    "DELETE_LABEL": ("deleted_labels", 1),
    "DELETE_LABEL_FOR_LENGTH": ("uncounted_labels", 1),
    "QUOTE_LABEL": ("quote_labels", 1),
    "DELETE_WORD": ("deleted_words", 1),
    "EQ_LABEL": ("equal_labels", 2),
    "EQ_WORD": ("equal_words", 2),
}


def read_parameters(path: PathLike) -> Parameters:
    """Read an EVALB parameter file, with one key and its value per line.

    Example: `DELETE_LABEL TOP`, `EQ_LABEL ADVP PRT`, `LABELED 1`. Lines that
    begin with `#` are comments. Each line of a list's key adds an entry.

    Raises:
      T2TLiteError: the file cannot be read, or a line has an unknown key or an
        invalid value.
    """
    found: dict[str, Any] = {}
    for number, line in enumerate(read_lines(path), 1):
        key, *values = line.split() or ["#"]
        if key.startswith("#"):
            continue
        field, needed = _KEYS.get(key, ("", -1))
        default = getattr(Parameters, field, 0)
        is_list = isinstance(default, tuple)
        if len(values) != needed or not (
            is_list or re.fullmatch("[0-9]{1,9}", values[0])
        ):
            raise T2TLiteError(
                f"{path}, line {number}: a line must be a key and its values, "
                f"words or whole numbers (got {line!r})."
                f"{did_you_mean(key, _KEYS)} Keys: {', '.join(_KEYS)}; "
                "EQ_LABEL and EQ_WORD have two values."
            )
        if is_list:
            value = values[0] if needed == 1 else tuple(values)
            found[field] = (*found.get(field, ()), value)
        elif field:
            found[field] = type(default)(int(values[0]))
    return Parameters(**found)


class SentenceScore(NamedTuple):
    """The counts that EVALB prints for one sentence.

    ERROR means that the words differ or that the test tree is invalid; SKIPPED
    means that the test tree has no words to score. Both add only to the number
    of sentences.
    """

    status: int
    length: int  # words of the gold tree, with punctuation, without traces
    matched: int = 0  # brackets in both trees
    gold: int = 0  # brackets of the gold tree
    test: int = 0  # brackets of the test tree
    crossing: int = 0  # test brackets that cross a gold bracket
    words: int = 0  # compared words, without punctuation
    correct_tags: int = 0
    problem: str = ""  # reason for ERROR


class _Bracket(NamedTuple):
    label: str
    start: int
    end: int


class _Sentence(NamedTuple):
    """The compared words and brackets of a line's trees, after deletions."""

    leaves: list[Tree]
    brackets: list[_Bracket]  # sorted by their opening
    length: int  # words that count for the cutoff
    # For each word that QUOTE_LABEL applies to: its index in the tree, the
    # number of kept words before it, and its tag.
    quotes: list[tuple[int, int, str]]


def score_lines(
    gold_lines: Sequence[str],
    test_lines: Sequence[str],
    parameters: Parameters = COLLINS,
    gold_name: str = "The gold trees",
    test_name: str = "The test trees",
) -> list[SentenceScore]:
    """Score each line of trees; `report` adds up the scores.

    Example: `(S (NP (X a)) (VP (X b) (X c)))` against
    `(S (NP (X a) (X b)) (VP (X c)))`: one bracket of three is right, S, so
    recall, precision and F1 are 33.33. An invalid test tree makes an ERROR
    sentence; an empty line is a sentence without a tree. The names of both
    files are for errors.

    Raises:
      T2TLiteError: there are no lines, the numbers of lines differ, or a gold
        line is not a tree.
    """
    if len(gold_lines) != len(test_lines) or not gold_lines:
        raise T2TLiteError(
            "Each gold tree requires one test tree, one tree per line (got "
            f"{len(gold_lines)} lines in {gold_name} and "
            f"{len(test_lines)} in {test_name})."
        )
    scores = []
    for number, pair in enumerate(zip(gold_lines, test_lines, strict=True), 1):
        gold = list(parse_trees(pair[:1], gold_name, number))
        try:
            test = list(parse_trees(pair[1:], test_name, number, True))
        except T2TLiteError as error:
            length = _read(gold, parameters).length
            scores.append(SentenceScore(ERROR, length, problem=str(error)))
        else:
            scores.append(score_trees(gold, test, parameters))
    return scores


def score_trees(
    gold_trees: Sequence[Tree],
    test_trees: Sequence[Tree],
    parameters: Parameters = COLLINS,
) -> SentenceScore:
    """Score a sentence: all trees of a line, usually one."""
    gold, test = _read(gold_trees, parameters), _read(test_trees, parameters)
    if not test.leaves:
        return SentenceScore(SKIPPED, gold.length)
    if len(gold.leaves) != len(test.leaves):
        kept = _one_sided_quotes(gold.quotes, test.quotes, parameters)
        gold = _read(gold_trees, parameters, kept[0])
        test = _read(test_trees, parameters, kept[1])
    problem = _difference(gold.leaves, test.leaves, parameters)
    if problem:
        return SentenceScore(ERROR, gold.length, problem=problem)
    tags = zip(gold.leaves, test.leaves, strict=True)
    equal = parameters.equal_labels
    return SentenceScore(
        SCORED,
        gold.length,
        matched=_matched(gold.brackets, test.brackets, parameters),
        gold=len(gold.brackets),
        test=len(test.brackets),
        crossing=_crossing(gold.brackets, test.brackets, len(gold.leaves)),
        words=len(gold.leaves),
        correct_tags=sum(_same(a.label, b.label, equal) for a, b in tags),
    )


def _read(trees, parameters, kept_words=None):
    """Return the `_Sentence` of the trees of one line.

    `kept_words` is a Counter: how often to keep the deleted word at an index.
    """
    leaves: list[Tree] = []
    brackets: list[_Bracket] = []
    quotes, opened = [], []
    length = index = 0
    for event, node in (step for tree in trees for step in walk(tree)):
        if event is LEAF:
            if node.label in parameters.quote_labels and node.word in _QUOTES:
                quotes.append((index, len(leaves), node.label))
            length += node.label not in parameters.uncounted_labels
            if not (
                node.label in parameters.deleted_labels
                or node.word in parameters.deleted_words
            ):
                leaves.append(node)
            elif kept_words:
                leaves += [node] * kept_words[index]
            index += 1
        elif event is OPEN:
            opened.append(len(brackets))
            label = _FUNCTION.sub("", node.label)
            brackets.append(_Bracket(label, len(leaves), 0))
        else:
            last = opened.pop()
            brackets[last] = brackets[last]._replace(end=len(leaves))
    deleted = set().union(*map(parameters.equal_to, parameters.deleted_labels))
    kept = [x for x in brackets if x.start < x.end and x.label not in deleted]
    return _Sentence(leaves, kept, length, quotes)


def _one_sided_quotes(gold, test, parameters):
    """Count, by index, the quotes to keep in each tree.

    A quote is kept if its tag is deleted in one tree only. As in EVALB, each
    kept quote increments the word counts of the quotes after it.
    """
    kept: tuple[Counter[int], Counter[int]] = Counter(), Counter()
    gold_words = [words_before for _, words_before, _ in gold]
    test_words = [words_before for _, words_before, _ in test]
    for i, (test_index, _, test_tag) in enumerate(test):
        num_words = test_words[i]
        for j, (gold_index, _, gold_tag) in enumerate(gold):
            in_gold, in_test = (
                tag in parameters.deleted_labels for tag in (gold_tag, test_tag)
            )
            if gold_words[j] != num_words or in_gold == in_test:
                continue
            if in_gold:
                kept[0][gold_index] += 1
                gold_words[j:] = [x + 1 for x in gold_words[j:]]
            else:
                kept[1][test_index] += 1
                test_words[i:] = [x + 1 for x in test_words[i:]]
    return kept


def _difference(gold, test, parameters):
    """Return the reason why two lists of words differ; "" if they do not."""
    if len(gold) != len(test):
        return (
            f"{len(gold)} words must remain after deletions, as in the gold "
            f"tree (got {len(test)})"
        )
    for a, b in zip(gold, test, strict=True):
        if not _same(a.word, b.word, parameters.equal_words):
            return f"the gold tree's word is {a.word!r} (got {b.word!r})"
    return ""


def _matched(gold, test, parameters):
    """Count gold brackets with a matching test bracket; each matches once."""
    unmatched: Any = defaultdict(deque)  # indices of test brackets
    for index, (label, *span) in enumerate(test):
        label = label if parameters.labeled else ""
        unmatched[label, *span].append(index)
    matched = 0
    for label, *span in gold:
        labels = parameters.equal_to(label) if parameters.labeled else {""}
        found = [unmatched.get((other, *span)) for other in labels]
        if found := list(filter(None, found)):
            min(found).popleft()  # the first of them, as in EVALB
            matched += 1
    return matched


def _crossing(gold, test, length):
    """Count test brackets that overlap a gold bracket without nesting."""
    # The innermost gold bracket that begins before and ends after each word
    # boundary crosses if any does, because gold brackets are nested.
    innermost, opened, rest = [], [_Bracket("", -1, length + 1)], deque(gold)
    for boundary in range(length + 1):
        while opened[-1].end <= boundary:
            opened.pop()
        innermost.append(opened[-1])
        while rest and rest[0].start == boundary:
            opened.append(rest.popleft())
    return sum(
        innermost[x.start].end < x.end or innermost[x.end].start > x.start
        for x in test
    )


def report(
    scores: Sequence[SentenceScore], parameters: Parameters = COLLINS
) -> dict:
    """Return the metric's report.

    Returns:
      `score`, the `totals` of all sentences and, under `within_cutoff`, the
      `totals` of sentences up to the cutoff length.
    """
    overall = totals(scores)
    cutoff = parameters.cutoff_length
    return {
        "metric": "bracket_f1",
        "score": overall["f1"],
        **overall,
        "cutoff_length": cutoff,
        "within_cutoff": totals([x for x in scores if x.length <= cutoff]),
    }


def totals(scores: Sequence[SentenceScore]) -> dict:
    """Return the sums and averages of a corpus, as EVALB prints them.

    Rates count valid sentences, 0-100, 0 without any. `average_crossing` is the
    number of crossing brackets per sentence.
    """
    valid = [score for score in scores if score.status == SCORED]
    names = ("matched", "gold", "test", "crossing", "words", "correct_tags")
    counts = {name: sum(getattr(x, name) for x in valid) for name in names}
    matched, gold, test, *_ = counts.values()
    crossing = [score.crossing for score in valid]
    few_crossing = sum(x <= 2 for x in crossing)
    complete = sum(x.matched == x.gold == x.test for x in valid)
    return {
        "sentences": len(scores),
        "errors": sum(score.status == ERROR for score in scores),
        "skipped": sum(score.status == SKIPPED for score in scores),
        "valid": len(valid),
        "recall": percent(matched, gold),
        "precision": percent(matched, test),
        "f1": percent(2 * matched, gold + test),  # equals 2PR / (P + R)
        "complete_match": percent(complete, len(valid)),
        "average_crossing": percent(sum(crossing), len(valid)) / 100,
        "no_crossing": percent(crossing.count(0), len(valid)),
        "two_or_less_crossing": percent(few_crossing, len(valid)),
        "tagging_accuracy": percent(counts["correct_tags"], counts["words"]),
        **{
            name if name in ("words", "correct_tags") else f"{name}_brackets": n
            for name, n in counts.items()
        },
    }


def percent(count: int, total: int) -> float:
    """Return a share, 0-100; 0 if `total` is 0, as in EVALB."""
    return 100 * count / total if total else 0.0
