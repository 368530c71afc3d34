"""Text to text in one graph: text to ids, beam search, ids to text.

The decoder, the scores of a training run and the exported model all translate
with it.
"""

from collections.abc import Callable

import tensorflow as tf

from t2t_lite.decoding.beam_search import beam_search, length_penalty
from t2t_lite.decoding.texts import on_one_line, prepare, with_eos
from t2t_lite.errors import UsageError
from t2t_lite.model.transformer import Transformer
from t2t_lite.text.encoder import EOS_ID, TextEncoder
from t2t_lite.text.form import TextForm


class Translator(tf.Module):
    """Translates tensors of text in one graph.

    Args:
      model: a `Transformer` whose weights exist.
      source_encoder: a `TextEncoder`.
      target_encoder: likewise, of the other side; may be the same.
      beam_size: K; 1 is greedy.
      alpha: weight of the length penalty, at least 0.
      extra_decode_length: how many tokens a translation may have beyond those
        of its source, EOS included on both sides.
      max_length: source tokens, EOS included; the rest is cut off.
      form: of the problem's texts; None: its answers may be any text.
      constrained: search for answers of the right form only; needs a `form`.

    Raises:
      UsageError: the problem has no form to constrain the search to.
    """

    def __init__(
        self,
        model: Transformer,
        source_encoder: TextEncoder,
        target_encoder: TextEncoder,
        *,
        beam_size: int = 4,
        alpha: float = 0.6,
        extra_decode_length: int = 50,
        max_length: int = 256,
        form: TextForm | None = None,
        constrained: bool = False,
    ):
        super().__init__(name="translator")
        if constrained and form is None:
            raise UsageError(
                "A constrained search needs a problem whose answers have a "
                "form, such as trees; this one has none."
            )
        self.form = form
        self.constrained = constrained
        self.model = model
        self.source_encoder = source_encoder
        self.target_encoder = target_encoder
        self.beam_size = beam_size
        self.alpha = alpha
        self.extra_decode_length = extra_decode_length
        self.max_length = max_length
        self._graphs: dict[int, Callable] = {}
        text = tf.TensorSpec([None], tf.string)
        self._score_graph = tf.function(
            self._score, input_signature=[text, text], autograph=False
        )

    def translate(
        self, texts: tf.Tensor, num_hypotheses: int = 1
    ) -> dict[str, tf.Tensor]:
        """Translates any number of texts; a row never affects another.

        Args:
          texts: tf.string [B].
          num_hypotheses: N, from 1 to the beam size.

        Returns: a dict of
          outputs: tf.string [B, N], best first, line ends replaced by spaces;
          scores: float32 [B, N], finite; see `beam_search`;
          tokens: int32 [B, N, L], EOS, then zeros;
          cut: bool [B], where the source was longer than `max_length`.
        An empty text, or one of white space only, has N empty outputs with
        score 0.
        """
        return self.graph(num_hypotheses)(texts)

    def graph(self, num_hypotheses: int = 1) -> Callable:
        """`translate` for so many hypotheses: a tf.function, traced once."""
        if num_hypotheses not in self._graphs:
            self._graphs[num_hypotheses] = tf.function(
                lambda texts: self._translate(texts, num_hypotheses),
                input_signature=[tf.TensorSpec([None], tf.string, "inputs")],
                autograph=False,  # nothing to convert; looking costs seconds
            )
        return self._graphs[num_hypotheses]

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
          lengths: int32 [B], tokens of the target, EOS included;
          tokens: int32 [B, T], of the target, EOS, then zeros;
          token_log_probabilities: float32 [B, T], of these, then zeros;
          cut: bool [B], where either side was longer than `max_length`.
        """
        return self._score_graph(sources, targets)

    def _translate(self, texts, num_hypotheses):
        texts = prepare(texts, self.form)
        ids, lengths, cut = with_eos(
            self.source_encoder.tokenize(texts), self.max_length
        )
        empty = lengths <= 1
        limits = tf.where(empty, 0, lengths + self.extra_decode_length)
        changes = []
        if self.form is not None and self.constrained:
            change, limits = self.form.constrain(texts, limits)
            changes.append(change)
        memory, mask = self.model.encode(ids)
        longest = tf.reduce_max(tf.concat([limits, [0]], axis=0))
        cache = self.model.start_decoding(memory, mask, self.beam_size, longest)
        tokens, scores = beam_search(
            self.model.decode_step,
            self.model.follow_beams,
            cache,
            batch_size=tf.shape(ids)[0],
            beam_size=self.beam_size,
            vocab_size=self.target_encoder.vocab_size,
            limits=limits,
            alpha=self.alpha,
            eos_id=EOS_ID,
            num_hypotheses=num_hypotheses,
            changes=changes,
        )
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
            "cut": cut,
        }

    def _score(self, sources, targets):
        inputs, _, inputs_cut = with_eos(
            self.source_encoder.tokenize(prepare(sources, self.form)),
            self.max_length,
        )
        targets, lengths, targets_cut = with_eos(
            self.target_encoder.tokenize(targets), self.max_length
        )
        each = self.model.token_log_probs(
            {"inputs": inputs, "targets": targets}
        )
        log_probs = tf.reduce_sum(each, axis=-1)
        return {
            "log_probabilities": log_probs,
            "scores": log_probs / length_penalty(lengths, self.alpha),
            "lengths": lengths,
            "tokens": targets,
            "token_log_probabilities": each,
            "cut": inputs_cut | targets_cut,
        }
