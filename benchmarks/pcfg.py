"""A PCFG of trees, made with nltk, and an exact parser for it.

nltk.ViterbiParser is far too slow for the grammar of a treebank. This parser
uses numpy over rules and split points; it takes 0.1 seconds for 25 words.
"""

import collections
import heapq
import math
import re
import sys

import numpy as np

try:
    import nltk
except ImportError:
    sys.exit("This benchmark needs nltk: .venv/bin/pip install nltk")

ROOT = "ROOT"
# Mark of nodes added by binarization. nltk's default mark, a bar, occurs in
# labels of the Penn Treebank, such as ADVP|PRT.
ADDED = "@"
UNKNOWN = "UNK"
_LOG_ZERO = -np.inf  # the logarithm of 0
_ENDINGS = re.compile(
    "(?:ies|ness|ment|tion|sion|able|ible|ous|ive|ful|ing|ity|est|ism|ist|"
    "ial|ian|ed|er|or|ly|al|ic|an|us|is|ss|s|y)$"
)


def word_classes(word, is_first):
    """Return the classes of an unknown word, the most specific first.

    The usual scheme: digits, hyphen, capitals and ending. Example, "Reactors"
    as the second word: UNK-cap-s, UNK-cap, UNK.
    """
    if any(c.isdigit() for c in word):
        shape = "-digits" if not any(map(str.isalpha, word)) else "-mixed"
    elif word.isupper():
        shape = "-upper"
    elif word[0].isupper():
        shape = "-first" if is_first else "-cap"
    else:
        shape = "-lower" if word.islower() else ""
    shape += "-hyphen" if "-" in word[1:] else ""
    ending = _ENDINGS.search(word.lower())
    classes = [f"{UNKNOWN}{shape}", UNKNOWN]
    if ending and shape and len(word) > len(ending[0]) + 2:
        classes.insert(0, f"{classes[0]}-{ending[0]}")
    return classes


class Lexicon:
    """The words of a grammar, and the classes of unknown words.

    Words with at most `rare` occurrences count as unknown in train, too, so
    that the grammar learns the tags of unknown words. A class with fewer than
    `fewest` such words is merged into the next, less specific class. The first
    word of a sentence is lowercased if only that form is known.

    Args:
      sentences: lists of words.
      rare: maximum number of occurrences of a rare word.
      fewest: minimum number of rare words in a class.
    """

    def __init__(self, sentences, rare=1, fewest=10):
        counts = collections.Counter(w for words in sentences for w in words)
        self.known = {w for w, count in counts.items() if count > rare}
        classes = collections.Counter()
        for words in sentences:
            for i, word in enumerate(self._recased(words)):
                if word not in self.known:
                    classes.update(word_classes(word, i == 0))
        self.classes = {c for c, count in classes.items() if count >= fewest}

    def terminals(self, words):
        """Return the words, with the class in place of each unknown one."""
        return [
            word if word in self.known else self._class(word, i == 0)
            for i, word in enumerate(self._recased(words))
        ]

    def _class(self, word, is_first):
        for name in word_classes(word, is_first):
            if name in self.classes:
                return name
        return UNKNOWN

    def _recased(self, words):
        first = words[0]
        if first not in self.known and first.lower() in self.known:
            first = first.lower()
        return [first, *words[1:]]


def induce(trees, lexicon, horizontal, vertical):
    """Return the grammar of trees: relative frequencies of productions.

    Unary chains above a tag are collapsed; nodes are binarized from the right.

    Args:
      trees: nltk trees, whose root is ROOT.
      lexicon: a `Lexicon`.
      horizontal: number of children in the name of a node that binarization
        adds; None: all remaining ones, which is the treebank's grammar.
      vertical: 1 for labels alone, 2 with the parent's label, and so on.
    """
    productions = []
    for tree in trees:
        binary = binarize(tree, horizontal, vertical)
        terminals = lexicon.terminals(tree.leaves())
        for position, terminal in zip(
            binary.treepositions("leaves"), terminals, strict=True
        ):
            binary[position] = terminal
        productions += binary.productions()
    return relative_frequencies(productions)


def relative_frequencies(productions):
    """Return the grammar of nltk.induce_pcfg, without left corners.

    Left corners take minutes, and only some of nltk's parsers use them.
    """
    counts = collections.Counter(productions)
    wholes = collections.Counter(p.lhs() for p in productions)
    rules = [
        nltk.ProbabilisticProduction(p.lhs(), p.rhs(), prob=n / wholes[p.lhs()])
        for p, n in counts.items()
    ]
    return nltk.PCFG(nltk.Nonterminal(ROOT), rules, calculate_leftcorners=False)


def binarize(tree, horizontal, vertical):
    """Return a tree with at most two children per node and no unary chains."""
    binary = tree.copy(deep=True)
    nltk.tree.collapse_unary(binary)
    nltk.tree.chomsky_normal_form(
        binary,
        horzMarkov=horizontal,
        vertMarkov=vertical - 1,
        childChar=ADDED,
    )
    return binary


def restore(tree, words):
    """Return a parse as a tree of the treebank, without added nodes."""
    for position, word in zip(tree.treepositions("leaves"), words, strict=True):
        tree[position] = word
    nltk.tree.un_chomsky_normal_form(tree, childChar=ADDED)
    return tree


class Parser:
    """An exact parser for the most probable tree: CKY in log space.

    Args:
      grammar: an nltk PCFG with rules A -> B C, A -> B and A -> "word".
    """

    def __init__(self, grammar):
        names = {p.lhs() for p in grammar.productions()}
        self.names = sorted(names, key=str)
        ids = {name: i for i, name in enumerate(self.names)}
        self.start = ids[grammar.start()]
        self.words = collections.defaultdict(list)  # word: (tag, log p)
        unary = collections.defaultdict(list)  # lower: (upper, log p)
        rules = []
        for production in grammar.productions():
            upper, parts = ids[production.lhs()], production.rhs()
            score = math.log(production.prob())
            if len(parts) == 2:
                rules.append((*(ids[part] for part in parts), upper, score))
            elif isinstance(parts[0], str):
                self.words[parts[0]].append((upper, score))
            else:
                unary[ids[parts[0]]].append((upper, score))
        self._index_rules(sorted(rules))
        self._index_chains(unary)

    def _index_rules(self, rules):
        """Index the rules A -> B C and their distinct pairs B C.

        The chart only has scores of symbols that are left or right parts. A
        row is the index of a symbol in the chart.
        """
        parts = np.array([rule[:2] for rule in rules], int).reshape(-1, 2)
        pairs, self.pair_of = np.unique(parts, axis=0, return_inverse=True)
        self.pair_of = self.pair_of.reshape(-1)
        self.upper = np.array([rule[2] for rule in rules], int)
        self.score = np.array([rule[3] for rule in rules], np.float32)
        self.lefts, self.left_row = np.unique(pairs[:, 0], return_inverse=True)
        self.rights, self.right_row = np.unique(
            pairs[:, 1], return_inverse=True
        )
        self.rules_of = collections.defaultdict(list)
        for rule, upper in enumerate(self.upper):
            self.rules_of[upper].append(rule)

    def _index_chains(self, unary):
        """Find the best chain of unary rules from each symbol to each above it.

        Probabilities are at most 1, so no best chain has a cycle.
        """
        self.chains = collections.defaultdict(list)  # top: (log p, symbols)
        for lowest in list(unary):
            heap, done = [(0.0, (lowest,))], set()
            while heap:
                cost, chain = heapq.heappop(heap)
                if chain[0] in done:
                    continue
                done.add(chain[0])
                if len(chain) > 1:
                    self.chains[chain[0]].append((-cost, chain))
                for upper, score in unary.get(chain[0], ()):
                    heapq.heappush(heap, (cost - score, (upper, *chain)))
        ends = [
            (top, chain[-1], score)
            for top, chains in self.chains.items()
            for score, chain in chains
        ]
        top, lowest, score = zip(*ends, strict=True) if ends else ((), (), ())
        self.chain_top = np.array(top, int)
        self.chain_lowest = np.array(lowest, int)
        self.chain_score = np.array(score, np.float32)

    def parse(self, words):
        """Return the best tree and its log-probability, or None."""
        n = len(words)
        # [position, row, position]: left parts from i to k, right parts k to j
        left = np.full((n, len(self.lefts), n + 1), _LOG_ZERO, np.float32)
        right = np.full((n + 1, len(self.rights), n), _LOG_ZERO, np.float32)
        # whether any left part begins or any right part ends at a position
        begins = np.zeros((n, len(self.lefts)), bool)
        ends = np.zeros((n + 1, len(self.rights)), bool)
        chart = left, right
        for length in range(1, n + 1):
            for i in range(n - length + 1):
                j = i + length
                if length == 1:
                    scores = self._of_word(words[i])
                else:
                    pairs = np.flatnonzero(
                        begins[i][self.left_row] & ends[j][self.right_row]
                    )
                    scores = self._of_span(chart, pairs, i, j)
                np.maximum.at(
                    scores,
                    self.chain_top,
                    scores[self.chain_lowest] + self.chain_score,
                )
                left[i, :, j] = scores[self.lefts]
                right[j, :, i] = scores[self.rights]
                begins[i] |= left[i, :, j] > _LOG_ZERO
                ends[j] |= right[j, :, i] > _LOG_ZERO
        # The last cell covers the whole sentence.
        if scores[self.start] == _LOG_ZERO:
            return None
        return self._tree(chart, words, self.start, 0, n), scores[self.start]

    def _of_word(self, word):
        scores = np.full(len(self.names), _LOG_ZERO, np.float32)
        for tag, score in self.words.get(word, ()):
            scores[tag] = score
        return scores

    def _of_span(self, chart, pairs, i, j):
        """Return the best score of each symbol over i..j by a binary rule."""
        left, right = chart
        scores = np.full(len(self.names), _LOG_ZERO, np.float32)
        if not pairs.size:
            return scores
        splits = left[i, :, i + 1 : j][self.left_row[pairs]]
        splits += right[j, :, i + 1 : j][self.right_row[pairs]]
        best = np.full(len(self.left_row), _LOG_ZERO, np.float32)
        best[pairs] = splits.max(axis=1)
        of_rules = best[self.pair_of]
        rules = np.flatnonzero(of_rules > _LOG_ZERO)
        np.maximum.at(
            scores, self.upper[rules], of_rules[rules] + self.score[rules]
        )
        return scores

    def _tree(self, chart, words, symbol, i, j):
        """Return the best tree of a symbol over i..j, from the chart."""
        best, choice = _LOG_ZERO, None
        for above, chain in [(0.0, (symbol,)), *self.chains.get(symbol, ())]:
            score, parts = self._parts(chart, words, chain[-1], i, j)
            if above + score > best:
                best, choice = above + score, (chain, parts)
        chain, parts = choice
        if j - i == 1:
            children = [words[i]]
        else:
            children = [self._tree(chart, words, *part) for part in parts]
        for member in reversed(chain):
            children = [nltk.Tree(str(self.names[member]), children)]
        return children[0]

    def _parts(self, chart, words, symbol, i, j):
        """Return the best score of a symbol over i..j and its two children."""
        if j - i == 1:
            return dict(self.words.get(words[i], ())).get(symbol, _LOG_ZERO), ()
        rules = self.rules_of.get(symbol)
        if not rules:
            return _LOG_ZERO, ()
        left, right = chart
        pairs = self.pair_of[rules]
        scores = left[i, :, i + 1 : j][self.left_row[pairs]]
        scores += right[j, :, i + 1 : j][self.right_row[pairs]]
        scores += self.score[rules][:, np.newaxis]
        rule, split = np.unravel_index(scores.argmax(), scores.shape)
        pair, k = pairs[rule], i + 1 + int(split)
        return scores[rule, split], (
            (int(self.lefts[self.left_row[pair]]), i, k),
            (int(self.rights[self.right_row[pair]]), k, j),
        )
