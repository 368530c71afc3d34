"""A translation corpus in files with known names or in TensorFlow Datasets."""

import contextlib
import itertools
import os
import sys
from collections.abc import Iterator, Mapping

from t2t_lite.corpus.download import RawFiles
from t2t_lite.corpus.parallel import find_parallel_files, read_parallel
from t2t_lite.errors import T2TLiteError
from t2t_lite.problem.base import Text2TextProblem
from t2t_lite.progress import log

_BATCH = 4096  # pairs that TensorFlow returns at a time


class ParallelCorpus(Text2TextProblem):
    """A problem over a corpus in files or in TensorFlow Datasets.

    With `raw_dir`, `find_parallel_files` finds the files. Without `raw_dir`,
    TensorFlow Datasets reads the dataset `tfds_name` from `tfds_dir` (default:
    the default folder of that library) and downloads it if necessary. Raise
    `version` when the dataset's pairs change.

    Attributes:
      stems: possible file names, without the language, by split.
      tfds_splits: the names of the splits in the dataset, by split.
    """

    stems: Mapping[str, tuple[str, ...]] = {
        "train": ("train",),
        "dev": ("dev",),
        "test": ("test",),
    }
    tfds_splits: Mapping[str, str] = {
        "train": "train",
        "dev": "validation",
        "test": "test",
    }

    def samples(self, split: str, raw: RawFiles) -> Iterator[tuple[str, str]]:
        if raw.raw_dir is not None:
            files = find_parallel_files(
                raw.raw_dir, self.stems[split], self._sides
            )
            for path in itertools.chain(*files):
                raw.record_source(path)
            return itertools.chain(*itertools.starmap(read_parallel, files))
        builder = self._builder(raw)
        return _read_dataset(builder, self.tfds_splits[split], self._sides)

    @property
    def _sides(self):
        """The languages of `samples`; not swapped in a reversed problem."""
        return self.source_language, self.target_language

    def _builder(self, raw):
        """Prepare the dataset, record its source and return its builder."""
        if not self.tfds_name:
            raise T2TLiteError(
                f"{self.base_name} has no address to download it from. Give "
                "the folder of its files with `raw_dir`."
            )
        import importlib_resources  # noqa: F401 (TFDS does not declare it)
        import tensorflow_datasets as tfds
        from tensorflow_datasets.core import download

        files = ", ".join(
            f"{stems[0]}.{language}"
            for stems in self.stems.values()
            for language in self._sides
        )
        needed = (
            f"{self.base_name} requires {self.tfds_name} "
            f"({self.tfds_bytes / 1e9:.1f} GB), downloaded or in `tfds_dir`, "
            f"or {files} in `raw_dir`"
        )
        try:
            builder = tfds.builder(self.tfds_name, data_dir=raw.tfds_dir)
            if not builder.is_prepared():
                if raw.download_dir is None:
                    raise T2TLiteError(f"{needed}.")
                log(f"downloading {self.tfds_name} into {builder.data_path}")
                # Progress goes to stderr because stdout is for results.
                with contextlib.redirect_stdout(sys.stderr):
                    builder.download_and_prepare()
        except (
            OSError,
            download.util.DownloadError,
            download.download_manager.NonMatchingChecksumError,
        ) as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise T2TLiteError(
                f"{self.tfds_name} is not available: {lines[0]}. {needed}."
            ) from error
        raw.record_source(os.path.join(builder.data_path, "dataset_info.json"))
        return builder


def _read_dataset(builder, split, languages):
    """Yield the pairs of a split in file order."""
    import tensorflow_datasets as tfds

    dataset = builder.as_dataset(
        split=split,
        shuffle_files=False,
        read_config=tfds.ReadConfig(interleave_cycle_length=1),
    )
    source, target = languages
    for batch in dataset.batch(_BATCH).prefetch(2).as_numpy_iterator():
        for pair in zip(batch[source], batch[target], strict=True):
            yield tuple(text.decode(errors="replace") for text in pair)
