"""The Python API: `train` makes a run, `load` opens one to translate.

Nothing here loads TensorFlow before the request is checked.
"""

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from t2t_lite import plugins, registry
from t2t_lite.decoding.batching import DEFAULT_SIZE, Batching
from t2t_lite.decoding.requests import Request
from t2t_lite.errors import T2TLiteError, UsageError, format_error
from t2t_lite.hparam import HParams
from t2t_lite.problem import Problem
from t2t_lite.progress import Counter, log
from t2t_lite.serving.versions import (
    ABOUT,
    CTRANSLATE2,
    SAVED_MODEL,
    newest_version,
)
from t2t_lite.tf_setup import start_tensorflow
from t2t_lite.training.config import (
    CONFIG,
    find_config,
    require_fitting_vocabularies,
    versions,
)
from t2t_lite.training.options import TrainingOptions, default_output_dir
from t2t_lite.training.problem_choice import choose_problem
from t2t_lite.validators import (
    check,
    describe,
    folder,
    integer,
    one_of,
    optional,
    require_known,
)

if TYPE_CHECKING:
    from t2t_lite.data.manifest import Manifest
    from t2t_lite.datagen.generate import DataGenerator
    from t2t_lite.decoding.results import PairScore, Translation
    from t2t_lite.decoding.stream import Replica
    from t2t_lite.decoding.token_info import TokenDetails
    from t2t_lite.training.run import Run

_SECONDS_TO_SEE = 30.0
# Options that may differ between workers.
_OF_ONE_WORKER = (
    *("usr_dir", "data_dir", "raw_dir", "tfds_dir", "problem_options"),
    *("workers", "worker", "cluster_timeout", "sustained_tflops", "verbose"),
)


def train(
    problem: str | Problem | None = None,
    hparams: str | HParams | None = None,
    output_dir: str | os.PathLike | None = None,
    **options: Any,
) -> "Run | str":
    """Train a run, as the command `t2t-lite-trainer` does.

    It generates missing data, trains, evaluates and saves; the same call again
    resumes. In the main thread, Ctrl-C and SIGTERM save before they raise
    `Interrupted`; SIGUSR1 saves and training continues.

    Args:
      problem: the name of a problem, or the problem itself; None: the problem
        of the run in `output_dir`.
      hparams: the name of a set, or hyperparameters; None: those of that run.
      output_dir: the folder of the run; None takes
        `~/t2t-lite/runs/PROBLEM/SET`.
      **options: the options of training, by keyword.

    Keyword Args:
      OPTIONS

    Returns:
      The run; `run.progress` has its results. Of a dry run, its report as text.

    Raises:
      UsageError: an unknown name, key or option, or values that conflict.
      Interrupted: a signal came; everything is saved.
      T2TLiteError: training failed; the message says what to do.
    """
    require_known(options, TrainingOptions, "train")
    job = _plan(problem, hparams, output_dir, TrainingOptions(**options))
    if "tensorflow" not in sys.modules:
        log("Starting TensorFlow.")
    start_tensorflow(job.options.verbose, frozen_weights=False)
    return job.measure() if job.options.dry_run else job.train()


train.__doc__ = (train.__doc__ or "").replace(
    "      OPTIONS", describe(TrainingOptions)
)


def _plan(
    problem: str | Problem | None,
    hparams: str | HParams | None,
    output_dir: str | os.PathLike | None,
    options: TrainingOptions,
) -> "_Job":
    """Look up and check what to train; take the rest from the run there."""
    plugins.load_plugins(options.usr_dir)
    run_dir = check("output_dir", output_dir, folder) if output_dir else None
    config = find_config(run_dir) if run_dir else None
    if config is None and (problem is None or hparams is None):
        raise UsageError(
            "problem and hparams are required, unless output_dir is the folder "
            f"of a run (got problem={problem}, hparams={hparams}, "
            f"output_dir={output_dir})."
        )
    set_name = None
    if isinstance(hparams, HParams):
        values = hparams
    elif hparams is not None:
        values, set_name = registry.hparams(hparams), hparams
    else:
        config = config or {}
        values = HParams.from_dict(config["hparams"])
        set_name = config.get("hparams_set")
    values = values.override(options.hparams_override)
    if not run_dir and set_name and problem:
        name = problem if isinstance(problem, str) else problem.name
        run_dir = default_output_dir(name, set_name)
        config = find_config(run_dir)
    given = options.problem_options or {}
    task, data_dir = choose_problem(
        problem, given, options.data_dir, run_dir, config
    )
    if not run_dir:
        raise UsageError(
            "output_dir is required, because hyperparameters without the name "
            "of a set have no default folder."
        )
    if not output_dir and task.name != run_dir.parent.name:
        # Own text has got a name by its options or its data.
        run_dir = default_output_dir(task.name, str(set_name))
        config = find_config(run_dir)
    metrics = ("auto", "loss", task.metric)
    if options.best_metric not in metrics:
        raise UsageError(
            f"best_metric is one of {', '.join(metrics)} for {task.name}; got "
            f"{options.best_metric!r}."
        )
    require_fitting_vocabularies(task, values)
    return _Job(task, values, set_name, run_dir, data_dir, options, config)


@dataclasses.dataclass(frozen=True)
class _Job:
    """A run to create or to resume."""

    problem: Problem
    hparams: HParams
    hparams_set: str | None  # the name, if the hparams are from a set
    output_dir: pathlib.Path
    data_dir: pathlib.Path
    options: TrainingOptions
    config: Mapping[str, Any] | None  # of the run that is there

    def measure(self) -> str:
        """Measure one pass over the largest batch; make nothing."""
        from t2t_lite.training import devices, trainer
        from t2t_lite.training.memory import dry_run

        options = self.options
        # Before anything runs on the devices.
        devices.choose_strategy(options.replicas, self.hparams)
        data = self._generation()  # which refuses folders that are not read
        if self._has_data:
            run = self._run(data.run(), dry_run=True)
            sizes, lines = run.vocab_sizes, [f"data: {run.data.check()}"]
        else:
            sizes = self.problem.swap_if_reversed(
                *self.problem.expected_vocab_sizes()
            )
            lines = self._missing_data()
        trainer.prepare(options.seed, deterministic=False)
        return "\n".join([*lines, dry_run(self.hparams, sizes, options)])

    def train(self) -> "Run":
        """Generate the data if it is missing, and train."""
        from t2t_lite.training import distribute, trainer
        from t2t_lite.training.model_card import provenance_of
        from t2t_lite.training.signals import run_lock

        strategy = distribute.make_strategy(self.options, self.hparams)
        with (
            distribute.worker_errors(strategy),
            contextlib.ExitStack() as stack,
        ):
            fix = "Start the same command on all workers."
            distribute.require_equal(strategy, self._command(), fix)
            manifest = self._generation().run()
            fix = "Give all workers the same data."
            distribute.require_equal(strategy, {"data": manifest.digest}, fix)
            if distribute.workers_of(strategy)[1] == 0:
                # Nobody else changes the run that is compared.
                stack.enter_context(run_lock(self.output_dir))
                run = self._run(manifest)
                log(f"Training {self.problem.name} in {run.output_dir}.")
                run.update_config(conditions=provenance_of(run, self.options))
                distribute.exchange(strategy, "run")
            else:
                distribute.exchange(strategy, "run")  # the chief has made it
                # A network file system may take a while to show a new file.
                deadline = time.monotonic() + _SECONDS_TO_SEE
                while not (self.output_dir / CONFIG).exists():
                    if time.monotonic() > deadline:
                        raise T2TLiteError(
                            f"{self.output_dir} lacks the files of the chief: "
                            "output_dir must be a folder that all share."
                        )
                    time.sleep(0.5)
                run = self._run(manifest, dry_run=True)
            trainer.train(run, self.options, strategy)
            # No worker leaves early, and all know the cost.
            run.config = distribute.exchange(strategy, run.config)[0]
        return run

    def _command(self) -> dict[str, Any]:
        """Return what must be the same on all workers."""
        options = dataclasses.asdict(self.options)
        for name in _OF_ONE_WORKER:
            del options[name]
        return {
            **versions(),
            "problem": self.problem.name,
            "problem definition": self.problem.fingerprint(),
            **self.hparams.to_dict(),
            **{f"--{name}": str(value) for name, value in options.items()},
        }

    @property
    def _has_data(self) -> bool:
        from t2t_lite.data.manifest import Manifest

        return Manifest.path(self.data_dir, self.problem).exists()

    def _generation(self) -> "DataGenerator":
        from t2t_lite.datagen.generate import DataGenerator

        seed, options = None, self.options
        if self.config and not self._has_data:  # make the run's data again
            seed = self.config["data"].get("seed")
        return DataGenerator(
            self.problem, self.data_dir, options.raw_dir, options.tfds_dir, seed
        )

    def _run(self, manifest: "Manifest", dry_run: bool = False) -> "Run":
        from t2t_lite.training.run import Run
        from t2t_lite.training.warm_start import facts_of_start

        return Run.create(
            self.output_dir,
            problem=self.problem,
            hparams=self.hparams,
            seed=self.options.seed,
            data_dir=self.data_dir,
            manifest=manifest,
            usr_dir=self.options.usr_dir,
            hparams_set=self.hparams_set,
            facts=facts_of_start(
                self.options,
                self.problem,
                self.hparams,
                self.data_dir,
                self.config,
            ),
            dry_run=dry_run,
        )

    def _missing_data(self) -> list[str]:
        """Report that there is no data, and whether there is a corpus."""
        from t2t_lite.corpus.download import RawFiles

        problem, options = self.problem, self.options
        raw = RawFiles(
            problem.files, options.raw_dir, tfds_dir=options.tfds_dir
        )
        try:
            problem.check_sources(raw)
            told = "its corpus is there"
        except T2TLiteError as error:
            told = str(error)
        return [
            f"missing: {self.data_dir} has no data of {problem.name} yet; the "
            "same command without `dry_run`, or t2t-lite-datagen, makes it",
            told,
        ]


def load(
    path: str | os.PathLike,
    *,
    checkpoint: str | int = "default",
    usr_dir: str | os.PathLike | None = None,
    replicas: int | None = 1,
    ensemble: Sequence[str | os.PathLike] = (),
    jit: bool = False,
) -> "LoadedTranslator":
    """Load a run or an export; the result translates when called.

    Example:
      >>> translator = t2t_lite.load(".quickstart/run")
      >>> translator("forty-two")
      'zweiundvierzig'
      >>> translator(["one", "two"])
      ['eins', 'zwei']
      >>> for hypothesis in translator("one", nbest=2):
      ...     print(hypothesis.score, hypothesis.text)

    Args:
      path: the folder of a run; or of an export, or of several versions of an
        export, of which the newest is loaded.
      checkpoint: of a run: "latest", "best", "average", "ema", a step number
        or a folder. The default is the average of the newest checkpoints if it
        exists, else the newest.
      usr_dir: of a run: the folder or package with the code of its problem. It
        is required if that code takes part in decoding.
      replicas: of a run: the number of GPUs, or without GPUs of threads, that
        search in parallel; None means all GPUs, or one thread a core, four at
        most. It changes the speed, not the results.
      ensemble: of a run: other models whose probabilities are averaged with
        its own: folders of runs, or checkpoints of this run.
      jit: of a run: compile searches by XLA. Each new batch size takes seconds;
        then single texts are translated faster. Scores agree within rounding.

    Raises:
      UsageError: `path` is neither, or an export gets the options of a run.
      T2TLiteError: a part of the run or the export is missing or damaged.
    """
    folder = pathlib.Path(path).expanduser()
    version = newest_version(folder)
    if version is None and not (folder / "config.json").is_file():
        raise UsageError(
            "load needs the folder of a run, with a config.json, or of an "
            f"export, with a {SAVED_MODEL} or {CTRANSLATE2} or versions 1, 2, "
            f"...; got {path}."
        )
    given = (checkpoint, usr_dir, replicas, jit) != ("default", None, 1, False)
    if version and (given or ensemble):
        raise UsageError(
            "checkpoint, usr_dir, replicas, ensemble and jit are for runs, and "
            "an export holds all it needs: leave them out; got the export "
            f"{version}."
        )
    start_tensorflow()
    if version:
        return _load_export(version)
    from t2t_lite.decoding import stream
    from t2t_lite.training.run import Run

    if replicas != 1:
        replicas = stream.configure_cpu_threads(replicas)
    run = Run.open(folder, str(usr_dir or "") or None, to_decode=True)
    devices = stream.choose_devices(replicas)
    models = stream.build_per_device(
        devices,
        lambda: run.load_ensemble(checkpoint, list(map(str, ensemble))),
    )

    def make_replicas(**options: Any) -> "list[Replica]":
        translators = {
            device: run.translator(model, jit, **options)
            for device, (model, _) in models.items()
        }
        return [stream.Replica(translators[each], each) for each in devices]

    weights = ", ".join(map(str, models[devices[0]][1]))
    name = f"{folder}, {run.problem.name}, {weights}"
    return LoadedTranslator(name, make_replicas, run)


def _load_export(version: pathlib.Path) -> "LoadedTranslator":
    from t2t_lite.decoding.stream import Replica

    if (version / CTRANSLATE2).is_file():
        from t2t_lite.interop.ctranslate2 import CTranslate2Translator

        known: tuple[str, ...] = ("beam_size", "alpha")
        search: Callable[..., Any] = CTranslate2Translator(version).searching
    else:
        exported = _ExportedModel(version)
        known, search = (), lambda: exported

    def make_replicas(**options: Any) -> "list[Replica]":
        _refuse(options.keys() - known)
        return [Replica(search(**options))]

    return LoadedTranslator(f"{version}, an export", make_replicas)


class LoadedTranslator:
    """Translates with a trained model; made by `t2t_lite.load`.

    Args:
      name: of the model, for people.
      make_replicas: returns the engines that search with the given options.
      run: of the model; None for an export.
    """

    def __init__(
        self,
        name: str,
        make_replicas: "Callable[..., list[Replica]]",
        run: "Run | None" = None,
    ):
        from t2t_lite.decoding.token_info import TokenDetails

        self._name = name
        # Tracing a graph takes a while, so each one is kept.
        self._make_replicas = functools.cache(make_replicas)
        self._run = run
        self._details = functools.cache(TokenDetails)

    def __repr__(self) -> str:
        return f"<Translator of {self._name}>"

    def __call__(
        self,
        texts: str | Request | Iterable[str | Request],
        *,
        nbest: int | None = None,
        batch_size: int | None = None,
        batch_tokens: int | None = None,
        **options: Any,
    ) -> Any:
        """Translate one text or several; stderr shows the progress of many.

        Args:
          texts: one text, or several; a `Request` carries options of its own.
          nbest: the number of hypotheses of each text, best first: at most the
            beam size, or the number of samples; None returns texts only.
          batch_size: texts translated together (64); changes the speed only.
          batch_tokens: or source tokens together.
          **options: the fields of `decoding.search.settings.SearchSettings`;
            the defaults are those of the run. An export for CTranslate2 takes
            `beam_size` and `alpha`, a SavedModel none. And these:

        Keyword Args:
          split_sentences: translate the sentences of each text separately.
          mbr: "chrf" returns the hypothesis most similar to all others.
          token_scores: with `nbest`, of a run: add the log-probability of each
            token to the hypotheses.
          alignment: with `nbest`, of a run: "words" adds pairs of source and
            target words to the hypotheses.

        Returns:
          A str for a text, a list of them for several. With `nbest`, a list of
          hypotheses with `text`, `score` and `tokens`, or a list of such lists.
          Exports as SavedModel have no tokens: they are None.

        Raises:
          UsageError: an option is not supported here, or a value is wrong.
        """
        several = _list_texts(texts)
        check("nbest", nbest, optional(integer(1)))
        for name in _DETAILS if nbest is None else ():
            if options.get(name):
                raise UsageError(
                    f"{name} requires nbest: only hypotheses have details."
                )
        answers: list[Any] = []
        how = {"batching": Batching(batch_size, batch_tokens)}
        translations = self.stream(several, how, nbest=nbest, **options)
        is_long = len(several) > (batch_size or DEFAULT_SIZE)
        with Counter("translating", "texts", is_long, len(several)) as counter:
            for translation in translations:
                if translation.error:
                    raise UsageError(translation.error)
                found = translation.hypotheses
                answers.append(found[0].text if nbest is None else found)
                counter.advance(1)
        return answers[0] if isinstance(texts, str | Request) else answers

    def stream(
        self,
        texts: Iterable[str | bytes | Request],
        how: Mapping[str, Any],
        *,
        nbest: int | None = None,
        mbr: str | None = None,
        split_sentences: bool = False,
        **options: Any,
    ) -> "Iterator[Translation]":
        """Return the translations of a stream of texts, in their order.

        Args:
          texts: as `decoding.stream.translate_lines` takes them.
          how: its options of batches, line numbers and notes.
          nbest: as in a call, like the other options.
          mbr: as in a call.
          split_sentences: as in a call.
          **options: as in a call.
        """
        from t2t_lite.decoding.stream import splitter_of, translate_lines

        replicas, details = self._replicas(options, how)
        split = None
        if split_sentences:
            if details or mbr or (nbest or 1) > 1 or self._run is None:
                raise UsageError(
                    "split_sentences requires a run and gives one hypothesis "
                    "of a text, without details: leave it out, or nbest, mbr, "
                    "token_scores and alignment."
                )
            split = splitter_of(self._run.problem, self._run.encoders)
        check("mbr", mbr, optional(one_of("chrf")))
        search = replicas[0].translator.settings
        most = None if search.sample else search.beam_size
        count = nbest or (most if mbr else 1)
        if count is None:
            raise UsageError("With sample=True, mbr requires nbest.")
        if most is not None and count > most:
            raise UsageError(
                "nbest must be at most the beam size; got "
                f"nbest={count}, beam_size={most}."
            )
        problem = self._run.problem if self._run else None
        return translate_lines(
            replicas,
            texts,
            num_hypotheses=count,
            postprocess=problem.postprocess if problem else None,
            details=details,
            rerank=mbr is not None,
            split=split,
            tags=problem.source_tags if problem else (),
            **how,
        )

    def score(
        self,
        sources: str | Iterable[str],
        targets: str | Iterable[str],
        *,
        batch_size: int | None = None,
        batch_tokens: int | None = None,
        **options: Any,
    ) -> Any:
        """Score given translations and each of their tokens.

        Args:
          sources: one text, or several.
          targets: the translation of each.
          batch_size: as in a call.
          batch_tokens: as in a call.
          **options: `alpha` and `alignment`, as in a call.

        Returns:
          A `PairScore` with `score`, `log_probability`,
          `token_log_probabilities` and `pieces`; or a list of them. Exports as
          SavedModel have no scores of tokens: they are None.

        Raises:
          UsageError: an option is not supported here, a value is wrong, or the
            numbers of texts differ.
        """
        one = isinstance(sources, str)
        texts, others = _list_texts(sources), _list_texts(targets)
        if len(texts) != len(others) or one != isinstance(targets, str):
            raise UsageError(
                "Each source needs one target, a str that is one or a list "
                f"of as many; got {len(texts)} and {len(others)}."
            )
        how = {"batching": Batching(batch_size, batch_tokens)}
        pairs = zip(texts, others, strict=True)
        scores = list(self.score_stream(pairs, how, **options))
        return scores[0] if one else scores

    def score_stream(
        self, pairs: Iterable[Any], how: Mapping[str, Any], **options: Any
    ) -> "Iterator[PairScore]":
        """Return the scores of a stream of pairs, in their order.

        Args:
          pairs: as `decoding.stream.score_pairs` takes them.
          how: its options of batches, line numbers and notes.
          **options: as of `score`.
        """
        from t2t_lite.decoding.stream import score_pairs

        replicas, details = self._replicas(options, how)
        engine = replicas[0].translator
        if details is None and engine.target_encoder is not None:
            details = self._details(engine)
        tags = self._run.problem.source_tags if self._run else ()
        return score_pairs(replicas, pairs, details=details, tags=tags, **how)

    def _replicas(
        self, options: Mapping[str, Any], how: Mapping[str, Any]
    ) -> "tuple[list[Replica], TokenDetails | None]":
        """Return the engines of these options, and the details to add."""
        hashable = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in options.items()
        }
        asked = {name: hashable.pop(name, None) for name in _DETAILS}
        replicas = self._make_replicas(**hashable)
        engine = replicas[0].translator
        if how["batching"].tokens and engine.source_encoder is None:
            raise UsageError(
                "An export does not count the tokens of a text: give "
                "batch_size instead of batch_tokens."
            )
        asked = {name: value for name, value in asked.items() if value}
        return replicas, self._details(engine, **asked) if asked else None


# Options of `token_info.TokenDetails`.
_DETAILS = ("token_scores", "alignment")


class _ExportedModel:
    """A SavedModel, an `Engine` of `decoding.translator` by signatures."""

    constraint: Any = None
    source_encoder: Any = None
    target_encoder: Any = None

    def __init__(self, folder: pathlib.Path):
        import tensorflow as tf
        import tensorflow_text  # noqa: F401 (registers the ops of vocabularies)

        from t2t_lite.decoding.search.settings import SearchSettings

        try:
            self._signatures = tf.saved_model.load(str(folder)).signatures
            about = json.loads((folder / ABOUT).read_text("utf-8"))
            self.max_length = int(about["max_length"])
            beam_size = about["search"]["beam_size"]
            self.settings = SearchSettings(beam_size=beam_size)
        except (OSError, ValueError, KeyError) as error:
            raise T2TLiteError(
                f"Cannot load the export {folder}: {format_error(error)}."
            ) from error

    def translate(
        self,
        texts: Any,
        num_hypotheses: int = 1,
        asked: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        name = "serving_default" if num_hypotheses == 1 else "nbest"
        found = dict(self._signatures[name](inputs=texts))
        for key in ("outputs", "scores"):  # [B] or [B, K] -> [B, N]
            rows = found[key][:, None] if num_hypotheses == 1 else found[key]
            found[key] = rows[:, :num_hypotheses]
        return found

    def check_supported(self, asked: Iterable[str]) -> None:
        _refuse(asked)

    def score(self, sources: Any, targets: Any) -> dict[str, Any]:
        return self._signatures["score"](inputs=sources, targets=targets)


def _refuse(options: Iterable[str]) -> None:
    for name in options:
        raise UsageError(
            f"This export searches as it was exported; got {name}. Export "
            "again, or load the run."
        )


def _list_texts(texts: Any) -> list[Any]:
    several = [texts] if isinstance(texts, str | Request) else list(texts)
    for text in several:
        if not isinstance(text, str | Request):
            raise UsageError(f"A text must be a str; got {text!r}.")
    return several
