"""Translation and scoring of streams of lines, in the order of the input."""

import contextlib
import dataclasses
import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import tensorflow as tf

from t2t_lite.decoding.batching import DEFAULT_BATCHING, Batching, map_sorted
from t2t_lite.decoding.requests import Pair, Request
from t2t_lite.decoding.results import (
    Hypothesis,
    Result,
    concat_sentences,
    hypotheses_of,
)
from t2t_lite.decoding.search.scores import is_possible
from t2t_lite.decoding.token_info import TokenDetails
from t2t_lite.decoding.translator import Engine, prepare
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.evaluation.minimum_bayes_risk import mean_utilities
from t2t_lite.problem import Problem
from t2t_lite.tf_setup import num_cpus, set_num_threads
from t2t_lite.tokenizers.sentence_splitter import sentence_splitter
from t2t_lite.tokenizers.tags import add_tag, check_tag, split_tag

# Options of a `Request` that apply to one sentence only.
_SENTENCE_OPTIONS = ("prefix", "constraints")
_VIOLATIONS = {
    "missing": "required, but not in the translation: {}.",
    "forbidden": "forbidden, but in the translation: {}.",
}
_MAX_REPLICAS = 4  # replicas on CPUs; each needs memory for a batch
# Largest hidden size whose ops on one sentence do not use two cores.
_SMALL_MODEL = 256

Made = TypeVar("Made")
# The hypotheses of a text, and whether it was truncated.
_Output: TypeAlias = tuple[Sequence[Hypothesis], bool]


class Replica(NamedTuple):
    """A translator and the device of its weights and computations."""

    translator: Engine
    device: str | None = None  # None: TensorFlow chooses


def translate_lines(
    translator: Engine | Sequence[Replica],
    lines: Iterable[str | bytes | Request | Pair],
    *,
    batching: Batching = DEFAULT_BATCHING,
    first_line: int = 1,
    skip: int = 0,
    num_hypotheses: int = 1,
    postprocess: Callable[[str, str], tuple[str, Mapping[str, Any]]]
    | None = None,
    details: TokenDetails | None = None,
    rerank: bool = False,
    split: Callable[[str], Sequence[str]] | None = None,
    tags: Sequence[str] = (),
    note: Callable[[int, str], None] | None = None,
    check: Callable[[], None] = lambda: None,
) -> Iterator[Result]:
    r"""Translate or score a stream of lines; each line yields one result.

    Lines are translated as they arrive, so `lines` may be a pipe or a terminal.
    Batches change the speed, not the results, which keep the order.

    Args:
      translator: an engine, or several replicas that work in parallel.
      lines: an iterable, such as an open binary file. A line ends with "\n",
        "\r\n" or nothing; other characters, such as NUL or U+2028, belong to
        the line. A `Request` has request options; if an option is not
        supported, the result is an error. A stream of `Pair` is scored.
      batching: limits of a batch.
      first_line: number of the first line.
      skip: number of lines at the beginning that are checked only; their
        results have errors, but no hypotheses.
      num_hypotheses: hypotheses per line, at most the translator's beam size.
        Equal texts of a beam are merged into the best; samples may repeat.
      postprocess: `Problem.postprocess`; None returns the model's text.
      details: adds token details to each hypothesis.
      rerank: sort hypotheses by mean utility, best first.
      split: splits a line into sentences, which are translated separately and
        concatenated; requires one hypothesis and no details.
      tags: `Problem.source_tags`, the tags that an item may use.
      note: called with a line number and a warning; the default logs it.
      check: called before each batch; its exceptions end the stream.

    Raises:
      T2TLiteError: the model's scores are not finite.
    """
    log = logging.getLogger("t2t_lite")
    note = note or functools.partial(log.warning, "line %d: %s")
    replicas = translator
    if not isinstance(replicas, Sequence):
        replicas = [Replica(replicas)]
    engine = replicas[0].translator
    items = (_prepare_item(line, tags, engine, split) for line in lines)

    def split_item(item: Any) -> list[Any]:
        if item.error:
            return []
        if split is None:
            return [item]
        tag, text = split_tag(item.text, tags)
        texts = [add_tag(tag, sentence) for sentence in split(text)]
        return [dataclasses.replace(item, text=each) for each in texts]

    # The rest of the beam replaces hypotheses with equal texts.
    is_beam = num_hypotheses > 1 and not engine.settings.sample
    num_searched = engine.settings.beam_size if is_beam else num_hypotheses

    def run(replica: Replica, batch: list[Any]) -> list[_Output]:
        check()
        with tf.device(replica.device):
            outputs = _run_graph(replica.translator, batch, num_searched)
            return _read_outputs(replica.translator, batch, outputs, details)

    end = first_line + skip
    for line, item in zip(range(first_line, end), items, strict=False):
        yield _join(line, item, (), engine, note)
    results = map_sorted(
        items,
        split=split_item,
        work=[functools.partial(run, replica) for replica in replicas],
        lengths=functools.partial(_lengths, engine, batching),
        batching=batching,
    )
    for line, (item, outputs) in enumerate(results, start=end):
        result = _join(line, item, outputs, engine, note)
        if isinstance(item, Request):
            hypotheses = [
                _postprocess(item, each, engine.settings, postprocess)
                for each in result.hypotheses
            ]
            if is_beam:
                best: dict[str, Hypothesis] = {}
                for each in hypotheses:
                    best.setdefault(each.text, each)
                hypotheses = list(best.values())[:num_hypotheses]
            if rerank:
                hypotheses = _rerank(hypotheses)
            facts = hypotheses[0].facts if hypotheses else {}
            for name, message in _VIOLATIONS.items():
                if name in facts:
                    note(line, message.format(", ".join(facts[name])))
            result = dataclasses.replace(result, hypotheses=hypotheses)
        yield result


def _postprocess(request, hypothesis, settings, postprocess):
    text, facts = hypothesis.text, {}
    violations = request.violations(text, settings.bad_phrases)
    if postprocess:
        text, facts = postprocess(request.text, text)
    facts = {**facts, **violations}
    return dataclasses.replace(hypothesis, text=text, facts=facts)


def _rerank(hypotheses):
    utilities = mean_utilities([each.text for each in hypotheses])
    order = sorted(range(len(utilities)), key=lambda k: -utilities[k])
    return [
        dataclasses.replace(hypotheses[k], utility=utilities[k]) for k in order
    ]


def _prepare_item(line, tags, engine, split):
    """Return a line as a request or pair; its `error` is set if it is invalid.

    Its tag is put before its text, unless the text begins with one of `tags`.
    """
    item: Any = line if isinstance(line, Request | Pair) else Request(line)
    try:
        if item.tag:
            side = item.SIDES[0]
            tag, text = check_tag(item.tag, tags), getattr(item, side)
            has_tag, _ = split_tag(text, tags)
            text = text if has_tag else add_tag(tag, text)
            item = dataclasses.replace(item, **{side: text})
        engine.check_supported(item.options())
        for name in _SENTENCE_OPTIONS:
            if split and name in item.options():
                raise UsageError(
                    f"{name} conflicts with split_sentences: give single "
                    "sentences."
                )
    except UsageError as error:
        return dataclasses.replace(item, error=item.error or str(error))
    return item


def _lengths(engine, batching, batch):
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


def _run_graph(engine, batch, num_hypotheses):
    if isinstance(batch[0], Request):
        texts = tf.constant([request.text for request in batch])
        options = _batch_options(batch, engine.settings)
        return engine.translate(texts, num_hypotheses, options)
    sources = tf.constant([pair.source for pair in batch])
    targets = tf.constant([pair.target for pair in batch])
    outputs = engine.score(sources, targets)
    for name in {"tokens", "token_log_probabilities"} & outputs.keys():
        outputs[name] = outputs[name][:, None]  # [B, T] -> [B, 1, T]
    return outputs | {"outputs": targets}


def _read_outputs(engine, batch, outputs, details):
    sources = [getattr(item, item.SIDES[0]) for item in batch]
    if details:
        texts = tf.constant(sources)
        outputs |= details.compute(engine, texts, outputs["tokens"])
    arrays = {name: value.numpy() for name, value in outputs.items()}
    found: list[_Output] = []
    for row, source in enumerate(sources):
        hypotheses = hypotheses_of(arrays, row)
        if details:
            hypotheses = [
                details.add(each, source, arrays, (row, k))
                for k, each in enumerate(hypotheses)
            ]
        found.append((hypotheses, bool(arrays["cut"][row])))
    return found


def _join(line, item, outputs, engine, note):
    """Return the result of an item from the hypotheses of its sentences."""
    best = [hypotheses[0] for hypotheses, _ in outputs]
    for each in best:
        if not is_possible(each.score):
            raise T2TLiteError(
                f"The model's score for line {line} is NaN or infinite. "
                "Training diverged or the checkpoint is damaged: choose "
                "another one with `checkpoint`."
            )
    hypotheses: Sequence[Hypothesis] = outputs[0][0] if outputs else ()
    if len(outputs) > 1:
        hypotheses = [concat_sentences(best, engine.settings.alpha)]
    truncated = any(truncated for _, truncated in outputs)
    if truncated:
        limit = f"{engine.max_length} tokens (max_length, EOS included)"
        note(line, f"truncated to {limit}.")
    source = getattr(item, item.SIDES[0])
    return Result(line, source, hypotheses, item.id, item.error, truncated)


def _batch_options(requests, settings):
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

    Returns the number of searches: `count`, by default one per core, at most
    four. With `hidden_size`, the model gets one line at a time; a small model
    then uses one core.
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
    weights. If `count` is None, there is one, or one per GPU.
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
