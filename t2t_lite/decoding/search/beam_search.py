"""Beam search over a `step_fn(ids, index, cache)`; knows of no model.

There is one loop. Changes of scores and a rule of choice, `ScoreChange` and
`Choice`, make other searches of it. Shapes are those of `state`. Only
`keras.ops`, so that the search runs eagerly and inside a compiled loop, with
sizes known or not.

`keras_hub.samplers.BeamSampler` is no substitute: it has no length penalty,
extends a hypothesis beyond its EOS in place of setting it aside, and tiles and
gathers the whole cache over the beams at every step.
"""

from collections.abc import Callable, Sequence
from typing import Any

from keras import ops, tree

from t2t_lite.decoding.search.choice import Best
from t2t_lite.decoding.search.log_probs import (
    IMPOSSIBLE,
    is_possible,
    log_normalizer,
)
from t2t_lite.decoding.search.state import (
    Choice,
    ScoreChange,
    SearchState,
    append,
)
from t2t_lite.model.layers.backend import Tensor, gather_rows


def length_penalty(length: Tensor, alpha: float) -> Tensor:
    """What a log-probability is divided by: ((5 + length) / 6) ** alpha.

    Args:
      length: generated tokens, EOS included; int, any shape.
      alpha: 0 for none; 0.6 in the paper.

    Returns: float32 of the same shape (arXiv:1609.08144, equation 14, without
      the coverage term).
    """
    return ops.power((5.0 + ops.cast(length, "float32")) / 6.0, alpha)


def coverage_penalty(coverage: Tensor) -> Tensor:
    """What tells that source tokens got little attention; at most 0.

    Args:
      coverage: float32 [B, K, S], the attention that each got in all steps;
        1 where there is no token.

    Returns: float32 [B, K], the sum of log(min(coverage, 1)) (arXiv:1609.08144,
      equation 14, without beta).
    """
    # No attention at all counts as very little: log(0) has no sum.
    return ops.sum(ops.log(ops.clip(coverage, 1e-9, 1.0)), axis=-1)


def beam_search(
    step_fn: Callable[[Tensor, Tensor, Any], tuple[Tensor, Any]],
    follow_fn: Callable[[Any, Tensor], Any],
    cache: Any,
    *,
    batch_size: int | Tensor,
    beam_size: int,
    vocab_size: int,
    limits: Tensor,
    longest: int | Tensor | None = None,
    alpha: float,
    eos_id: int = 1,
    num_hypotheses: int | None = None,
    changes: Sequence[ScoreChange] = (),
    choice: Choice | None = None,
    bonus_fn: Callable[[Any], Tensor] | None = None,
    keep_fn: Callable[[Any, Tensor], Any] | None = None,
) -> tuple[Tensor, Tensor]:
    """The best hypotheses of each sentence under `step_fn`.

    The search for a sentence ends as soon as no live hypothesis can, at any
    length up to its limit, beat the worst finished one that is asked for.
    Sentences do not affect one another. With a beam of 1 the search is greedy.

    Args:
      step_fn: `(ids int32 [B, K], index int32 [], cache) -> (logits float32
        [B, K, V], cache)`: what may follow the newest ids; at index 0, when
        there are none, the ids are 0.
      follow_fn: `(cache, parents int32 [B, K]) -> cache`: from now on row k
        goes on from what was row parents[k].
      cache: a structure of tensors.
      batch_size: B.
      beam_size: K, at least 1.
      vocab_size: V, at least 2.
      limits: int32 [B], the most tokens a sentence may get, EOS included; 0
        gives an empty hypothesis.
      longest: L, at least each limit; None: the largest of them.
      alpha: weight of the length penalty, at least 0.
      eos_id: the token that ends a hypothesis.
      num_hypotheses: N, from 1 to K; None: K. Asking for fewer ends sooner
        and does not change those that are returned.
      changes: of the scores, before candidates are chosen, in this order;
        those that renormalize come first.
      choice: of candidates; None: the best ones.
      bonus_fn: `cache -> float32 [B, K]`, what is added to the score of a
        hypothesis when it ends; at most 0, so that the bound holds that ends
        the search.
      keep_fn: `(cache, rows int32 [M]) -> cache` of these sentences only. With
        it those that are done leave the batch, where tensors may change their
        shape in a loop. None: all stay to the end.

    Returns:
      ids int32 [B, N, L] (EOS, then zeros) and scores float32 [B, N], best
      first, score = log-probability / ((5 + length) / 6) ** alpha, plus the
      bonus. Where fewer than N finished, the best live ones of that sentence
      follow, cut at the limit and without EOS. A row without a hypothesis (V
      smaller than 2 K, or logits that are not numbers) has no ids and a score
      for which `is_possible` is false.
    """
    count = beam_size if num_hypotheses is None else num_hypotheses
    _check(beam_size, vocab_size, alpha, count)
    if longest is None:
        longest = ops.max(limits, initial=0)
    limits = ops.cast(limits, "int32")
    choice = choice or Best()

    def body(*values):
        state = SearchState(*values)
        logits, cache = step_fn(state.last_ids, state.index, state.cache)
        logits, normalizer, memories = _change(changes, state, logits)
        candidates = choice.candidates(state, logits, normalizer)
        ended = ops.equal(candidates.ids, eos_id)
        bonus = bonus_fn(cache) if bonus_fn else state.live_bonuses
        finished = _finish(state, candidates, ended, alpha, bonus)
        log_probs, places = choice.survivors(state, candidates, ended)
        live, parents = _go_on(state, candidates, log_probs, places, bonus)
        state = _advance(state, live, finished)._replace(
            memories=tree.map_structure(
                lambda rows: gather_rows(rows, parents), memories
            ),
            cache=follow_fn(cache, parents),
        )
        return tuple(state._replace(running=_running(state, alpha)))

    def search(state, goes_on):
        values = ops.while_loop(
            lambda *values: goes_on(SearchState(*values).running),
            body,
            tuple(state),
        )
        return SearchState(*values)

    def best(state):
        return _best(state, alpha, sort_live=bonus_fn is not None)

    memories = tuple(each.start(batch_size, beam_size) for each in changes)
    shape = (batch_size, beam_size, count, longest)
    state = _start(cache, memories, shape, limits)
    if keep_fn is None:
        return best(search(state, ops.any))
    return _shrinking(state, lambda part: search(part, _most), best, keep_fn)


def _check(beam_size, vocab_size, alpha, count):
    if beam_size < 1 or vocab_size < 2 or not 1 <= count <= beam_size:
        raise ValueError(
            "A search needs beam_size >= 1, vocab_size >= 2 and from 1 to "
            f"beam_size hypotheses; got beam_size={beam_size}, "
            f"vocab_size={vocab_size}, num_hypotheses={count}."
        )
    if alpha < 0:
        # The bound that ends a sentence relies on this: the longest hypothesis
        # has the mildest penalty.
        raise ValueError(f"alpha must be at least 0; got alpha={alpha}.")


def _start(cache, memories, shape, limits):
    """Live hypothesis 0 is the empty one; there are no others yet."""
    batch_size, beam_size, count, longest = shape
    beams = ops.arange(beam_size)
    live = ops.where(ops.equal(beams, 0), 0.0, IMPOSSIBLE)
    return SearchState(
        index=ops.convert_to_tensor(0, "int32"),
        rows=ops.arange(batch_size, dtype="int32"),
        running=limits > 0,
        limits=limits,
        last_ids=ops.zeros((batch_size, beam_size), "int32"),
        live_ids=ops.zeros((batch_size, beam_size, longest), "int32"),
        live_log_probs=ops.broadcast_to(
            ops.cast(live, "float32")[None], (batch_size, beam_size)
        ),
        live_bonuses=ops.zeros((batch_size, beam_size), "float32"),
        finished_ids=ops.zeros((batch_size, count, longest), "int32"),
        finished_scores=ops.full((batch_size, count), IMPOSSIBLE, "float32"),
        memories=memories,
        cache=cache,
    )


def _change(changes, state, logits):
    """The logits after all changes, their normalizer, the new memories."""
    normalizer, memories = None, []
    for each, memory in zip(changes, state.memories, strict=True):
        if normalizer is None and not each.renormalizes:
            normalizer = log_normalizer(logits)
        logits, memory = each.change(logits, state, memory)
        memories.append(memory)
    return logits, normalizer, tuple(memories)


def _finish(state, candidates, ended, alpha, bonus):
    """The best N of the finished ones and the candidates that just ended.

    Returns: ids int32 [B, N, L] and scores float32 [B, N], best first.
    """
    scores = candidates.log_probs / length_penalty(state.index + 1, alpha)
    scores += gather_rows(bonus, candidates.parents)
    real = ops.logical_and(ended, is_possible(candidates.log_probs))
    scores = ops.concatenate(
        [state.finished_scores, ops.where(real, scores, IMPOSSIBLE)], axis=1
    )
    scores, places = ops.top_k(scores, ops.shape(state.finished_scores)[1])
    ids = gather_rows(state.live_ids, candidates.parents)  # [B, C, L]
    ids = append(ids, candidates.ids, state.index)
    # An impossible one must not bring along the ids of its beam.
    ids = ops.where(real[..., None], ids, 0)
    ids = ops.concatenate([state.finished_ids, ids], axis=1)
    return gather_rows(ids, places), scores


def _go_on(state, candidates, log_probs, places, bonus):
    """The candidates at some places [B, K], which live on.

    Returns: their (newest ids, ids, log-probabilities, bonuses) and the rows
      int32 [B, K] they come from.
    """
    parents = gather_rows(candidates.parents, places)
    last_ids = gather_rows(candidates.ids, places)
    ids = gather_rows(state.live_ids, parents)
    ids = append(ids, last_ids, state.index)
    log_probs = ops.maximum(log_probs, IMPOSSIBLE)
    return (last_ids, ids, log_probs, gather_rows(bonus, parents)), parents


def _advance(state, live, finished):
    """The next state; sentences that no longer run keep what they have."""
    running = state.running[:, None]
    last_ids, live_ids, live_log_probs, live_bonuses = live
    finished_ids, finished_scores = finished
    return state._replace(
        index=state.index + 1,
        last_ids=last_ids,
        live_ids=ops.where(running[..., None], live_ids, state.live_ids),
        live_log_probs=ops.where(running, live_log_probs, state.live_log_probs),
        live_bonuses=ops.where(running, live_bonuses, state.live_bonuses),
        finished_ids=ops.where(
            running[..., None], finished_ids, state.finished_ids
        ),
        finished_scores=ops.where(
            running, finished_scores, state.finished_scores
        ),
    )


def _running(state, alpha):
    """Sentences in which a live hypothesis may still become a needed one.

    A log-probability only falls, and is divided by most at the limit: so the
    best live one divided by that bounds every score to come.
    """
    best_live = ops.max(state.live_log_probs, axis=1)
    bound = best_live / length_penalty(state.limits, alpha)
    hopeful = ops.logical_and(
        is_possible(best_live), bound > state.finished_scores[:, -1]
    )
    return ops.logical_and(
        state.running, ops.logical_and(state.index < state.limits, hopeful)
    )


def _most(running):
    """Whether most sentences run: enough to leave the batch as it is."""
    count = ops.sum(ops.cast(running, "int32"))
    return 2 * count > ops.shape(running)[0]


def _shrinking(state, search, best, keep_fn):
    """Searches on, time and again, with the sentences that still run.

    Returns: ids and scores of all sentences, as `_best`.
    """

    def go_on(ids, scores, *values):
        state = search(SearchState(*values))
        part_ids, part_scores = best(state)
        rows = state.rows[:, None]
        ids = ops.scatter_update(ids, rows, part_ids)
        scores = ops.scatter_update(scores, rows, part_scores)
        kept = ops.cast(ops.nonzero(state.running)[0], "int32")
        index, *of_sentences, cache = state
        of_sentences = tree.map_structure(
            lambda x: ops.take(x, kept, axis=0), of_sentences
        )
        return ids, scores, index, *of_sentences, keep_fn(cache, kept)

    ids, scores = best(state)  # of sentences that may get no token
    ids, scores, *_ = ops.while_loop(
        lambda *values: ops.any(SearchState(*values[2:]).running),
        go_on,
        (ids, scores, *state),
    )
    return ids, scores


def _best(state, alpha, sort_live):
    """The finished hypotheses, then live ones where too few finished."""
    batch_size, count = ops.shape(state.finished_scores)
    penalties = length_penalty(state.limits, alpha)[:, None]
    live_scores = state.live_log_probs / penalties
    live_scores += state.live_bonuses
    real = is_possible(state.live_log_probs)
    live_scores = ops.where(real, live_scores, IMPOSSIBLE)
    live_ids = ops.where(real[..., None], state.live_ids, 0)
    if sort_live:  # bonuses are not in the order of the choice
        size = ops.shape(live_scores)[1]
        live_scores, order = ops.top_k(live_scores, size)
        live_ids = gather_rows(live_ids, ops.cast(order, "int32"))
    scores = ops.concatenate([state.finished_scores, live_scores], axis=1)
    ids = ops.concatenate([state.finished_ids, live_ids], axis=1)
    finished = ops.sum(
        ops.cast(is_possible(state.finished_scores), "int32"),
        axis=1,
        keepdims=True,
    )
    places = ops.broadcast_to(
        ops.arange(count, dtype="int32")[None], (batch_size, count)
    )
    # The K live ones follow the N places of finished ones.
    places = ops.where(places < finished, places, places - finished + count)
    return gather_rows(ids, places), gather_rows(scores, places)
