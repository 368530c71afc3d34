"""`t2t_lite.load`: a trained model, ready to translate from Python."""

import abc
import functools
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from t2t_lite.decoding.streams.batching import DEFAULT_SIZE
from t2t_lite.decoding.streams.requests import Request
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.progress import Counter
from t2t_lite.runtime import start_tensorflow
from t2t_lite.serving.versions import CTRANSLATE2, SAVED_MODEL, newest_version

if TYPE_CHECKING:
    from t2t_lite.decoding.answers import Hypothesis, PairScore
    from t2t_lite.decoding.streams.replicas import Replica

_DETAILS = ("token_scores", "alignment", "alignment_layer")


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
    if version is None and (folder / "config.json").is_file():
        start_tensorflow()
        return LoadedTranslator(
            _Run(folder, checkpoint, usr_dir, replicas, ensemble, jit)
        )
    if version is None:
        raise UsageError(
            "load needs the folder of a run, with a config.json, or of an "
            f"export, with a {SAVED_MODEL} or {CTRANSLATE2} or versions 1, 2, "
            f"...; got {path}."
        )
    given = (checkpoint, usr_dir, replicas, jit) != ("default", None, 1, False)
    if given or ensemble:
        raise UsageError(
            "checkpoint, usr_dir, replicas, ensemble and jit are for runs, and "
            "an export holds all it needs: leave them out; got the export "
            f"{version}."
        )
    start_tensorflow()
    is_ctranslate2 = (version / CTRANSLATE2).is_file()
    kind = _CTranslate2Export if is_ctranslate2 else _SavedModelExport
    return LoadedTranslator(kind(version))


class _Model(abc.ABC):
    """A loaded run or export.

    Attributes:
      folder: of the run or the export.
      complete: see `lines.translate_lines`.
      tags: likewise.
    """

    folder: pathlib.Path
    complete: Callable[[str, str], tuple[str, Mapping[str, Any]]] | None = None
    tags: Sequence[str] = ()

    @abc.abstractmethod
    def replicas(self, **options: Any) -> "list[Replica]":
        """Return what searches with these options.

        Raises:
          UsageError: an option is unknown or not supported.
        """

    def check_batching(self, options: Mapping[str, int]) -> None:
        """Raise UsageError for an option of batches that is not supported."""
        _require_positive(**options)

    def splitter(self) -> Callable[[str], list[str]]:
        """Return the function that splits a text into sentences."""
        raise UsageError(
            "split_sentences requires a run, which knows its language; got "
            f"{self.folder}."
        )


class LoadedTranslator:
    """Translates with a trained model; made by `t2t_lite.load`."""

    def __init__(self, model: _Model):
        self._model = model
        self._details = functools.cache(_token_details)

    def __repr__(self) -> str:
        return f"<Translator of {self._model}>"

    # A str is an Iterable[str] too, but the first match wins.
    @overload
    def __call__(
        self, texts: str | Request, *, nbest: None = None, **options: Any
    ) -> str: ...

    @overload
    def __call__(
        self,
        texts: Iterable[str | Request],
        *,
        nbest: None = None,
        **options: Any,
    ) -> list[str]: ...

    @overload
    def __call__(
        self, texts: str | Request, *, nbest: int, **options: Any
    ) -> "list[Hypothesis]": ...

    @overload
    def __call__(
        self, texts: Iterable[str | Request], *, nbest: int, **options: Any
    ) -> "list[list[Hypothesis]]": ...

    def __call__(
        self,
        texts: str | Request | Iterable[str | Request],
        *,
        nbest: int | None = None,
        **options: Any,
    ) -> Any:
        """Translate one text or several; stderr shows the progress of many.

        Args:
          texts: one text, or several; a `Request` carries options of its own.
          nbest: the number of hypotheses of each text, best first: at most the
            beam size, or the number of samples; None returns texts only.
          options: the fields of `decoding.search.settings.SearchSettings`; the
            defaults are those of the run. An export for CTranslate2 takes
            `beam_size` and `alpha`, a SavedModel none. Besides:
            `batch_size`, texts translated together (64), and `batch_tokens`,
            source tokens translated together, which change the speed only;
            `split_sentences`, translate the sentences of each text separately;
            `mbr="chrf"`, return the hypothesis most similar to all others;
            with `nbest` `token_scores`, `alignment` ("tokens" or "words") and
            `alignment_layer` of a run add fields to the hypotheses.

        Returns:
          A str for a text, a list of them for several. With `nbest`, a list of
          hypotheses with `text`, `score` and `tokens`, or a list of such lists.
          Exports as SavedModel have no tokens: they are None.

        Raises:
          UsageError: an option is not supported here, or a value is wrong.
        """
        from t2t_lite.decoding.lines import translate_lines
        from t2t_lite.evaluation.minimum_bayes_risk import require_utility

        several = _list_texts(texts)
        batching = _take(options, "batch_size", "batch_tokens")
        details = _take(options, *_DETAILS)
        mbr, split = options.pop("mbr", None), None
        _require_positive(nbest=nbest)
        self._model.check_batching(batching)
        if nbest is None and details:
            raise UsageError(
                f"{next(iter(details))} requires nbest: only hypotheses have "
                "details of their tokens."
            )
        if mbr is not None:
            require_utility(mbr)
        if options.pop("split_sentences", False):
            if details or mbr or (nbest or 1) > 1:
                raise UsageError(
                    "split_sentences gives one hypothesis of a text, without "
                    "details: leave out mbr, token_scores and alignment; got "
                    f"nbest={nbest}."
                )
            split = self._model.splitter()
        replicas = self._model.replicas(**_hashable(options))
        engine = replicas[0].translator
        most = engine.most_hypotheses
        count = nbest or (most if mbr else 1)
        if count is None:
            raise UsageError("With sample=True, mbr requires nbest.")
        if most is not None and count > most:
            raise UsageError(
                "nbest must be at most the beam size; got "
                f"nbest={count}, beam_size={most}."
            )
        answers: list[Any] = []
        is_long = len(several) > batching.get("batch_size", DEFAULT_SIZE)
        with Counter("translating", "texts", is_long, len(several)) as counter:
            for translation in translate_lines(
                replicas,
                several,
                **batching,
                num_hypotheses=count,
                complete=self._model.complete,
                details=self._details(engine, **details) if details else None,
                mbr=mbr,
                split=split,
                tags=self._model.tags,
            ):
                if translation.error:
                    raise UsageError(translation.error)
                found = translation.hypotheses
                answers.append(found[0].text if nbest is None else found)
                counter.advance(1)
        return answers[0] if isinstance(texts, str | Request) else answers

    @overload
    def score(
        self, sources: str, targets: str, **options: Any
    ) -> "PairScore": ...

    @overload
    def score(
        self, sources: Iterable[str], targets: Iterable[str], **options: Any
    ) -> "list[PairScore]": ...

    def score(
        self,
        sources: str | Iterable[str],
        targets: str | Iterable[str],
        **options: Any,
    ) -> Any:
        """Score given translations and each of their tokens.

        Args:
          sources: one text, or several.
          targets: the translation of each.
          options: `alpha`, `batch_size`, `batch_tokens`, `alignment` and
            `alignment_layer`, as in a call.

        Returns:
          A `PairScore` with `score`, `log_probability`,
          `token_log_probabilities` and `pieces`; or a list of them. Exports as
          SavedModel have no scores of tokens: they are None.

        Raises:
          UsageError: an option is not supported here, a value is wrong, or the
            numbers of texts differ.
        """
        from t2t_lite.decoding.lines import score_pairs

        one = isinstance(sources, str)
        texts, others = _list_texts(sources), _list_texts(targets)
        if len(texts) != len(others) or one != isinstance(targets, str):
            raise UsageError(
                "Each source needs one target, a str that is one or a list "
                f"of as many; got {len(texts)} and {len(others)}."
            )
        batching = _take(options, "batch_size", "batch_tokens")
        self._model.check_batching(batching)
        details = _take(options, *_DETAILS)
        replicas = self._model.replicas(**_hashable(options))
        engine = replicas[0].translator
        has_tokens = details or not isinstance(self._model, _SavedModelExport)
        scores = list(
            score_pairs(
                replicas,
                zip(texts, others, strict=True),
                **batching,
                details=self._details(engine, **details)
                if has_tokens
                else None,
            )
        )
        return scores[0] if one else scores


class _Run(_Model):
    def __init__(
        self,
        folder: pathlib.Path,
        checkpoint: str | int,
        usr_dir: str | os.PathLike | None,
        replicas: int | None,
        ensemble: Sequence[str | os.PathLike],
        jit: bool,
    ):
        from t2t_lite.decoding.streams.replicas import (
            choose_devices,
            make_on,
            share_processor,
        )
        from t2t_lite.training.run import Run

        if replicas != 1:
            replicas = share_processor(replicas)
        self.folder = folder
        self._jit = jit
        usr_dir = None if usr_dir is None else str(usr_dir)
        self._run = Run.open(folder, usr_dir, to_decode=True)
        self.complete = self._run.problem.complete
        self.tags = self._run.problem.source_tags
        self._devices = choose_devices(replicas)
        self._models = make_on(
            self._devices,
            lambda: self._run.load_ensemble(
                checkpoint, list(map(str, ensemble))
            ),
        )
        # Tracing a graph takes a while, so each one is kept.
        self._replicas = functools.cache(self._new_replicas)

    def __str__(self) -> str:
        _, weights = self._models[self._devices[0]]
        names = ", ".join(map(str, weights))
        return f"{self.folder}, {self._run.problem.name}, {names}"

    def replicas(self, **options: Any) -> "list[Replica]":
        return self._replicas(**options)

    def _new_replicas(self, **options: Any) -> "list[Replica]":
        from t2t_lite.decoding.streams.replicas import Replica

        translators = {
            device: self._run.translator(model, self._jit, **options)
            for device, (model, _) in self._models.items()
        }
        return [Replica(translators[each], each) for each in self._devices]

    def splitter(self) -> Callable[[str], list[str]]:
        from t2t_lite.decoding.streams.paragraphs import splitter_of

        return splitter_of(self._run.problem, self._run.encoders)


class _SavedModelExport(_Model):
    """An export, which implements `decoding.engine.Engine` by signatures."""

    form: Any = None
    source_encoder: Any = None
    target_encoder: Any = None

    def __init__(self, folder: pathlib.Path):
        import tensorflow as tf
        import tensorflow_text  # noqa: F401 (registers the ops of vocabularies)

        from t2t_lite.decoding.search.settings import SearchSettings
        from t2t_lite.serving.about import ABOUT_FILE

        self.folder = folder
        self.settings = SearchSettings()
        try:
            self._signatures = tf.saved_model.load(str(folder)).signatures
        except OSError as error:
            reason = str(error).splitlines()[0]
            raise T2TLiteError(
                f"Cannot load the export {folder}: {reason}"
            ) from error
        try:
            about = json.loads((folder / ABOUT_FILE).read_text("utf-8"))
            self.max_length = int(about["max_length"])
        except (OSError, ValueError, KeyError) as error:
            raise T2TLiteError(
                f"{folder / ABOUT_FILE} is missing or damaged: export the run "
                "again."
            ) from error

    def __str__(self) -> str:
        return f"{self.folder}, an export"

    def replicas(self, **options: Any) -> "list[Replica]":
        from t2t_lite.decoding.streams.replicas import Replica

        if options:
            raise UsageError(
                "An export searches and scores as it was exported; got "
                f"{', '.join(options)}. Export again, or load the run."
            )
        return [Replica(self)]

    def check_batching(self, options: Mapping[str, int]) -> None:
        super().check_batching(options)
        if "batch_tokens" in options:
            raise UsageError(
                "An export does not count the tokens of a text: give "
                "batch_size instead of batch_tokens."
            )

    @property
    def most_hypotheses(self) -> int:
        """The beam size of the export."""
        outputs = self._signatures["nbest"].structured_outputs
        return outputs["scores"].shape[1]

    def translate(
        self,
        texts: Any,
        num_hypotheses: int = 1,
        asked: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        import tensorflow as tf

        if num_hypotheses == 1:
            found = self._signatures["serving_default"](inputs=texts)
            for name in ("outputs", "scores"):
                found[name] = tf.expand_dims(found[name], 1)
            return found
        found = self._signatures["nbest"](inputs=texts)
        for name in ("outputs", "scores"):
            found[name] = found[name][:, :num_hypotheses]
        return found

    def require_can_do(self, asked: Iterable[str]) -> None:
        for name in asked:
            raise UsageError(
                f"An export searches as it was exported; got {name}. Export "
                "again, or load the run."
            )

    def score(self, sources: Any, targets: Any) -> dict[str, Any]:
        return self._signatures["score"](inputs=sources, targets=targets)

    def warm_up(self, num_hypotheses: int = 1) -> None:
        """A SavedModel has no graph to trace."""


class _CTranslate2Export(_Model):
    def __init__(self, folder: pathlib.Path):
        from t2t_lite.interop.ctranslate2_translator import (
            CTranslate2Translator,
        )

        self.folder = folder
        self._translator = CTranslate2Translator.open(folder)

    def __str__(self) -> str:
        return f"{self.folder}, an export for CTranslate2"

    def replicas(self, **options: Any) -> "list[Replica]":
        from t2t_lite.decoding.streams.replicas import Replica

        if options.keys() - {"beam_size", "alpha"}:
            raise UsageError(
                "An export for CTranslate2 takes beam_size and alpha; got "
                f"{', '.join(options)}. Load the run."
            )
        return [Replica(self._translator.searching(**options))]


def _token_details(engine: Any, **options: Any) -> Any:
    from t2t_lite.decoding.token_details import TokenDetails

    return TokenDetails(engine, **options)


def _list_texts(texts: Any) -> list[Any]:
    one = isinstance(texts, str | Request)
    several = [texts] if one else list(texts)
    for text in several:
        if not isinstance(text, str | Request):
            raise UsageError(f"A text must be a str; got {text!r}.")
    return several


def _take(options: dict[str, Any], *names: str) -> dict[str, Any]:
    """Remove these options from the others, and return those that are set."""
    taken = {name: options.pop(name, None) for name in names}
    return {
        name: value
        for name, value in taken.items()
        if value is not None and value is not False
    }


def _hashable(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with tuples for lists, as keys of a cache."""
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in options.items()
    }


def _require_positive(**values: int | None) -> None:
    for name, value in values.items():
        if value is not None and value < 1:
            raise UsageError(f"{name} must be at least 1; got {value}.")
