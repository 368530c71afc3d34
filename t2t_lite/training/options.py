"""`TrainingOptions`: how a run is trained, apart from what makes it the run."""

import dataclasses

from t2t_lite.errors import UsageError

_COUNTS = (
    "train_steps",
    "eval_steps_every",
    "save_steps",
    "keep_checkpoints",
    "keep_best",
    "stop_after",
    "log_steps",
    "replicas",
)


@dataclasses.dataclass(frozen=True)
class TrainingOptions:
    """What `recipe.train` hands through to the trainer.

    A new flag of the trainer is a field here, a parameter of `recipe.train`
    with its line of help for Python users, and a flag in `bin/trainer.py`.
    None of these is part of the run's identity: a run may go on with others.
    """

    train_steps: int | None = None  # updates in total; None: the hparam
    eval_steps_every: int = 1000  # updates between evaluations on dev
    save_minutes: float = 10  # between checkpoints
    save_steps: int | None = None  # updates between them, instead of minutes
    save_retries: int = 3  # after a save that failed, before training fails
    max_minutes: float | None = None  # of the process: then it saves, exits 75
    stall_minutes: float = 30  # without an update, until stacks are shown
    keep_checkpoints: int = 20  # of the newest, besides the best
    strict_checkpoints: bool = False  # refuse a damaged one
    log_steps: int = 100  # updates between lines of `metrics.jsonl`
    best_metric: str = "auto"  # what tells the best checkpoint
    keep_best: int = 1  # how many of the best to keep
    stop_after: int | None = None  # evaluations without a better `stop_on`
    stop_on: str = "dev_loss"  # a key of the evaluations in `metrics.jsonl`
    micro_batches: int | str | None = None  # passes an update; "auto": fewest
    replicas: int | None = None  # logical CPUs; None: all GPUs, else one CPU
    deterministic: bool = False  # the same to the bit each time; slower
    check_numerics: bool = False  # raise at the first NaN or Inf; slower
    jit: bool = False  # compile the passes by XLA, once for each shape
    recompute: bool = False  # activations again in the backward pass

    def require_positive(self) -> None:
        """Raises UsageError for a count below 1."""
        for name in _COUNTS:
            count = getattr(self, name)
            if count is not None and count < 1:
                raise UsageError(f"{name} must be at least 1; got {count}.")

    def slices(self, planned: int) -> int | None:
        """Parts that each micro-batch is cut into; None: as few as fit.

        Args:
          planned: the hparam `micro_batches`, which says what an update is.

        Raises:
          UsageError: so many passes do not cut each micro-batch alike.
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
    """What a new run begins with; what it began with is part of what it is.

    Plain values, which workers compare.
    """

    init_from: str | None = None  # the path of a run or of a checkpoint
    init_vocabulary: str = "same"  # or "map": take over the common pieces
    freeze: str = ""  # patterns of weights that do not train, with commas

    @property
    def frozen(self) -> list[str]:
        """The patterns one by one, each once."""
        words = {word.strip() for word in self.freeze.split(",")}
        return sorted(words - {""})
