"""Beam search over a `step_fn(ids, index, cache)`, independent of the model.

Logits processors and a selector customize the loop. `state` defines the shapes.
The search uses only `keras.ops`, so it runs eagerly and inside a compiled loop,
with static or dynamic shapes.

`keras_hub.samplers.BeamSampler` is not a substitute: it has no length penalty,
extends a hypothesis beyond its EOS, and tiles and gathers the whole cache over
the beams at every step.
"""

from collections.abc import Callable, Sequence
from typing import Any

from keras import ops, tree

from t2t_lite.decoding.search.logits_processors import LogitsProcessor, count
from t2t_lite.decoding.search.scores import NEG_INF, is_possible, length_penalty
from t2t_lite.decoding.search.selection import TopK
from t2t_lite.decoding.search.state import SearchState
from t2t_lite.ops import Tensor, gather_rows, logsumexp, shape_list, take_rows


def beam_search(
    step_fn: Callable[[Tensor, Tensor, Any], tuple[Tensor, Any]],
    reorder_fn: Callable[[Any, Tensor], Any],
    cache: Any,
    *,
    batch_size: int | Tensor,
    beam_size: int,
    limits: Tensor,
    longest: int | Tensor | None = None,
    alpha: float,
    eos_id: int = 1,
    num_hypotheses: int | None = None,
    processors: Sequence[LogitsProcessor] = (),
    selector: TopK | None = None,
    select_fn: Callable[[Any, Tensor], Any] | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the best hypotheses of each sentence under `step_fn`.

    The search of a sentence ends when no live hypothesis can beat the worst of
    the N finished ones at any length up to the limit. Sentences are independent
    of one another. With a beam of 1 the search is greedy.

    Args:
      step_fn: `(ids int32 [B, K], index int32 [], cache) -> (logits float32
        [B, K, V], cache)`: the logits after the newest ids, which are 0 at
        index 0.
      reorder_fn: `(cache, parents int32 [B, K]) -> cache`; the new beam k
        continues the old beam parents[k].
      cache: a structure of tensors.
      batch_size: B.
      beam_size: K, at least 1.
      limits: int32 [B], maximum number of tokens of each sentence, EOS
        included; 0 gives an empty hypothesis.
      longest: L, at least each limit; None: the largest limit.
      alpha: weight of the length penalty, at least 0.
      eos_id: the token that ends a hypothesis.
      num_hypotheses: N, from 1 to K; None: K. A search for fewer hypotheses
        ends earlier.
      processors: logits processors, in order; renormalizing ones come first.
      selector: selects candidates; None: `TopK`.
      select_fn: `(cache, rows int32 [M]) -> cache`, selects sentences. With it,
        completed sentences leave the batch, so shapes change in the loop. None:
        all sentences stay.

    Returns:
      ids int32 [B, N, L] (EOS, then zeros) and scores float32 [B, N], best
      first, score = log-probability / ((5 + length) / 6) ** alpha. If fewer
      than N hypotheses of a sentence finished, its best live ones follow,
      truncated at the limit, without EOS. A row without a hypothesis (V smaller
      than 2 K, or NaN logits) has zero ids and a score for which `is_possible`
      is false.
    """
    num_hypotheses = beam_size if num_hypotheses is None else num_hypotheses
    if longest is None:
        longest = ops.max(limits, initial=0)
    limits = ops.cast(limits, "int32")
    selector = selector or TopK()
    step_args = (step_fn, reorder_fn, processors, selector, eos_id, alpha)

    def search(state, should_continue):
        values = ops.while_loop(
            lambda *values: should_continue(SearchState(*values).running),
            lambda *values: tuple(_step(SearchState(*values), *step_args)),
            tuple(state),
        )
        return SearchState(*values)

    own_states = tuple(each.start(batch_size, beam_size) for each in processors)
    shape = (batch_size, beam_size, num_hypotheses, longest)
    state = _start(cache, own_states, shape, limits)
    if select_fn is None:
        return _best(search(state, ops.any), alpha)
    return _search_shrinking_batch(
        state, lambda part: search(part, _mostly_running), alpha, select_fn
    )


def _start(cache, own_states, shape, limits):
    """Return the first state; its only live hypothesis, index 0, is empty."""
    batch_size, beam_size, num_hypotheses, longest = shape
    live = ops.where(ops.equal(ops.arange(beam_size), 0), 0.0, NEG_INF)
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
        finished_ids=ops.zeros((batch_size, num_hypotheses, longest), "int32"),
        finished_scores=ops.full(
            (batch_size, num_hypotheses), NEG_INF, "float32"
        ),
        processor_states=own_states,
        cache=cache,
    )


def _step(state, step_fn, reorder_fn, processors, selector, eos_id, alpha):
    """Return the state with one more token in every hypothesis."""
    logits, cache = step_fn(state.last_ids, state.index, state.cache)
    logits, normalizer, own_states = _process(processors, state, logits)
    candidates = selector.candidates(state, logits, normalizer)
    ended = ops.equal(candidates.ids, eos_id)
    finished = _finish(state, candidates, ended, alpha)
    log_probs, indices = selector.select_live(state, candidates, ended)
    parents = gather_rows(candidates.parents, indices)
    last_ids = gather_rows(candidates.ids, indices)
    live = {
        "last_ids": last_ids,
        "live_ids": _append(state, parents, last_ids),
        "live_log_probs": ops.maximum(log_probs, NEG_INF),
    }
    state = _next_state(state, live | finished)._replace(
        processor_states=tree.map_structure(
            lambda rows: gather_rows(rows, parents), own_states
        ),
        cache=reorder_fn(cache, parents),
    )
    return state._replace(running=_running(state, alpha))


def _process(processors, state, logits):
    """Apply all processors; return logits, normalizer and own states."""
    normalizer, own_states = None, []
    for each, own in zip(processors, state.processor_states, strict=True):
        if normalizer is None and not each.renormalizes:
            normalizer = logsumexp(logits)
        logits, own = each.process(logits, state, own)
        own_states.append(own)
    return logits, normalizer, tuple(own_states)


def _finish(state, candidates, ended, alpha):
    """Return the best N of the finished hypotheses and ended candidates."""
    length = ops.cast(state.index + 1, "float32")
    scores = candidates.log_probs / length_penalty(length, alpha)
    real = ops.logical_and(ended, is_possible(candidates.log_probs))
    scores = ops.concatenate(
        [state.finished_scores, ops.where(real, scores, NEG_INF)], axis=1
    )
    scores, indices = ops.top_k(scores, shape_list(state.finished_scores)[1])
    ids = _append(state, candidates.parents, candidates.ids)  # [B, C, L]
    # An impossible candidate must not copy the ids of its beam.
    ids = ops.where(real[..., None], ids, 0)
    ids = ops.concatenate([state.finished_ids, ids], axis=1)
    return {
        "finished_ids": gather_rows(ids, indices),
        "finished_scores": scores,
    }


def _append(state, parents, ids):
    """Append ids [B, N] to the live hypotheses `parents`: int32 [B, N, L]."""
    positions = ops.arange(shape_list(state.live_ids)[2], dtype="int32")
    is_newest = ops.equal(positions, state.index)
    live_ids = gather_rows(state.live_ids, parents)
    return ops.where(is_newest, ids[..., None], live_ids)


def _next_state(state, values):
    """Return the next state; completed sentences keep their values."""

    def keep(name, value):
        running = ops.reshape(
            state.running, (-1,) + (1,) * (len(value.shape) - 1)
        )
        return ops.where(running, value, getattr(state, name))

    values = {name: keep(name, value) for name, value in values.items()}
    return state._replace(index=state.index + 1, **values)


def _running(state, alpha):
    """Return bool [B], True if a live hypothesis can still be returned.

    Log-probabilities only decrease, and the length penalty is largest at the
    limit because alpha is at least 0. So the best live log-probability divided
    by that penalty is an upper bound of all future scores.
    """
    best_live = ops.max(state.live_log_probs, axis=1)
    limits = ops.cast(state.limits, "float32")
    bound = best_live / length_penalty(limits, alpha)
    can_improve = ops.logical_and(
        is_possible(best_live), bound > state.finished_scores[:, -1]
    )
    return ops.logical_and(
        state.running, ops.logical_and(state.index < state.limits, can_improve)
    )


def _mostly_running(running):
    return 2 * count(running) > shape_list(running)[0]


def _search_shrinking_batch(state, search, alpha, select_fn):
    """Search; remove completed sentences when they are half of the batch."""

    def continue_search(ids, scores, *values):
        state = search(SearchState(*values))
        part_ids, part_scores = _best(state, alpha)
        rows = state.rows[:, None]
        ids = ops.scatter_update(ids, rows, part_ids)
        scores = ops.scatter_update(scores, rows, part_scores)
        kept = ops.cast(ops.nonzero(state.running)[0], "int32")
        index, *sentences, cache = state
        sentences = tree.map_structure(lambda x: take_rows(x, kept), sentences)
        return ids, scores, index, *sentences, select_fn(cache, kept)

    ids, scores = _best(state, alpha)  # results of sentences with limit 0
    ids, scores, *_ = ops.while_loop(
        lambda *values: ops.any(SearchState(*values[2:]).running),
        continue_search,
        (ids, scores, *state),
    )
    return ids, scores


def _best(state, alpha):
    """Return the best N finished hypotheses, then the best live ones."""
    batch_size, num_hypotheses = shape_list(state.finished_scores)
    limits = ops.cast(state.limits, "float32")[:, None]
    live_scores = state.live_log_probs / length_penalty(limits, alpha)
    real = is_possible(state.live_log_probs)
    live_scores = ops.where(real, live_scores, NEG_INF)
    live_ids = ops.where(real[..., None], state.live_ids, 0)
    scores = ops.concatenate([state.finished_scores, live_scores], axis=1)
    ids = ops.concatenate([state.finished_ids, live_ids], axis=1)
    finished = count(is_possible(state.finished_scores))[:, None]
    indices = ops.arange(num_hypotheses, dtype="int32")[None]
    indices = ops.broadcast_to(indices, (batch_size, num_hypotheses))
    # In `ids`, the K live hypotheses follow the N finished ones.
    live_indices = indices - finished + num_hypotheses
    indices = ops.where(indices < finished, indices, live_indices)
    return gather_rows(ids, indices), gather_rows(scores, indices)
