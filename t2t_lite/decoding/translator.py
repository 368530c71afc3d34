"""Text to text in one graph: text to ids, beam search, ids to text.

The decoder, the scores of a training run and the exported model all translate
with it.
"""

import functools
from collections.abc import Callable, Iterable, Mapping

import tensorflow as tf

from t2t_lite.decoding.asked import COLUMNS, ids_asked
from t2t_lite.decoding.compiled import compiled
from t2t_lite.decoding.samples import best_first, uniforms
from t2t_lite.decoding.search.beam_search import (
    beam_search,
    coverage_penalty,
    length_penalty,
)
from t2t_lite.decoding.search.choice import Sample
from t2t_lite.decoding.search.required import Required
from t2t_lite.decoding.search.score_changes import (
    NO_TOKEN,
    Avoid,
    Ban,
    ForcedPrefix,
    MinimumLength,
    NoRepeat,
    Suppress,
)
from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.decoding.search.state import ScoreChange
from t2t_lite.decoding.texts import on_one_line, prepare, with_eos
from t2t_lite.errors import UsageError
from t2t_lite.model.ensemble import Ensemble
from t2t_lite.model.transformer import Transformer
from t2t_lite.text.encoder import EOS_ID, PAD_ID, TextEncoder
from t2t_lite.text.form import TextForm


class Translator(tf.Module):
    """Translates tensors of text in one graph.

    Args:
      model: a `Transformer` whose weights exist, or an `Ensemble`.
      source_encoder: a `TextEncoder`.
      target_encoder: likewise, of the other side; may be the same.
      settings: of the search.
      extra_decode_length: how many tokens a translation may have beyond those
        of its source, EOS included on both sides.
      max_length: source tokens, EOS included; the rest is cut off.
      form: of the problem's texts; None: its answers may be any text.
      jit: compile the search by XLA; see `compiled`.

    Raises:
      UsageError: the problem has no form to constrain the search to, the
        vocabulary has no piece that is to be suppressed, or such a search
        cannot be compiled.
    """

    def __init__(
        self,
        model: Transformer | Ensemble,
        source_encoder: TextEncoder,
        target_encoder: TextEncoder,
        settings: SearchSettings | None = None,
        *,
        extra_decode_length: int = 50,
        max_length: int = 256,
        form: TextForm | None = None,
        jit: bool = False,
    ):
        super().__init__(name="translator")
        self.settings = settings or SearchSettings()
        if self.settings.constrained and form is None:
            raise UsageError(
                "A constrained search needs a problem whose answers have a "
                "form, such as trees; this one has none."
            )
        if jit:
            self.settings.check_compiled()
        self.form = form
        self.jit = jit
        self.model = model
        self.source_encoder = source_encoder
        self.target_encoder = target_encoder
        self.extra_decode_length = extra_decode_length
        self.max_length = max_length
        self._suppressed = target_encoder.ids_of(self.settings.suppress)
        self._graphs: dict[tuple, Callable] = {}
        text = tf.TensorSpec([None], tf.string)
        self.score_graph = tf.function(
            self._score, input_signature=[text, text], autograph=False
        )

    @property
    def one_model(self) -> Transformer:
        """The model, for what looks into it.

        Raises:
          UsageError: it is an ensemble.
        """
        if isinstance(self.model, Ensemble):
            raise UsageError("This needs one model: leave out the ensemble.")
        return self.model

    @property
    def most_hypotheses(self) -> int | None:
        """How many hypotheses a text can have; None: any number of samples."""
        return None if self.settings.sample else self.settings.beam_size

    def translate(
        self,
        texts: tf.Tensor,
        num_hypotheses: int = 1,
        asked: Mapping[str, tf.Tensor | tf.RaggedTensor] | None = None,
    ) -> dict[str, tf.Tensor]:
        """Translates any number of texts; a row never affects another.

        Args:
          texts: tf.string [B].
          num_hypotheses: N, at least 1, at most `most_hypotheses`.
          asked: what is asked of each text, any of COLUMNS by name.

        Returns: a dict of
          outputs: tf.string [B, N], best first, line ends replaced by spaces;
          scores: float32 [B, N], finite; see `beam_search`;
          tokens: int32 [B, N, L], EOS, then zeros;
          source_lengths: int32 [B], tokens of the source, EOS included;
          cut: bool [B], where the source was longer than `max_length`.
        An empty text, or one of white space only, has N empty outputs with
        score 0.

        Raises:
          UsageError: the search does not do what is asked.
        """
        asked = asked or {}
        columns = tuple(name for name in COLUMNS if name in asked)
        graph = self.graph(num_hypotheses, columns)
        return graph(texts, *(asked[name] for name in columns))

    def graph(
        self, num_hypotheses: int = 1, columns: tuple[str, ...] = ()
    ) -> Callable:
        """`translate` for so many hypotheses: a tf.function, traced once.

        Args:
          num_hypotheses: N.
          columns: names of COLUMNS, in their order, which follow the texts.

        Raises:
          UsageError: the search does not do what the columns ask for.
        """
        key = (num_hypotheses, columns)
        if key not in self._graphs:
            self.require_can_do(columns)
            self._graphs[key] = tf.function(
                lambda texts, *values: self._translate(
                    texts,
                    num_hypotheses,
                    dict(zip(columns, values, strict=True)),
                ),
                input_signature=[
                    tf.TensorSpec([None], tf.string, "inputs"),
                    *(COLUMNS[name] for name in columns),
                ],
                autograph=False,  # nothing to convert; looking costs seconds
            )
        return self._graphs[key]

    def require_can_do(self, asked: Iterable[str]) -> None:
        """Refuses what may be asked of single texts, but not of this search.

        Args:
          asked: names of COLUMNS.

        Raises:
          UsageError: one of them does not go with the settings.
        """
        asked = list(asked)
        self.settings.check_columns(asked)
        if self.jit:
            self.settings.check_compiled(asked)

    def warm_up(self, num_hypotheses: int = 1) -> None:
        """Makes the graph of `translate`, so that the first text is quick."""
        self.translate(tf.constant([""]), num_hypotheses)

    def score(
        self, sources: tf.Tensor, targets: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Scores given translations.

        Args:
          sources: tf.string [B].
          targets: tf.string [B].

        Returns: a dict of
          log_probabilities, scores: float32 [B], as in `lines.PairScore`;
          source_lengths, lengths: int32 [B], tokens of the source and of the
            target, EOS included;
          tokens: int32 [B, T], of the target, EOS, then zeros;
          token_log_probabilities: float32 [B, T], of these, then zeros;
          cut: bool [B], where either side was longer than `max_length`.
        """
        return self.score_graph(sources, targets)

    def _translate(self, texts, num_hypotheses, asked):
        settings = self.settings
        texts = prepare(texts, self.form)
        ids, source_lengths, cut = with_eos(
            self.source_encoder.tokenize(texts), self.max_length
        )
        empty = source_lengths <= 1
        limits = tf.where(empty, 0, self._limits(source_lengths))
        if self.jit:
            search = functools.partial(self._search, num_hypotheses)
            tokens, scores = compiled(search, self._limits)(ids, limits)
        else:
            count = tf.shape(texts)[0]
            asked = ids_asked(count, asked, settings, self.target_encoder)
            tokens, scores = self._search(
                num_hypotheses, ids, limits, texts=texts, asked=asked
            )
        if settings.sample:
            tokens, scores = best_first(tokens, scores, num_hypotheses)
        shape = tf.shape(tokens)
        outputs = self.target_encoder.detokenize(
            tf.reshape(tokens, [shape[0] * num_hypotheses, shape[2]])
        )
        return {
            "outputs": tf.reshape(
                on_one_line(outputs), [shape[0], num_hypotheses]
            ),
            "scores": tf.where(empty[:, None], 0.0, scores),
            "tokens": tokens,
            "source_lengths": source_lengths,
            "cut": cut,
        }

    def _limits(self, lengths):
        """The most tokens, EOS included, for sources of some lengths."""
        limits = lengths + self.extra_decode_length
        longest = self.settings.max_new_tokens
        return limits if longest is None else tf.minimum(limits, longest)

    def _search(
        self, num_hypotheses, ids, limits, longest=None, texts=None, asked=None
    ):
        """Tokens int32 [B, N, L] and scores float32 [B, N].

        Of a `longest`, L, that is given no shape changes in the search.
        """
        settings, model = self.settings, self.model
        rows = (texts, limits, asked or {}, *model.encode(ids))
        samples, beam_size = 1, settings.beam_size
        if settings.sample:
            # Hypotheses of a beam share what is known of their source. Each
            # sample is a sentence of its own.
            samples, beam_size = num_hypotheses, 1
            rows = tf.nest.map_structure(
                lambda x: tf.repeat(x, samples, axis=0), rows
            )
        texts, limits, asked, memory, mask = rows
        changes, choice, limits = self._varied(texts, limits, asked, samples)
        fixed = longest is not None
        if not fixed:
            longest = tf.reduce_max(tf.concat([limits, [0]], axis=0))
        penalty = settings.coverage_penalty
        cache = model.start_decoding(
            memory, mask, beam_size, longest, penalty > 0
        )
        return beam_search(
            model.decode_step,
            model.follow_beams,
            cache,
            batch_size=tf.shape(limits)[0],
            beam_size=beam_size,
            vocab_size=self.model.vocab_sizes[1],
            limits=limits,
            longest=longest,
            alpha=settings.alpha,
            eos_id=EOS_ID,
            num_hypotheses=num_hypotheses // samples,
            changes=changes,
            choice=choice,
            bonus_fn=None
            if not penalty
            else lambda cache: (
                penalty * coverage_penalty(model.coverage(cache))
            ),
            keep_fn=None if fixed else model.keep_sentences,
        )

    def _varied(self, texts, limits, asked, samples):
        """What makes another search of it: changes, the choice, the limits."""
        settings = self.settings
        choice: Required | Sample | None = None
        changes: list[ScoreChange] = []
        bans: list[Ban] = []
        if self.form is not None and settings.constrained:
            change, limits = self.form.constrain(texts, limits)
            changes.append(change)
        suppressed = tuple(self._suppressed)
        if settings.sample:  # chance may fall on padding; a search never did
            suppressed += (PAD_ID,)
        if suppressed:
            bans.append(Suppress(suppressed))
        if settings.min_new_tokens:
            bans.append(MinimumLength(settings.min_new_tokens, EOS_ID))
        if settings.no_repeat_ngram_size:
            bans.append(NoRepeat(settings.no_repeat_ngram_size))
        if "avoid" in asked:
            bans.append(Avoid(asked["avoid"]))
        if "constraints" in asked:
            required = Required(asked["constraints"], EOS_ID)
            bans.append(required)
            choice = required
        if settings.sample:
            drawn = uniforms(asked["seed"], texts, samples, limits)
            options = (settings.temperature, settings.top_k, settings.top_p)
            choice = Sample(drawn, *options)
        if "prefix" in asked:
            bans = [ForcedPrefix(asked["prefix"], bans)]
            real = tf.cast(asked["prefix"] != NO_TOKEN, tf.int32)
            room = tf.reduce_sum(real, axis=1) + 1  # for EOS
            limits = tf.where(limits > 0, tf.maximum(limits, room), 0)
        return [*changes, *bans], choice, limits

    def pairs(
        self, sources: tf.Tensor, targets: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor, tf.Tensor]:
        """Given translations as a model takes them.

        Args:
          sources: tf.string [B].
          targets: tf.string [B].

        Returns: `inputs` int32 [B, S] and `targets` int32 [B, T], both with
          EOS, then zeros; the lengths of the targets, EOS included, int32 [B];
          and bool [B], where either side was longer than `max_length`.
        """
        inputs, _, inputs_cut = with_eos(
            self.source_encoder.tokenize(prepare(sources, self.form)),
            self.max_length,
        )
        outputs, lengths, outputs_cut = with_eos(
            self.target_encoder.tokenize(targets), self.max_length
        )
        features = {"inputs": inputs, "targets": outputs}
        return features, lengths, inputs_cut | outputs_cut

    def _score(self, sources, targets):
        features, lengths, cut = self.pairs(sources, targets)
        each = self.model.token_log_probs(features)
        log_probs = tf.reduce_sum(each, axis=-1)
        return {
            "log_probabilities": log_probs,
            "scores": log_probs / length_penalty(lengths, self.settings.alpha),
            "source_lengths": tf.math.count_nonzero(
                features["inputs"], axis=-1, dtype=tf.int32
            ),
            "lengths": lengths,
            "tokens": features["targets"],
            "token_log_probabilities": each,
            "cut": cut,
        }
