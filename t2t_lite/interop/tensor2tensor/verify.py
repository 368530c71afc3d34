"""Does an imported model say what the original said?"""

import pathlib
import re
import zipfile

import numpy as np

from t2t_lite.data.packing import feature_names
from t2t_lite.decoding.lines import translate_lines
from t2t_lite.errors import T2TLiteError, UsageError, in_words
from t2t_lite.model.transformer import Transformer
from t2t_lite.training.run import Run

# Float32 sums of the same numbers in another order, of logits of size 1.
_TOLERANCE = 1e-4
# Of translations that must be equal: beams tie, and sums are rounded.
_LEAST_SHARE = 0.9
_ARRAYS = ("inputs", "targets", "logits")
_OF_PACKED = tuple(n for n in feature_names(True) if n not in _ARRAYS)


# What numpy raises for a file of another kind, or a part of one.
_NO_ARRAYS = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile)


class SameLogits:
    """Compares the logits of given pairs.

    Args:
      path: an `.npz` with `inputs` int [B, S], `targets` int [B, T] and
        `logits` float [B, T, V], as the original computed them, and of packed
        rows the other `packing.feature_names`; or several of these,
        `inputs_0`, `targets_0`, `logits_0`, ...

    Raises:
      T2TLiteError: there is no such file, or something else in it.
    """

    def __init__(self, path: pathlib.Path):
        self._path = path
        try:
            with np.load(path) as arrays:
                endings = [
                    name.removeprefix(_ARRAYS[0])
                    for name in arrays
                    if re.fullmatch(rf"{_ARRAYS[0]}(_\d+)?", name)
                ]
                self._cases = [
                    {
                        name: arrays[name + ending]
                        for name in _ARRAYS + _OF_PACKED
                        if name in _ARRAYS or name + ending in arrays
                    }
                    for ending in endings
                ]
        except _NO_ARRAYS as error:
            raise self._not_arrays(in_words(error, place=False)) from error
        if not self._cases:
            raise self._not_arrays("it has none of these")

    def _not_arrays(self, why):
        return T2TLiteError(
            f"verify must name an .npz with {', '.join(_ARRAYS)}; got "
            f"{self._path}: {why}."
        )

    def __call__(self, run: Run, model: Transformer) -> str:
        """What was found; raises T2TLiteError if the logits differ."""
        count, most, largest = 0, 0.0, 1.0
        for case in self._cases:
            # tensor2tensor keeps dimensions of 1 between and behind.
            features = {
                name: array.reshape(array.shape[:2])
                for name, array in case.items()
                if name != "logits"
            }
            targets = features["targets"]
            logits = case["logits"].reshape(*targets.shape, -1)
            ours = np.asarray(model(features))
            if ours.shape != logits.shape:
                raise T2TLiteError(
                    f"The logits in {self._path} are for {logits.shape[-1]} "
                    f"pieces; those of the model for {ours.shape[-1]}."
                )
            real = targets != 0
            count += int(real.sum())
            most = max(most, float(np.abs(ours - logits)[real].max()))
            largest = max(largest, float(np.abs(logits[real]).max()))
        if not most <= _TOLERANCE * largest:
            raise T2TLiteError(
                f"The logits differ from those in {self._path} by up to "
                f"{most:.3g}: the hparams, the target space or the vocabulary "
                "are not those of the checkpoint."
            )
        return f"the logits of {count:,} tokens agree to {most:.1e}"


class SameDecodes:
    """Compares translations with those that the original made.

    Args:
      sources: a file of texts, one a line.
      decodes: what the original's decoder wrote for them, one a line.

    Raises:
      UsageError: there are other numbers of lines.
      T2TLiteError: a file cannot be read.
    """

    def __init__(self, sources: pathlib.Path, decodes: pathlib.Path):
        self._decodes = decodes
        self._sources, self._expected = map(_lines_of, (sources, decodes))
        if len(self._sources) != len(self._expected) or not self._sources:
            raise UsageError(
                f"{decodes} must have a line for each of {sources}, at least "
                f"one; got {len(self._expected)} for {len(self._sources)}."
            )

    def __call__(self, run: Run, model: Transformer) -> str:
        """What was found; raises T2TLiteError if too few are equal."""
        translator = run.translator(model)
        ours = (
            translation.hypotheses[0].text
            for translation in translate_lines(translator, self._sources)
        )
        pairs = list(zip(ours, self._expected, strict=True))
        others = [(here, there) for here, there in pairs if here != there]
        equal = len(pairs) - len(others)
        told = f"{equal:,} of {len(pairs):,} translations are equal"
        if equal < _LEAST_SHARE * len(pairs):
            here, there = others[0]
            raise T2TLiteError(
                f"Only {told} to {self._decodes}; the first other one is "
                f"{here!r} instead of {there!r}."
            )
        return told


def _lines_of(path: pathlib.Path) -> list[str]:
    try:
        return path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise T2TLiteError(
            f"{path} cannot be read: {in_words(error, place=False)}."
        ) from error
