"""What of a corpus is missing, all of it, before long work begins."""

from collections.abc import Callable, Iterator, Sequence

from t2t_lite.corpus.raw_files import Look, RawFiles
from t2t_lite.errors import T2TLiteError, in_words

Samples = Callable[[str, RawFiles], Iterator[tuple[str, str]]]


def require(splits: Sequence[str], samples: Samples, raw: RawFiles) -> None:
    """Raises an error that names all files of a corpus that are missing.

    It asks `samples` for a pair of each split; of train, which is read next
    anyway, only where another split lacks something.

    Args:
      splits: of the corpus.
      samples: those of its problem.
      raw: finds the files, after a download if necessary.

    Raises:
      T2TLiteError: files are missing.
      Exception: what `samples` raises.
    """
    look = Look(raw)
    for name in raw.files:
        look.path(name)
    look.require_all()
    errors: list[Exception] = []
    for split in sorted(splits, key="train".__eq__):
        if split == "train" and not (look.missing or errors):
            break
        try:
            next(iter(samples(split, look)), None)
        except Exception as error:
            errors.append(error)
    look.require_all()
    told = dict.fromkeys(f"{in_words(error)}." for error in errors)
    if len(told) > 1 and all(
        isinstance(error, T2TLiteError | OSError) for error in errors
    ):
        raise T2TLiteError(" ".join(told))
    if errors:
        raise errors[0]
