"""The Python API: `train` trains a run, `load` opens a run to translate.

TensorFlow is imported after all arguments are checked.
"""

import functools
import inspect
import json
import os
import reprlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from t2t_lite import validators
from t2t_lite.decoding.batching import DEFAULT_SIZE, Batching
from t2t_lite.decoding.requests import Pair, Request
from t2t_lite.errors import UsageError, explain
from t2t_lite.hparam import HParams
from t2t_lite.problem import Problem
from t2t_lite.progress import Counter, log
from t2t_lite.serving import versions
from t2t_lite.tf_setup import require_not_forked, start_tensorflow
from t2t_lite.training.options import TrainingOptions
from t2t_lite.training.problem_choice import choose_job
from t2t_lite.validators import check, integer, one_of, optional

if TYPE_CHECKING:
    from t2t_lite.decoding.results import Attention, Result
    from t2t_lite.decoding.stream import Replica
    from t2t_lite.training.run import Run


def train(
    problem: str | Problem | None = None,
    hparams: str | HParams | None = None,
    output_dir: str | os.PathLike | None = None,
    callbacks: Sequence[Callable[[dict[str, Any]], object]] = (),
    **options: Any,
) -> "Run | str":
    """Train a run, like the command `t2t-lite-trainer`.

    It generates missing data, trains, evaluates and saves; the same call
    resumes a stopped run. In the main thread, Ctrl-C and SIGTERM save the run
    and raise `Interrupted`; SIGUSR1 saves and continues.

    Args:
      problem: the problem or its name; None takes the problem of the run in
        `output_dir`.
      hparams: hyperparameters or the name of a set; None takes the
        hyperparameters of the run in `output_dir`.
      output_dir: the folder of the run; None takes
        `~/t2t-lite/runs/PROBLEM/SET`.
      callbacks: functions that are called with each record of `metrics.jsonl`,
        a dict, for example to log it elsewhere.
      **options: fields of `TrainingOptions`, by name.

    Returns:
      The run, with its results in `run.progress`; or the report of a dry run as
      text.

    Raises:
      UsageError: a name, key or option is unknown, or values conflict.
      Interrupted: a signal stopped training; the run is saved.
      T2TLiteError: training failed; the message contains the fix.
    """
    validators.require_known(options, TrainingOptions, "train")
    job = choose_job(problem, hparams, output_dir, TrainingOptions(**options))
    if "tensorflow" not in sys.modules:
        log("Starting TensorFlow.")
    start_tensorflow(job.options.verbose, frozen_weights=False)
    from t2t_lite.training import trainer

    if job.options.dry_run:
        return trainer.dry_run(job)
    return trainer.train(job, callbacks)


train.__doc__ = (inspect.getdoc(train) or "").replace(
    "by name.", f"by name:\n{validators.describe(TrainingOptions)}"
)


def load(
    path: str | os.PathLike,
    *,
    checkpoint: str | int = "default",
    usr_dir: str | os.PathLike | None = None,
    replicas: int | None = 1,
    ensemble: Sequence[str | os.PathLike] = (),
    jit: bool | None = None,
) -> "LoadedTranslator":
    """Load a run or an export and return a callable translator.

    Example:
      >>> translator = t2t_lite.load(".quickstart/run")
      >>> translator("forty-two")
      'zweiundvierzig'
      >>> translator(["one", "two"])
      ['eins', 'zwei']
      >>> for hypothesis in translator("one", nbest=2):
      ...     print(hypothesis.score, hypothesis.text)

    Args:
      path: the folder of a run, of an export, or of the versions of an export,
        of which the newest is loaded. The other arguments require a run.
      checkpoint: "latest", "best", "average", "ema", a step number or a folder.
        The default is the average of the newest checkpoints if it exists, else
        the newest checkpoint.
      usr_dir: the folder or package with the code of the problem, if decoding
        requires it.
      replicas: the number of GPUs, or of CPU threads without GPUs, that decode
        concurrently; None takes all GPUs, or one thread per core, at most four.
        It changes the speed, not the results.
      ensemble: more models for an ensemble with averaged probabilities: folders
        of runs, or checkpoints of this run.
      jit: compile decoding with XLA, which speeds up single texts; each new
        batch size takes seconds. Scores agree within rounding errors. The
        default compiles in the background, after a few single texts.

    Raises:
      UsageError: `path` is not a run or an export, or an option requires a run.
      T2TLiteError: the run or the export is incomplete or damaged.
    """
    folder = Path(path).expanduser()
    version = versions.newest_version(folder)
    others = any((folder / x).exists() for x in versions.MARKS.values())
    if version is None and (others or not (folder / "config.json").is_file()):
        raise UsageError(
            "path must be the folder of a run, with a config.json, or of an "
            f"export, with a {versions.SAVED_MODEL} or {versions.CTRANSLATE2} "
            f"or versions 1, 2, ...; got {path}."
        )
    given = (checkpoint, usr_dir, replicas, jit) != ("default", None, 1, None)
    if version and (given or ensemble):
        raise UsageError(
            "checkpoint, usr_dir, replicas, ensemble and jit require a run; "
            f"got the export {version}. Remove them."
        )
    start_tensorflow()
    if version:
        return _load_export(version)
    from t2t_lite.decoding import stream
    from t2t_lite.training.run import Run

    if check("replicas", replicas, optional(integer(1))) != 1:
        replicas = stream.configure_cpu_threads(replicas)
    run = Run.open(folder, str(usr_dir or "") or None, to_decode=True)
    devices = stream.choose_devices(replicas)
    models = stream.build_per_device(
        devices, lambda: run.load_ensemble(checkpoint, ensemble)
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


def _load_export(version: Path) -> "LoadedTranslator":
    from t2t_lite.decoding.stream import Replica

    if (version / versions.CTRANSLATE2).is_file():
        from t2t_lite.interop.ctranslate2 import CTranslate2Translator

        known: tuple[str, ...] = ("beam_size", "alpha")
        search: Callable[..., Any] = CTranslate2Translator(version).searching
    else:
        exported = _ExportedModel(version)
        known, search = (), lambda: exported

    def make_replicas(**options: Any) -> "list[Replica]":
        _check_no_options(options.keys() - known)
        return [Replica(search(**options))]

    return LoadedTranslator(f"{version}, an export", make_replicas)


class LoadedTranslator:
    """Translates with a trained model; `t2t_lite.load` returns it.

    `name` describes the model, and `make_replicas` returns the replicas for
    search options. An export has no `run`.
    """

    def __init__(
        self,
        name: str,
        make_replicas: "Callable[..., list[Replica]]",
        run: "Run | None" = None,
    ):
        from t2t_lite.decoding.token_info import TokenDetails

        self._name = name
        # Cached, because tracing graphs is slow.
        self._make_replicas = functools.cache(make_replicas)
        self._run = run
        self._details = functools.cache(TokenDetails)

    def __repr__(self) -> str:
        return f"<Translator of {self._name}>"

    def __reduce__(self) -> NoReturn:
        raise UsageError(
            f"{self} cannot be copied or pickled: call t2t_lite.load in each "
            "process."
        )

    def __call__(
        self,
        texts: str | Request | Iterable[str | Request],
        *,
        nbest: int | None = None,
        batch_size: int | None = None,
        batch_tokens: int | None = None,
        **options: Any,
    ) -> Any:
        """Translate one text or several texts.

        Args:
          texts: a text, or an iterable of texts. A `Request` has options for a
            single text.
          nbest: the number of hypotheses per text, the best first, at most the
            beam size or the number of samples; None returns texts.
          batch_size: texts per batch, by default 64; changes the speed only.
          batch_tokens: source tokens per batch; changes the speed only.
          **options: fields of `decoding.search.settings.SearchSettings`, by
            default from the run, and the keywords below. CTranslate2 exports
            support `beam_size` and `alpha`, SavedModels no options.

        Keyword Args:
          split_sentences: translate the sentences of each text separately.
          mbr: "chrf" returns the hypothesis most similar to all others.
          token_scores: add the log-probability of each token to the hypotheses;
            requires `nbest` and a run.
          alignment: "words" adds pairs of source and target words to the
            hypotheses; requires `nbest` and a run.

        Returns:
          A str for one text, a list of str for several. With `nbest`, lists of
          hypotheses with `text`, `score` and `tokens` instead of str. The
          tokens of SavedModels are None.

        Raises:
          UsageError: an option is not supported, or a value is not valid.
        """
        several = _list_texts(texts)
        check("nbest", nbest, optional(integer(1)))
        for name in ("token_scores", "alignment"):
            if nbest is None and options.get(name):
                raise UsageError(
                    f"{name} requires nbest, because only hypotheses have it."
                )
        found: list[Any] = []
        batching = Batching(batch_size, batch_tokens, flush_early=False)
        stream_options = {"batching": batching}
        results = self.stream(several, stream_options, nbest=nbest, **options)
        is_long = len(several) > (batch_size or DEFAULT_SIZE)
        with Counter("translating", "texts", is_long, len(several)) as counter:
            for result in results:
                if result.error:
                    raise UsageError(result.error)
                best = result.hypotheses
                found.append(best[0].text if nbest is None else best)
                counter.advance(1)
        return found[0] if isinstance(texts, str | Request) else found

    def stream(
        self,
        texts: Iterable[Any],
        stream_options: Mapping[str, Any],
        *,
        score: bool = False,
        nbest: int | None = None,
        mbr: str | None = None,
        split_sentences: bool = False,
        token_scores: bool = False,
        alignment: str | None = None,
        **options: Any,
    ) -> "Iterator[Result]":
        """Return the results of a stream of texts or pairs, in input order.

        `decoding.stream.translate_lines` documents the texts and the
        `stream_options`: `batching`, `first_line`, `skip` and `note`. `score`
        adds token scores, for pairs. `__call__` documents all other options.
        """
        from t2t_lite.decoding import stream

        require_not_forked()
        hashable = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in options.items()
        }
        replicas = self._make_replicas(**hashable)
        engine = replicas[0].translator
        if stream_options["batching"].tokens and engine.source_encoder is None:
            raise UsageError(
                "batch_tokens is not supported for exports: use batch_size."
            )
        details = None
        has_pieces = engine.target_encoder is not None
        if token_scores or alignment or (score and has_pieces):
            details = self._details(
                engine, token_scores=token_scores, alignment=alignment
            )
        if score and (mbr or split_sentences):
            raise UsageError("mbr and split_sentences conflict with score.")
        problem = self._run.problem if self._run else None
        tags = problem.source_tags if problem else ()
        tags = tags or getattr(engine.source_encoder, "tags", ())
        split = None
        if split_sentences:
            if details or mbr or (nbest or 1) > 1 or self._run is None:
                raise UsageError(
                    "split_sentences requires a run, and conflicts with nbest, "
                    "mbr, token_scores and alignment."
                )
            split = stream.splitter_of(self._run.problem, self._run.encoders)
        return stream.translate_lines(
            replicas,
            texts,
            num_hypotheses=_count_hypotheses(engine.settings, nbest, mbr),
            postprocess=problem.postprocess if problem else None,
            details=details,
            rerank=mbr is not None,
            split=split,
            tags=tags,
            **stream_options,
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
        """Score given translations and their tokens.

        Args:
          sources: one text, or several.
          targets: the translations of the sources.
          batch_size: see `__call__`.
          batch_tokens: see `__call__`.
          **options: `alpha` and `alignment`, see `__call__`.

        Returns:
          A `Hypothesis` with `score`, `log_probability`,
          `token_log_probabilities` and `pieces`, or a list of them. The token
          scores of SavedModels are None.

        Raises:
          UsageError: an option is not supported, a value is not valid, or the
            numbers of texts differ.
        """
        single = isinstance(sources, str)
        texts, others = _list_texts(sources), _list_texts(targets)
        if len(texts) != len(others) or single != isinstance(targets, str):
            raise UsageError(
                "sources and targets must be two str, or two lists of the same "
                f"length; got {len(texts)} and {len(others)}."
            )
        batching = Batching(batch_size, batch_tokens, flush_early=False)
        stream_options = {"batching": batching}
        pairs = map(Pair, texts, others)
        results = self.stream(pairs, stream_options, score=True, **options)
        scores = [result.hypotheses[0] for result in results]
        return scores[0] if single else scores

    def attention(self, text: str, target: str | None = None) -> "Attention":
        """Compute the attention weights for a text and its translation.

        Args:
          text: the source.
          target: the translation; None takes the model's.

        Raises:
          UsageError: a text is not valid, or this is not a run of one model.
        """
        from t2t_lite.serving.page.attention_page import compute_attention

        require_not_forked()
        return compute_attention(
            self._make_replicas()[0].translator, text, target
        )


class _ExportedModel:
    """A SavedModel with the interface `Engine` of `decoding.translator`."""

    constraint: Any = None
    source_encoder: Any = None
    target_encoder: Any = None

    def __init__(self, folder: Path):
        import tensorflow as tf
        import tensorflow_text  # noqa: F401 (registers the ops of vocabularies)

        from t2t_lite.decoding.search.settings import SearchSettings

        causes = OSError, ValueError, LookupError, tf.errors.OpError
        with explain(f"Cannot load the export {folder}", *causes):
            self._signatures = tf.saved_model.load(str(folder)).signatures
            about = json.loads((folder / versions.ABOUT).read_text("utf-8"))
            self.max_length = int(about["max_length"])
            beam_size = about["search"]["beam_size"]
            self.settings = SearchSettings(beam_size=beam_size)

    def translate(
        self,
        texts: Any,
        num_hypotheses: int = 1,
        options: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        if num_hypotheses == 1:
            return dict(self._signatures["serving_default"](inputs=texts))
        found = self._signatures["nbest"](inputs=texts)
        best = {k: found[k][:, :num_hypotheses] for k in ("outputs", "scores")}
        return {**found, **best}

    def check_supported(self, options: Iterable[str]) -> None:
        _check_no_options(options)

    def score(self, sources: Any, targets: Any) -> dict[str, Any]:
        return self._signatures["score"](inputs=sources, targets=targets)


def _count_hypotheses(settings: Any, nbest: int | None, mbr: str | None) -> int:
    """Return the number of hypotheses to search for each text."""
    check("mbr", mbr, optional(one_of("chrf")))
    limit = None if settings.sample else settings.beam_size
    count = nbest or (limit if mbr else 1)
    if count is None:
        raise UsageError("`mbr` with `sample` requires `nbest` samples.")
    if limit is not None and count > limit:
        raise UsageError(
            "nbest must be at most the beam size; got "
            f"nbest={count}, beam_size={limit}."
        )
    return count


def _check_no_options(options: Iterable[str]) -> None:
    for name in options:
        raise UsageError(
            f"{name} is not supported for this export. Export again with "
            "other options, or load the run."
        )


def _list_texts(texts: Any) -> list[Any]:
    single = str | bytes | bytearray | Mapping
    several = isinstance(texts, Iterable) and not isinstance(texts, single)
    text_list = list(texts) if several else [texts]
    for text in text_list:
        if not isinstance(text, str | Request):
            found = " ".join(reprlib.repr(text).split())
            raise UsageError(f"A text must be a str; got {found}.")
    return text_list
