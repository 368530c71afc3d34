"""The state of a search and its one-token extensions.

Shapes: B sentences, K beams, N hypotheses to return, V vocabulary size, L the
largest limit, C candidates of a step.
"""

from typing import Any, NamedTuple

from t2t_lite.ops import Tensor, take_rows


class SearchState(NamedTuple):
    """The loop variables of a search.

    Live hypotheses do not end with EOS and are sorted by the selector; finished
    ones end with EOS, best first.
    """

    index: Tensor  # int32 []: number of generated tokens
    rows: Tensor  # int32 [B]: index of each sentence in the first batch
    running: Tensor  # bool [B]: a better hypothesis is possible
    limits: Tensor  # int32 [B]: maximum number of tokens, EOS included
    last_ids: Tensor  # int32 [B, K]: the newest token of each live hypothesis
    live_ids: Tensor  # int32 [B, K, L]: zeros after the newest token
    live_log_probs: Tensor  # float32 [B, K]
    finished_ids: Tensor  # int32 [B, N, L]: EOS, then zeros
    finished_scores: Tensor  # float32 [B, N]
    processor_states: tuple  # own state of each logits processor
    cache: Any  # passed between step_fn, reorder_fn and select_fn

    def select_rows(self, values: Tensor) -> Tensor:
        """Select the rows of the sentences that are still in the batch."""
        return take_rows(values, self.rows)


class Candidates(NamedTuple):
    """One-token extensions of the live hypotheses, in any order: [B, C]."""

    log_probs: Tensor  # float32: log-probability of the whole hypothesis
    parents: Tensor  # int32: index of the extended live hypothesis
    ids: Tensor  # int32: the new token
