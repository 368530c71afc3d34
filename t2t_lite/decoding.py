"""Text to text: lines to ids, beam search, text again, in the order of input.

The decoder, the BLEU of a training run and the exported model all translate
with the same graph, `Translator.translate`.
"""

import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from t2t_lite.beam_search import beam_search, is_possible, length_penalty
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.streaming import map_sorted
from t2t_lite.text_encoder import EOS_ID, PAD_ID
from t2t_lite.text_form import TextForm


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """One translation.

    Attributes:
      text: one line, without its end.
      score: log-probability / ((5 + length) / 6) ** alpha.
      tokens: the ids, with the EOS unless it was cut at the limit.
      facts: what the problem says of it, see `Problem.complete`.
    """

    text: str
    score: float
    tokens: list[int]
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Translation:
    """The answer to one line.

    Attributes:
      line: its number, from 1.
      source: the line without its end, U+FFFD for what is not UTF-8.
      hypotheses: best first, at least one.
    """

    line: int
    source: str
    hypotheses: list[Hypothesis]


@dataclasses.dataclass(frozen=True)
class PairScore:
    """How likely a given translation is.

    Attributes:
      line: the number of the pair, from 1.
      source: its first text, U+FFFD for what is not UTF-8.
      target: its second text, likewise.
      score: log_probability / ((5 + tokens) / 6) ** alpha, as a hypothesis's.
      log_probability: natural logarithm, of the target with its EOS.
      tokens: how many the target has, EOS included.
    """

    line: int
    source: str
    target: str
    score: float
    log_probability: float
    tokens: int


class Translator(tf.Module):
    """Translates tensors of text in one graph.

    Args:
      model: a `Transformer` whose weights exist.
      source_encoder: a `TextEncoder`.
      target_encoder: likewise, of the other side; may be the same.
      beam_size: K; 1 is greedy.
      alpha: weight of the length penalty, at least 0.
      extra_decode_length: a translation has at most so many tokens more than
        its own source, EOS included on both sides.
      max_length: source tokens, EOS included; what is beyond is cut.
      form: of the problem's texts; None: any text is as good as another.
      constrained: search for answers of the right form only; needs a `form`.

    Raises:
      UsageError: the problem has no form to constrain the search to.
    """

    def __init__(
        self,
        model,
        source_encoder,
        target_encoder,
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
                "form, such as trees; leave it unconstrained for this one."
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
        self._graphs = {}
        self._score_graph = None

    def translate(self, texts: tf.Tensor, num_hypotheses: int = 1) -> dict:
        """Translates any number of texts; a row never affects another.

        Args:
          texts: tf.string [B].
          num_hypotheses: N, from 1 to the beam size.

        Returns: a dict of
          outputs: tf.string [B, N], best first, line ends replaced by spaces;
          scores: float32 [B, N], finite; see `beam_search`;
          tokens: int32 [B, N, L], EOS, then zeros;
          cut: bool [B], where the source was longer than `max_length`.
        An empty text has N empty outputs with score 0.
        """
        return self.graph(num_hypotheses)(texts)

    def graph(self, num_hypotheses: int = 1):
        """`translate` for so many hypotheses: a tf.function, traced once."""
        if num_hypotheses not in self._graphs:
            self._graphs[num_hypotheses] = tf.function(
                lambda texts: self._translate(texts, num_hypotheses),
                input_signature=[tf.TensorSpec([None], tf.string, "inputs")],
            )
        return self._graphs[num_hypotheses]

    def score(self, sources: tf.Tensor, targets: tf.Tensor) -> dict:
        """Scores given translations.

        Args:
          sources: tf.string [B].
          targets: tf.string [B].

        Returns: a dict of `log_probabilities` float32 [B], `lengths` int32
          [B] and `scores` float32 [B], as in `PairScore`, and `cut` bool [B],
          where either side was longer than `max_length`.
        """
        if self._score_graph is None:
            text = tf.TensorSpec([None], tf.string)
            self._score_graph = tf.function(
                self._score, input_signature=[text, text]
            )
        return self._score_graph(sources, targets)

    def _translate(self, texts, num_hypotheses):
        texts = self._prepared(texts)
        ids, lengths, cut = _with_eos(
            self.source_encoder.tokenize(texts), self.max_length
        )
        empty = lengths <= 1
        limits = tf.where(empty, 0, lengths + self.extra_decode_length)
        step_fn, follow_fn = self.model.decode_step, self.model.follow_beams
        if self.constrained:
            step_fn, follow_fn, state, limits = self.form.constrain(
                texts, limits, self.beam_size, step_fn, follow_fn
            )
        memory, mask = self.model.encode(ids)
        cache = self.model.start_decoding(
            memory,
            mask,
            self.beam_size,
            tf.reduce_max(tf.concat([limits, [0]], axis=0)),
        )
        tokens, scores = beam_search(
            step_fn,
            follow_fn,
            (cache, state) if self.constrained else cache,
            batch_size=tf.shape(ids)[0],
            beam_size=self.beam_size,
            vocab_size=self.target_encoder.vocab_size,
            limits=limits,
            alpha=self.alpha,
            eos_id=EOS_ID,
            num_hypotheses=num_hypotheses,
        )
        shape = tf.shape(tokens)
        outputs = self.target_encoder.detokenize(
            tf.reshape(tokens, [shape[0] * num_hypotheses, shape[2]])
        )
        # A text is a line: what it answers to has one, too.
        outputs = tf.strings.regex_replace(outputs, r"\r\n|\r|\n", " ")
        return {
            "outputs": tf.reshape(outputs, [shape[0], num_hypotheses]),
            "scores": tf.where(empty[:, None], 0.0, scores),
            "tokens": tokens,
            "cut": cut,
        }

    def _prepared(self, texts):
        return texts if self.form is None else self.form.prepare(texts)

    def _score(self, sources, targets):
        inputs, _, inputs_cut = _with_eos(
            self.source_encoder.tokenize(self._prepared(sources)),
            self.max_length,
        )
        targets, lengths, targets_cut = _with_eos(
            self.target_encoder.tokenize(targets), self.max_length
        )
        log_probs, _ = self.model.target_log_probs(
            {"inputs": inputs, "targets": targets}
        )
        return {
            "log_probabilities": log_probs,
            "lengths": lengths,
            "scores": log_probs / length_penalty(lengths, self.alpha),
            "cut": inputs_cut | targets_cut,
        }


def _with_eos(tokens, max_length):
    """Cuts and ends rows of tokens.

    Example, with a `max_length` of 3: [[5, 6, 7, 8], [5], []] ->
    [[5, 6, 1], [5, 1, 0], [1, 0, 0]], [3, 2, 1], [True, False, False].

    Args:
      tokens: ragged int32 [B, None].
      max_length: tokens, EOS included.

    Returns: ids int32 [B, S], lengths with EOS int32 [B], bool [B] where
      tokens were cut off.
    """
    cut = tokens.row_lengths() > max_length - 1
    tokens = tokens[:, : max_length - 1]
    eos = tf.fill([tokens.nrows(), 1], tf.constant(EOS_ID, tokens.dtype))
    tokens = tf.concat([tokens, eos], axis=1)
    lengths = tf.cast(tokens.row_lengths(), tf.int32)
    return tf.cast(tokens.to_tensor(PAD_ID), tf.int32), lengths, cut


def translate_lines(
    translator: Translator,
    lines: Iterable[str | bytes],
    *,
    batch_size: int = 32,
    num_hypotheses: int = 1,
    complete: Callable[[str, str], tuple[str, Mapping[str, Any]]] | None = None,
    note: Callable[[int, str], None] | None = None,
) -> Iterator[Translation]:
    r"""Translates a stream of lines, one answer a line, in their order.

    Answers to the lines that have come are given without waiting for more, so
    that `lines` may be a pipe or a person. The batch size changes the speed,
    not the answers.

    Args:
      translator: what translates.
      lines: each ends with "\n", "\r\n" or nothing; every other character,
        such as NUL or U+2028, belongs to the line. An open binary file does.
      batch_size: lines translated together.
      num_hypotheses: hypotheses a line, at most the translator's beam size.
      complete: `Problem.complete`; None gives what the model wrote.
      note: called with a line number and what the user should know about
        that line; by default it is logged as a warning.

    Raises:
      T2TLiteError: the model's scores are no numbers.
    """
    note = note or _log_note

    def translate(batch):
        answers = translator.translate(
            tf.constant([text for _, text in batch]), num_hypotheses
        )
        answers = {name: value.numpy() for name, value in answers.items()}
        for row, (number, text) in enumerate(batch):
            if answers["cut"][row]:
                note(number, _cut_note(translator, "translated"))
            source = text.decode("utf-8", "replace")
            hypotheses = _hypotheses(answers, row, number)
            if complete:
                hypotheses = [
                    _completed(each, *complete(source, each.text))
                    for each in hypotheses
                ]
            yield Translation(number, source, hypotheses)

    return map_sorted(
        ((number, _strip_line_end(line)) for number, line in _numbered(lines)),
        translate,
        batch_size,
        length=lambda item: len(item[1]),
    )


def score_pairs(
    translator: Translator,
    pairs: Iterable[tuple[str | bytes, str | bytes]],
    *,
    batch_size: int = 32,
    note: Callable[[int, str], None] | None = None,
) -> Iterator[PairScore]:
    """Scores a stream of (source, target) pairs, in their order.

    Args:
      translator: whose model, encoders, alpha and longest length to use.
      pairs: texts; line ends are no part of them.
      batch_size: pairs scored together.
      note: as of `translate_lines`.

    Raises:
      T2TLiteError: the model's scores are no numbers.
    """
    note = note or _log_note

    def score(batch):
        answers = translator.score(
            tf.constant([source for _, source, _ in batch]),
            tf.constant([target for _, _, target in batch]),
        )
        answers = {name: value.numpy() for name, value in answers.items()}
        for row, (number, source, target) in enumerate(batch):
            if answers["cut"][row]:
                note(number, _cut_note(translator, "scored"))
            if not is_possible(answers["log_probabilities"][row]):
                raise _not_a_number(number)
            yield PairScore(
                line=number,
                source=source.decode("utf-8", "replace"),
                target=target.decode("utf-8", "replace"),
                score=float(answers["scores"][row]),
                log_probability=float(answers["log_probabilities"][row]),
                tokens=int(answers["lengths"][row]),
            )

    return map_sorted(
        (
            (number, _strip_line_end(source), _strip_line_end(target))
            for number, (source, target) in _numbered(pairs)
        ),
        score,
        batch_size,
        length=lambda item: len(item[1]) + len(item[2]),
    )


def _numbered(lines):
    return enumerate(lines, start=1)


def _strip_line_end(line):
    r"""The line as bytes, without "\n" or "\r\n" at its end."""
    if isinstance(line, str):
        # Lone surrogates become broken bytes, which the encoder cleans.
        line = line.encode("utf-8", "surrogatepass")
    if line.endswith(b"\n"):
        line = line[:-1]
    return line[:-1] if line.endswith(b"\r") else line


def _hypotheses(answers, row, number):
    """The hypotheses of one row that exist."""
    scores = answers["scores"][row]
    if not is_possible(scores[0]):
        raise _not_a_number(number)
    return [
        Hypothesis(
            text=answers["outputs"][row][k].decode("utf-8", "replace"),
            score=float(scores[k]),
            tokens=_trim(answers["tokens"][row][k]),
        )
        for k in range(len(scores))
        if is_possible(scores[k])
    ]


def _completed(hypothesis, text, facts):
    return dataclasses.replace(hypothesis, text=text, facts=facts)


def _trim(tokens):
    """Ids as a list, up to the EOS; without one, without the zeros behind."""
    tokens = tokens.tolist()
    if EOS_ID in tokens:
        return tokens[: tokens.index(EOS_ID) + 1]
    while tokens and tokens[-1] == PAD_ID:
        tokens.pop()
    return tokens


def _cut_note(translator, done):
    return (
        f"a text may have {translator.max_length} tokens (max_length, EOS "
        f"included); this one was cut to them and {done}."
    )


def _log_note(number, message):
    logging.getLogger("t2t_lite").warning("line %d: %s", number, message)


def _not_a_number(number):
    return T2TLiteError(
        "The scores of a model must be numbers; got NaN or infinities for "
        f"line {number}. The training diverged or the checkpoint is damaged: "
        "choose another with --checkpoint."
    )
