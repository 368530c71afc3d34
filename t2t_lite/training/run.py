"""A run: one folder that describes itself.

```
OUTPUT_DIR/config.json        problem, hparams in full, seed, versions, data
           *.vocab.*          copies of the vocabulary
           checkpoints/       see `checkpoint`
           metrics.jsonl, tensorboard/
```
"""

import contextlib
import functools
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from t2t_lite import files
from t2t_lite.data.manifest import Manifest
from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.decoding.translator import Translator
from t2t_lite.errors import T2TLiteError, UsageError, in_words
from t2t_lite.hparam import HParams
from t2t_lite.model.ensemble import Ensemble
from t2t_lite.model.layers import unset_weights
from t2t_lite.model.transformer import Transformer
from t2t_lite.problem import Problem
from t2t_lite.text.encoder import TextEncoder
from t2t_lite.training import checkpoints
from t2t_lite.training.config import (
    CONFIG,
    make_config,
    read_config,
    require_fitting_vocabularies,
    require_same,
    vocabulary_hashes,
)
from t2t_lite.training.problem_choice import problem_of_run
from t2t_lite.training.run_data import RunData


class Reached(NamedTuple):
    """How far a run has come."""

    step: int  # of the newest checkpoint, 0 without one
    best: dict[str, Any] | None  # `step`, `metric` and `value` of the best
    average: pathlib.Path | None  # of the newest checkpoints, or the moving one
    cost: dict[str, Any] | None  # of training, see `costs.training_cost`

    @property
    def best_text(self) -> str:
        """The best checkpoint in words, such as "bleu 26.3 at step 900"."""
        if not self.best:
            return ""
        metric, value = self.best["metric"], self.best["value"]
        if metric.startswith("negative_"):
            metric, value = metric.removeprefix("negative_"), -value
        return f"{metric} {value:.4g} at step {self.best['step']}"


class Run:
    """The folder of a training run, and the model and the data it tells of.

    Made by `Run.create` or `Run.open`.

    Attributes:
      output_dir: its folder.
      config: the content of `config.json`.
      problem: what it learns.
      encoders: of `inputs` and `targets`, from the run's own copies.
      hparams: resolved in full.
      seed: of everything random.
    """

    def __init__(
        self,
        output_dir: pathlib.Path,
        config: Mapping[str, Any],
        problem: Problem,
        encoders: Mapping[str, Any],
    ):
        self.output_dir = output_dir
        self.config = config
        self.problem = problem
        self.encoders = encoders
        self.hparams = HParams.from_dict(config["hparams"])
        self.seed: int = config["seed"]

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
        """A new run, or the one that is there if it is the same.

        Args:
          output_dir: its folder; made if it is missing.
          problem: what to learn.
          hparams: resolved in full.
          seed: of everything random.
          data_dir: holds the shards and the vocabulary.
          manifest: of the data.
          usr_dir: the folder or package with the code of the problem.
          hparams_set: the name of the set, for people.
          facts: more that `config.json` says, see `initial.facts_of_start`.
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
            {
                "dir": str(data_dir),
                "fingerprint": manifest.digest,
                "seed": manifest.seed,
            },
            encoders,
            usr_dir,
            hparams_set,
        ) | dict(facts or {})
        if (output_dir / CONFIG).exists():
            there = read_config(output_dir)
            require_same(output_dir, there, config)
            config = {**there, **config}  # what was recorded stays
        elif any(
            checkpoints.list_checkpoints(output_dir / checkpoints.FOLDER, each)
            for each in (False, True)
        ):
            raise T2TLiteError(
                f"{output_dir} holds checkpoints but no {CONFIG}, which would "
                "say what they were trained on. Choose another --output_dir."
            )
        if not dry_run:
            _write(output_dir, config, data_dir)
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
        """The run in a folder, with nothing but that folder.

        Args:
          output_dir: its folder.
          usr_dir: the folder or package with the code of the problem. It is
            imported; the one that the config names is not.
          to_decode: for `load_model` and `translator` alone, not for `data` or
            scores; see `problem_choice.problem_of_run`.

        Raises:
          UsageError: the problem is defined in a `usr_dir`, which is not
            given.
          T2TLiteError: there is no run, or a part of it is damaged.
        """
        output_dir = pathlib.Path(output_dir).absolute()
        config = read_config(output_dir)
        problem = problem_of_run(
            output_dir, config, usr_dir, to_decode=to_decode
        )
        encoders = _load_encoders(output_dir, config, problem)
        return cls(output_dir, config, problem, encoders)

    @property
    def checkpoints_dir(self) -> pathlib.Path:
        """Where the checkpoints are."""
        return self.output_dir / checkpoints.FOLDER

    @functools.cached_property
    def data(self) -> RunData:
        """The data that the run was created with, where it was then."""
        data = self.config["data"]
        return RunData(
            pathlib.Path(data["dir"]),
            self.problem,
            self.hparams,
            self.encoders,
            seed=self.seed,
            fingerprint=data["fingerprint"],
            data_seed=data.get("seed"),
        )

    @property
    def vocab_sizes(self) -> tuple[int, int]:
        """The model's V of source and target."""
        inputs, targets = self.encoders["inputs"], self.encoders["targets"]
        return self.hparams.vocab_sizes(inputs.vocab_size, targets.vocab_size)

    @property
    def reached(self) -> Reached:
        """How far training has come, by what the folder holds."""
        folder = self.checkpoints_dir
        saved = checkpoints.list_checkpoints(folder)
        decoded = saved and checkpoints.resolve(folder, "default")
        return Reached(
            saved[-1].step if saved else 0,
            checkpoints.read_best(folder),
            decoded.path if decoded and decoded.weights else None,
            self.config.get("training_cost"),
        )

    def __fspath__(self) -> str:
        return str(self.output_dir)

    def __repr__(self) -> str:
        return (
            f"Run({str(self.output_dir)!r}, problem={self.problem.name!r}, "
            f"step={self.reached.step})"
        )

    def model(self) -> Transformer:
        """The run's model, built, with fresh weights."""
        inputs, targets = self.encoders["inputs"], self.encoders["targets"]
        return Transformer.from_hparams(
            self.hparams, inputs.vocab_size, targets.vocab_size
        ).build_weights()

    def load_model(
        self, which: str | int = "default"
    ) -> tuple[Transformer, checkpoints.Checkpoint]:
        """The run's model with the weights of a checkpoint.

        Args:
          which: see `checkpoints.resolve`.

        Returns:
          The model, and the checkpoint that its weights are from.

        Raises:
          T2TLiteError: it is missing, damaged or another model's.
        """
        found = checkpoints.resolve(self.checkpoints_dir, which)
        with unset_weights():
            model = self.model()
        checkpoints.restore(found.path, checkpoints.model_tensors(model))
        return model, found

    def ensemble(
        self, which: str | int, members: Sequence[str]
    ) -> list[tuple["Run", checkpoints.Checkpoint]]:
        """This run and others, each with the checkpoint to take its model from.

        Args:
          which: of the run's own checkpoints, see `checkpoints.resolve`.
          members: folders of other runs, or other checkpoints of this one.

        Raises:
          UsageError: another run has another vocabulary.
          T2TLiteError: a run or a checkpoint is missing or damaged.
        """
        found = [(self, checkpoints.resolve(self.checkpoints_dir, which))]
        for member in members:
            run, chosen = self, member
            if (pathlib.Path(member).expanduser() / CONFIG).is_file():
                run, chosen = Run.open(member, to_decode=True), "default"
            if run.config["vocabulary"] != self.config["vocabulary"]:
                raise UsageError(
                    "The runs of an ensemble must have one vocabulary; that of "
                    f"{run.output_dir} is not that of {self.output_dir}."
                )
            found.append(
                (run, checkpoints.resolve(run.checkpoints_dir, chosen))
            )
        return found

    def load_ensemble(
        self, which: str | int, members: Sequence[str]
    ) -> tuple[Transformer | Ensemble, list[checkpoints.Checkpoint]]:
        """The models of `ensemble` as one, and the checkpoints of each."""
        found = self.ensemble(which, members)
        models = [run.load_model(str(each.path))[0] for run, each in found]
        model = Ensemble(models) if members else models[0]
        return model, [each for _, each in found]

    def translator(
        self, model: Transformer | Ensemble, jit: bool = False, **options: Any
    ) -> Translator:
        """A `Translator` with the run's vocabulary.

        Args:
          model: the run's, or an ensemble with it.
          jit: compile the search by XLA.
          options: any of `SearchSettings`; None or nothing takes the run's
            hparam, or the default where there is no such hparam.

        Raises:
          UsageError: an option that is wrong, or not for this problem.
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
            max_length=hparams.longest_source or hparams.max_length,
            form=self.problem.text_form(self.encoders),
            jit=jit,
        )

    def record(self, **facts: Any) -> None:
        """Adds facts about the run, fit for JSON, to its `config.json`.

        Raises:
          SaveError: it cannot be written.
        """
        config = {**self.config, **facts}
        path = self.output_dir / CONFIG
        with checkpoints.explaining_failed_writes(path):
            files.write_json(path, config)
        self.config = config


def _load_encoders(
    output_dir: pathlib.Path, config: Mapping[str, Any], problem: Problem
) -> dict[str, TextEncoder]:
    """Those that the run was trained with, or an error."""
    with contextlib.suppress(T2TLiteError):  # which advises to make new ones
        encoders = problem.load_encoders(output_dir)
        if vocabulary_hashes(problem, encoders) == config["vocabulary"]:
            return encoders
    raise T2TLiteError(
        f"The vocabulary in {output_dir} is gone, or is not the one the run "
        f"was trained with: copy {' and '.join(config['vocabulary'])} from "
        f"{config['data']['dir']} again, or from a copy of the run."
    )


def _write(
    output_dir: pathlib.Path, config: Mapping[str, Any], data_dir: pathlib.Path
) -> None:
    """Makes the folder, the copies of the vocabulary and the config."""
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
        for name in config["vocabulary"]:
            with files.write_file(output_dir / name) as copy:
                copy.write((data_dir / name).read_bytes())
        files.write_json(output_dir / CONFIG, config)
    except OSError as error:
        raise T2TLiteError(
            f"{output_dir} cannot be written: {in_words(error)}. Or choose "
            "another --output_dir."
        ) from error
