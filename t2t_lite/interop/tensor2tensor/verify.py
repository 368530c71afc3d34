"""Compare the logits of an imported model with tensor2tensor's."""

import pathlib
import re
import zipfile
from collections.abc import Iterator

import numpy as np

from t2t_lite.errors import T2TLiteError, in_words
from t2t_lite.model.transformer import Transformer

# Float32 sums of the same numbers in another order, relative to the largest
# logit.
_TOLERANCE = 1e-4
_NAMES = ("inputs", "targets", "logits")


def compare_logits(model: Transformer, path: pathlib.Path) -> str:
    """Compare the logits of given pairs.

    Args:
      model: the imported model.
      path: an `.npz` with `inputs` int [B, S], `targets` int [B, T] and
        `logits` float [B, T, V] of tensor2tensor; or several of these,
        `inputs_0`, `targets_0`, `logits_0`, ... Other dimensions of 1 are
        dropped.

    Returns:
      A sentence with the largest difference.

    Raises:
      T2TLiteError: the logits differ, or the file is missing or has other
        content.
    """
    tokens, gaps, largest = 0, [0.0], [1.0]
    for inputs, targets, expected in _cases(path):
        inputs, targets = (x.reshape(x.shape[:2]) for x in (inputs, targets))
        real = targets != 0
        logits = np.asarray(model({"inputs": inputs, "targets": targets}))
        if logits.size != expected.size:
            raise T2TLiteError(
                f"{path} must have logits of {logits.shape[-1]} tokens of the "
                f"vocabulary; got {expected.shape[-1]}."
            )
        expected = expected.reshape(logits.shape)
        tokens += int(real.sum())
        gaps.append(np.abs(logits - expected)[real].max(initial=0))
        largest.append(np.abs(expected[real]).max(initial=0))
    difference = np.max(gaps)  # NaN if there is one
    if not difference <= _TOLERANCE * np.max(largest):
        raise T2TLiteError(
            f"The logits differ from those in {path} by up to "
            f"{difference:.3g}: check the hparams, the target space and the "
            "vocabulary of the checkpoint."
        )
    return f"the logits of {tokens:,} tokens agree to {difference:.1e}"


def _cases(path: pathlib.Path) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield the (inputs, targets, logits) of each case in the file."""
    try:
        with np.load(path) as arrays:
            endings = [
                name.removeprefix(_NAMES[0])
                for name in arrays
                if re.fullmatch(rf"{_NAMES[0]}(_\d+)?", name)
            ]
            if not endings:
                raise ValueError("it has none of these")
            for ending in endings:
                yield tuple(arrays[name + ending] for name in _NAMES)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as e:
        raise T2TLiteError(
            f"verify must name an .npz with {', '.join(_NAMES)}; got {path}: "
            f"{in_words(e, place=False)}."
        ) from e
