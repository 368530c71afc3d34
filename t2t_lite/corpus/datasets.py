"""Read datasets of Hugging Face's `datasets` and of TensorFlow Datasets."""

import contextlib
import itertools
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from t2t_lite.corpus.download import RawFiles
from t2t_lite.corpus.parallel import LANGUAGE_PAIR
from t2t_lite.errors import T2TLiteError, format_error, requires_extra
from t2t_lite.progress import log

SPLITS = {"train": "train", "dev": "validation", "test": "test"}

_BATCH = 4096  # rows that a library returns at a time, in columns
_MAX_DOWNLOAD = 10e9  # bytes; larger datasets of Hugging Face are streamed


class Dataset:
    """A dataset of Hugging Face or TensorFlow Datasets.

    Args:
      name: "hf:NAME/CONFIG" or "tfds:NAME/CONFIG". The configuration "xx-yy" is
        also found by the name "yy-xx". NAME of `hf:` may be a folder.
      raw: records the source. Without a `download_dir`, `tfds:` downloads
        nothing, and `hf:` is streamed.

    Attributes:
      splits: the names of the splits.

    Raises:
      T2TLiteError: the library or the dataset is not available.
    """

    def __init__(self, name: str, raw: RawFiles):
        self.name = name
        scheme, path = name.split(":", 1)
        load = {"hf": _load_hf, "tfds": _load_tfds}[scheme]
        with self._library_errors():
            try:
                self.splits, self._read = load(path, raw)
            except ValueError:  # the configuration is unknown
                if not (match := LANGUAGE_PAIR.search(path)):
                    raise
                swapped = f"{path[: match.start()]}{match[2]}-{match[1]}"
                self.splits, self._read = load(swapped, raw)

    def rows(self, split: str) -> Iterator[Mapping[str, Any]]:
        """Yield the rows of a split."""
        if split not in self.splits:
            raise T2TLiteError(
                f"{self.name} has no split {split!r}; it has "
                f"{', '.join(self.splits)}."
            )
        with self._library_errors():
            for batch in self._read(split):
                for row in zip(*batch.values(), strict=True):
                    yield dict(zip(batch, map(_decode, row), strict=True))

    @contextlib.contextmanager
    def _library_errors(self):
        try:
            yield
        except T2TLiteError:
            raise
        except Exception as error:  # the libraries raise many types
            raise T2TLiteError(
                f"Cannot read {self.name}: {format_error(error)}."
            ) from error


def _load_hf(name, raw):
    """Return the names of the splits, and a function that yields batches."""
    with requires_extra("huggingface"):
        import datasets
    if not (raw.progress and sys.stderr.isatty()):
        datasets.disable_progress_bars()
    config = None
    if not os.path.isdir(name) and name.count("/") > 1:  # OWNER/NAME/CONFIG
        name, _, config = name.rpartition("/")
    builder = datasets.load_dataset_builder(name, config)
    files = builder.config.data_files or {}
    for path in itertools.chain(*files.values()):
        raw.record_source(path)  # does nothing for a URL
    size = builder.info.download_size or 0
    if raw.download_dir is None or size > _MAX_DOWNLOAD:
        read = builder.as_streaming_dataset
    else:
        builder.download_and_prepare()
        read = builder.as_dataset
    splits = list(map(str, builder.info.splits or files))
    return splits, lambda split: read(split).iter(_BATCH)


def _load_tfds(name, raw):
    import importlib_resources  # noqa: F401 (TFDS does not declare it)
    import tensorflow_datasets as tfds

    builder = tfds.builder(name, data_dir=raw.tfds_dir)
    if not builder.is_prepared():
        if raw.download_dir is None:
            raise T2TLiteError(f"tfds:{name} is not in `tfds_dir`.")
        log(f"downloading {name} into {builder.data_path}")
        # Progress goes to stderr because stdout is for results.
        with contextlib.redirect_stdout(sys.stderr):
            builder.download_and_prepare()
    raw.record_source(os.path.join(builder.data_path, "dataset_info.json"))
    order = tfds.ReadConfig(interleave_cycle_length=1)  # as in the files

    def read(split):
        rows = builder.as_dataset(
            split=split, shuffle_files=False, read_config=order
        )
        return rows.batch(_BATCH).prefetch(2).as_numpy_iterator()

    return list(builder.info.splits), read


def _decode(value):
    is_bytes = isinstance(value, bytes)
    return value.decode(errors="replace") if is_bytes else value
