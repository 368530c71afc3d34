"""`TrainingOptions`: how a run is trained, apart from what makes it the run."""

import dataclasses
from typing import Any

from t2t_lite import values
from t2t_lite.errors import UsageError

_COUNT = values.whole_number(1)
_MINUTES = values.number(
    float, lambda x: 0 <= x < float("inf"), "a number, at least 0"
)


def _passes(value: Any) -> int | str:
    return value if value == "auto" else _COUNT(value)


@dataclasses.dataclass(frozen=True)
class TrainingOptions:
    """Options of training that may change when a run resumes.

    Each field is a keyword of `t2t_lite.train` and a flag of the trainer.

    Raises:
      UsageError: a value breaks its rule, or two conflict.
    """

    train_steps: int | None = values.setting(
        None, _COUNT, "N", "optimizer updates in total (default: the set's)"
    )
    eval_steps_every: int = values.setting(
        1000, _COUNT, "N", "updates between evaluations on the dev split"
    )
    save_minutes: float = values.setting(
        10, _MINUTES, "M", "minutes between checkpoints"
    )
    save_steps: int | None = values.setting(
        None, _COUNT, "N", "updates between checkpoints, instead of minutes"
    )
    save_retries: int = values.setting(
        3,
        values.whole_number(0),
        "N",
        "retries of a failed save, one each time a checkpoint is due, before "
        "training fails",
    )
    max_minutes: float | None = values.setting(
        None,
        _MINUTES,
        "M",
        "minutes of the process, before which it saves and exits with 75 "
        "(default: no limit)",
    )
    stall_minutes: float = values.setting(
        30,
        _MINUTES,
        "M",
        "minutes without an update until the stacks of all threads go to "
        "stderr; 0: never",
    )
    keep_checkpoints: int = values.setting(
        20, _COUNT, "N", "newest checkpoints to keep, besides the best"
    )
    strict_checkpoints: bool = values.setting(
        False,
        values.true_or_false,
        "",
        "refuse to resume if the newest checkpoint is damaged; the default "
        "sets it aside and resumes from the one before",
    )
    best_metric: str = values.setting(
        "auto",
        values.text,
        "NAME",
        "metric of the best checkpoint: loss, the problem's metric (bleu, f1), "
        "or auto: the loss on dev until the score reaches 1, then the score",
    )
    keep_best: int = values.setting(1, _COUNT, "K", "best checkpoints to keep")
    stop_after: int | None = values.setting(
        None,
        _COUNT,
        "N",
        "evaluations without a better --stop_on until training ends (default: "
        "never)",
    )
    stop_on: str | None = values.setting(
        None,
        values.text,
        "METRIC",
        "metric of --stop_after: dev_loss, dev_perplexity, or the score, such "
        "as dev_bleu (default: dev_loss)",
    )
    log_steps: int = values.setting(
        100, _COUNT, "N", "updates between records of metrics.jsonl"
    )
    deterministic: bool = values.setting(
        False,
        values.true_or_false,
        "",
        "the same result, bit for bit, each time; slower",
    )
    check_numerics: bool = values.setting(
        False,
        values.true_or_false,
        "",
        "fail at the operation that produces the first NaN or Inf; slower",
    )
    jit: bool = values.setting(
        False,
        values.true_or_false,
        "",
        "compile the passes by XLA, once for each shape of batches; the hparam "
        "packing=true keeps these few",
    )
    recompute: bool = values.setting(
        False,
        values.true_or_false,
        "",
        "recompute activations within layers in the backward pass: less "
        "memory, more time, the same result",
    )
    micro_batches: int | str | None = values.setting(
        None,
        _passes,
        "N",
        "passes of an update, a multiple of the hparam, or auto: the fewest "
        "that fit into memory; an update has the same pairs (default: the "
        "hparam)",
    )
    replicas: int | None = values.setting(
        None,
        _COUNT,
        "N",
        "logical CPU devices to train on (default: all GPUs, else one CPU)",
    )

    def __post_init__(self) -> None:
        values.check_settings(self)
        if self.stop_on and self.stop_after is None:
            raise UsageError(
                "stop_on requires stop_after, a number of evaluations."
            )

    @property
    def stop_metric(self) -> str:
        """The key of `metrics.jsonl` that early stopping compares."""
        return self.stop_on or "dev_loss"

    def slices(self, planned: int) -> int | None:
        """Return the slices of each micro-batch; None: as few as fit.

        Args:
          planned: the hparam `micro_batches`, which defines an update.

        Raises:
          UsageError: the passes do not slice each micro-batch alike.
        """
        if self.micro_batches == "auto":
            return None
        passes = planned if self.micro_batches is None else self.micro_batches
        if not isinstance(passes, int) or passes < 1 or passes % planned:
            raise UsageError(
                "micro_batches is auto or a multiple of the hparam "
                f"micro_batches={planned}, whose parts it cuts; got {passes}. "
                "An update of other parts is another run: "
                "--hparams_override=micro_batches=N."
            )
        return passes // planned


@dataclasses.dataclass(frozen=True)
class StartOptions:
    """The start of a new run, which is part of its identity."""

    init_from: str | None = None  # the path of a run or of a checkpoint
    init_vocabulary: str = "same"  # or "map": take over the common pieces
    freeze: str = ""  # patterns of weights that do not train, with commas

    @property
    def frozen(self) -> list[str]:
        """The patterns one by one, each once."""
        words = {word.strip() for word in self.freeze.split(",")}
        return sorted(words - {""})
