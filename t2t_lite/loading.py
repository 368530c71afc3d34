"""`t2t_lite.load`: a trained model, ready to translate from Python."""

import functools
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from t2t_lite.decoding.streams.batching import DEFAULT_SIZE, Batching
from t2t_lite.decoding.streams.requests import Request
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.loaded import LoadedTranslator
from t2t_lite.runtime import start_tensorflow
from t2t_lite.serving.versions import CTRANSLATE2, SAVED_MODEL, newest_version

if TYPE_CHECKING:
    from t2t_lite.decoding.answers import Hypothesis, Translation
    from t2t_lite.decoding.streams.replicas import Replica


def load(
    path: str | os.PathLike,
    *,
    checkpoint: str | int = "default",
    usr_dir: str | os.PathLike | None = None,
    replicas: int | None = 1,
    ensemble: Sequence[str | os.PathLike] = (),
    jit: bool = False,
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
      checkpoint: of a run: "latest", "best", "average", "ema", a step number
        or a folder. By default the average of the newest checkpoints if it was
        made, else the newest.
      usr_dir: of a run: the folder with the code of its problem. It is only
        needed if decoding uses more of the problem than its vocabulary.
      replicas: of a run: how many GPUs, or without them threads, search at the
        same time; None takes all GPUs, or without them one thread a core, at
        most four. Changes the speed, not the results.
      ensemble: of a run: other models whose probabilities are averaged with
        its own: folders of runs, or other checkpoints of this one.
      jit: of a run: compile searches by XLA, for seconds and anew for each size
        of batches; then single texts are answered sooner. Scores differ in
        their last bits.

    Raises:
      UsageError: `path` is neither, or an export is given other options.
      T2TLiteError: a part of the run or the export is missing or damaged.
    """
    folder = pathlib.Path(path).expanduser()
    version = newest_version(folder)
    if version is None and (folder / "config.json").is_file():
        start_tensorflow()
        return _RunTranslator(
            folder,
            checkpoint,
            None if usr_dir is None else str(usr_dir),
            replicas,
            list(map(str, ensemble)),
            jit,
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
    if (version / CTRANSLATE2).is_file():
        return _CTranslate2Export(version)
    return _ExportTranslator(version)


class _RunTranslator(LoadedTranslator):
    def __init__(
        self,
        folder: pathlib.Path,
        checkpoint: str | int,
        usr_dir: str | None,
        replicas: int | None,
        ensemble: Sequence[str],
        jit: bool,
    ):
        from t2t_lite.decoding.streams.replicas import (
            choose_devices,
            make_on,
            share_processor,
        )
        from t2t_lite.decoding.token_details import TokenDetails
        from t2t_lite.training.run import Run

        if replicas != 1:
            replicas = share_processor(replicas)
        self._folder = folder
        self._jit = jit
        self._run = Run.open(folder, usr_dir, to_decode=True)
        self._devices = choose_devices(replicas)
        self._models = make_on(
            self._devices,
            lambda: self._run.load_ensemble(checkpoint, ensemble),
        )
        # A graph takes a while to trace, so each one is kept.
        self._replicas = functools.cache(self._new_replicas)
        self._details = functools.cache(TokenDetails)

    def __repr__(self) -> str:
        problem = self._run.problem.name
        _, weights = self._models[self._devices[0]]
        names = ", ".join(map(str, weights))
        return f"<Translator of {self._folder}, {problem}, {names}>"

    def _new_replicas(self, **options: Any) -> "list[Replica]":
        from t2t_lite.decoding.streams.replicas import Replica

        translators = {
            device: self._run.translator(model, self._jit, **options)
            for device, (model, _) in self._models.items()
        }
        return [Replica(translators[each], each) for each in self._devices]

    def _search(self, texts, count, batching, options):
        from t2t_lite.decoding.lines import translate_lines
        from t2t_lite.decoding.streams.paragraphs import splitter_of

        # A list has no hash to keep a translator by.
        options, asked = _apart(
            {
                k: tuple(v) if isinstance(v, list) else v
                for k, v in options.items()
            }
        )
        split = None
        if options.pop("split_sentences", False):
            if asked or options.get("mbr") or (count or 1) > 1:
                raise UsageError(
                    "split_sentences gives one hypothesis of a text, without "
                    "details: leave out mbr, token_scores and alignment; got "
                    f"nbest={count}."
                )
            split = splitter_of(self._run.problem, self._run.encoders)
        replicas = self._replicas(**options)
        translator = replicas[0].translator
        most = translator.most_hypotheses
        if count is None and most is None:
            raise UsageError("mbr over samples needs nbest, their number.")
        count = count or most
        _require_beams(count, most)
        for translation in translate_lines(
            replicas,
            texts,
            batch_size=batching.size,
            batch_tokens=batching.tokens,
            num_hypotheses=count,
            complete=self._run.problem.complete,
            details=self._details(translator, **asked) if asked else None,
            split=split,
            tags=self._run.problem.source_tags,
        ):
            yield _hypotheses_of(translation)

    def _score(self, sources, targets, batching, options):
        from t2t_lite.decoding.lines import score_pairs

        options, asked = _apart(options)
        replicas = self._replicas(**options)
        yield from score_pairs(
            replicas,
            zip(sources, targets, strict=True),
            batch_size=batching.size,
            batch_tokens=batching.tokens,
            details=self._details(replicas[0].translator, **asked),
        )


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
        options = dict(options)
        for text in texts:
            if isinstance(text, Request) and text.error:
                raise UsageError(text.error)
        if any(
            isinstance(text, Request) and (text.asked() or text.tag)
            for text in texts
        ):
            options["requests"] = texts
        _require_exported(batching, options)
        from t2t_lite.decoding.answers import hypotheses_of

        name = "serving_default" if count == 1 else "nbest"
        signature = self._model.signatures[name]
        if count != 1:
            beam_size = signature.structured_outputs["scores"].shape[1]
            count = count or beam_size
            _require_beams(count, beam_size)
        for line, answer in self._ask(name, batching, inputs=texts):
            beams = {n: value[:count] for n, value in answer.items()}
            yield hypotheses_of(beams, line)

    def _score(self, sources, targets, batching, options):
        _require_exported(batching, options)
        if "score" not in self._model.signatures:
            raise UsageError(
                "This export is too old to score pairs: export again, or "
                f"load the run; got {self._folder}."
            )
        from t2t_lite.decoding.answers import PairScore, not_a_number
        from t2t_lite.decoding.search.log_probs import is_possible

        for line, answer in self._ask(
            "score", batching, inputs=sources, targets=targets
        ):
            if not is_possible(answer["log_probabilities"][0]):
                raise not_a_number(line)
            yield PairScore(
                line,
                sources[line - 1],
                targets[line - 1],
                score=float(answer["scores"][0]),
                log_probability=float(answer["log_probabilities"][0]),
                tokens=int(answer["lengths"][0]) if "lengths" in answer else 0,
            )

    def _ask(self, name, batching, **columns):
        """The line and the answer to each row of texts, its values [beams]."""
        import tensorflow as tf

        from t2t_lite.decoding.lines import log_note
        from t2t_lite.decoding.texts import strip_line_end

        signature = self._model.signatures[name]
        size = batching.size or DEFAULT_SIZE
        columns = {
            column: [
                strip_line_end(each.text if isinstance(each, Request) else each)
                for each in texts
            ]
            for column, texts in columns.items()
        }
        for start in range(0, len(columns["inputs"]), size):
            batch = {n: v[start : start + size] for n, v in columns.items()}
            found = signature(
                **{n: tf.constant(v, tf.string) for n, v in batch.items()}
            )
            rows = len(batch["inputs"])
            arrays = {n: v.numpy().reshape(rows, -1) for n, v in found.items()}
            for row in range(rows):
                answer = {n: value[row] for n, value in arrays.items()}
                line = start + row + 1
                if any(answer.get("cut", ())):  # exports of 0.1.0 do not tell
                    log_note(
                        line,
                        "the text is longer than the export takes; its end "
                        "was left out.",
                    )
                yield line, answer


class _CTranslate2Export(LoadedTranslator):
    def __init__(self, folder: pathlib.Path):
        from t2t_lite.interop.ctranslate2_translator import (
            CTranslate2Translator,
        )

        self._folder = folder
        self._translator = CTranslate2Translator.open(folder)

    def __repr__(self) -> str:
        return f"<Translator of {self._folder}, an export for CTranslate2>"

    def _search(self, texts, count, batching, options):
        from t2t_lite.decoding.lines import translate_lines

        translator = self._searching(options)
        most = translator.most_hypotheses
        count = count or most
        _require_beams(count, most)
        for translation in translate_lines(
            translator,
            texts,
            batch_size=batching.size,
            batch_tokens=batching.tokens,
            num_hypotheses=count,
        ):
            yield _hypotheses_of(translation)

    def _score(self, sources, targets, batching, options):
        from t2t_lite.decoding.lines import score_pairs
        from t2t_lite.decoding.token_details import TokenDetails

        translator = self._searching(options)
        yield from score_pairs(
            translator,
            zip(sources, targets, strict=True),
            batch_size=batching.size,
            batch_tokens=batching.tokens,
            details=TokenDetails(translator),
        )

    def _searching(self, options):
        if options.keys() - {"beam_size", "alpha"}:
            raise UsageError(
                "An export for CTranslate2 takes beam_size and alpha; got "
                f"{', '.join(options)}. Load the run."
            )
        return self._translator.searching(**options)


def _hypotheses_of(translation: "Translation") -> "list[Hypothesis]":
    """What answers a request; raises UsageError if nothing can."""
    if translation.error:
        raise UsageError(translation.error)
    return translation.hypotheses


def _apart(
    options: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of a search, and those of `TokenDetails`."""
    names = ("token_scores", "alignment", "alignment_layer")
    asked = {name: options[name] for name in names if options.get(name)}
    rest = {n: value for n, value in options.items() if n not in names}
    return rest, asked


def _require_exported(batching: Batching, options: Mapping[str, Any]) -> None:
    """Refuses what an export cannot be told any more."""
    if options:
        raise UsageError(
            "An export searches and scores as it was exported; got "
            f"{', '.join(options)}. Export again, or load the run."
        )
    if batching.tokens:
        raise UsageError(
            "An export does not tell how many tokens a text has: give "
            f"batch_size; got batch_tokens={batching.tokens}."
        )


def _require_beams(count: int, beam_size: int | None) -> None:
    if beam_size is not None and count > beam_size:
        raise UsageError(
            "nbest must be at most the beam size; got "
            f"nbest={count}, beam_size={beam_size}."
        )
