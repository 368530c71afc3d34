"""Parsing baselines: branching trees, and a PCFG of the same files.

    .venv/bin/pip install nltk
    .venv/bin/python benchmarks/parsing_baselines.py --raw_dir=TREEBANK

All are scored like the outputs of wsj_parsing: EVALB's rules, COLLINS.prm,
corrected tags of punctuation. All choices are made on dev.

Branching trees: S over nested brackets, down to the last word (or up from the
first word). No bracket opens before punctuation, which EVALB ignores. The inner
labels are all the same, one of the five most frequent, or the most frequent in
train for each number of words; the last word may have its own bracket. A flat
tree is S over all words.

The PCFG tags the words itself. A sentence without a parse gets the
right-branching tree. Seconds are CPU seconds on one core.
"""

import argparse
import collections
import sys
import time

import pcfg
from nltk import Tree as NltkTree

from t2t_lite import registry
from t2t_lite.corpus.download import RawFiles
from t2t_lite.errors import T2TLiteError
from t2t_lite.parsing import trees
from t2t_lite.parsing.linearize import (
    PUNCTUATION,
    PUNCTUATION_TAGS,
    delinearize,
    linearize,
)
from t2t_lite.parsing.trees import NO_TAG, Tree
from t2t_lite.plugins import load_plugins

LABELS = 5  # number of most frequent labels in train to try
HEADER = (
    f"{'':44} {'F1':>6} {'recall':>7} {'prec.':>6} {'compl.':>6} {'tags':>6} "
    f"{'errors':>6} {'corr.':>5} {'none':>5} {'s':>6}"
)


class Data:
    """The sentences of a treebank, and scores of trees over them.

    Attributes:
      words: words of each sentence, by split.
      targets: tokens of each gold tree, with tags, by split.
    """

    def __init__(self, raw_dir):
        load_plugins()
        self.problem = registry.problem("wsj_parsing", {"leaves": "tags"})
        self.words, self.targets = {}, {}
        for split in self.problem.splits:
            pairs = [
                (source.split(), target)
                for source, target in self.problem.samples(
                    split, RawFiles((), raw_dir)
                )
                if source
            ]
            self.words[split] = [words for words, _ in pairs]
            self.targets[split] = [target for _, target in pairs]

    def train_trees(self):
        """Yield the trees of train."""
        for words, target in zip(
            self.words["train"], self.targets["train"], strict=True
        ):
            yield delinearize(target.split(), words)[0]

    def score(self, split, outputs):
        """Return the report on trees as lists of tokens; see `bracket_f1`."""
        return self.problem.evaluate(
            [" ".join(words) for words in self.words[split]],
            self.targets[split],
            [" ".join(tokens) for tokens in outputs],
        )


def show(name, report, seconds=None, without=0):
    """Print a row of the table."""
    corrected = report["repairs"].get("corrected_tags", 0)
    tags = "" if seconds is None else f"{report['tagging_accuracy']:.2f}"
    print(
        f"{name:44} {report['f1']:6.2f} {report['recall']:7.2f} "
        f"{report['precision']:6.2f} {report['complete_match']:6.2f} "
        f"{tags:>6} {report['errors']:6} {corrected:5} {without:5} "
        f"{'' if seconds is None else f'{seconds:.0f}':>6}",
        flush=True,
    )


def flat(words):
    """Return the tokens of S over all words."""
    return ["(S", *map(_tag, words), ")S"]


def right_branching(words, label_of, last):
    """Return the tokens of a right-branching tree.

    Example, with NP for every number and without `last`:
    `(S It (NP is (NP a test )NP )NP . )S`, with tags for the words.

    Args:
      words: words of the sentence.
      label_of: function from n to the label over the last n words.
      last: whether the last word alone has a bracket.
    """
    tags = list(map(_tag, words))
    end = len(tags)
    while end and tags[end - 1] in PUNCTUATION:
        end -= 1
    left = sum(tag not in PUNCTUATION for tag in tags[:end])
    tokens, labels, is_first = ["(S"], [], True
    for tag in tags[:end]:
        if tag not in PUNCTUATION:
            if not is_first and (left > 1 or last):
                labels.append(label_of(left))
                tokens.append(f"({labels[-1]}")
            left, is_first = left - 1, False
        tokens.append(tag)
    tokens += [f"){label}" for label in reversed(labels)]
    return [*tokens, *tags[end:], ")S"]


def left_branching(words, label_of, last):
    """Return the tokens of a left-branching tree: the mirror image.

    Punctuation at the end stays under S, too.
    """
    end = len(words)
    while end and words[end - 1] in PUNCTUATION_TAGS:
        end -= 1
    mirrored = right_branching(words[:end][::-1], label_of, last)
    other = {"(": ")", ")": "("}
    tokens = [other.get(t[0], t[0]) + t[1:] for t in reversed(mirrored)]
    return [*tokens[:-1], *map(_tag, words[end:]), ")S"]


def _tag(word):
    return PUNCTUATION_TAGS.get(word, NO_TAG)


def edge_labels(parses):
    """Return the most frequent label over the last and over the first n words.

    Returns: two functions of n. An n without a constituent gets the label of
    the next smaller n.
    """
    counts = [collections.defaultdict(collections.Counter) for _ in range(2)]
    for tree in parses:
        brackets, opened, position = [], [], 0
        for event, part in trees.walk(tree):
            if event is trees.OPEN:
                opened.append(position)
            elif event is trees.CLOSE:
                brackets.append((part.label, opened.pop(), position))
            else:
                position += part.label not in PUNCTUATION
        for label, start, end in brackets:
            if 0 < start < end == position:
                counts[0][end - start][label] += 1
            if 0 == start < end < position:
                counts[1][end - start][label] += 1
    return tuple(map(_label_of, counts))


def _label_of(counts):
    lengths = sorted(counts)

    def label_of(number):
        length = max((n for n in lengths if n <= number), default=lengths[0])
        ((label, _),) = counts[length].most_common(1)
        return label

    return label_of


def best_branching(data, make, by_length):
    """Return the way to make such trees that has the best F1 on dev.

    Returns: (its name, a function from words to tokens).
    """
    counts = collections.Counter(
        token[1:]
        for target in data.targets["train"]
        for token in target.split()
        if token[0] == "("
    )
    ways = {"by length": by_length}
    for label, _ in counts.most_common(LABELS):
        ways[f"all {label}"] = lambda _, x=label: x
    best = None
    for name, label_of in ways.items():
        for last in (False, True):
            outputs = [make(w, label_of, last) for w in data.words["dev"]]
            f1 = data.score("dev", outputs)["f1"]
            if best is None or f1 > best[0]:
                best = f1, f"{name}{', last word too' * last}", label_of, last
    _, name, label_of, last = best
    return name, lambda words: make(words, label_of, last)


def to_nltk(tree):
    """Convert a tree to nltk's."""
    if tree.word is not None:
        return NltkTree(tree.label, [tree.word])
    return NltkTree(tree.label, list(map(to_nltk, tree.children)))


def from_nltk(tree):
    """Convert a tree of nltk to ours."""
    if isinstance(tree[0], str):
        return Tree(tree.label(), (), tree[0])
    return Tree(tree.label(), tuple(map(from_nltk, tree)))


def parse_split(data, split, lexicon, parser, fallback):
    """Return the report on a split, CPU seconds and number of missing trees."""
    start, outputs, without = time.process_time(), [], 0
    for words in data.words[split]:
        found = parser.parse(lexicon.terminals(words))
        if found is None:
            without += 1
            outputs.append(fallback(words))
        else:
            (tree,) = pcfg.restore(found[0], words)
            outputs.append(linearize(from_nltk(tree), keep_tags=True))
    seconds = time.process_time() - start
    return data.score(split, outputs), seconds, without


def run_pcfg(data, settings, fallback):
    """Score grammars on dev, then the first and the best on test."""
    parses = [NltkTree(pcfg.ROOT, [to_nltk(t)]) for t in data.train_trees()]
    best, first, parsers = None, None, {}
    for setting in settings:
        horizontal, vertical, rare = setting.split("/")
        name = f"PCFG h={horizontal} v={vertical} rare={rare}"
        lexicon = pcfg.Lexicon(data.words["train"], int(rare))
        start = time.process_time()
        parser = pcfg.Parser(
            pcfg.induce(
                parses,
                lexicon,
                None if horizontal == "inf" else int(horizontal),
                int(vertical),
            )
        )
        print(
            f"{name}: {len(parser.names):,} symbols, {len(parser.score):,} "
            f"binary rules, induced in {time.process_time() - start:.0f} s",
            flush=True,
        )
        parsers[name] = lexicon, parser, fallback
        report, *others = parse_split(data, "dev", *parsers[name])
        show(f"dev   {name}", report, *others)
        first = first or name
        if best is None or report["f1"] > best[0]:
            best = report["f1"], name
    for name in dict.fromkeys((first, best[1])):
        show(f"test  {name}", *parse_split(data, "test", *parsers[name]))


def main():
    """Print the scores of every baseline."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--raw_dir", help="the folder of the treebank")
    parser.add_argument(
        "--settings",
        default="inf/1/1,inf/2/1,1/2/1,2/2/1,2/3/1,2/2/3",
        help="of the PCFG, each HORIZONTAL/VERTICAL/RARE: how many parts name "
        "an added node (inf is the treebank's grammar), labels above that "
        "count (1: none), and up to how many occurrences a word is rare; the "
        "first and the best on dev are scored on test, too; empty: no PCFG",
    )
    flags = parser.parse_args()
    if not flags.raw_dir:
        parser.error("name the folder of the treebank with --raw_dir")
    start = time.process_time()
    try:
        data = Data(flags.raw_dir)
    except T2TLiteError as error:
        return f"error: {error}"
    sizes = ", ".join(f"{len(w):,} {split}" for split, w in data.words.items())
    print(f"sentences: {sizes}", flush=True)
    over_last, over_first = edge_labels(data.train_trees())
    right = best_branching(data, right_branching, over_last)
    left = best_branching(data, left_branching, over_first)
    ways = {
        f"right-branching, {right[0]}": right[1],
        f"left-branching, {left[0]}": left[1],
        "flat S": flat,
    }
    print(HEADER, flush=True)
    for name, make in ways.items():
        for split in ("dev", "test"):
            report = data.score(split, map(make, data.words[split]))
            show(f"{split:5} {name}", report)
    settings = [setting for setting in flags.settings.split(",") if setting]
    if settings:
        run_pcfg(data, settings, fallback=right[1])
    print(f"{time.process_time() - start:.0f} s of CPU in all")


if __name__ == "__main__":
    sys.exit(main())
