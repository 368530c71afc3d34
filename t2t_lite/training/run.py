"""A run: one folder that describes itself.

```
OUTPUT_DIR/config.json        problem, hparams in full, seed, versions, data
           *.spm.model        copies of the vocabulary
           checkpoints/       see `checkpoint`
           metrics.jsonl, tensorboard/
```
"""

import contextlib
import fcntl
import itertools
import os
import pathlib
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

from t2t_lite import files, plugins, registry
from t2t_lite.errors import T2TLiteError
from t2t_lite.hparam import HParams
from t2t_lite.model import costs
from t2t_lite.problem import Problem
from t2t_lite.training import checkpoint
from t2t_lite.training.config import (
    CONFIG,
    make_config,
    problem_options,
    read_config,
    require_fitting_vocabularies,
    require_same,
    vocabulary_hashes,
)

CHECKPOINTS = "checkpoints"


class Run:
    """A training run and all that is needed to use its model.

    Made by `Run.create` or `Run.open`.

    Attributes:
      output_dir: its folder.
      problem: what it learns.
      hparams: resolved in full.
      seed: of all that is drawn.
      data_dir: where the shards were when it was created last.
      usr_dir: where problem and set came from, if they are the user's.
      encoders: of `inputs` and `targets`, from the run's own copies.
      config: the content of `config.json`.
    """

    def __init__(self, output_dir, config, problem, encoders, manifest=None):
        self.output_dir = pathlib.Path(output_dir)
        self.config = config
        self.problem = problem
        self.encoders = encoders
        self.hparams = HParams.from_dict(config["hparams"])
        self.seed = config["seed"]
        self.data_dir = pathlib.Path(config["data"]["dir"])
        self.usr_dir = config["usr_dir"]
        self._manifest = manifest

    @classmethod
    def create(
        cls,
        output_dir: str | os.PathLike,
        *,
        problem: Problem,
        hparams: HParams,
        seed: int,
        data_dir: str | os.PathLike,
        manifest,
        usr_dir: str | None = None,
        hparams_set: str | None = None,
        dry_run: bool = False,
    ) -> "Run":
        """A new run, or the one that is there if it is the same.

        Args:
          output_dir: its folder; made if it is missing.
          problem: what to learn.
          hparams: resolved.
          seed: of all that is drawn.
          data_dir: holds the shards and the vocabulary.
          manifest: the `Manifest` of the data.
          usr_dir: as given by the user.
          hparams_set: the name of the set, for people.
          dry_run: check everything, write nothing.

        Raises:
          UsageError: one embedding is to be shared by two vocabularies.
          T2TLiteError: the folder holds a run of another problem, other sizes,
            other data or another vocabulary, or cannot be written.
        """
        require_fitting_vocabularies(problem, hparams)
        output_dir = pathlib.Path(output_dir).absolute()
        data_dir = pathlib.Path(data_dir).absolute()
        encoders = problem.load_encoders(data_dir)
        config = make_config(
            problem,
            hparams,
            seed,
            data_dir,
            manifest.digest,
            encoders,
            usr_dir,
            hparams_set,
        )
        if (output_dir / CONFIG).exists():
            require_same(output_dir, read_config(output_dir), config)
        elif _is_run_without_config(output_dir):
            raise T2TLiteError(
                f"{output_dir} holds checkpoints but no {CONFIG}: it cannot be "
                "told whose they are. Choose another --output_dir."
            )
        if not dry_run:
            _write(output_dir, config, data_dir)
            encoders = problem.load_encoders(output_dir)
        return cls(output_dir, config, problem, encoders, manifest)

    @classmethod
    def open(
        cls, output_dir: str | os.PathLike, usr_dir: str | None = None
    ) -> "Run":
        """The run in a folder, with nothing but that folder.

        Args:
          output_dir: its folder.
          usr_dir: where a problem of the user's is; None takes the one that
            was used when the run was created.

        Raises:
          T2TLiteError: there is no run, or a part of it is damaged.
        """
        output_dir = pathlib.Path(output_dir).absolute()
        config = read_config(output_dir)
        plugins.load_plugins(usr_dir or config["usr_dir"])
        problem = registry.problem(config["problem"], problem_options(config))
        encoders = problem.load_encoders(output_dir)
        if vocabulary_hashes(problem, encoders) != config["vocabulary"]:
            raise T2TLiteError(
                f"The vocabulary in {output_dir} is not the one the run was "
                f"trained with: copy it from {config['data']['dir']} again."
            )
        return cls(output_dir, config, problem, encoders)

    @property
    def checkpoints_dir(self) -> pathlib.Path:
        """Where the checkpoints are."""
        return self.output_dir / CHECKPOINTS

    @property
    def manifest(self):
        """The `Manifest` of the data.

        Raises:
          T2TLiteError: it is missing, or not that of the run's data any more.
        """
        if self._manifest is None:
            from t2t_lite.data.manifest import Manifest

            manifest = Manifest.load(self.data_dir, self.problem)
            if manifest.digest != self.config["data"]["fingerprint"]:
                raise T2TLiteError(
                    f"The data in {self.data_dir} is not the data of the run "
                    f"in {self.output_dir} any more."
                )
            self._manifest = manifest
        return self._manifest

    def model(self):
        """The run's model, built, with fresh weights."""
        from t2t_lite.model.transformer import Transformer

        return Transformer.from_hparams(
            self.hparams,
            self.encoders["inputs"].vocab_size,
            self.encoders["targets"].vocab_size,
        ).build_weights()

    def load_weights(
        self, model, which: str | int = "default"
    ) -> checkpoint.Checkpoint:
        """Gives a model the weights of a checkpoint.

        Args:
          model: from `model()`.
          which: see `checkpoint.resolve`.

        Returns:
          The checkpoint they are from.

        Raises:
          T2TLiteError: it is missing, damaged or another model's.
        """
        found = checkpoint.resolve(self.checkpoints_dir, which)
        checkpoint.restore(found.path, model_tensors(model))
        return found

    def translator(self, model, beam_size=None, alpha=None, constrained=None):
        """A `Translator` with the run's vocabulary.

        Args:
          model: from `model()`.
          beam_size: None takes the run's hparam.
          alpha: of the length penalty; None takes the run's hparam.
          constrained: None takes the run's hparam `constrained_search`.

        Raises:
          UsageError: `constrained` is not for this problem.
        """
        from t2t_lite.decoding.translator import Translator

        hparams = self.hparams
        return Translator(
            model,
            self.encoders["inputs"],
            self.encoders["targets"],
            beam_size=hparams.beam_size if beam_size is None else beam_size,
            alpha=hparams.length_penalty_alpha if alpha is None else alpha,
            extra_decode_length=hparams.extra_decode_length,
            max_length=hparams.max_length,
            form=self.problem.text_form(self.encoders),
            constrained=hparams.constrained_search
            if constrained is None
            else constrained,
        )

    @property
    def max_positions(self) -> int:
        """The positions of a micro-batch, each side, padding included."""
        return self.hparams.batch_tokens // self.hparams.micro_batches

    def record(self, **facts: Any) -> None:
        """Adds facts about the run, fit for JSON, to its `config.json`.

        Raises:
          T2TLiteError: it cannot be written.
        """
        self.config = {**self.config, **facts}
        try:
            files.write_json(self.output_dir / CONFIG, self.config)
        except OSError as error:
            raise T2TLiteError(
                f"{self.output_dir / CONFIG} cannot be written: "
                f"{error.strerror}."
            ) from error

    def record_cost(
        self, work: Mapping[str, Any], sustained_flops: float | None = None
    ) -> dict[str, Any]:
        """`costs.training_cost`, which `config.json` keeps from now on.

        Args:
          work: what `trainer.train` says.
          sustained_flops: FLOP/s of one device; None: the paper's for it.

        Raises:
          T2TLiteError: `config.json` cannot be written.
        """
        size = self.encoders["targets"].vocab_size
        cost = costs.training_cost(
            self.hparams, size, self.row_lengths(), work, sustained_flops
        )
        self.record(training_cost=cost)
        return cost

    def row_lengths(self) -> tuple[float, float]:
        """Positions that attention is computed over, of source and target.

        Those of the train split's mean sentences, or of a packed row.
        """
        if self.hparams.packing:
            width = min(self.hparams.max_length, self.max_positions)
            return width, width
        train = self.manifest.splits["train"]
        return self.problem.directed(
            train.source_tokens / train.examples,
            train.target_tokens / train.examples,
        )

    def check_data(self):
        """Compares every shard with its checksum, then looks at the lengths.

        Returns:
          The `PaddingReport` of the train split.

        Raises:
          T2TLiteError: a shard is missing or damaged, or no pair is usable.
        """
        from t2t_lite.data.checks import verify_shards
        from t2t_lite.data.input_pipeline import padding_report

        verify_shards(self.data_dir, self.manifest)
        return padding_report(
            self.data_dir,
            self.problem,
            self.manifest,
            max_positions=self.max_positions,
            max_length=self.hparams.max_length,
            seed=self.seed,
            packing=self.hparams.packing,
        )

    def training_batches(self, position=(0, 0, 0)) -> Iterator[dict[str, Any]]:
        """Micro-batches without end, from a position; see `input_pipeline`."""
        from t2t_lite.data import input_pipeline

        dataset = input_pipeline.training_batches(
            self.data_dir,
            self.problem,
            self.manifest,
            max_positions=self.max_positions,
            max_length=self.hparams.max_length,
            seed=self.seed,
            start=input_pipeline.Position(*position),
            packing=self.hparams.packing,
        )
        return self._guarded(dataset, "train")

    def batches(self, split: str) -> Iterator[dict[str, Any]]:
        """Each kept example of a split once, in batches."""
        from t2t_lite.data import input_pipeline

        dataset = input_pipeline.eval_batches(
            self.data_dir,
            self.problem,
            self.manifest,
            split,
            max_positions=self.max_positions,
            max_length=self.hparams.max_length,
        )
        return self._guarded(dataset, split)

    def _guarded(self, dataset, split):
        """What a dataset yields; a damaged shard is named."""
        from t2t_lite.data.input_pipeline import naming_damaged_shards

        with naming_damaged_shards(self.data_dir, self.manifest, split):
            yield from dataset

    def texts(
        self, split: str, lines: int | None = None
    ) -> tuple[list[str], list[str]]:
        """The sources and the references of a split, from its shards.

        Args:
          split: "dev", say.
          lines: at most so many, the first ones; None gives all.
        """
        from t2t_lite.data.input_pipeline import read_pairs

        pairs = read_pairs(self.data_dir, self.problem, self.manifest, split)
        pairs = itertools.islice(self._guarded(pairs, split), lines)
        sources, targets = zip(*pairs, strict=True)
        return (
            self.encoders["inputs"].decode(sources),
            self.encoders["targets"].decode(targets),
        )

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keeps a second trainer out of the folder.

        Raises:
          T2TLiteError: another process trains there.
        """
        path = self.output_dir / ".lock"
        with open(path, "a+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                file.seek(0)
                raise T2TLiteError(
                    f"Another trainer (process {file.read().strip()}) is "
                    f"writing to {self.output_dir}; wait for it, or choose "
                    "another --output_dir."
                ) from error
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            # The lock goes with the process, however it ends.
            yield


def model_tensors(model) -> dict[str, Any]:
    """A model's variables by the names that checkpoints give them."""
    return {
        f"{checkpoint.MODEL_PREFIX}{variable.path}": variable.value
        for variable in model.weights
    }


def _is_run_without_config(output_dir):
    directory = output_dir / CHECKPOINTS
    return bool(
        checkpoint.list_checkpoints(directory)
        or checkpoint.list_checkpoints(directory, averages=True)
    )


def _write(output_dir, config, data_dir):
    """Makes the folder, the copies of the vocabulary and the config."""
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
        for name in config["vocabulary"]:
            aside = output_dir / f".{name}.{os.getpid()}.tmp"
            shutil.copyfile(data_dir / name, aside)
            os.replace(aside, output_dir / name)
        files.write_json(output_dir / CONFIG, config)
    except OSError as error:
        raise T2TLiteError(
            f"{output_dir} cannot be written: {error.strerror}; choose another "
            "--output_dir."
        ) from error
