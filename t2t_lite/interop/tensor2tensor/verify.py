"""Compare the logits of an imported model with tensor2tensor's."""

import pathlib
import re
import zipfile
from collections.abc import Iterator

import numpy as np

from t2t_lite.data.packing import feature_names
from t2t_lite.errors import T2TLiteError, in_words
from t2t_lite.model.transformer import Transformer

# Float32 sums of the same numbers in another order, relative to the largest
# logit.
_TOLERANCE = 1e-4
_NEEDED = ("inputs", "targets", "logits")


def compare_logits(model: Transformer, path: pathlib.Path) -> str:
    """Compare the logits of given pairs.

    Args:
      model: the imported model.
      path: an `.npz` with `inputs` int [B, S], `targets` int [B, T] and
        `logits` float [B, T, V] of tensor2tensor, and for packed rows the other
        `packing.feature_names`; or several of these, `inputs_0`, `targets_0`,
        `logits_0`, ... Other dimensions of 1 are dropped.

    Returns:
      A sentence with the largest difference.

    Raises:
      T2TLiteError: the logits differ, or the file is missing or has other
        content.
    """
    tokens, gaps, largest = 0, [0.0], [1.0]
    for features, expected in _cases(path):
        real = features["targets"] != 0
        logits = np.asarray(model(features))
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


def _cases(
    path: pathlib.Path,
) -> Iterator[tuple[dict[str, np.ndarray], np.ndarray]]:
    """Yield the (features, logits) of each case in the file."""
    names = (*_NEEDED[:2], *feature_names(packing=True))
    try:
        with np.load(path) as arrays:
            found = map(re.compile(r"inputs((?:_\d+)?)").fullmatch, arrays)
            endings = [match[1] for match in found if match]
            if not endings:
                raise ValueError("it has none of these")
            for ending in endings:
                features = {
                    name: arrays[name + ending]
                    for name in names
                    if name in _NEEDED or name + ending in arrays
                }
                yield (
                    {n: a.reshape(a.shape[:2]) for n, a in features.items()},
                    arrays[_NEEDED[2] + ending],
                )
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as e:
        raise T2TLiteError(
            f"verify must name an .npz with {', '.join(_NEEDED)}; got {path}: "
            f"{in_words(e, place=False)}."
        ) from e
