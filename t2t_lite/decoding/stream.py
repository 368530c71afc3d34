"""Translation and scoring of streams of lines, in the order of the input."""

import contextlib
import dataclasses
import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import tensorflow as tf

from t2t_lite.decoding.batching import (
    DEFAULT_BATCHING,
    Batching,
    map_sorted,
)
from t2t_lite.decoding.requests import Pair, Request
from t2t_lite.decoding.results import (
    Hypothesis,
    Result,
    concat_sentences,
    hypotheses_of,
    strip_padding,
)
from t2t_lite.decoding.search.scores import is_possible
from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.decoding.token_info import TokenDetails
from t2t_lite.decoding.translator import Engine, prepare
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.evaluation.minimum_bayes_risk import mean_utilities
from t2t_lite.problem import Problem
from t2t_lite.tf_setup import num_cpus, set_num_threads
from t2t_lite.tokenizers.sentence_splitter import sentence_splitter
from t2t_lite.tokenizers.tags import (
    add_tag,
    check_tag,
    split_keeping_tag,
    split_tag,
)

# Options of a `Request` that apply to one sentence only.
_SENTENCE_OPTIONS = ("prefix", "constraints")
_VIOLATIONS = {
    "missing": "required, but not in the translation: {}.",
    "unavoided": "to be avoided, but in the translation: {}.",
}
_MAX_REPLICAS = 4  # replicas on CPUs; each needs memory for a batch
# Largest hidden size whose ops on one sentence do not use two cores.
_SMALL_MODEL = 256

Made = TypeVar("Made")


# The hypotheses of a text, and whether it was truncated.
_Found: TypeAlias = tuple[Sequence[Hypothesis], bool]


class Replica(NamedTuple):
    """A translator and the device of its weights and computations."""

    translator: Engine
    device: str | None = None  # None: TensorFlow chooses


def translate_lines(
    translator: Engine | Sequence[Replica],
    lines: Iterable[str | bytes | Request],
    *,
    batching: Batching = DEFAULT_BATCHING,
    first_line: int = 1,
    num_hypotheses: int = 1,
    postprocess: Callable[[str, str], tuple[str, Mapping[str, Any]]]
    | None = None,
    details: TokenDetails | None = None,
    rerank: bool = False,
    split: Callable[[str], Sequence[str]] | None = None,
    tags: Sequence[str] = (),
    note: Callable[[int, str], None] | None = None,
) -> Iterator[Result]:
    r"""Translate a stream of lines, in order; each line yields one result.

    Lines are translated as they arrive, so `lines` may be a pipe or a terminal.
    Batches change the speed, not the results.

    Args:
      translator: an engine, or several replicas that work in parallel.
      lines: an iterable, such as an open binary file. A line ends with "\n",
        "\r\n" or nothing; other characters, such as NUL or U+2028, belong to
        the line. A `Request` has request options; if an option is not
        supported, the result is an error.
      batching: limits of a batch.
      first_line: number of the first line.
      num_hypotheses: hypotheses per line, at most the translator's beam size.
      postprocess: `Problem.postprocess`; None returns the model's text.
      details: adds token details to each hypothesis.
      rerank: sort hypotheses by mean utility, best first.
      split: splits a line into sentences, which are translated separately and
        concatenated; requires one hypothesis and no details.
      tags: `Problem.source_tags`, the tags that a `Request` may use.
      note: called with a line number and a warning; the default logs it.

    Raises:
      T2TLiteError: the model's scores are not finite.
    """
    replicas, note = _replicas_of(translator), note or log_note
    engine = replicas[0].translator

    def request_of(line: str | bytes | Request) -> Request:
        request = line if isinstance(line, Request) else Request(line)
        return _prepare_item(
            request, tags, lambda each: _check_options(each, engine, split)
        )

    def sentences(request: Request) -> list[Request]:
        if split is None:
            return [request]
        texts = split_keeping_tag(request.text, tags, split)
        return [dataclasses.replace(request, text=each) for each in texts]

    def run(engine: Engine, requests: Sequence[Request]) -> Iterator[_Found]:
        texts = tf.constant([request.text for request in requests])
        options = _batch_options(requests, engine.settings)
        outputs = engine.translate(texts, num_hypotheses, options)
        if details:
            outputs |= details.compute(engine, texts, outputs["tokens"])
        outputs = {name: value.numpy() for name, value in outputs.items()}
        for row, request in enumerate(requests):
            found = hypotheses_of(outputs, row)
            if details:
                found = [
                    details.add(each, request.text, outputs, (row, k))
                    for k, each in enumerate(found)
                ]
            yield found, outputs["cut"][row]

    for request, result in _run_batches(
        map(request_of, lines),
        sentences,
        run,
        replicas,
        batching,
        first_line,
        note,
    ):
        hypotheses = [
            _postprocess(request, each, engine.settings, postprocess)
            for each in result.hypotheses
        ]
        if rerank and hypotheses:
            utilities = mean_utilities([each.text for each in hypotheses])
            hypotheses = [
                dataclasses.replace(each, utility=utility)
                for each, utility in zip(hypotheses, utilities, strict=True)
            ]
            hypotheses.sort(key=lambda each: -(each.utility or 0))
        for each in hypotheses[:1]:
            for name, message in _VIOLATIONS.items():
                if texts := each.facts.get(name):
                    note(result.line, message.format(", ".join(texts)))
        yield dataclasses.replace(result, hypotheses=hypotheses)


def _check_options(request, engine, split):
    """Raise UsageError if an option of the request is not supported."""
    engine.check_supported(request.options())
    for name in _SENTENCE_OPTIONS:
        if split and name in request.options():
            raise UsageError(
                f"{name} conflicts with split_sentences: give single sentences."
            )


def _postprocess(request, hypothesis, settings, postprocess):
    """Add the violations and the problem's facts to a hypothesis."""
    text, facts = hypothesis.text, {}
    violations = request.violations(text, settings.bad_phrases)
    if postprocess:
        text, facts = postprocess(request.text, text)
    facts = {**facts, **violations}
    return dataclasses.replace(hypothesis, text=text, facts=facts)


def score_pairs(
    translator: Engine | Sequence[Replica],
    pairs: Iterable[Sequence[str | bytes] | Pair],
    *,
    batching: Batching = DEFAULT_BATCHING,
    first_line: int = 1,
    details: TokenDetails | None = None,
    tags: Sequence[str] = (),
    note: Callable[[int, str], None] | None = None,
) -> Iterator[Result]:
    """Score a stream of (source, target) pairs, in order.

    Args:
      translator: an engine, or several replicas that work in parallel; its
        `alpha` and `max_length` apply.
      pairs: source and target texts, with or without line ends.
      batching: limits of a batch.
      first_line: number of the first pair.
      details: adds token details, log-probabilities in any case.
      tags: `Problem.source_tags`, the tags that a `Pair` may use.
      note: called with a line number and a warning; the default logs it.

    Raises:
      T2TLiteError: the model's scores are not finite.
    """

    def pair_of(line: Sequence[str | bytes] | Pair) -> Pair:
        pair = line if isinstance(line, Pair) else Pair(*line)
        return _prepare_item(pair, tags)

    def run(engine: Engine, pairs: Sequence[Pair]) -> Iterator[_Found]:
        sources = tf.constant([pair.source for pair in pairs])
        targets = tf.constant([pair.target for pair in pairs])
        outputs = engine.score(sources, targets)
        if details:
            outputs |= details.compute(engine, sources, outputs["tokens"])
        outputs = {name: value.numpy() for name, value in outputs.items()}
        for row, pair in enumerate(pairs):
            found = Hypothesis(
                pair.target,
                float(outputs["scores"][row]),
                strip_padding(outputs["tokens"][row])
                if "tokens" in outputs
                else None,
                log_probability=float(outputs["log_probabilities"][row]),
            )
            if details:
                found = details.add(found, pair.source, outputs, (row,))
            yield [found], outputs["cut"][row]

    results = _run_batches(
        map(pair_of, pairs),
        lambda pair: [pair],
        run,
        _replicas_of(translator),
        batching,
        first_line,
        note or log_note,
    )
    return (result for _, result in results)


def log_note(number: int, message: str) -> None:
    """Log a warning about a line."""
    logging.getLogger("t2t_lite").warning("line %d: %s", number, message)


def _replicas_of(translator: Engine | Sequence[Replica]) -> Sequence[Replica]:
    if isinstance(translator, Sequence):
        return translator
    return [Replica(translator)]


def _run_batches(
    items: Iterable[Any],
    parts: Callable[[Any], list[Any]],
    run: Callable[[Engine, list[Any]], Iterator[_Found]],
    replicas: Sequence[Replica],
    batching: Batching,
    first_line: int,
    note: Callable[[int, str], None],
) -> Iterator[tuple[Any, Result]]:
    """Yield each item, whose parts are searched separately, and its result.

    `note` reports truncated texts.

    Raises:
      T2TLiteError: the model's scores are not finite.
    """
    engine = replicas[0].translator

    def work(replica: Replica, batch: list[Any]) -> list[_Found]:
        with tf.device(replica.device):
            return list(run(replica.translator, batch))

    def lengths(batch: list[Any]) -> list[int]:
        texts = [[getattr(x, side) for x in batch] for side in batch[0].SIDES]
        if batching.tokens is None:
            return [sum(map(len, sides)) for sides in zip(*texts, strict=True)]
        encoders = (engine.source_encoder, engine.target_encoder)
        counts = [
            encoder.encode_tf(prepare(tf.constant(side), engine.constraint))
            for encoder, side in zip(encoders, texts, strict=False)
        ]
        longest = np.max([each.row_lengths() for each in counts], axis=0)
        return np.minimum(longest + 1, engine.max_length).tolist()

    found_by_item = map_sorted(
        items,
        lambda item: [] if item.error else parts(item),
        [functools.partial(work, replica) for replica in replicas],
        lengths,
        batching,
    )
    for line, (item, found) in enumerate(found_by_item, start=first_line):
        hypotheses: Sequence[Hypothesis] = ()
        for hypotheses, _ in found:
            if not is_possible(hypotheses[0].score):
                raise T2TLiteError(
                    f"The model's score for line {line} is NaN or infinite. "
                    "Training diverged or the checkpoint is damaged: choose "
                    "another one with `checkpoint`."
                )
        if len(found) > 1:
            best = [hypotheses[0] for hypotheses, _ in found]
            hypotheses = [concat_sentences(best, engine.settings.alpha)]
        truncated = any(truncated for _, truncated in found)
        if truncated:
            limit = f"{engine.max_length} tokens (max_length, EOS included)"
            note(line, f"truncated to {limit}.")
        source = getattr(item, item.SIDES[0])
        yield (
            item,
            Result(line, source, hypotheses, item.id, item.error, truncated),
        )


def _prepare_item(
    item: Any,
    tags: Sequence[str],
    check: Callable[[Any], None] = lambda item: None,
) -> Any:
    """Put a request's or pair's tag before its text; set `error` if invalid.

    A text that begins with one of `tags` does not change.
    """
    try:
        if item.tag:
            side = item.SIDES[0]
            tag, text = check_tag(item.tag, tags), getattr(item, side)
            has_tag, _ = split_tag(text, tags)
            text = text if has_tag else add_tag(tag, text)
            item = dataclasses.replace(item, **{side: text})
        check(item)
    except UsageError as error:
        return dataclasses.replace(item, error=item.error or str(error))
    return item


def _batch_options(
    requests: Sequence[Request], settings: SearchSettings
) -> dict[str, tf.Tensor | tf.RaggedTensor]:
    """Return the request options of a batch for `Translator.translate`."""
    options = {}
    for name in {name for request in requests for name in request.options()}:
        values = [getattr(request, name) for request in requests]
        if name == "prefix":
            options[name] = tf.constant(values)
        elif name == "seed":
            values = [settings.seed if x is None else x for x in values]
            options[name] = tf.constant(values, tf.int64)
        else:
            options[name] = tf.ragged.constant(
                list(map(list, values)), tf.string, ragged_rank=1
            )
    return options


def splitter_of(
    problem: Problem, encoders: Mapping[str, Any]
) -> Callable[[str], list[str]]:
    """Return the function that splits a source text into sentences.

    The problem determines the language; the default is English.

    Raises:
      UsageError: the problem's outputs are constrained.
    """
    if problem.output_constraint(encoders) is not None:
        raise UsageError(
            "split_sentences requires plain text; the outputs of "
            f"{problem.name} are constrained: remove it."
        )
    language, _ = getattr(problem, "languages", ("", ""))
    return sentence_splitter(language)


def configure_cpu_threads(
    count: int | None = None, hidden_size: int | None = None
) -> int | None:
    """Divide the cores among parallel searches.

    Most ops of a search are too small for two cores, so two searches on one
    core each are faster than one search on both. No effect with GPUs, or once
    TensorFlow has started its threads.

    Args:
      count: number of searches; None: one per core, at most four.
      hidden_size: D of a model that gets one line at a time; a small model uses
        one core. None: the model gets batches.

    Returns:
      The number of searches; with GPUs, `count`.
    """
    if tf.config.list_physical_devices("GPU"):
        return count
    count = count or min(num_cpus(), _MAX_REPLICAS)
    on_one_core = hidden_size is not None and hidden_size <= _SMALL_MODEL
    with contextlib.suppress(RuntimeError):  # the threads already exist
        set_num_threads(num_cpus() if on_one_core else count)
    return count


def choose_devices(count: int | None = None) -> list[str | None]:
    """Return the device of each replica.

    Without GPUs, replicas are threads that share the CPUs and one set of
    weights; see `configure_cpu_threads`.

    Args:
      count: number of replicas; None: all GPUs, or one replica without GPUs.

    Raises:
      UsageError: the machine has GPUs, but fewer than `count`.
    """
    gpus = [gpu.name for gpu in tf.config.list_logical_devices("GPU")]
    if not gpus:
        return [None] * (count or 1)
    if count is not None and count > len(gpus):
        raise UsageError(
            f"`replicas` must be at most {len(gpus)}, the number of GPUs "
            f"(got {count})."
        )
    return list(gpus[:count])


def build_per_device(
    devices: Sequence[str | None], make: Callable[[], Made]
) -> dict[str | None, Made]:
    """Call `make` once on each device; return the results by device."""
    results = {}
    for device in dict.fromkeys(devices):
        with tf.device(device):
            results[device] = make()
    return results
