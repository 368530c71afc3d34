"""What a search carries, and the two interfaces by which searches differ.

Shapes: B batch, K beam, N hypotheses asked for, V vocabulary, L the largest
limit, C candidates a step.
"""

from typing import Any, NamedTuple, Protocol

from keras import ops

from t2t_lite.decoding.search.log_probs import IMPOSSIBLE
from t2t_lite.model.layers.backend import Tensor


class SearchState(NamedTuple):
    """What the search carries from one step to the next.

    Live hypotheses are open, as the choice put them in order; finished ones
    ended with EOS, best first.
    """

    index: Tensor  # int32 []: tokens generated so far
    rows: Tensor  # int32 [B]: the place of each sentence in the first batch
    running: Tensor  # bool [B]: whether a better hypothesis can still come
    limits: Tensor  # int32 [B]: the most tokens each sentence may get
    last_ids: Tensor  # int32 [B, K]: the newest token of each live hypothesis
    live_ids: Tensor  # int32 [B, K, L]: zeros after the newest token
    live_log_probs: Tensor  # float32 [B, K]
    live_bonuses: Tensor  # float32 [B, K], what is added to their scores
    finished_ids: Tensor  # int32 [B, N, L]: EOS, then zeros
    finished_scores: Tensor  # float32 [B, N]
    memories: tuple  # of each `ScoreChange`
    cache: Any  # whatever step_fn and follow_fn pass on

    def these(self, values: Tensor) -> Tensor:
        """What the sentences that are still here have of the first batch's."""
        return ops.take(values, self.rows, axis=0)


class Candidates(NamedTuple):
    """One-token extensions of the live hypotheses, in any order: [B, C]."""

    log_probs: Tensor  # float32, of the whole hypothesis
    parents: Tensor  # int32: the live hypothesis it extends
    ids: Tensor  # int32: the token that extends it


class ScoreChange(Protocol):
    """Changes the scores of the next tokens before candidates are chosen.

    Sentences that are done may leave the batch: what it keeps of each sentence
    is read by `SearchState.these`.

    Attributes:
      renormalizes: whether log-probabilities are those of the changed scores.
        If not, what is left of a hypothesis keeps the model's own.
    """

    renormalizes: bool

    def start(self, batch_size: int | Tensor, beam_size: int) -> Any:
        """Its memory: tensors [B, K, ...], which follow the hypotheses."""

    def change(
        self, logits: Tensor, state: SearchState, memory: Any
    ) -> tuple[Tensor, Any]:
        """The changed logits, and the memory after `state.last_ids`.

        Args:
          logits: float [B, K, V].
          state: of the search, about to choose token `state.index`.
          memory: from `start` or the last step.
        """


class Choice(Protocol):
    """Chooses the candidates of a step, and those that go on.

    Sentences may leave the batch, as for a `ScoreChange`.
    """

    def candidates(
        self, state: SearchState, logits: Tensor, normalizer: Tensor | None
    ) -> Candidates:
        """The candidates of every sentence, in any order.

        Args:
          state: of the search, about to choose token `state.index`.
          logits: float [B, K, V], after all changes.
          normalizer: float32 [B, K, 1], what is subtracted from a logit to
            give its log-probability; None: that of these logits.
        """

    def survivors(
        self, state: SearchState, candidates: Candidates, ended: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Those that go on: log-probabilities and places [B, K].

        Their order is the one in which they are given if they are cut.

        Args:
          state: as before.
          candidates: [B, C].
          ended: bool [B, C], those that ended.
        """


def append(ids: Tensor, token: Tensor, index: Tensor) -> Tensor:
    """`ids` [B, N, L] with `token` [B, N] at position `index`."""
    here = ops.equal(ops.arange(ops.shape(ids)[-1], dtype="int32"), index)
    return ops.where(here, token[..., None], ids)


def forbid(logits: Tensor, forbidden: Tensor) -> Tensor:
    """The logits [B, K, V], impossible where a bool of that shape is true."""
    return ops.where(forbidden, ops.cast(IMPOSSIBLE, logits.dtype), logits)
