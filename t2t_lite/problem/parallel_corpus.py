"""A translation corpus in files of known names, or in TensorFlow Datasets."""

import contextlib
import itertools
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from t2t_lite.corpus.lines import CORPUS, require_text
from t2t_lite.corpus.parallel import find_sides, is_segments, read_sides
from t2t_lite.corpus.raw_files import RawFiles
from t2t_lite.errors import T2TLiteError
from t2t_lite.problem.base import Text2TextProblem
from t2t_lite.progress import say

_BATCH = 4096  # pairs taken from TensorFlow at a time


class ParallelCorpus(Text2TextProblem):
    """A declaration of where a corpus is; see the attributes.

    With `--raw_dir` it is read from files (`parallel.find_sides`). Without,
    TensorFlow Datasets reads it from `--tfds_dir` (by default where that
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
            return read_sides(self._find_files(split, raw))
        builder = self._builder(raw)
        return _read_dataset(builder, self.tfds_splits[split], self._sides)

    def train_encoders(
        self, raw: RawFiles, data_dir: str | os.PathLike, seed: int
    ) -> dict[str, Any]:
        """Learn the vocabulary, after a check of the files of lines."""
        if raw.raw_dir is not None:
            for split in self.splits:
                for path in itertools.chain(*self._find_files(split, raw)):
                    if not is_segments(path):
                        require_text([path], CORPUS)
        return super().train_encoders(raw, data_dir, seed)

    @property
    def _sides(self):
        """The languages of `samples`, in either direction."""
        return self.source_language, self.target_language

    def _find_files(self, split, raw):
        """Return the pairs of files of a split, and note them."""
        found = find_sides(raw.raw_dir, self.stems[split], self._sides)
        for path in itertools.chain.from_iterable(found):
            raw.note(path)
        return found

    def _builder(self, raw):
        """Return the dataset, prepared and noted."""
        if not self.tfds_name:
            raise T2TLiteError(
                f"{self.base_name} has no address to download it from: name "
                "the folder that holds it with --raw_dir."
            )
        import tensorflow_datasets as tfds
        from tensorflow_datasets.core import download

        try:
            builder = tfds.builder(self.tfds_name, data_dir=raw.tfds_dir)
            if not builder.is_prepared():
                say(
                    f"{self.base_name}: TensorFlow Datasets downloads "
                    f"{self.tfds_name}, {_size(self.tfds_bytes)}, into "
                    f"{builder.data_path}"
                )
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
                f"{self.tfds_name} is not available: {lines[0]}. "
                f"{self.base_name} needs a network ({_size(self.tfds_bytes)} "
                "to download); or a TensorFlow Datasets folder that has it, "
                f"with --tfds_dir; or {self._file_names()}, with --raw_dir."
            ) from error
        raw.note(os.path.join(builder.data_path, "dataset_info.json"))
        return builder

    def _file_names(self):
        return ", ".join(
            f"{stems[0]}.{language}"
            for stems in self.stems.values()
            for language in self._sides
        )

    def tell_sources(self, raw: RawFiles) -> list[str]:
        if raw.raw_dir is None:
            size = _size(self.tfds_bytes)
            ways = [f"{self._file_names()}, in --raw_dir"]
            if self.tfds_name:
                name = f"{self.tfds_name} ({size})"
                ways.insert(0, f"{name}, downloaded or in --tfds_dir")
            return [f"needed: {'; or '.join(ways)}"]
        told = []
        for stems in self.stems.values():
            try:
                sides = find_sides(raw.raw_dir, stems, self._sides)
            except T2TLiteError as error:
                told.append(f"missing: {error}")
            else:
                told += [f"found: {path}" for pair in sides for path in pair]
        return told


def _size(count):
    return f"{count / 1e9:.1f} GB"


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
