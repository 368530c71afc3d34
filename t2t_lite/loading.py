"""`t2t_lite.load`: a trained model, ready to translate from Python."""

import abc
import functools
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

from t2t_lite.decoding.streams.batching import DEFAULT_SIZE, Batching
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.progress import Counter
from t2t_lite.runtime import start_tensorflow

if TYPE_CHECKING:
    from t2t_lite.decoding.answers import Hypothesis
    from t2t_lite.decoding.streams.replicas import Replica


def load(
    path: str | os.PathLike,
    *,
    checkpoint: str | int = "default",
    usr_dir: str | os.PathLike | None = None,
    replicas: int | None = 1,
) -> "LoadedTranslator":
    """Loads a run or an export; what it returns translates when called.

    Example:
      >>> translator = t2t_lite.load(".quickstart/run")
      >>> translator("forty-two")
      'zweiundvierzig'
      >>> translator(["one", "two"])
      ['eins', 'zwei']
      >>> for hypothesis in translator("one", nbest=2):
      ...     print(hypothesis.score, hypothesis.text)

    Args:
      path: the folder of a run; or of an export, or of several versions of
        one, of which the newest is taken.
      checkpoint: of a run: "latest", "best", "average", a step number, or a
        folder. By default the average of the newest checkpoints if it was
        made, else the newest.
      usr_dir: of a run: where the code of its problem is. It is only needed
        if the problem does more in decoding than to name a vocabulary, and
        the code has moved since the training or you did not train with it.
      replicas: of a run: how many GPUs, or without them threads, search at the
        same time; None takes all GPUs. Changes the speed, not the results.

    Raises:
      UsageError: `path` is neither, or an export is given other options.
      T2TLiteError: a part of the run or the export is missing or damaged.
    """
    folder = pathlib.Path(path).expanduser()
    if (folder / "config.json").is_file():
        start_tensorflow()
        return _RunTranslator(
            folder,
            checkpoint,
            None if usr_dir is None else str(usr_dir),
            replicas,
        )
    version = _newest_version(folder)
    if version is None:
        raise UsageError(
            "load needs the folder of a run, with a config.json, or of an "
            f"export, with a saved_model.pb or versions 1, 2, ...; got {path}."
        )
    if (checkpoint, usr_dir, replicas) != ("default", None, 1):
        raise UsageError(
            "checkpoint, usr_dir and replicas are for runs, and an export "
            f"holds all it needs: leave them out; got the export {version}."
        )
    start_tensorflow()
    return _ExportTranslator(version)


class SearchOptions(TypedDict, total=False):
    """How a translator searches; what is left out is the run's.

    Attributes:
      beam_size: beams of the search; 1 is greedy.
      alpha: of the length penalty: score = log-probability / ((5 + length) /
        6) ** alpha.
      constrained: search only for answers of the right form, such as trees.
      batch_size: texts translated together, 64 if left out; changes the
        speed, not the results.
      batch_tokens: instead: as many as have at most so many source tokens
        together, padding included; with `batch_size` both hold.
    """

    beam_size: int
    alpha: float
    constrained: bool
    batch_size: int
    batch_tokens: int


class LoadedTranslator(abc.ABC):
    """Translates with a trained model; made by `t2t_lite.load`."""

    # A str is an Iterable[str] too, but the first that fits is taken.
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self,
        texts: str,
        *,
        nbest: None = None,
        **options: Unpack[SearchOptions],
    ) -> str: ...

    @overload
    def __call__(
        self,
        texts: Iterable[str],
        *,
        nbest: None = None,
        **options: Unpack[SearchOptions],
    ) -> list[str]: ...

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, texts: str, *, nbest: int, **options: Unpack[SearchOptions]
    ) -> "list[Hypothesis]": ...

    @overload
    def __call__(
        self,
        texts: Iterable[str],
        *,
        nbest: int,
        **options: Unpack[SearchOptions],
    ) -> "list[list[Hypothesis]]": ...

    def __call__(
        self,
        texts: str | Iterable[str],
        *,
        nbest: int | None = None,
        **options: Unpack[SearchOptions],
    ) -> Any:
        """Translates one text or several; of many, stderr shows progress.

        Args:
          texts: one text, or several.
          nbest: how many hypotheses to give of each text, best first, at most
            the beam size; None gives the text of the best one.
          options: `beam_size`, `alpha`, `constrained`, `batch_size`,
            `batch_tokens`, see `SearchOptions`.

        Returns:
          A str for a text, and a list of them for several. With `nbest`, a
          list of hypotheses, which have `text`, `score` and `tokens`, and a
          list of such lists. An export gives no tokens: they are None.

        Raises:
          UsageError: an option that does not apply here, or a bad value.
        """
        several = [texts] if isinstance(texts, str) else list(texts)
        for text in several:
            if not isinstance(text, str):
                raise UsageError(f"A text must be a str; got {text!r}.")
        batch_size = options.pop("batch_size", None)
        batch_tokens = options.pop("batch_tokens", None)
        for name, value in {
            "nbest": nbest,
            "beam_size": options.get("beam_size"),
            "batch_size": batch_size,
            "batch_tokens": batch_tokens,
        }.items():
            if value is not None and value < 1:
                raise UsageError(f"{name} must be at least 1; got {value}.")
        batching = Batching(batch_size, batch_tokens)
        answers: list[Any] = []
        many = len(several) > (batch_size or DEFAULT_SIZE)
        with Counter("translating", "texts", many, len(several)) as counter:
            for hypotheses in self._search(
                several, nbest or 1, batching, options
            ):
                answers.append(
                    hypotheses[0].text if nbest is None else hypotheses
                )
                counter.advance(1)
        return answers[0] if isinstance(texts, str) else answers

    @abc.abstractmethod
    def _search(
        self,
        texts: Sequence[str],
        count: int,
        batching: Batching,
        options: Mapping[str, Any],
    ) -> "Iterator[list[Hypothesis]]":
        """The best `count` hypotheses of each text."""


class _RunTranslator(LoadedTranslator):
    def __init__(
        self,
        folder: pathlib.Path,
        checkpoint: str | int,
        usr_dir: str | None,
        replicas: int | None,
    ):
        from t2t_lite.decoding.streams.replicas import choose_devices, make_on
        from t2t_lite.training.run import Run

        self._folder = folder
        self._run = Run.open(folder, usr_dir, to_decode=True)
        self._devices = choose_devices(replicas)
        self._models = make_on(
            self._devices, lambda: self._run.load_model(checkpoint)
        )
        # A graph takes a while to trace, so each one is kept.
        self._replicas = functools.cache(self._new_replicas)

    def __repr__(self) -> str:
        problem = self._run.problem.name
        _, weights = self._models[self._devices[0]]
        return f"<Translator of {self._folder}, {problem}, {weights}>"

    def _new_replicas(self, **options: Any) -> "list[Replica]":
        from t2t_lite.decoding.streams.replicas import Replica

        translators = {
            device: self._run.translator(model, **options)
            for device, (model, _) in self._models.items()
        }
        return [Replica(translators[each], each) for each in self._devices]

    def _search(self, texts, count, batching, options):
        from t2t_lite.decoding.lines import translate_lines

        replicas = self._replicas(**options)
        _require_beams(count, replicas[0].translator.beam_size)
        for translation in translate_lines(
            replicas,
            texts,
            batch_size=batching.size,
            batch_tokens=batching.tokens,
            num_hypotheses=count,
            complete=self._run.problem.complete,
        ):
            yield translation.hypotheses


class _ExportTranslator(LoadedTranslator):
    def __init__(self, folder: pathlib.Path):
        import tensorflow as tf
        import tensorflow_text  # noqa: F401 (registers the ops of vocabularies)

        self._folder = folder
        try:
            self._model = tf.saved_model.load(str(folder))
        except OSError as error:
            reason = str(error).splitlines()[0]
            raise T2TLiteError(
                f"Cannot load the export {folder}: {reason}"
            ) from error

    def __repr__(self) -> str:
        return f"<Translator of {self._folder}, an export>"

    def _search(self, texts, count, batching, options):
        if options:
            raise UsageError(
                "An export searches as it was exported; got "
                f"{', '.join(options)}. Export again, or load the run."
            )
        if batching.tokens:
            raise UsageError(
                "An export does not tell how many tokens a text has: give "
                f"batch_size; got batch_tokens={batching.tokens}."
            )
        import tensorflow as tf

        from t2t_lite.decoding.answers import hypotheses_of
        from t2t_lite.decoding.lines import log_note

        name = "serving_default" if count == 1 else "nbest"
        signature = self._model.signatures[name]
        if count > 1:
            scores = signature.structured_outputs["scores"]
            _require_beams(count, scores.shape[1])
        batch_size = batching.size or DEFAULT_SIZE
        for start in range(0, len(texts), batch_size):
            batch = texts[start : start + batch_size]
            answers = {
                name: value.numpy().reshape(len(batch), -1)[:, :count]
                for name, value in signature(inputs=tf.constant(batch)).items()
            }
            for row in range(len(batch)):
                answer = {name: value[row] for name, value in answers.items()}
                line = start + row + 1
                if any(answer.get("cut", ())):  # exports of 0.1.0 do not tell
                    log_note(
                        line,
                        "the text is longer than the export takes; its end "
                        "was left out.",
                    )
                yield hypotheses_of(answer, line)


def _require_beams(count: int, beam_size: int) -> None:
    if count > beam_size:
        raise UsageError(
            "nbest must be at most the beam size; got "
            f"nbest={count}, beam_size={beam_size}."
        )


def _newest_version(folder: pathlib.Path) -> pathlib.Path | None:
    """An export itself, or the newest in a folder of exports; None: neither."""
    if not folder.is_dir():
        return None
    versions = sorted(
        (path for path in folder.iterdir() if path.name.isdecimal()),
        key=lambda path: int(path.name),
    )
    found = [
        path
        for path in (*versions, folder)
        if (path / "saved_model.pb").is_file()
    ]
    return found[-1] if found else None
