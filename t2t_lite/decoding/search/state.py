"""The state of a search and its one-token extensions.

Shapes: B sentences, K beams, N hypotheses to return, V vocabulary, L the
largest limit, C candidates of a step.
"""

from typing import Any, NamedTuple

from keras import ops

from t2t_lite.ops import Tensor

# The log-probability of a hypothesis that does not exist. It is finite because
# differences of infinities are NaN, and NaN is not valid JSON.
NEG_INF = -1e9


def is_possible(log_probs: Tensor) -> Tensor:
    """Return whether log-probabilities or scores are of real hypotheses."""
    return log_probs > 0.01 * NEG_INF


class SearchState(NamedTuple):
    """The values that a search carries from one step to the next.

    Live hypotheses are open, in the order of the selector; finished ones ended
    with EOS, best first.
    """

    index: Tensor  # int32 []: tokens generated so far
    rows: Tensor  # int32 [B]: index of each sentence in the first batch
    running: Tensor  # bool [B]: whether a better hypothesis can still come
    limits: Tensor  # int32 [B]: the most tokens of each sentence
    last_ids: Tensor  # int32 [B, K]: the newest token of each live hypothesis
    live_ids: Tensor  # int32 [B, K, L]: zeros after the newest token
    live_log_probs: Tensor  # float32 [B, K]
    finished_ids: Tensor  # int32 [B, N, L]: EOS, then zeros
    finished_scores: Tensor  # float32 [B, N]
    processor_states: tuple  # of each logits processor
    cache: Any  # passed between step_fn, reorder_fn and select_fn

    def select_rows(self, values: Tensor) -> Tensor:
        """Return the rows of the sentences that are still in the batch."""
        return ops.take(values, self.rows, axis=0)


class Candidates(NamedTuple):
    """One-token extensions of the live hypotheses, in any order: [B, C]."""

    log_probs: Tensor  # float32, of the whole hypothesis
    parents: Tensor  # int32: index of the live hypothesis that it extends
    ids: Tensor  # int32: the token that extends it
