"""A translation corpus in files of known names, or in TensorFlow Datasets."""

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

_BATCH = 4096  # pairs taken from TensorFlow at a time


class ParallelCorpus(Text2TextProblem):
    """A declaration of where a corpus is; see the attributes.

    With `raw_dir` it is read from files (`find_parallel_files`). Without,
    TensorFlow Datasets reads it from `tfds_dir` (by default where that
    library keeps its data), after a download if it is not there. Raise
    `version` when the pairs that it gives change.

    Attributes:
      stems: by split, possible names of its files, before the language.
      tfds_splits: by split, its name in the dataset `tfds_name`.
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
            for path in itertools.chain.from_iterable(files):
                raw.record_source(path)
            return itertools.chain.from_iterable(
                itertools.starmap(read_parallel, files)
            )
        builder = self._builder(raw)
        return _read_dataset(builder, self.tfds_splits[split], self._sides)

    @property
    def _sides(self):
        """The languages of `samples`, in either direction."""
        return self.source_language, self.target_language

    def _builder(self, raw):
        """Return the dataset, prepared and noted."""
        if not self.tfds_name:
            raise T2TLiteError(
                f"{self.base_name} has no address to download it from: name "
                "the folder that holds it with `raw_dir`."
            )
        import tensorflow_datasets as tfds
        from tensorflow_datasets.core import download

        files = ", ".join(
            f"{stems[0]}.{language}"
            for stems in self.stems.values()
            for language in self._sides
        )
        needed = (
            f"{self.base_name} needs {self.tfds_name} "
            f"({self.tfds_bytes / 1e9:.1f} GB), downloaded or in `tfds_dir`; "
            f"or {files}, in `raw_dir`"
        )
        try:
            builder = tfds.builder(self.tfds_name, data_dir=raw.tfds_dir)
            if not builder.is_prepared():
                if raw.download_dir is None:
                    raise T2TLiteError(f"{needed}.")
                log(f"downloading {self.tfds_name} into {builder.data_path}")
                # It reports progress on stdout, which is for results.
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
    """Yield the pairs of a split, in the order of its files."""
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
