"""Translation of texts in one graph: tokenize, search, detokenize.

The decoder, the evaluation of a training run and exported models all use it.
"""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import tensorflow as tf

from t2t_lite.corpus.lines import CONTROL
from t2t_lite.decoding.background_jit import BackgroundJit
from t2t_lite.decoding.search.beam_search import beam_search
from t2t_lite.decoding.search.logits_processors import (
    NO_TOKEN,
    START,
    BadPhrases,
    ForcedPrefix,
    LogitsProcessor,
    NoRepeat,
    Suppress,
)
from t2t_lite.decoding.search.required_phrases import RequiredPhrases
from t2t_lite.decoding.search.scores import length_penalty
from t2t_lite.decoding.search.selection import Sample, TopK
from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.errors import UsageError
from t2t_lite.model.ensemble import Ensemble
from t2t_lite.model.transformer import Transformer
from t2t_lite.ops import for_xla
from t2t_lite.tokenizers.base import EOS_ID, PAD_ID, Tokenizer
from t2t_lite.tokenizers.tags import BLANK

_TEXTS = tf.RaggedTensorSpec([None, None], tf.string, ragged_rank=1)
# Request options, in the order of a graph's arguments; see `requests.Request`.
REQUEST_OPTIONS = {
    "prefix": tf.TensorSpec([None], tf.string, "prefix"),
    "constraints": _TEXTS,
    "bad_phrases": _TEXTS,
    "seed": tf.TensorSpec([None], tf.int64, "seed"),
}
_POWERS_OF_TWO = [2**power for power in range(31)]
# The step weights of frozen models, by whether they are for XLA.
_known_weights: MutableMapping[Any, dict[bool, Any]] = WeakKeyDictionary()
_MIN_WIDTH = 32  # minimum width, in tokens, of sources that XLA compiles for


class Engine(Protocol):
    """The interface of a `Translator` and of other decoding engines."""

    settings: SearchSettings
    max_length: int
    constraint: Any
    source_encoder: Tokenizer
    target_encoder: Tokenizer

    def translate(
        self,
        texts: Any,
        num_hypotheses: int = 1,
        options: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]: ...

    def check_supported(self, options: Iterable[str]) -> None: ...

    def score(self, sources: Any, targets: Any) -> dict[str, Any]: ...

    def __hash__(self) -> int: ...


class Translator(tf.Module):
    """Translates tensors of text in one graph.

    Args:
      model: a built `Transformer` or `Ensemble`.
      source_encoder: tokenizer of the source.
      target_encoder: tokenizer of the target; may be `source_encoder`.
      settings: search settings.
      extra_decode_length: maximum difference between the numbers of target and
        source tokens, EOS included.
      max_length: maximum number of source tokens, EOS included; longer sources
        are truncated.
      constraint: the problem's output constraint; None: outputs are free text.
      jit: compile the search with XLA; see `compiled`. Requires frozen weights.
        None compiles it for single texts only, in the background, if there is
        no GPU.
      frozen: the weights of the model never change. A copy of the decoder's
        weights is laid out for decoding steps once, and not for each batch.

    Raises:
      UsageError: the settings require an output constraint that the problem
        does not have, the vocabulary lacks a suppressed piece, or XLA does not
        support the settings.
    """

    def __init__(
        self,
        model: Transformer | Ensemble,
        source_encoder: Tokenizer,
        target_encoder: Tokenizer,
        settings: SearchSettings | None = None,
        *,
        extra_decode_length: int = 50,
        max_length: int = 256,
        constraint: Any = None,
        jit: bool | None = False,
        frozen: bool = False,
    ):
        super().__init__(name="translator")
        self.settings = settings = settings or SearchSettings()
        if self.settings.constrained and constraint is None:
            raise UsageError(
                "constrained requires a problem with constrained outputs, such "
                "as trees: remove it."
            )
        self.constraint = constraint
        self.jit = bool(jit)
        self._is_frozen = frozen or self.jit
        self.model = model
        self.source_encoder = source_encoder
        self.target_encoder = target_encoder
        self.extra_decode_length = extra_decode_length
        self.max_length = max_length
        self.check_supported(())
        self._background_jit: BackgroundJit | None = None
        # On a GPU the gain is not measured, and a graph belongs to its device.
        has_gpu = bool(tf.config.get_visible_devices("GPU"))
        if jit is None and settings.supports_jit and not has_gpu:
            compiling = self.copy(jit=True)
            self._background_jit = BackgroundJit(
                lambda texts, count: self.graph(count)(texts),
                compiling.translate,
            )
            self._width = tf.function(
                lambda texts: tf.shape(encode_sources(self, texts)[0])[1],
                input_signature=[tf.TensorSpec([1], tf.string)],
                autograph=False,
            )
        suppressed = settings.suppress_tokens
        self._suppressed = target_encoder.pieces_to_ids(suppressed)
        self._graphs: dict[tuple, Callable] = {}
        text = tf.TensorSpec([None], tf.string)
        self.score_graph = tf.function(
            self._score, input_signature=[text, text], autograph=False
        )

    @property
    def single_model(self) -> Transformer:
        """The model; raises UsageError if it is an ensemble."""
        if isinstance(self.model, Ensemble):
            raise UsageError("An ensemble is not supported: use one model.")
        return self.model

    def copy(self, **options: Any) -> "Translator":
        """Return a translator of the same model with some other options."""
        kept = {
            "extra_decode_length": self.extra_decode_length,
            "max_length": self.max_length,
            "constraint": self.constraint,
        }
        encoders = self.source_encoder, self.target_encoder
        return Translator(
            self.model, *encoders, self.settings, **(kept | options)
        )

    def translate(
        self,
        texts: tf.Tensor,
        num_hypotheses: int = 1,
        options: Mapping[str, tf.Tensor | tf.RaggedTensor] | None = None,
    ) -> dict[str, tf.Tensor]:
        """Translate texts; rows are independent of one another.

        Args:
          texts: tf.string [B].
          num_hypotheses: N, at least 1; at most the beam size unless sampling.
          options: request options of each text, by name; see REQUEST_OPTIONS.

        Returns:
          A dict of
            outputs: tf.string [B, N], best first, with spaces for line ends;
            scores: float32 [B, N], finite; see `beam_search`;
            tokens: int32 [B, N, L], EOS, then zeros;
            source_lengths: int32 [B], source tokens, EOS included;
            cut: bool [B], True if the source was truncated to `max_length`.
          An empty or blank text has N empty outputs with score 0.

        Raises:
          UsageError: an option conflicts with the settings.
        """
        options = options or {}
        names = tuple(name for name in REQUEST_OPTIONS if name in options)
        if self._background_jit and not names and texts.shape[0] == 1:
            # `compiled` pads the source to this power of two.
            width = 1 << (int(self._width(texts)) - 1).bit_length()
            width = max(_MIN_WIDTH, width)
            shape = width, num_hypotheses
            return self._background_jit.call(shape, texts, num_hypotheses)
        graph = self.graph(num_hypotheses, names)
        return graph(texts, *(options[name] for name in names))

    def graph(
        self, num_hypotheses: int | None = 1, names: tuple[str, ...] = ()
    ) -> Callable:
        """Return the tf.function of `translate`, traced once.

        Args:
          num_hypotheses: N of `translate`; None: an int32 argument after the
            texts, which sampling and XLA do not support.
          names: request options that follow the texts as arguments, in the
            order of REQUEST_OPTIONS.
        """
        key = (num_hypotheses, names)
        if key not in self._graphs:
            self.check_supported(names)
            fixed = [] if num_hypotheses is None else [num_hypotheses]

            def translate(texts, *values):
                count, *tensors = itertools.chain(fixed, values)
                options = dict(zip(names, tensors, strict=True))
                return self._translate(texts, count, options)

            self._graphs[key] = tf.function(
                translate,
                input_signature=[
                    tf.TensorSpec([None], tf.string, "inputs"),
                    *([] if fixed else [tf.TensorSpec([], tf.int32)]),
                    *(REQUEST_OPTIONS[name] for name in names),
                ],
                autograph=False,  # AutoGraph takes seconds and has no effect
            )
        return self._graphs[key]

    def check_supported(self, options: Iterable[str]) -> None:
        """Raise UsageError if one of these request options is not supported."""
        jit = ["jit"] if self.jit else []
        self.settings.check_supported([*options, *jit])

    def score(
        self, sources: tf.Tensor, targets: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Score pairs of texts, tf.string [B] each.

        Returns:
          A dict of
            log_probabilities, scores: float32 [B]; see `results.Hypothesis`;
            source_lengths, lengths: int32 [B], source and target tokens, EOS
              included;
            tokens: int32 [B, T], target tokens, EOS, then zeros;
            token_log_probabilities: float32 [B, T], then zeros;
            cut: bool [B], True if a side was truncated to `max_length`.
        """
        return self.score_graph(sources, targets)

    def encode_pairs(
        self, sources: tf.Tensor, targets: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor, tf.Tensor]:
        """Tokenize pairs of texts, tf.string [B] each.

        Returns:
          Features `inputs` int32 [B, S] and `targets` int32 [B, T], with EOS,
          then zeros; target lengths, EOS included, int32 [B]; bool [B], True if
          a side was truncated to `max_length`.
        """
        inputs, _, inputs_truncated = encode_sources(self, sources)
        outputs, lengths, outputs_truncated = with_eos(
            self.target_encoder.encode_tf(targets), self.max_length
        )
        features = {"inputs": inputs, "targets": outputs}
        return features, lengths, inputs_truncated | outputs_truncated

    def _score(self, sources, targets):
        features, lengths, truncated = self.encode_pairs(sources, targets)
        token_log_probs = self.model.token_log_probs(features)
        log_probs = tf.reduce_sum(token_log_probs, axis=-1)
        sizes = tf.cast(lengths, tf.float32)
        penalty = length_penalty(sizes, self.settings.alpha)
        return {
            "log_probabilities": log_probs,
            "scores": log_probs / penalty,
            "source_lengths": tf.math.count_nonzero(
                features["inputs"], axis=-1, dtype=tf.int32
            ),
            "lengths": lengths,
            "tokens": features["targets"],
            "token_log_probabilities": token_log_probs,
            "cut": truncated,
        }

    def _translate(self, texts, num_hypotheses, options):
        settings = self.settings
        texts = prepare(texts, self.constraint)
        ids, source_lengths, truncated = with_eos(
            self.source_encoder.encode_tf(texts), self.max_length
        )
        empty = source_lengths <= 1
        limits = tf.where(empty, 0, self._limits(source_lengths))
        if self.jit:
            search = functools.partial(self._search, num_hypotheses)
            tokens, scores = compiled(search, self._limits)(ids, limits)
        else:
            encoded = encode_options(
                tf.size(texts), options, settings, self.target_encoder
            )
            tokens, scores = self._search(
                num_hypotheses, ids, limits, texts=texts, options=encoded
            )
        if settings.sample:  # [B * N, 1, ...] -> [B, N, ...], best first
            shape = [tf.size(limits), num_hypotheses]
            tokens = tf.reshape(tokens, [*shape, tf.shape(tokens)[2]])
            scores = tf.reshape(scores, shape)
            scores, order = tf.math.top_k(scores, num_hypotheses)
            tokens = tf.gather(tokens, order, batch_dims=1)
        shape = tf.shape(tokens)
        outputs = self.target_encoder.decode_tf(  # [B, N, L] -> [B * N, L]
            tf.reshape(tokens, [shape[0] * num_hypotheses, shape[2]])
        )
        return {
            "outputs": tf.reshape(on_one_line(outputs), shape[:2]),
            "scores": tf.where(empty[:, None], 0.0, scores),
            "tokens": tokens,
            "source_lengths": source_lengths,
            "cut": truncated,
        }

    def _limits(self, lengths):
        limits = lengths + self.extra_decode_length
        limits = tf.maximum(limits, self.settings.min_new_tokens + 1)  # and EOS
        maximum = self.settings.max_new_tokens
        return limits if maximum is None else tf.minimum(limits, maximum)

    def _search(
        self, num_hypotheses, ids, limits, longest=None, texts=None, options=()
    ):
        """Return tokens int32 [B, N, L] and scores float32 [B, N].

        If `longest`, L, is given, all shapes of the search are static.
        """
        settings, model = self.settings, self.model
        rows = (texts, limits, dict(options), *model.encode(ids))
        samples, beam_size = 1, settings.beam_size
        if settings.sample:
            # The hypotheses of a beam share their source's cache, so each
            # sample needs a sentence: [B, ...] -> [B * N, ...]
            samples, beam_size = num_hypotheses, 1
            rows = tf.nest.map_structure(
                lambda x: tf.repeat(x, samples, axis=0), rows
            )
        texts, limits, options, memory, mask = rows
        processors, selector, limits = self._search_components(
            texts, limits, options, samples
        )
        is_static = longest is not None
        if not is_static:
            longest = tf.reduce_max(tf.concat([limits, [0]], axis=0))
        weights = _step_weights(model, self.jit) if self._is_frozen else None
        step_fn, cache = model.init_decoding(
            memory, mask, beam_size, longest, weights=weights
        )
        return beam_search(
            step_fn,
            model.reorder_cache,
            cache,
            batch_size=tf.shape(limits)[0],
            beam_size=beam_size,
            limits=limits,
            longest=longest,
            alpha=settings.alpha,
            eos_id=EOS_ID,
            num_hypotheses=num_hypotheses // samples,
            processors=processors,
            selector=selector,
            select_fn=None if is_static else model.select_sentences,
        )

    def _search_components(self, texts, limits, options, samples):
        settings = self.settings
        selector: TopK | None = None
        first: list[LogitsProcessor] = []
        others: list[LogitsProcessor] = []
        if self.constraint is not None and settings.constrained:
            processor, limits = self.constraint.constrain(texts, limits)
            first.append(processor)
        # Beam search with a trained model never selects padding, but sampling
        # can, and so can a model whose start token is padding.
        model = getattr(self.model, "models", [self.model])[0]
        is_start = model.hparams.learned_start
        padding = [PAD_ID] if settings.sample or is_start else []
        if suppressed := [*self._suppressed, *padding]:
            others.append(Suppress(suppressed))
        if settings.min_new_tokens:
            others.append(Suppress([EOS_ID], settings.min_new_tokens))
        if settings.no_repeat_ngram_size:
            others.append(NoRepeat(settings.no_repeat_ngram_size))
        if "bad_phrases" in options:
            others.append(BadPhrases(options["bad_phrases"]))
        if "constraints" in options:
            selector = RequiredPhrases(options["constraints"], EOS_ID)
            others.append(selector)
        if "prefix" in options:
            others = [ForcedPrefix(options["prefix"], others)]
            real = tf.cast(options["prefix"] != NO_TOKEN, tf.int32)
            required = tf.reduce_sum(real, axis=1) + 1  # prefix and EOS
            limits = tf.where(limits > 0, tf.maximum(limits, required), 0)
        if settings.sample:
            selector = Sample(
                _uniforms(options["seed"], texts, samples, limits),
                settings.temperature,
                settings.top_k,
                settings.top_p,
            )
        return [*first, *others], selector, limits


def prepare(texts: tf.Tensor, constraint: Any) -> tf.Tensor:
    """Prepare texts, of any shape, for the tokenizer; empty the blank ones."""
    blank = tf.strings.regex_full_match(texts, BLANK)
    texts = tf.where(blank, "", texts)
    return texts if constraint is None else constraint.prepare(texts)


def encode_sources(
    engine: Engine, texts: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Tokenize sources, tf.string [B], and apply `with_eos`."""
    ids = engine.source_encoder.encode_tf(prepare(texts, engine.constraint))
    return with_eos(ids, engine.max_length)


def with_eos(
    tokens: tf.RaggedTensor, max_length: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Truncate rows of tokens and append EOS.

    Example, with a `max_length` of 3: [[5, 6, 7, 8], [5], []] ->
    [[5, 6, 1], [5, 1, 0], [1, 0, 0]], [3, 2, 1], [True, False, False].

    Args:
      tokens: ragged int32 [B, None].
      max_length: maximum number of tokens, EOS included.

    Returns:
      ids int32 [B, S]; lengths int32 [B], EOS included; bool [B], True if
      truncated.
    """
    truncated = tokens.row_lengths() > max_length - 1
    tokens = tokens[:, : max_length - 1]
    eos = tf.fill([tokens.nrows(), 1], tf.constant(EOS_ID, tokens.dtype))
    tokens = tf.concat([tokens, eos], axis=1)
    lengths = tf.cast(tokens.row_lengths(), tf.int32)
    return tf.cast(tokens.to_tensor(PAD_ID), tf.int32), lengths, truncated


def on_one_line(texts: tf.Tensor) -> tf.Tensor:
    """Return texts that `read_lines` reads as one line each, unchanged.

    Spaces replace line ends; U+FFFD replaces the control characters that
    `read_lines` replaces.
    """
    texts = tf.strings.regex_replace(texts, r"\r\n|\r|\n", " ")
    return tf.strings.regex_replace(texts, rf"[\x00{CONTROL}]", "\ufffd")


def encode_options(
    count: tf.Tensor,
    options: Mapping[str, tf.Tensor | tf.RaggedTensor],
    settings: SearchSettings,
    encoder: Tokenizer,
) -> dict[str, tf.Tensor]:
    """Tokenize the options of B = `count` texts and of the settings.

    Returns:
      Some of `prefix`, int32 [B, M], then NO_TOKEN; `constraints`, see
      `RequiredPhrases`; `bad_phrases`, see `BadPhrases`; `seed`, int64 [B].
    """
    encoded = {}
    if "prefix" in options:
        prefixes = encoder.encode_tf(options["prefix"])
        encoded["prefix"] = prefixes.to_tensor(NO_TOKEN)
    if "constraints" in options:
        phrases = options["constraints"]
        encoded["constraints"] = _encode_phrases(phrases, encoder)
    bad_phrases = [options["bad_phrases"]] if "bad_phrases" in options else []
    if settings.bad_phrases:
        shared = tf.tile(tf.constant([settings.bad_phrases]), [count, 1])
        bad_phrases.append(tf.RaggedTensor.from_tensor(shared))
    if bad_phrases:
        phrases = _encode_phrases(tf.concat(bad_phrases, axis=1), encoder)
        shape = [count, -1, tf.shape(phrases)[3]]  # -> [B, P * 2, M]
        encoded["bad_phrases"] = tf.reshape(phrases, shape)
    if settings.sample:
        seed = tf.constant(settings.seed, tf.int64)
        encoded["seed"] = options.get("seed", tf.fill([count], seed))
    return encoded


def _encode_phrases(texts, encoder):
    """Tokenize ragged texts [B, None] in two ways: int32 [B, P, 2, M].

    A word may be tokenized differently at the start of a translation. P and M
    are at least 1.
    """
    words = texts.flat_values
    first = tf.fill([tf.size(words), 1], START)
    tokenizations = tf.stack(
        [
            encoder.encode_continuation_tf(words),
            tf.concat([first, encoder.encode_tf(words)], axis=1),
        ],
        axis=1,
    )  # ragged [n, 2, None]
    tokenizations = texts.with_flat_values(tokenizations).to_tensor(
        NO_TOKEN, shape=[None, None, 2, None]
    )
    short = tf.maximum(1 - tf.shape(tokenizations), 0)
    padding = [[0, 0], [0, short[1]], [0, 0], [0, short[3]]]
    return tf.pad(tokenizations, padding, constant_values=NO_TOKEN)


def _uniforms(seeds, texts, samples, limits):
    """Return uniform numbers in [0, 1) for R = B * samples: float32 [R, L].

    The samples of a text are adjacent rows. A row depends only on its text, its
    seed and its number among the samples of that text.
    """
    numbers = tf.range(tf.size(seeds, tf.int64)) % samples
    # Hashes give different texts different random numbers.
    hashes = tf.strings.to_hash_bucket_fast(texts, 2**62)
    keys = tf.stack([seeds, hashes + numbers], axis=1)
    length = tf.reduce_max(tf.concat([limits, [0]], axis=0))
    draw = functools.partial(tf.random.stateless_uniform, [length])
    return tf.map_fn(draw, keys, fn_output_signature=tf.float32)


def _step_weights(model, jit):
    """Return the step weights as constants, the same for each call."""
    known = _known_weights.setdefault(model, {})
    if jit not in known:
        device = tf.device(model.weights[0].value.device)
        layout = for_xla() if jit else contextlib.nullcontext()
        with tf.init_scope(), device, layout:
            known[jit] = model.step_weights()
    return known[jit]


def compiled(
    search: Callable[..., tuple[tf.Tensor, tf.Tensor]],
    max_limit: Callable[[tf.Tensor], tf.Tensor],
) -> Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
    """Compile a search with XLA, for one sentence at a time.

    TensorFlow needs about as long to start an op on one sentence as to run it;
    XLA fuses hundreds of ops into a few kernels, but is slower for batches, and
    compiling each new shape takes seconds. To limit the number of shapes,
    batches and sources are padded to powers of two, sources to at least 32.
    `max_limit` returns the largest limit of sources of a length.
    """

    @tf.function(jit_compile=True, autograph=False)
    def search_padded(ids, limits):
        with for_xla():
            return search(ids, limits, longest=max_limit(tf.shape(ids)[1]))

    def round_up(size):
        index = tf.searchsorted(_POWERS_OF_TWO, size[None])[0]
        return tf.gather(_POWERS_OF_TWO, index)

    def pad_and_search(ids, limits):
        rows, width = tf.unstack(tf.shape(ids))
        more_rows = round_up(rows) - rows
        more_width = round_up(tf.maximum(width, _MIN_WIDTH)) - width
        tokens, scores = search_padded(
            tf.pad(ids, [[0, more_rows], [0, more_width]]),
            tf.pad(limits, [[0, more_rows]]),
        )
        longest = tf.reduce_max(tf.concat([limits, [0]], axis=0))
        return tokens[:rows, :, :longest], scores[:rows]

    return pad_and_search
