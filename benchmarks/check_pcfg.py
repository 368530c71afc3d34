"""pcfg.py against nltk's own parser and grammars, on short sentences."""

import math
import random

import nltk
import pcfg

LABELS, WORDS = "ABCD", "xy"
HAND_WORKED = """
    ROOT -> S [1.0]
    S -> NP VP [0.75] | VP [0.25]
    VP -> V NP [0.5] | V [0.25] | VP PP [0.25]
    NP -> N [0.8] | NP PP [0.2]
    PP -> P NP [1.0]
    N -> 'I' [0.25] | 'saw' [0.25] | 'stars' [0.25] | 'ears' [0.25]
    V -> 'saw' [1.0]
    P -> 'with' [1.0]
"""
# The ears go with seeing (0.25), not with the stars (0.2); of the other rules,
# S has 0.75, V NP 0.5, three times N 0.8, three words 0.25.
BEST = (
    "(ROOT (S (NP (N I)) (VP (VP (V saw) (NP (N stars)))"
    " (PP (P with) (NP (N ears))))))"
)
BEST_PROBABILITY = 0.00075


def check():
    """Raises AssertionError where something differs; prints what was equal."""
    check_by_hand()
    sentences = check_random_grammars(random.Random(1))
    trees = check_trees(random.Random(2))
    print(
        f"equal: a grammar by hand, {sentences} sentences of random grammars "
        f"with nltk.ViterbiParser, {trees} trees and their nltk.induce_pcfg"
    )


def check_by_hand():
    """A prepositional phrase that could go to either side; a unary chain."""
    parser = pcfg.Parser(nltk.PCFG.fromstring(HAND_WORKED))
    tree, score = parser.parse("I saw stars with ears".split())
    assert tree == nltk.Tree.fromstring(BEST), tree
    assert math.isclose(math.exp(score), BEST_PROBABILITY, rel_tol=1e-5)
    tree, score = parser.parse(["saw"])
    assert tree == nltk.Tree.fromstring("(ROOT (S (VP (V saw))))"), tree
    assert math.isclose(math.exp(score), 0.25 * 0.25, rel_tol=1e-5)
    assert parser.parse("with I".split()) is None
    assert parser.parse(["unheard"]) is None


def check_random_grammars(generator):
    """Unary cycles and all; returns the number of sentences."""
    sentences = 0
    for _ in range(8):
        grammar = random_grammar(generator)
        ours, theirs = pcfg.Parser(grammar), nltk.ViterbiParser(grammar)
        scores = {(p.lhs(), p.rhs()): p.prob() for p in grammar.productions()}
        for length in (1, 2, 3, 5):
            words = generator.choices(WORDS, k=length)
            found, expected = ours.parse(words), list(theirs.parse(words))
            assert bool(found) == bool(expected), words
            if found:
                tree, score = found
                own = math.prod(
                    scores[p.lhs(), p.rhs()] for p in tree.productions()
                )
                assert tree.leaves() == words
                assert math.isclose(math.exp(score), own, rel_tol=1e-5)
                assert math.isclose(own, expected[0].prob(), rel_tol=1e-9)
            sentences += 1
    return sentences


def random_grammar(generator):
    """Some of all rules over LABELS and WORDS, with random probabilities."""
    symbols = [nltk.Nonterminal(label) for label in LABELS]
    all_parts = [
        *((a, b) for a in symbols for b in symbols),
        *((a,) for a in symbols),
        *((word,) for word in WORDS),
    ]
    rules = []
    for upper in symbols:
        parts = [p for p in generator.sample(all_parts, 8) if p != (upper,)]
        if upper == symbols[-1]:  # nltk's parser refuses words without a tag
            parts = list(dict.fromkeys([*parts, *((w,) for w in WORDS)]))
        weights = [generator.uniform(0.1, 1) for _ in parts]
        rules += [
            nltk.ProbabilisticProduction(upper, p, prob=w / sum(weights))
            for p, w in zip(parts, weights, strict=True)
        ]
    return nltk.PCFG(symbols[0], rules)


def check_trees(generator):
    """What is done to trees is undone; returns their number."""
    trees = [
        nltk.Tree(pcfg.ROOT, [random_tree(generator, 4)]) for _ in range(40)
    ]
    lexicon = pcfg.Lexicon([tree.leaves() for tree in trees])
    for horizontal, vertical in ((None, 1), (1, 2), (0, 3)):
        grammar = pcfg.induce(trees, lexicon, horizontal, vertical)
        productions = []
        for tree in trees:
            binary = pcfg.binarize(tree, horizontal, vertical)
            assert all(len(node) <= 2 for node in binary.subtrees())
            productions += binary.productions()
            assert pcfg.restore(binary, tree.leaves()) == tree
        expected = nltk.induce_pcfg(grammar.start(), productions)
        assert set(map(str, grammar.productions())) == set(
            map(str, expected.productions())
        )
    return len(trees)


def random_tree(generator, depth):
    """A tree with unary chains, nodes of up to four parts and `ADVP|PRT`."""
    if depth == 0 or generator.random() < 0.2:
        return nltk.Tree(generator.choice(LABELS), [generator.choice(WORDS)])
    return nltk.Tree(
        generator.choice(["NP", "VP", "ADVP|PRT"]),
        [
            random_tree(generator, depth - 1)
            for _ in range(generator.randint(1, 4))
        ],
    )
