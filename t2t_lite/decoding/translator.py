"""Text to text in one graph: text to ids, beam search, ids to text.

The decoder, the scores of a training run and the exported model all translate
with it.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import tensorflow as tf

from t2t_lite.decoding.search.beam_search import beam_search, length_penalty
from t2t_lite.decoding.search.logits_processors import (
    NO_TOKEN,
    START,
    BadPhrases,
    ForcedPrefix,
    LogitsProcessor,
    MinimumLength,
    NoRepeat,
    Suppress,
)
from t2t_lite.decoding.search.required_phrases import RequiredPhrases
from t2t_lite.decoding.search.selection import Sample, TopK
from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.errors import UsageError
from t2t_lite.model.ensemble import Ensemble
from t2t_lite.model.transformer import Transformer
from t2t_lite.ops import for_xla
from t2t_lite.tokenizers.base import EOS_ID, PAD_ID, Tokenizer

# White space as `str.strip` defines it, which is what counts in a corpus.
_BLANK = r"[\s\v\x1c-\x1f\x{85}\pZ]*"
_TEXTS = tf.RaggedTensorSpec([None, None], tf.string, ragged_rank=1)
# The options of single lines, in the order of a graph's arguments: a text that
# the translation begins with, texts that must and must not appear in it, and
# the seed of its samples.
REQUEST_OPTIONS = {
    "prefix": tf.TensorSpec([None], tf.string, "prefix"),
    "constraints": _TEXTS,
    "bad_phrases": _TEXTS,
    "seed": tf.TensorSpec([None], tf.int64, "seed"),
}
_POWERS_OF_TWO = [2**power for power in range(31)]
_SHORTEST = 32  # tokens of a source that XLA compiles for


class Engine(Protocol):
    """The interface of a `Translator` that other engines implement, too."""

    settings: SearchSettings
    max_length: int
    constraint: Any
    source_encoder: Tokenizer
    target_encoder: Tokenizer

    def translate(
        self,
        texts: Any,
        num_hypotheses: int = 1,
        asked: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]: ...

    def check_supported(self, asked: Iterable[str]) -> None: ...

    def score(self, sources: Any, targets: Any) -> dict[str, Any]: ...

    def __hash__(self) -> int: ...


class Translator(tf.Module):
    """Translates tensors of text in one graph.

    Args:
      model: a `Transformer` whose weights exist, or an `Ensemble`.
      source_encoder: a `Tokenizer`.
      target_encoder: a `Tokenizer`; may be the same.
      settings: of the search.
      extra_decode_length: the tokens that a translation may have in addition to
        those of its source, EOS included on both sides.
      max_length: source tokens, EOS included; a longer source is truncated.
      constraint: of the problem's texts; None: its answers may be any text.
      jit: compile the search with XLA; see `compiled`.

    Raises:
      UsageError: the problem has no form to constrain the search to, the
        vocabulary lacks a suppressed piece, or XLA cannot compile the search.
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
        jit: bool = False,
    ):
        super().__init__(name="translator")
        self.settings = settings or SearchSettings()
        if self.settings.constrained and constraint is None:
            raise UsageError(
                "constrained requires a problem whose answers have a form, "
                "such as trees; this one has none."
            )
        self.constraint = constraint
        self.jit = jit
        self.model = model
        self.source_encoder = source_encoder
        self.target_encoder = target_encoder
        self.extra_decode_length = extra_decode_length
        self.max_length = max_length
        self.check_supported(())
        self._suppressed = target_encoder.pieces_to_ids(
            self.settings.suppress_tokens
        )
        self._graphs: dict[tuple, Callable] = {}
        text = tf.TensorSpec([None], tf.string)
        self.score_graph = tf.function(
            self._score, input_signature=[text, text], autograph=False
        )

    @property
    def single_model(self) -> Transformer:
        """The model; raises UsageError if it is an ensemble."""
        if isinstance(self.model, Ensemble):
            raise UsageError("This needs one model: leave out the ensemble.")
        return self.model

    def translate(
        self,
        texts: tf.Tensor,
        num_hypotheses: int = 1,
        asked: Mapping[str, tf.Tensor | tf.RaggedTensor] | None = None,
    ) -> dict[str, tf.Tensor]:
        """Translate any number of texts; a row never affects another.

        Args:
          texts: tf.string [B].
          num_hypotheses: N, at least 1, and at most the beam size but for
            samples.
          asked: options of each text, any of REQUEST_OPTIONS by name.

        Returns: a dict of
          outputs: tf.string [B, N], best first, line ends replaced by spaces;
          scores: float32 [B, N], finite; see `beam_search`;
          tokens: int32 [B, N, L], EOS, then zeros;
          source_lengths: int32 [B], tokens of the source, EOS included;
          cut: bool [B], where the source was longer than `max_length`.
        A text that is empty or white space has N empty outputs with score 0.

        Raises:
          UsageError: an option conflicts with the settings.
        """
        asked = asked or {}
        columns = tuple(name for name in REQUEST_OPTIONS if name in asked)
        graph = self.graph(num_hypotheses, columns)
        return graph(texts, *(asked[name] for name in columns))

    def graph(
        self, num_hypotheses: int = 1, columns: tuple[str, ...] = ()
    ) -> Callable:
        """Return the tf.function of `translate`, traced once.

        Its arguments are the texts and the columns, ordered as REQUEST_OPTIONS.
        """
        key = (num_hypotheses, columns)
        if key not in self._graphs:
            self.check_supported(columns)
            self._graphs[key] = tf.function(
                lambda texts, *values: self._translate(
                    texts,
                    num_hypotheses,
                    dict(zip(columns, values, strict=True)),
                ),
                input_signature=[
                    tf.TensorSpec([None], tf.string, "inputs"),
                    *(REQUEST_OPTIONS[name] for name in columns),
                ],
                autograph=False,  # nothing to convert; looking costs seconds
            )
        return self._graphs[key]

    def check_supported(self, asked: Iterable[str]) -> None:
        """Raise UsageError for one of REQUEST_OPTIONS that is not supported."""
        self.settings.check_supported([*asked, *(["jit"] if self.jit else [])])

    def score(
        self, sources: tf.Tensor, targets: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Score pairs of texts, tf.string [B] each.

        Returns: a dict of
          log_probabilities, scores: float32 [B], as in `results.PairScore`;
          source_lengths, lengths: int32 [B], tokens of the source and of the
            target, EOS included;
          tokens: int32 [B, T], of the target, EOS, then zeros;
          token_log_probabilities: float32 [B, T], of these, then zeros;
          cut: bool [B], where either side was longer than `max_length`.
        """
        return self.score_graph(sources, targets)

    def pairs(
        self, sources: tf.Tensor, targets: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor, tf.Tensor]:
        """Return the features of pairs of texts, tf.string [B] each.

        Returns:
          `inputs` int32 [B, S] and `targets` int32 [B, T], both with EOS, then
          zeros; the lengths of the targets, EOS included, int32 [B]; and bool
          [B], where either side was longer than `max_length`.
        """
        inputs, _, inputs_cut = encode_sources(self, sources)
        outputs, lengths, outputs_cut = with_eos(
            self.target_encoder.encode_tf(targets), self.max_length
        )
        features = {"inputs": inputs, "targets": outputs}
        return features, lengths, inputs_cut | outputs_cut

    def _score(self, sources, targets):
        features, lengths, cut = self.pairs(sources, targets)
        each = self.model.token_log_probs(features)
        log_probs = tf.reduce_sum(each, axis=-1)
        penalty = length_penalty(
            tf.cast(lengths, tf.float32), self.settings.alpha
        )
        return {
            "log_probabilities": log_probs,
            "scores": log_probs / penalty,
            "source_lengths": tf.math.count_nonzero(
                features["inputs"], axis=-1, dtype=tf.int32
            ),
            "lengths": lengths,
            "tokens": features["targets"],
            "token_log_probabilities": each,
            "cut": cut,
        }

    def _translate(self, texts, num_hypotheses, asked):
        settings = self.settings
        texts = prepare(texts, self.constraint)
        ids, source_lengths, cut = with_eos(
            self.source_encoder.encode_tf(texts), self.max_length
        )
        empty = source_lengths <= 1
        limits = tf.where(empty, 0, self._limits(source_lengths))
        if self.jit:
            search = functools.partial(self._search, num_hypotheses)
            tokens, scores = compiled(search, self._limits)(ids, limits)
        else:
            options = encode_options(
                tf.size(texts), asked, settings, self.target_encoder
            )
            tokens, scores = self._search(
                num_hypotheses, ids, limits, texts=texts, options=options
            )
        if settings.sample:  # [B * N, 1, ...] -> [B, N, ...], best first
            shape = [tf.size(limits), num_hypotheses]
            tokens = tf.reshape(tokens, [*shape, tf.shape(tokens)[2]])
            scores, order = tf.math.top_k(
                tf.reshape(scores, shape), num_hypotheses
            )
            tokens = tf.gather(tokens, order, batch_dims=1)
        shape = tf.shape(tokens)
        outputs = self.target_encoder.decode_tf(
            tf.reshape(tokens, [shape[0] * num_hypotheses, shape[2]])
        )
        return {
            "outputs": tf.reshape(on_one_line(outputs), shape[:2]),
            "scores": tf.where(empty[:, None], 0.0, scores),
            "tokens": tokens,
            "source_lengths": source_lengths,
            "cut": cut,
        }

    def _limits(self, lengths):
        """Return the most tokens, EOS included, for sources of some lengths."""
        limits = lengths + self.extra_decode_length
        longest = self.settings.max_new_tokens
        return limits if longest is None else tf.minimum(limits, longest)

    def _search(
        self, num_hypotheses, ids, limits, longest=None, texts=None, options=()
    ):
        """Return tokens int32 [B, N, L] and scores float32 [B, N].

        If `longest`, L, is given, all shapes of the search are constant.
        """
        settings, model = self.settings, self.model
        rows = (texts, limits, dict(options), *model.encode(ids))
        samples, beam_size = 1, settings.beam_size
        if settings.sample:
            # The hypotheses of a beam share the cache of their source, so each
            # sample is a sentence of its own.
            samples, beam_size = num_hypotheses, 1
            rows = tf.nest.map_structure(
                lambda x: tf.repeat(x, samples, axis=0), rows
            )
        texts, limits, options, memory, mask = rows
        processors, selector, limits = self._search_components(
            texts, limits, options, samples
        )
        fixed = longest is not None
        if not fixed:
            longest = tf.reduce_max(tf.concat([limits, [0]], axis=0))
        step_fn, cache = model.start_decoding(memory, mask, beam_size, longest)
        return beam_search(
            step_fn,
            model.reorder_cache,
            cache,
            batch_size=tf.shape(limits)[0],
            beam_size=beam_size,
            vocab_size=self.model.vocab_sizes[1],
            limits=limits,
            longest=longest,
            alpha=settings.alpha,
            eos_id=EOS_ID,
            num_hypotheses=num_hypotheses // samples,
            processors=processors,
            selector=selector,
            select_fn=None if fixed else model.select_sentences,
        )

    def _search_components(self, texts, limits, options, samples):
        """Return the logits processors, the selector and the limits."""
        settings = self.settings
        selector: TopK | None = None
        first: list[LogitsProcessor] = []
        others: list[LogitsProcessor] = []
        if self.constraint is not None and settings.constrained:
            processor, limits = self.constraint.constrain(texts, limits)
            first.append(processor)
        # Padding could be drawn; a search never selects it.
        padding = [PAD_ID] if settings.sample else []
        if suppressed := [*self._suppressed, *padding]:
            others.append(Suppress(suppressed))
        if settings.min_new_tokens:
            others.append(MinimumLength(settings.min_new_tokens, EOS_ID))
        if settings.no_repeat_ngram_size:
            others.append(NoRepeat(settings.no_repeat_ngram_size))
        if "bad_phrases" in options:
            others.append(BadPhrases(options["bad_phrases"]))
        if "constraints" in options:
            selector = RequiredPhrases(options["constraints"], EOS_ID)
            others.append(selector)
        if settings.sample:
            selector = Sample(
                _uniforms(options["seed"], texts, samples, limits),
                settings.temperature,
                settings.top_k,
                settings.top_p,
            )
        if "prefix" in options:
            others = [ForcedPrefix(options["prefix"], others)]
            real = tf.cast(options["prefix"] != NO_TOKEN, tf.int32)
            room = tf.reduce_sum(real, axis=1) + 1  # for EOS
            limits = tf.where(limits > 0, tf.maximum(limits, room), 0)
        return [*first, *others], selector, limits


def prepare(texts: tf.Tensor, constraint: Any) -> tf.Tensor:
    """Return texts, of any shape, to be tokenized; blank ones are empty."""
    blank = tf.strings.regex_full_match(texts, _BLANK)
    texts = tf.where(blank, "", texts)
    return texts if constraint is None else constraint.prepare(texts)


def encode_sources(
    engine: Engine, texts: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return `with_eos` of the ids of source texts, tf.string [B]."""
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
      max_length: tokens, EOS included.

    Returns:
      ids int32 [B, S], lengths with EOS int32 [B], bool [B] where tokens were
      truncated.
    """
    cut = tokens.row_lengths() > max_length - 1
    tokens = tokens[:, : max_length - 1]
    eos = tf.fill([tokens.nrows(), 1], tf.constant(EOS_ID, tokens.dtype))
    tokens = tf.concat([tokens, eos], axis=1)
    lengths = tf.cast(tokens.row_lengths(), tf.int32)
    return tf.cast(tokens.to_tensor(PAD_ID), tf.int32), lengths, cut


def on_one_line(texts: tf.Tensor) -> tf.Tensor:
    """Return the texts with spaces for line ends: an answer is one line."""
    return tf.strings.regex_replace(texts, r"\r\n|\r|\n", " ")


def encode_options(
    count: tf.Tensor,
    asked: Mapping[str, tf.Tensor | tf.RaggedTensor],
    settings: SearchSettings,
    encoder: Tokenizer,
) -> dict[str, tf.Tensor]:
    """Return the options of B texts as ids, those of the settings included.

    They are `prefix`, int32 [B, M], then NO_TOKEN; `constraints`, as
    `RequiredPhrases` takes them; `bad_phrases`, as `BadPhrases`; `seed`, int64
    [B].
    """
    options = {}
    if "prefix" in asked:
        prefixes = encoder.encode_tf(asked["prefix"])
        options["prefix"] = prefixes.to_tensor(NO_TOKEN)
    if "constraints" in asked:
        options["constraints"] = _phrases(asked["constraints"], encoder)
    avoided = [asked["bad_phrases"]] if "bad_phrases" in asked else []
    if settings.bad_phrases:
        everywhere = tf.tile(tf.constant([settings.bad_phrases]), [count, 1])
        avoided.append(tf.RaggedTensor.from_tensor(everywhere))
    if avoided:
        phrases = _phrases(tf.concat(avoided, axis=1), encoder)
        shape = [count, -1, tf.shape(phrases)[3]]
        options["bad_phrases"] = tf.reshape(phrases, shape)
    if settings.sample:
        seed = tf.constant(settings.seed, tf.int64)
        options["seed"] = asked.get("seed", tf.fill([count], seed))
    return options


def _phrases(texts, encoder):
    """Return the tokens of ragged texts [B, None], in two tokenizations each.

    A word may be tokenized differently where a translation begins. They are
    int32 [B, P, 2, M], P and M at least 1.
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

    A row depends only on its text, its seed and its number among the samples of
    that text, which are adjacent.
    """
    numbers = tf.range(tf.size(seeds, tf.int64)) % samples
    # So that two texts do not draw the same numbers.
    hashes = tf.strings.to_hash_bucket_fast(texts, 2**62)
    keys = tf.stack([seeds, hashes + numbers], axis=1)
    length = tf.reduce_max(tf.concat([limits, [0]], axis=0))
    return tf.map_fn(
        lambda key: tf.random.stateless_uniform([length], key),
        keys,
        fn_output_signature=tf.float32,
    )


def compiled(
    search: Callable[..., tuple[tf.Tensor, tf.Tensor]],
    longest_of: Callable[[tf.Tensor], tf.Tensor],
) -> Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
    """Return the search, compiled with XLA: for a sentence at a time.

    A step of a search is hundreds of small operations. For one sentence of a
    small model, TensorFlow takes about as long to start each of them as to run
    it; XLA fuses them into a few kernels. It compiles each new shape for
    seconds, and is slower than TensorFlow for batches. There are few shapes:
    batches are padded to powers of two, sources to at least 32 tokens.

    Args:
      search: `Translator._search`, of ids, limits and their bound L.
      longest_of: `S -> L`, the largest limit of sources of that length.
    """

    @tf.function(jit_compile=True, autograph=False)
    def whole(ids, limits):
        with for_xla():
            return search(ids, limits, longest=longest_of(tf.shape(ids)[1]))

    def round_up(size):
        index = tf.searchsorted(_POWERS_OF_TWO, size[None])[0]
        return tf.gather(_POWERS_OF_TWO, index)

    def padded(ids, limits):
        rows, width = tf.unstack(tf.shape(ids))
        more_rows = round_up(rows) - rows
        more_width = round_up(tf.maximum(width, _SHORTEST)) - width
        tokens, scores = whole(
            tf.pad(ids, [[0, more_rows], [0, more_width]]),
            tf.pad(limits, [[0, more_rows]]),
        )
        longest = tf.reduce_max(tf.concat([limits, [0]], axis=0))
        return tokens[:rows, :, :longest], scores[:rows]

    return padded
