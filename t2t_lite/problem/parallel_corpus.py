"""A translation corpus in files with known names or in TensorFlow Datasets."""

import itertools
import operator
from collections.abc import Iterator, Mapping

from t2t_lite.corpus.datasets import SPLITS, Dataset
from t2t_lite.corpus.download import RawFiles
from t2t_lite.corpus.parallel import find_parallel_files, read_parallel
from t2t_lite.errors import T2TLiteError
from t2t_lite.problem.base import Text2TextProblem


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

    stems: Mapping[str, tuple[str, ...]] = {split: (split,) for split in SPLITS}
    tfds_splits: Mapping[str, str] = SPLITS

    def samples(self, split: str, raw: RawFiles) -> Iterator[tuple[str, str]]:
        if raw.raw_dir is not None:
            stems = self.stems[split]
            files = find_parallel_files(raw.raw_dir, stems, self._sides)
            for path in itertools.chain(*files):
                raw.record_source(path)
            return itertools.chain(*itertools.starmap(read_parallel, files))
        rows = self._dataset(raw).rows(self.tfds_splits[split])
        return map(operator.itemgetter(*self._sides), rows)

    @property
    def _sides(self):
        """The languages of `samples`; not swapped in a reversed problem."""
        return self.source_language, self.target_language

    def _dataset(self, raw):
        """Return the dataset, which is prepared and recorded as a source."""
        if not self.tfds_name:
            raise T2TLiteError(
                f"{self.base_name} has no address to download it from. Give "
                "the folder of its files with `raw_dir`."
            )
        try:
            return Dataset(f"tfds:{self.tfds_name}", raw)
        except T2TLiteError as error:
            stems = (stem for stem, *_ in self.stems.values())
            files = map(".".join, itertools.product(stems, self._sides))
            raise T2TLiteError(
                f"{error} {self.base_name} requires {self.tfds_name} "
                f"({self.tfds_bytes / 1e9:.1f} GB), downloaded or in "
                f"`tfds_dir`, or {', '.join(files)} in `raw_dir`."
            ) from error
