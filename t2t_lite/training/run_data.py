"""`RunData`: the data that a run learns from and is judged by."""

import functools
import itertools
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from t2t_lite.data import pipeline
from t2t_lite.data.manifest import Manifest, check_shards, generate_command
from t2t_lite.data.stats import PaddingReport, padding_report
from t2t_lite.errors import T2TLiteError
from t2t_lite.hparam import HParams
from t2t_lite.problem import Problem


class RunData:
    """Shards as batches and as text, cut as a run's hparams say.

    Args:
      folder: holds the shards.
      problem: of the run, in its direction.
      hparams: of the run.
      encoders: of `inputs` and `targets`.
      seed: of the order of training.
      fingerprint: the digest of the manifest that the run was created with;
        "": of an imported one, which any data with its vocabulary fits.
      data_seed: with which the data was made, if that is known.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        problem: Problem,
        hparams: HParams,
        encoders: Mapping[str, Any],
        *,
        seed: int,
        fingerprint: str,
        data_seed: int | None = None,
    ):
        self.folder = folder
        self._problem = problem
        self._encoders = encoders
        self._packing = hparams.packing
        self._seed = seed
        self._fingerprint = fingerprint
        self._data_seed = data_seed
        self._max_length = hparams.max_length
        self._max_positions = hparams.batch_tokens // hparams.micro_batches
        self._eval_batches: dict[str, Iterable[dict[str, Any]]] = {}

    @functools.cached_property
    def manifest(self) -> Manifest:
        """What the folder says of its data.

        Raises:
          T2TLiteError: it is missing, or the data was made again since the run
            was created.
        """
        if not self._fingerprint:
            return self._fitting_manifest()
        if not Manifest.path(self.folder, self._problem).exists():
            command = generate_command(
                self._problem, self.folder, self._data_seed
            )
            raise T2TLiteError(
                f"{self.folder} holds no data of {self._problem.base_name}, "
                "which the run was trained on: put it back, or say with "
                f"--data_dir where it is. If it is lost, {command} makes the "
                "same again."
            )
        manifest = Manifest.load(self.folder, self._problem)
        if manifest.digest != self._fingerprint:
            raise T2TLiteError(
                f"The data in {self.folder} has changed since the run was "
                "created: name the folder of the old data with --data_dir, or "
                "train a new run in another --output_dir."
            )
        return manifest

    def _fitting_manifest(self) -> Manifest:
        if self.folder == pathlib.Path():
            raise T2TLiteError(
                "The run was imported without data: say with --data_dir where "
                f"data of {self._problem.base_name} is."
            )
        manifest = Manifest.load(self.folder, self._problem)
        here = {encoder.sha256 for encoder in self._encoders.values()}
        if here != {file["sha256"] for file in manifest.vocabulary.values()}:
            raise T2TLiteError(
                f"The data of {self._problem.base_name} in {self.folder} was "
                "made with another vocabulary than that of the run."
            )
        return manifest

    def check(self) -> PaddingReport:
        """Compares every shard with its checksum, then looks at the lengths.

        Returns:
          How much of the train split's batches is padding.

        Raises:
          T2TLiteError: a shard is missing or damaged, or no pair is usable.
        """
        check_shards(self.folder, self._problem, self.manifest)
        return padding_report(
            self.folder,
            self._problem,
            self.manifest,
            max_positions=self._max_positions,
            max_length=self._max_length,
            seed=self._seed,
            packing=self._packing,
        )

    def training_batches(
        self, position: Sequence[int] = (0, 0, 0)
    ) -> Iterator[dict[str, Any]]:
        """Micro-batches without end, from a position; see `pipeline`."""
        dataset = pipeline.training_batches(
            self.folder,
            self._problem,
            self.manifest,
            max_positions=self._max_positions,
            max_length=self._max_length,
            seed=self._seed,
            start=pipeline.Position(*position),
            packing=self._packing,
        )
        return self._guarded(dataset, "train")

    def batches(self, split: str) -> Iterator[dict[str, Any]]:
        """Each example of a split that is not too long, once, in batches."""
        if split not in self._eval_batches:
            # Kept: TensorFlow never forgets the Python functions of a dataset,
            # and a long training evaluates many times.
            self._eval_batches[split] = pipeline.eval_batches(
                self.folder,
                self._problem,
                self.manifest,
                split,
                max_positions=self._max_positions,
                max_length=self._max_length,
            )
        return self._guarded(self._eval_batches[split], split)

    def texts(
        self, split: str, lines: int | None = None
    ) -> tuple[list[str], list[str]]:
        """The sources and the references of a split, from its shards.

        Args:
          split: "dev", say.
          lines: at most so many, the first ones; None gives all.
        """
        pairs = pipeline.read_pairs(
            self.folder, self._problem, self.manifest, split
        )
        pairs = itertools.islice(self._guarded(pairs, split), lines)
        sources, targets = zip(*pairs, strict=True)
        return (
            self._encoders["inputs"].decode(sources),
            self._encoders["targets"].decode(targets),
        )

    def attended_lengths(self) -> tuple[float, float]:
        """Positions that attention is computed over, of source and target.

        Those of a packed row, or of the mean sentences of the train split.
        """
        if self._packing:
            width = min(self._max_length, self._max_positions)
            return width, width
        train = self.manifest.splits["train"]
        return self._problem.directed(
            train.source_tokens / train.examples,
            train.target_tokens / train.examples,
        )

    def _guarded(self, dataset: Iterable[Any], split: str) -> Iterator[Any]:
        """What a dataset yields; an error names the damaged shard."""
        with pipeline.read_errors(
            self.folder, self._problem, self.manifest, split
        ):
            yield from dataset
