"""Streams of lines to their translations or scores, in the order of input."""

import contextlib
import dataclasses
import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

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
    PairScore,
    Translation,
    concat_sentences,
    hypotheses_of,
    require_finite,
    strip_padding,
)
from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.decoding.token_info import TokenDetails
from t2t_lite.decoding.translator import Engine, prepare
from t2t_lite.errors import UsageError
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
_OF_ONE_SENTENCE = ("prefix", "constraints")
_VIOLATIONS = {
    "missing": "required, but not in the translation: {}.",
    "unavoided": "to be avoided, but in the translation: {}.",
}
_MAX_REPLICAS = 4  # on one processor: each needs memory for a batch
# The operations of a smaller model on one sentence do not use two cores.
_SMALL_MODEL = 256

Made = TypeVar("Made")
Row = Mapping[str, Any]  # the values of one text, by name


class Replica(NamedTuple):
    """A translator, and the device that holds its weights and runs it."""

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
) -> Iterator[Translation]:
    r"""Translate a stream of lines, one result a line, in their order.

    Lines that have arrived are translated without waiting for more, so `lines`
    may be a pipe or a person. Batches change the speed, not the results.

    Args:
      translator: an engine, or several replicas that work in parallel.
      lines: each ends with "\n", "\r\n" or nothing; every other character,
        such as NUL or U+2028, belongs to the line. It may be an open binary
        file. A `Request` has options of its own; if they cannot be met, its
        result is an error.
      batching: which lines form a batch.
      first_line: the number of the first line.
      num_hypotheses: hypotheses a line, at most the translator's beam size.
      postprocess: `Problem.postprocess`; None returns the model's text.
      details: the fields to add to each hypothesis.
      rerank: order the hypotheses by their mean utility, the best first.
      split: splits a line into sentences, which are translated separately and
        concatenated; requires one hypothesis and no details.
      tags: `Problem.source_tags`, which a `Request` may name.
      note: called with a line number and a warning; the default logs it.

    Raises:
      T2TLiteError: the model's scores are not finite.
    """
    replicas, note = _replicas_of(translator), note or log_note
    engine = replicas[0].translator

    def request_of(line: str | bytes | Request) -> Request:
        request = line if isinstance(line, Request) else Request(line)
        return _prepared(
            request, tags, lambda each: _check_options(each, engine, split)
        )

    def sentences(request: Request) -> list[Request]:
        if split is None:
            return [request]
        texts = split_keeping_tag(request.text, tags, split)
        return [dataclasses.replace(request, text=each) for each in texts]

    def run(engine: Engine, requests: Sequence[Request]) -> Row:
        texts = tf.constant([request.text for request in requests])
        asked = _columns(requests, engine.settings)
        found = engine.translate(texts, num_hypotheses, asked)
        if details:
            found |= details.compute(engine, texts, found["tokens"])
        return found

    requests = map(request_of, lines)
    for line, request, rows in _run_batches(
        requests, sentences, run, replicas, batching, first_line, note
    ):
        result = Translation(line, request.text, [], request.id, request.error)
        if rows:
            hypotheses = [
                _postprocess(request, each, engine.settings, postprocess)
                for each in _hypotheses(line, request, rows, engine, details)
            ]
            if rerank:
                hypotheses = _reranked(hypotheses)
            for name, message in _VIOLATIONS.items():
                if texts := hypotheses[0].facts.get(name):
                    note(line, message.format(", ".join(texts)))
            result = dataclasses.replace(result, hypotheses=hypotheses)
        yield result


def _check_options(request, engine, split):
    """Raise UsageError for an option that cannot be met here."""
    engine.check_supported(request.asked())
    for name in _OF_ONE_SENTENCE:
        if split and name in request.asked():
            raise UsageError(
                f"{name} conflicts with split_sentences: give single sentences."
            )


def _postprocess(request, hypothesis, settings, postprocess):
    """Return the hypothesis with the problem's facts and the violations."""
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
) -> Iterator[PairScore]:
    """Score a stream of (source, target) pairs, in their order.

    Args:
      translator: an engine, or several replicas; its alpha and its longest
        length apply.
      pairs: texts, with or without line ends.
      batching: which pairs form a batch.
      first_line: the number of the first pair.
      details: the fields to add; log-probabilities of tokens in any case.
      tags: `Problem.source_tags`, which a `Pair` may name.
      note: as in `translate_lines`.

    Raises:
      T2TLiteError: the model's scores are not finite.
    """

    def pair_of(line: Sequence[str | bytes] | Pair) -> Pair:
        return _prepared(line if isinstance(line, Pair) else Pair(*line), tags)

    def run(engine: Engine, pairs: Sequence[Pair]) -> Row:
        sources = tf.constant([pair.source for pair in pairs])
        targets = tf.constant([pair.target for pair in pairs])
        found = engine.score(sources, targets)
        if details:
            found = details.compute(engine, sources, found["tokens"]) | found
        return found

    for line, pair, rows in _run_batches(
        map(pair_of, pairs),
        lambda pair: [pair],
        run,
        _replicas_of(translator),
        batching,
        first_line,
        note or log_note,
    ):
        result = PairScore(
            line, pair.source, pair.target, id=pair.id, error=pair.error
        )
        for row in rows:  # one, or none for an error
            require_finite(row["log_probabilities"], line)
            fields: dict[str, Any] = {}
            if details:
                tokens = strip_padding(row["tokens"])
                fields = details.describe(pair.source, tokens, row, pair.target)
            result = dataclasses.replace(
                result,
                score=float(row["scores"]),
                log_probability=float(row["log_probabilities"]),
                tokens=int(row["lengths"]),
                **fields,
            )
        yield result


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
    run: Callable[[Engine, list[Any]], Mapping[str, tf.Tensor]],
    replicas: Sequence[Replica],
    batching: Batching,
    first_line: int,
    note: Callable[[int, str], None],
) -> Iterator[tuple[int, Any, list[Row]]]:
    """Yield the line number, the item and the rows of its parts, in order.

    An item with an error has no rows. Truncated texts are noted. `run` returns
    values [B, ...] by name.
    """
    engine = replicas[0].translator

    def work(replica: Replica, batch: list[Any]) -> Iterator[Row]:
        with tf.device(replica.device):
            found = run(replica.translator, batch)
        values = {name: value.numpy() for name, value in found.items()}
        for row in range(len(batch)):
            yield {name: value[row] for name, value in values.items()}

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

    results = map_sorted(
        items,
        lambda item: [] if item.error else parts(item),
        [functools.partial(work, replica) for replica in replicas],
        lengths,
        batching,
    )
    for line, (item, rows) in enumerate(results, start=first_line):
        if any(row["cut"] for row in rows):
            note(
                line,
                f"a text may have {engine.max_length} tokens (max_length, EOS "
                "included); the rest was left out.",
            )
        yield line, item, rows


def _prepared(
    item: Any,
    tags: Sequence[str],
    check: Callable[[Any], None] = lambda item: None,
) -> Any:
    """Return a request or pair with its tag before its text, or with an error.

    A text that begins with one of `tags` stays as it is.
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


def _columns(
    requests: Sequence[Request], settings: SearchSettings
) -> dict[str, tf.Tensor | tf.RaggedTensor]:
    """Return the options of requests, as `Translator.translate` takes them."""
    columns = {}
    for name in {name for request in requests for name in request.asked()}:
        values = [getattr(request, name) for request in requests]
        if name == "prefix":
            columns[name] = tf.constant(values)
        elif name == "seed":
            values = [settings.seed if x is None else x for x in values]
            columns[name] = tf.constant(values, tf.int64)
        else:
            columns[name] = tf.ragged.constant(
                list(map(list, values)), tf.string, ragged_rank=1
            )
    return columns


def _hypotheses(
    line: int,
    request: Request,
    rows: Sequence[Row],
    engine: Engine,
    details: TokenDetails | None,
) -> list[Hypothesis]:
    """Return the hypotheses of a line, of one row for each sentence."""
    first, *others = [hypotheses_of(row, line) for row in rows]
    if others:
        best = [first[0], *(each[0] for each in others)]
        return [concat_sentences(best, engine.settings.alpha)]
    if details is None:
        return first
    names = {"token_log_probabilities", "sources"} & rows[0].keys()
    return [
        dataclasses.replace(
            each,
            **details.describe(
                request.text,
                each.tokens or [],
                {name: rows[0][name][k] for name in names},
            ),
        )
        for k, each in enumerate(first)
    ]


def _reranked(hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
    """Return hypotheses with their mean utility against all, best first."""
    utilities = mean_utilities([each.text for each in hypotheses])
    order = sorted(range(len(utilities)), key=lambda k: -utilities[k])
    return [
        dataclasses.replace(hypotheses[k], utility=utilities[k]) for k in order
    ]


def splitter_of(
    problem: Problem, encoders: Mapping[str, Any]
) -> Callable[[str], list[str]]:
    """Return the function that splits a source text into sentences.

    The problem names the language; English replaces a missing one. Answers that
    are not sentences that can be concatenated are a UsageError.
    """
    if problem.output_constraint(encoders) is not None:
        raise UsageError(
            "split_sentences requires plain text; the answers of "
            f"{problem.name} have a form: leave it out."
        )
    language, _ = getattr(problem, "languages", ("", ""))
    return sentence_splitter(language)


def configure_cpu_threads(
    count: int | None = None, hidden_size: int | None = None
) -> int | None:
    """Divide the cores among several searches; return their number.

    Most operations of a search are too small for two cores: two searches on a
    core each are faster than one on both. TensorFlow keeps its threads once it
    has computed anything. With GPUs nothing is divided.

    Args:
      count: the number of searches; None: one a core, but at most four.
      hidden_size: D of a model that gets one line at a time, which uses one
        core if it is small; None: it gets batches.
    """
    if tf.config.list_physical_devices("GPU"):
        return count
    count = count or min(num_cpus(), _MAX_REPLICAS)
    on_one_core = hidden_size is not None and hidden_size <= _SMALL_MODEL
    with contextlib.suppress(RuntimeError):  # the threads exist already
        set_num_threads(num_cpus() if on_one_core else count)
    return count


def choose_devices(count: int | None = None) -> list[str | None]:
    """Return the device of each replica.

    Without GPUs the replicas are threads that share the processor and one set
    of weights; see `configure_cpu_threads`.

    Args:
      count: the number; None: all GPUs, or one replica without GPUs.

    Raises:
      UsageError: there are GPUs, but fewer.
    """
    gpus = [gpu.name for gpu in tf.config.list_logical_devices("GPU")]
    if not gpus:
        return [None] * (count or 1)
    if count is not None and count > len(gpus):
        raise UsageError(
            f"There are {len(gpus)} GPUs for `replicas`; got {count}."
        )
    return list(gpus[:count])


def build_per_device(
    devices: Sequence[str | None], make: Callable[[], Made]
) -> dict[str | None, Made]:
    """Return what `make` returns on each device, once for each device."""
    made = {}
    for device in dict.fromkeys(devices):
        with tf.device(device):
            made[device] = make()
    return made
