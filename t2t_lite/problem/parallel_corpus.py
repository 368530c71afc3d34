"""A translation corpus in files of known names, or in TensorFlow Datasets."""

import contextlib
import itertools
import os
import pathlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from t2t_lite.corpus.lines import CORPUS, require_text
from t2t_lite.corpus.parallel_lines import (
    PART_LINES,
    LinePart,
    cut_lines,
    read_part,
)
from t2t_lite.corpus.raw_files import RawFiles
from t2t_lite.corpus.side_files import find_sides, is_segments, read_sides
from t2t_lite.errors import T2TLiteError
from t2t_lite.problem.base import Text2TextProblem
from t2t_lite.progress import say

_BATCH = 4096  # pairs taken from TensorFlow at a time


class ParallelCorpus(Text2TextProblem):
    """A declaration of where a corpus is; see the attributes.

    With `--raw_dir` it is read from files (`side_files.find_sides`). Without,
    TensorFlow Datasets reads it from `--tfds_dir` (by default where that
    library keeps its data), after a download if it is not there. Raise
    `version` when the pairs that it gives change.

    Attributes:
      stems: by split, what its files may be called, before the language.
      tfds_splits: by split, what it is called in the dataset `tfds_name`.
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

    def parts(self, split: str, raw: RawFiles) -> Sequence[Any]:
        if raw.raw_dir is not None:
            files = self._find_files(split, raw)
            return [part for pair in files for part in _file_parts(*pair)]
        builder = self._builder(raw)
        pairs = builder.info.splits[self.tfds_splits[split]].num_examples
        return [
            range(start, min(start + PART_LINES, pairs))
            for start in range(0, pairs, PART_LINES)
        ]

    def part_samples(
        self, split: str, raw: RawFiles, part: Any
    ) -> Iterator[tuple[str, str]]:
        if isinstance(part, LinePart):
            return read_part(part)
        if isinstance(part, range):
            rows = f"{self.tfds_splits[split]}[{part.start}:{part.stop}]"
            return _read_dataset(self._builder(raw), rows, self._sides)
        return read_sides([part])

    def train_encoders(
        self, raw: RawFiles, data_dir: str | os.PathLike, seed: int
    ) -> dict[str, Any]:
        """As in `Text2TextProblem`, after a look into the files of lines."""
        if raw.raw_dir is not None:
            for split in self.splits:
                for path in itertools.chain(*self._find_files(split, raw)):
                    if not is_segments(path):
                        require_text([path], CORPUS)
        return super().train_encoders(raw, data_dir, seed)

    @property
    def _sides(self):
        """The languages of `samples`, whatever the direction."""
        return self.source_language, self.target_language

    def _find_files(self, split, raw):
        """The two files of each pair of files of a split, noted."""
        found = find_sides(raw.raw_dir, self.stems[split], self._sides)
        for path in itertools.chain.from_iterable(found):
            raw.note(path)
        return found

    def _builder(self, raw):
        """The dataset, prepared and noted."""
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
        if raw.raw_dir is None and self.tfds_name:
            default = os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")
            folder = raw.tfds_dir or pathlib.Path(default).expanduser()
            if any((folder / self.tfds_name).glob("*/dataset_info.json")):
                return [f"found: {self.tfds_name} in {folder}"]
            return [
                "to be downloaded by TensorFlow Datasets: "
                f"{self.tfds_name} ({_size(self.tfds_bytes)}) into {folder}",
                "or give --tfds_dir, a folder that has it, or --raw_dir, a "
                f"folder with {self._file_names()}",
            ]
        if raw.raw_dir is None:
            return [f"missing: {self._file_names()}; give --raw_dir"]
        told = []
        for stems in self.stems.values():
            try:
                sides = find_sides(raw.raw_dir, stems, self._sides)
            except T2TLiteError as error:
                told.append(f"missing: {error}")
            else:
                told += [f"found: {path}" for pair in sides for path in pair]
        return told


def _file_parts(source, target):
    """The parts of two files; the two themselves where they stay whole."""
    whole = is_segments(source) or is_segments(target)
    return (not whole and cut_lines(source, target)) or [(source, target)]


def _size(count):
    return f"{count / 1e9:.1f} GB"


def _read_dataset(builder, split, languages):
    """The pairs of a split, in the order of its files."""
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
