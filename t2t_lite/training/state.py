"""All that a checkpoint holds: weights, optimizer, and place in the data."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from t2t_lite.errors import T2TLiteError
from t2t_lite.hparam import HParams
from t2t_lite.training import checkpoint
from t2t_lite.training.run import Run
from t2t_lite.training.schedules import cooldown, learning_rate
from t2t_lite.training.updates import Updater


def training_rate(hparams: HParams, step: int) -> float:
    """The learning rate of an update, counted from 1."""
    return learning_rate(
        step, hparams.hidden_size, hparams.warmup_steps, hparams.learning_rate
    ) * cooldown(step, hparams.train_steps, hparams.cooldown)


class TrainingState:
    """A model in training.

    Dropout needs no state: its seeds follow from the run's seed, the update's
    number and the micro-batch's. So does the order of the data from the place
    in them.

    Args:
      run: what is trained.
      strategy: from `updates.choose_strategy`.

    Attributes:
      model: the run's.
      updater: makes the updates.
      replicas: devices that share an update.
      step: updates made, the skipped ones included.
    """

    def __init__(self, run: Run, strategy: tf.distribute.Strategy):
        self._run = run
        self.replicas = strategy.num_replicas_in_sync
        with strategy.scope():
            self.model = run.model()
        self.updater = Updater(self.model, run.hparams, strategy, run.seed)
        self.step = 0
        self._position = [0, 0, 0]
        self._batches = None

    @property
    def epoch(self) -> int:
        """The epoch that the next micro-batch is from."""
        return int(self._position[0])

    @property
    def learning_rate(self) -> float:
        """The rate of the next update."""
        return training_rate(self._run.hparams, self.step + 1)

    def update(self, between_passes: Callable[[], None]) -> tf.Tensor:
        """Makes one update.

        Args:
          between_passes: called before each pass. If it raises, this update
            was not made, and no other one can be.

        Returns:
          As of `Updater.update`.
        """
        if self._batches is None:
            self._batches = self._run.data.training_batches(self._position)
        count = self._run.hparams.micro_batches
        batches = [next(self._batches) for _ in range(count)]
        stats = self.updater.update(
            batches, self.step + 1, self.learning_rate, between_passes
        )
        self.step += 1
        self._position = batches[-1]["position"]
        return stats

    def tensors(self) -> dict[str, tf.Variable]:
        """Everything that is trained or kept by the optimizer, by name."""
        return {
            **checkpoint.model_tensors(self.model),
            **self.updater.tensors(),
        }

    def save(self, **more: Any) -> None:
        """Saves a checkpoint.

        Args:
          **more: what else its state is to hold, fit for JSON.
        """
        state = {
            "step": self.step,
            "position": [int(part) for part in self._position],
            "seed": self._run.seed,
            **more,
        }
        checkpoint.save(self._run.checkpoints_dir, self.tensors(), state)

    def restore(self) -> dict[str, Any]:
        """Goes on from the newest checkpoint, if there is any.

        Returns:
          Its state; empty if training starts.

        Raises:
          T2TLiteError: the newest one is damaged or another model's, or all
            are gone.
        """
        directory = self._run.checkpoints_dir
        saved = checkpoint.list_checkpoints(directory)
        if not saved:
            if directory.is_dir() and any(directory.iterdir()):
                raise T2TLiteError(
                    f"{directory} holds no checkpoint to go on from, but is "
                    "not empty: put the checkpoints back, or choose another "
                    "--output_dir."
                )
            return {}
        state = checkpoint.restore(saved[-1].path, self.tensors())
        self.step = state["step"]
        self._position = state["position"]
        return state
