"""Beam search over small tables of logits, and all of their hypotheses."""

import itertools

import numpy as np
import tensorflow as tf

from t2t_lite.decoding.search.beam_search import beam_search


def search_tables(tables, first_ids, limits, beam_size, alpha, **options):
    """Search logits tables[b, position, previous id, next id]."""
    tables = tf.constant(tables, tf.float32)
    first_ids = tf.constant(first_ids, tf.int32)
    batch_size, _, vocab_size, _ = tables.shape

    def step_fn(ids, index, cache):
        # The cache holds the inputs of each hypothesis, so a search that
        # reorders beams incorrectly gives wrong results.
        history, sentences = cache["history"], cache["places"]
        first = tf.gather(first_ids, sentences)[:, None]
        ids = tf.where(index == 0, first, ids)
        history = tf.concat([history[:, :, 1:], ids[..., None]], axis=2)
        rows = tf.gather(tables[:, index], sentences)  # [B, V, V]
        logits = tf.gather(rows, history[:, :, -1], batch_dims=1)
        return logits, {**cache, "history": history}

    def reorder_fn(cache, parents):
        history = tf.gather(cache["history"], parents, batch_dims=1)
        return {**cache, "history": history}

    ids, scores = beam_search(
        step_fn,
        reorder_fn,
        {
            "history": tf.zeros([batch_size, beam_size, 3], tf.int32),
            "places": tf.range(batch_size),
        },
        batch_size=batch_size,
        beam_size=beam_size,
        limits=limits,
        alpha=alpha,
        **options,
    )
    return ids.numpy(), scores.numpy()


def keep_rows(cache, rows):
    """Return the cache of a search for some of its sentences."""
    return {name: tf.gather(x, rows) for name, x in cache.items()}


def search_one(table, limit, beam_size, alpha, **options):
    """Search one table; return a list of (ids up to EOS, score)."""
    ids, scores = search_tables(
        np.asarray(table)[None], [0], [limit], beam_size, alpha, **options
    )
    return [
        (trim(row), score) for row, score in zip(ids[0], scores[0], strict=True)
    ]


def trim(row):
    row = list(row)
    return row[: row.index(1) + 1] if 1 in row else row


def log_softmax(logits):
    logits = np.asarray(logits, np.float64)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def all_hypotheses(table, limit, alpha, allowed=lambda ids: True):
    """Return all allowed hypotheses: those with EOS first, then by score.

    Args:
      table: logits [position, previous id, next id].
      limit: maximum number of tokens, including EOS.
      alpha: exponent of the length penalty.
      allowed: predicate of the ids up to EOS.

    Returns: a list of (ids up to EOS, score).
    """
    log_probs = log_softmax(table)
    others = [i for i in range(table.shape[-1]) if i != 1]
    found = []
    for length in range(1, limit + 1):
        for body in itertools.product(others, repeat=length - 1):
            for last in [1] if length < limit else range(table.shape[-1]):
                ids = [*body, last]
                if not allowed(ids):
                    continue
                log_prob = sum(
                    log_probs[t, ([0, *ids])[t], ids[t]] for t in range(length)
                )
                score = log_prob / ((5 + length) / 6) ** alpha
                found.append((last != 1, -score, ids))
    return [(ids, -score) for _, score, ids in sorted(found)]


def greedy(table, limit):
    log_probs = log_softmax(table)
    ids, total = [0], 0.0
    for t in range(limit):
        total += log_probs[t, ids[-1]].max()
        ids.append(int(log_probs[t, ids[-1]].argmax()))
        if ids[-1] == 1:
            break
    return ids[1:], total


def random_table(seed, length=4, vocab_size=4):
    rng = np.random.default_rng(seed)
    return rng.normal(0, 1.5, (length, vocab_size, vocab_size))
