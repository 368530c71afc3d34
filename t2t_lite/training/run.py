"""A training run: a self-contained folder.

```
OUTPUT_DIR/config.json        problem, all hparams, seed, versions, data
           *.vocab.*          copies of the vocabulary
           checkpoints/       see `checkpoints`
           *.jsonl, tensorboard/, card.md
```
"""

import contextlib
import dataclasses
import functools
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from t2t_lite import files
from t2t_lite.data import pipeline
from t2t_lite.data.manifest import Manifest, check_shards, generate_command
from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.decoding.translator import Translator
from t2t_lite.errors import T2TLiteError, UsageError, explain
from t2t_lite.hparam import HParams
from t2t_lite.model.ensemble import Ensemble
from t2t_lite.model.layers import skip_init
from t2t_lite.model.transformer import Transformer
from t2t_lite.problem import Problem
from t2t_lite.training import checkpoints
from t2t_lite.training import config as run_config
from t2t_lite.training.config import CONFIG
from t2t_lite.training.problem_choice import problem_of_run


class RunData:
    """The data of a run: shards in `folder`, read as batches or as text.

    An imported run accepts any data with its vocabulary, because its config
    has no data fingerprint.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        problem: Problem,
        encoders: Mapping[str, Any],
    ):
        hparams = HParams.from_dict(config["hparams"])
        self._config = config["data"]
        self.folder = Path(config["data"]["dir"])
        self._problem, self._encoders = problem, encoders
        self._order: dict[str, Any] = {
            "seed": config["seed"],
            "packing": hparams.packing,
            "bpe_dropout": hparams.bpe_dropout,
            "encoders": encoders,
        }
        self._sizes: dict[str, Any] = {
            "max_positions": hparams.batch_tokens
            // hparams.gradient_accumulation_steps,
            "max_length": hparams.max_length,
        }
        self._eval_batches: dict[str, Iterable[dict[str, Any]]] = {}

    @functools.cached_property
    def manifest(self) -> Manifest:
        """The manifest in the folder; an error if it changed or is missing."""
        fingerprint, problem = self._config["fingerprint"], self._problem
        if not fingerprint and self.folder == Path():
            raise T2TLiteError(
                "The run was imported without data: set `data_dir` to a folder "
                f"with data of {problem.base_name}."
            )
        if fingerprint and not Manifest.path(self.folder, problem).exists():
            seed = self._config.get("seed")
            command = generate_command(problem, self.folder, seed)
            raise T2TLiteError(
                f"{self.folder} has no data of {problem.base_name}: restore "
                "the data of the run, or set `data_dir` to its folder. If the "
                f"data is lost, {command} generates it again."
            )
        manifest = Manifest.load(self.folder, problem)
        hashes = {file["sha256"] for file in manifest.vocabulary.values()}
        own = {each.sha256 for each in self._encoders.values()}
        if manifest.digest != fingerprint and (fingerprint or hashes != own):
            raise T2TLiteError(
                f"The data in {self.folder} has changed since the run was "
                "created, or has another vocabulary: set `data_dir` to the "
                "run's data, or train a new run in another `output_dir`."
            )
        return manifest

    def check(self) -> pipeline.PaddingReport:
        """Verify the checksum of every shard and return padding statistics."""
        check_shards(*self._shards)
        options = self._sizes | self._order
        return pipeline.padding_report(
            self.folder, self._problem, self.manifest, **options
        )

    def training_batches(
        self, position: Sequence[int] = (0, 0, 0)
    ) -> Iterator[dict[str, Any]]:
        """Yield micro-batches forever, from a `pipeline.Position`."""
        start = pipeline.Position(*position)
        dataset = pipeline.training_batches(
            *self._shards, start=start, **self._sizes, **self._order
        )
        return self._with_shard_errors(dataset)

    def batches(self, split: str) -> Iterator[dict[str, Any]]:
        """Yield the examples of a split within `max_length`, in batches."""
        if split not in self._eval_batches:
            # Cached, because TensorFlow never frees the Python functions of a
            # dataset, and a long training run evaluates many times.
            self._eval_batches[split] = pipeline.eval_batches(
                *self._shards, split, **self._sizes
            )
        return self._with_shard_errors(self._eval_batches[split])

    def texts(
        self, split: str, lines: int | None = None
    ) -> tuple[list[str], list[str]]:
        """Return sources and references of a split, at most `lines` pairs."""
        pairs = pipeline.read_pairs(*self._shards, split)
        pairs = itertools.islice(self._with_shard_errors(pairs), lines)
        sources, targets = zip(*pairs, strict=True)
        inputs, outputs = (self._encoders[x] for x in ("inputs", "targets"))
        return inputs.decode(sources), outputs.decode(targets)

    def attended_lengths(self) -> tuple[float, float]:
        """Return the mean lengths of source and target, or of packed rows."""
        if self._order["packing"]:
            width = min(self._sizes.values())
            return width, width
        train = self.manifest.splits["train"]
        totals = train.source_tokens, train.target_tokens
        means = (total / train.examples for total in totals)
        return self._problem.swap_if_reversed(*means)

    def _with_shard_errors(self, dataset: Iterable[Any]) -> Iterator[Any]:
        """Yield the items of a dataset; a read error names the shard."""
        with pipeline.read_errors(*self._shards):
            yield from dataset

    @property
    def _shards(self) -> tuple[Path, Problem, Manifest]:
        return self.folder, self._problem, self.manifest


class RunProgress(NamedTuple):
    """The progress of a run."""

    step: int  # of the newest checkpoint; 0 without a checkpoint
    best: dict[str, Any] | None  # `step`, `metric` and `value`
    average: Path | None  # checkpoint average or moving average
    cost: dict[str, Any] | None  # see `flops.training_cost`

    @property
    def best_text(self) -> str:
        """A description of the best checkpoint: "dev_bleu 26.3 at step 900"."""
        if not self.best:
            return ""
        metric, value = self.best["metric"], self.best["value"]
        if metric.startswith("negative_"):
            metric, value = metric.removeprefix("negative_"), -value
        return f"{metric} {value:.4g} at step {self.best['step']}"


@dataclasses.dataclass(eq=False)
class Run:
    """The folder of a training run, with its model and its data.

    Attributes:
      output_dir: the folder of the run.
      config: the content of `config.json`.
      problem: the problem that the run trains on.
      encoders: the encoders of `inputs` and `targets`.
      hparams: the hyperparameters.
      seed: of all random numbers.
    """

    output_dir: Path
    config: Mapping[str, Any]
    problem: Problem
    encoders: Mapping[str, Any]

    def __post_init__(self) -> None:
        self.hparams = HParams.from_dict(self.config["hparams"])
        self.seed: int = self.config["seed"]

    @classmethod
    def create(
        cls,
        output_dir: str | os.PathLike,
        *,
        problem: Problem,
        hparams: HParams,
        seed: int,
        data_dir: str | os.PathLike,
        manifest: Manifest,
        usr_dir: str | None = None,
        hparams_set: str | None = None,
        facts: Mapping[str, Any] | None = None,
        dry_run: bool = False,
    ) -> Self:
        """Create a run, or return the equal run in the folder.

        The folder `data_dir` has the vocabulary and the shards of `manifest`.
        `facts` are more keys of `config.json`, see `check_warm_start`.
        A `dry_run` checks everything and writes nothing.

        Raises:
          T2TLiteError: the folder has another run, or cannot be written.
        """
        run_config.require_fitting_vocabularies(problem, hparams)
        output_dir = Path(output_dir).absolute()
        data_dir = Path(data_dir).absolute()
        encoders = problem.load_encoders(data_dir)
        data = {
            "dir": str(data_dir),
            "fingerprint": manifest.digest,
            "seed": manifest.seed,
        }
        config = run_config.make_config(
            problem, hparams, seed, data, encoders, usr_dir, hparams_set
        ) | dict(facts or {})
        if (output_dir / CONFIG).exists():
            existing = run_config.read_config(output_dir)
            run_config.require_same(output_dir, existing, config)
            config = {**existing, **config}  # keeps recorded values
        elif any((output_dir / checkpoints.FOLDER).glob("*")):
            raise T2TLiteError(
                f"{output_dir} holds checkpoints but no {CONFIG}. Restore the "
                "file, or choose another `output_dir`."
            )
        run = cls(output_dir, config, problem, encoders)
        run.data.training_batches()  # raises errors before anything is written
        run.data.batches("dev")
        if dry_run:
            return run
        fix = "Correct this, or choose another `output_dir`."
        with explain(f"{output_dir} cannot be written", OSError, fix=fix):
            output_dir.mkdir(parents=True, exist_ok=True)
            for name in config["vocabulary"]:
                content = (data_dir / name).read_bytes()
                files.write_bytes(output_dir / name, content)
            files.write_json(output_dir / CONFIG, config)
        encoders = problem.load_encoders(output_dir)
        return cls(output_dir, config, problem, encoders)

    @classmethod
    def open(
        cls,
        output_dir: str | os.PathLike,
        usr_dir: str | None = None,
        *,
        to_decode: bool = False,
    ) -> Self:
        """Open the run in a folder, without its data.

        For `usr_dir` and `to_decode` see `problem_choice.problem_of_run`.

        Raises:
          T2TLiteError: the run is missing or damaged, or requires `usr_dir`.
        """
        output_dir = Path(output_dir).absolute()
        config = run_config.read_config(output_dir)
        problem = problem_of_run(
            output_dir, config, usr_dir, to_decode=to_decode
        )
        with contextlib.suppress(T2TLiteError):  # the error below is better
            encoders = problem.load_encoders(output_dir)
            found = run_config.vocabulary_hashes(problem, encoders)
            if found == config["vocabulary"]:
                return cls(output_dir, config, problem, encoders)
        raise T2TLiteError(
            f"The vocabulary in {output_dir} is missing or has changed: copy "
            f"{' and '.join(config['vocabulary'])} from "
            f"{config['data']['dir']}, or from a backup of the run."
        )

    @property
    def checkpoints_dir(self) -> Path:
        """The folder of the checkpoints."""
        return self.output_dir / checkpoints.FOLDER

    @functools.cached_property
    def data(self) -> RunData:
        """The data that the run was created with."""
        return RunData(self.config, self.problem, self.encoders)

    @property
    def vocab_sizes(self) -> tuple[int, int]:
        """The model's V of source and target."""
        return self.hparams.vocab_sizes(*self._encoder_sizes())

    @property
    def progress(self) -> RunProgress:
        """The progress of training, read from the folder."""
        folder = self.checkpoints_dir
        saved = checkpoints.list_checkpoints(folder)
        decoded = saved and checkpoints.resolve(folder, "default")
        return RunProgress(
            saved[-1].step if saved else 0,
            next(iter(checkpoints.read_marks(folder)), None),
            decoded.path if decoded and decoded.weights else None,
            self.config.get("training_cost"),
        )

    def history(self) -> dict[str, list[Any]]:
        """Return the columns of `metrics.jsonl` by name, of equal length.

        A record without a value has None. `pandas.DataFrame` accepts the
        result.
        """
        records = run_config.read_metrics(self.output_dir)
        names = dict.fromkeys(name for record in records for name in record)
        return {name: [each.get(name) for each in records] for name in names}

    def __fspath__(self) -> str:
        return str(self.output_dir)

    def __repr__(self) -> str:
        name, step = self.problem.name, self.progress.step
        return f"Run({str(self.output_dir)!r}, problem={name!r}, step={step})"

    def model(self) -> Transformer:
        """Return the run's model with newly initialized weights."""
        sizes = self._encoder_sizes()
        return Transformer.from_hparams(self.hparams, *sizes).build_weights()

    def _encoder_sizes(self):
        return [self.encoders[x].vocab_size for x in ("inputs", "targets")]

    def load_model(
        self, which: str | int = "default"
    ) -> tuple[Transformer, checkpoints.Checkpoint]:
        """Return the model with the weights of a checkpoint, see `resolve`."""
        found = checkpoints.resolve(self.checkpoints_dir, which)
        with skip_init():
            model = self.model()
        checkpoints.restore(found.path, checkpoints.model_tensors(model))
        return model, found

    def ensemble(
        self, which: str | int, members: Sequence[Any]
    ) -> list[tuple["Run", checkpoints.Checkpoint]]:
        """Return the models of an ensemble, each as a run and a checkpoint.

        The first model is the checkpoint `which` of this run. The `members` are
        runs, folders of runs, or names of other checkpoints. All must have the
        same vocabularies and the same direction.
        """
        found = [(self, checkpoints.resolve(self.checkpoints_dir, which))]
        for member in members:
            run, chosen = self, str(getattr(member, "output_dir", member))
            folder = Path(chosen).expanduser()
            if (folder / CONFIG).is_file():
                run, chosen = Run.open(folder, to_decode=True), "default"
            ours, theirs = (x.config["vocabulary"] for x in (self, run))
            is_same = sorted(ours.values()) == sorted(theirs.values())
            if not is_same or run.problem.reversed != self.problem.reversed:
                raise UsageError(
                    "An ensemble requires runs with the same vocabulary and "
                    f"direction; {run.output_dir} differs from "
                    f"{self.output_dir}."
                )
            weights = checkpoints.resolve(run.checkpoints_dir, chosen)
            found.append((run, weights))
        return found

    def load_ensemble(
        self, which: str | int, members: Sequence[Any]
    ) -> tuple[Transformer | Ensemble, list[checkpoints.Checkpoint]]:
        """Return the models of `ensemble` as one model, and the checkpoints."""
        found = self.ensemble(which, members)
        models = [run.load_model(str(each.path))[0] for run, each in found]
        model = Ensemble(models) if members else models[0]
        return model, [each for _, each in found]

    def translator(
        self,
        model: Transformer | Ensemble,
        jit: bool | None = False,
        frozen: bool = False,
        **options: Any,
    ) -> Translator:
        """Return a `Translator` with the run's vocabulary.

        For `jit` and `frozen` see `Translator`. The options are
        `SearchSettings` with defaults from the run's hparams.
        """
        hparams = self.hparams
        return Translator(
            model,
            self.encoders["inputs"],
            self.encoders["targets"],
            SearchSettings.from_options(
                options,
                beam_size=hparams.beam_size,
                alpha=hparams.length_penalty_alpha,
                constrained=hparams.constrained_search,
            ),
            extra_decode_length=hparams.extra_decode_length,
            max_length=hparams.max_source_length or hparams.max_length,
            constraint=self.problem.output_constraint(self.encoders),
            jit=jit,
            frozen=frozen,
        )

    def update_config(self, **facts: Any) -> None:
        """Add JSON-serializable facts to `config.json`, or raise SaveError."""
        config = {**self.config, **facts}
        path = self.output_dir / CONFIG
        with checkpoints.save_errors(path):
            files.write_json(path, config)
        self.config = config
