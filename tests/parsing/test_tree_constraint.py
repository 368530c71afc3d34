"""Constrained search gives trees over the words for any logits."""

import collections
import itertools

import numpy as np
import tensorflow as tf

from support.rounding import approx_score
from t2t_lite.decoding.search.beam_search import beam_search
from t2t_lite.parsing import trees
from t2t_lite.parsing.linearize import delinearize
from t2t_lite.parsing.tree_constraint import TreeConstraint

TOKENS = ("<pad>", "</s>", "<unk>", "XX", ",", ".", "(S", "(NP", ")S", ")NP")
IDS = {token: number for number, token in enumerate(TOKENS)}


def search(texts, log_probs, beam_size=4, limits=None, alpha=0.0):
    """Return the best tokens, their scores and the trees as text.

    Args:
      texts: sentences.
      log_probs: [B, L, V], the logits at each index, for any prefix.
    """
    constraint = TreeConstraint(TOKENS)
    texts = constraint.prepare(tf.constant(texts))
    if limits is None:
        limits = tf.fill([len(texts)], log_probs.shape[1])
    table = tf.constant(log_probs, tf.float32)

    def step(ids, index, cache):
        position = tf.minimum(index, table.shape[1] - 1)
        logits = tf.repeat(table[:, position][:, None], ids.shape[1], axis=1)
        return logits, cache

    processor, limits = constraint.constrain(texts, limits)
    ids, scores = beam_search(
        step,
        lambda cache, parents: cache,
        {"none": tf.zeros([len(texts)])},
        batch_size=len(texts),
        beam_size=beam_size,
        limits=limits,
        alpha=alpha,
        num_hypotheses=1,
        processors=[processor],
    )
    formatted = constraint.write(texts, ids)[:, 0].numpy()
    answers = [
        [TOKENS[i] for i in row if TOKENS[i] != "<pad>"]
        for row in ids[:, 0].numpy()
    ]
    return answers, scores[:, 0].numpy(), [text.decode() for text in formatted]


def test_random_logits_give_a_tree_over_the_words():
    random = np.random.default_rng(3)
    texts = ["a b , c .", "a", ", .", "a ' b " + "c " * 20, " ( a) \t b", ""]
    # A model may have more logits than there are tokens.
    logits = 4 * random.normal(size=(6, 60, len(TOKENS) + 5))
    logits[..., len(TOKENS) :] += 20
    answers, _, written = search(texts, logits)
    for text, tokens, tree in zip(texts, answers, written, strict=True):
        words = list(map(trees.escape_brackets, text.split()))
        if not words:
            assert (tokens, tree) == ([], "")
            continue
        assert tokens.pop() == "</s>"
        rebuilt, repairs = delinearize(tokens, words, correct_tags=True)
        assert repairs == {}
        assert trees.format_tree(rebuilt) == tree


def test_exhaustive_search_finds_the_best_tree():
    logits = np.random.default_rng(5).normal(size=(1, 7, len(TOKENS)))
    some = ("</s>", "XX", ",", "(S", "(NP", ")S", ")NP")
    all_trees = [
        tree
        for length in range(5, 8)
        for tree in itertools.product(some, repeat=length)
        if _is_tree(tree)
    ]
    # The tokens that follow each prefix in any tree.
    follows = collections.defaultdict(set)
    for tree in all_trees:
        for index, token in enumerate(tree):
            follows[tree[:index]].add(IDS[token])

    def log_prob(tree):
        total = 0.0
        for index, token in enumerate(tree):
            row = logits[0, index]
            allowed = row[list(follows[tree[:index]])]
            total += row[IDS[token]] - np.log(np.exp(allowed).sum())
        return total

    best = max(all_trees, key=log_prob)
    answers, scores, _ = search(["a ,"], logits, beam_size=200)
    assert answers[0] == list(best)
    assert scores[0] == approx_score(log_prob(best))


def _is_tree(tokens):
    """Return whether the tokens are a tree over `a ,`, and EOS."""
    *tokens, end = tokens
    leaves = [token for token in tokens if token[0] not in "()"]
    if end != "</s>" or leaves != ["XX", ","] or tokens[0][0] != "(":
        return False
    return delinearize(tokens, ["a", ","])[1] == {}


def test_leaves_match_the_kind_of_their_word():
    # The model prefers commas everywhere, then periods everywhere.
    for wanted in (",", "."):
        logits = np.zeros([1, 20, len(TOKENS)])
        logits[..., IDS[wanted]] = 9.0
        (tokens,), _, _ = search(["a , ' ."], logits, beam_size=1)
        leaves = [token for token in tokens[:-1] if token[0] not in "()"]
        assert leaves == ["XX", ",", wanted, "."]


def test_brackets_leave_room_for_the_remaining_tokens():
    logits = np.zeros([1, 20, len(TOKENS)])
    logits[..., IDS["(S"]] = 9.0  # at every index
    (tokens,), _, _ = search(["a b"], logits, limits=[8])
    assert tokens == ["(S", "(S", "XX", "XX", ")S", ")S", "</s>"]
    # A limit too small for any tree is raised.
    (tokens,), _, _ = search(["a b"], logits, limits=[2])
    assert tokens == ["(S", "XX", "XX", ")S", "</s>"]
    # With a high limit, brackets in a row are still limited.
    (tokens,), _, _ = search(["a b"], np.repeat(logits, 3, axis=1))
    assert 1 < tokens.index("XX") < 20
    assert delinearize(tokens[:-1], ["a", "b"])[1] == {}


def test_prepared_sentences_have_single_spaces_and_escaped_brackets():
    texts = ["  a\t(b)  c ", "", "\u00a0x"]
    prepared = TreeConstraint(TOKENS).prepare(tf.constant(texts)).numpy()
    assert [text.decode() for text in prepared] == [
        "a -LRB-b-RRB- c",
        "",
        "\u00a0x",
    ]
