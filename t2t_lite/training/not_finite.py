"""What a run leaves whose gradients stay not finite, and how to look at it.

```
OUTPUT_DIR/not-finite/batches.npz      the ids of the last update, `0/inputs`
                      texts.jsonl      the same as text, a line for each pair
                      step-00001234/   a checkpoint: weights, optimizer, place
```
"""

import dataclasses
import json
import math
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from t2t_lite import files
from t2t_lite.data.packing import SIDES
from t2t_lite.errors import T2TLiteError
from t2t_lite.training.checkpoints import checkpoint
from t2t_lite.training.distribute import choose_strategy
from t2t_lite.training.run import Run
from t2t_lite.training.state import TrainingState

FOLDER = "not-finite"
_BATCHES = "batches.npz"
_TEXTS = "texts.jsonl"
_SHOWN = 5  # variables by name
_LARGEST_SQUARE = float(np.finfo(np.float32).max)


def dump(state: TrainingState) -> None:
    """Writes what the last update was made of into FOLDER of the run.

    One that is there from another time makes way.

    Raises:
      SaveError: it cannot be written.
    """
    folder = state.run.output_dir / FOLDER
    with (
        checkpoint.one_clear_error(folder),
        files.write_folder(folder) as made,
    ):
        batches = {
            f"{number}/{name}": np.asarray(ids)
            for number, batch in enumerate(state.last_batches)
            for name, ids in batch.items()
            if name != "position"
        }
        batches["slices"] = np.array(state.updater.slices)
        np.savez(made / _BATCHES, allow_pickle=False, **batches)
        with open(made / _TEXTS, "w", encoding="utf-8") as file:
            for number, batch in enumerate(state.last_batches):
                for source, target in state.run.data.texts_of(batch):
                    line = {
                        "micro_batch": number,
                        "source": source,
                        "target": target,
                    }
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")
        state.save_copy(made)


class Pass(NamedTuple):
    """What a micro-batch, or a slice of one, gave when it was passed again."""

    shapes: dict[str, tuple[int, ...]]  # of inputs and targets
    loss: float  # a real target token
    norm: float  # of all gradients of the summed loss
    variables: int  # that have a gradient
    not_finite: dict[str, str]  # "3 of 512 values" by variable

    def __str__(self) -> str:
        sides = " and ".join(
            f"{' x '.join(map(str, shape))} {side}"
            for side, shape in self.shapes.items()
        )
        return f"{sides}: loss {self.loss:.4g} a token; {self._gradients()}"

    def _gradients(self) -> str:
        if not self.not_finite:
            told = f"gradients are finite, their norm is {self.norm:.4g}"
            # A norm is the root of a sum of squares in float32.
            if self.norm**2 > _LARGEST_SQUARE:
                told += ", whose square is too large for float32"
            return told
        # The way back begins at the model's last variables.
        names = list(self.not_finite)[::-1]
        shown = [f"{name} ({self.not_finite[name]})" for name in names[:_SHOWN]]
        more = len(names) - len(shown)
        told = ", ".join(shown) + (f" and {more} more" if more else "")
        first = "gradients" if math.isfinite(self.loss) else "the loss"
        return (
            f"not finite: first {first}; the gradients of {len(names)} of "
            f"{self.variables} variables, from the model's end: {told}"
        )


@dataclasses.dataclass(frozen=True)
class Replay:
    """An update that was made again; as text, a line for each part.

    Attributes:
      step: its number.
      weights: what they are, in words.
      passes: that it was made of, one for each micro-batch unless it was cut.
      skipped: whether it was skipped again.
    """

    step: int
    weights: str
    passes: list[Pass]
    skipped: bool

    def __str__(self) -> str:
        outcome = (
            "skipped again, its gradients are not finite"
            if self.skipped
            else "made this time, its gradients are finite on these devices"
        )
        return "\n".join(
            [
                f"update: {self.step}",
                f"weights: {self.weights}",
                *(
                    f"pass {number}: {each}"
                    for number, each in enumerate(self.passes)
                ),
                f"the update: {outcome}",
            ]
        )


def replay(run: Run, folder: pathlib.Path) -> Replay:
    """Makes the update again that `dump` wrote down; changes nothing on disk.

    Args:
      run: whose update it was.
      folder: that `dump` wrote.

    Raises:
      T2TLiteError: the folder is not such a one.
    """
    saved = checkpoint.list_checkpoints(folder)
    try:
        with np.load(folder / _BATCHES) as arrays:
            slices = int(arrays["slices"])
            batches = _by_micro_batch(arrays)
    except (OSError, ValueError, KeyError) as error:
        raise _no_dump(folder) from error
    if len(saved) != 1:
        raise _no_dump(folder)
    state = TrainingState(run, choose_strategy(1))
    state.restore_copy(saved[0])
    state.updater.slices = slices
    looks = [
        _look(state, features)
        for features in state.updater.passes(batches, state.step)
    ]
    weights = _tell_weights(state)
    stats = state.updater.update(batches, saved[0].step).read()
    return Replay(saved[0].step, weights, looks, bool(stats.skipped))


def _no_dump(folder: pathlib.Path) -> T2TLiteError:
    return T2TLiteError(
        f"{folder} does not hold an update to replay: name the folder "
        f"{FOLDER} that a trainer has written in its run."
    )


def _by_micro_batch(
    arrays: Mapping[str, np.ndarray],
) -> list[dict[str, np.ndarray]]:
    batches: dict[int, dict[str, np.ndarray]] = {}
    for key in arrays:
        number, slash, name = key.partition("/")
        if slash:
            batches.setdefault(int(number), {})[name] = arrays[key]
    return [batches[number] for number in sorted(batches)]


def _look(state: TrainingState, features: Mapping[str, Any]) -> Pass:
    loss, tokens, gradients = state.updater.pass_alone(features)
    not_finite, squares = {}, 0.0
    for name, gradient in gradients.items():
        values = np.asarray(gradient, np.float64)
        bad = int(np.sum(~np.isfinite(values)))
        squares += float(np.sum(values**2))
        if bad:
            not_finite[name] = f"{bad:,} of {values.size:,} values"
    return Pass(
        shapes={side: tuple(features[side].shape) for side in SIDES},
        loss=float(loss) / max(float(tokens), 1.0),
        norm=math.sqrt(squares) if math.isfinite(squares) else squares,
        variables=len(gradients),
        not_finite=not_finite,
    )


def _tell_weights(state: TrainingState) -> str:
    """Whether they are finite, and the largest one."""
    largest: dict[str, Any] = {}
    for variable in state.model.trainable_variables:
        values = np.abs(np.asarray(variable.value))
        if not np.all(np.isfinite(values)):
            return f"not finite in {variable.path}"
        largest[variable.path] = values.max(initial=0.0)
    path = max(largest, key=largest.__getitem__)
    return f"finite, the largest is {largest[path]:.4g} in {path}"
