"""Translates with CTranslate2 as `decoding.translator` does in a graph."""

import copy
import dataclasses
import json
import os
import pathlib
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import tensorflow as tf

from t2t_lite.decoding.search.beam_search import length_penalty
from t2t_lite.decoding.search.log_probs import IMPOSSIBLE
from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.decoding.texts import on_one_line, prepare, with_eos
from t2t_lite.decoding.translator import Translator
from t2t_lite.errors import T2TLiteError, UsageError, in_words
from t2t_lite.interop.ctranslate2_model import (
    SETTINGS,
    load_ctranslate2,
    require_known,
    token_names,
    write_ctranslate2,
)
from t2t_lite.interop.quantization import Quantization
from t2t_lite.runtime import usable_cores
from t2t_lite.text.encoder import EOS_ID, TextEncoder
from t2t_lite.text.form import TextForm
from t2t_lite.text.vocabulary import open_vocabulary

# A search of K beams ends when it has so many times K finished hypotheses and
# the best of a step was one. Ours ends by a bound, which this one cannot ask.
_PATIENCE = 2


class _Found(NamedTuple):
    """A hypothesis: its ids, EOS included if it has one, and its score."""

    ids: list[int]
    score: float


class CTranslate2Translator:
    """Translates tensors of text; a `Translator` by its interface.

    Its beams, scores and limits are those of `beam_search`, and so are its
    answers, but for two rules of CTranslate2: an EOS counts only if it is among
    the K best candidates of a step, not the 2 K best; and a search ends with
    enough finished hypotheses, not when none can be better.

    Args:
      folder: from `write_ctranslate2`.
      source_encoder: of the folder's model.
      target_encoder: likewise.
      settings: of the search; beam size and alpha only.
      extra_decode_length: as of `Translator`.
      max_length: likewise.
      form: likewise; the search is not constrained to it.
      searches: how many share a batch and the cores.

    Raises:
      UsageError: this engine cannot search as the settings say.
      T2TLiteError: CTranslate2 is not installed, or the folder is damaged.
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        source_encoder: TextEncoder,
        target_encoder: TextEncoder,
        settings: SearchSettings,
        *,
        extra_decode_length: int,
        max_length: int,
        form: TextForm | None = None,
        searches: int = 1,
    ):
        self.source_encoder = source_encoder
        self.target_encoder = target_encoder
        require_known(settings)
        self.settings = settings
        self.extra_decode_length = extra_decode_length
        self.max_length = max_length
        self.form = form
        self._searches = searches
        self._source_names = token_names(source_encoder)
        self._target_names = token_names(target_encoder)
        self._target_ids = {
            name: index for index, name in enumerate(self._target_names)
        }
        try:
            self._engine: Any = load_ctranslate2().Translator(
                str(folder),
                device="auto",
                inter_threads=searches,
                intra_threads=max(1, usable_cores() // searches),
            )
        except (RuntimeError, ValueError) as error:
            raise T2TLiteError(
                f"CTranslate2 cannot load {folder}: {in_words(error)}."
            ) from error

    @classmethod
    def convert(
        cls,
        translator: Translator,
        quantization: Quantization = "float32",
        searches: int = 1,
    ) -> Self:
        """The same translator in this engine; leaves no files.

        Raises:
          UsageError: CTranslate2 cannot run it.
          T2TLiteError: CTranslate2 is not installed.
        """
        with tempfile.TemporaryDirectory(prefix="t2t_lite_") as folder:
            write_ctranslate2(translator, folder, quantization)
            return cls(
                folder,
                translator.source_encoder,
                translator.target_encoder,
                translator.settings,
                extra_decode_length=translator.extra_decode_length,
                max_length=translator.max_length,
                form=translator.form,
                searches=searches,
            )

    @classmethod
    def open(cls, folder: str | os.PathLike, searches: int = 1) -> Self:
        """The translator that `write_ctranslate2` wrote to a folder.

        Raises:
          T2TLiteError: CTranslate2 is not installed, or the folder is damaged.
        """
        folder = pathlib.Path(folder)
        try:
            settings = json.loads((folder / SETTINGS).read_text("utf-8"))
            vocabularies = settings.pop("vocabularies")
            source, target = vocabularies["source"], vocabularies["target"]
            search = SearchSettings(**settings.pop("search"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise T2TLiteError(
                f"{folder / SETTINGS} is missing or damaged: export again."
            ) from error
        source_encoder = target_encoder = open_vocabulary(folder / source)
        if target != source:
            target_encoder = open_vocabulary(folder / target)
        settings["searches"] = searches
        return cls(folder, source_encoder, target_encoder, search, **settings)

    def searching(
        self, beam_size: int | None = None, alpha: float | None = None
    ) -> Self:
        """The same model with another search; None keeps what it has."""
        given: dict[str, Any] = {"beam_size": beam_size, "alpha": alpha}
        other = copy.copy(self)
        other.settings = dataclasses.replace(
            self.settings,
            **{k: value for k, value in given.items() if value is not None},
        )
        return other

    @property
    def most_hypotheses(self) -> int:
        """How many hypotheses a text can have."""
        return self.settings.beam_size

    def require_can_do(self, asked: Iterable[str]) -> None:
        """Refuses whatever may be asked of single texts.

        Raises:
          UsageError: something is.
        """
        for name in asked:
            raise UsageError(f"CTranslate2 searches without {name} here.")

    def translate(
        self,
        texts: tf.Tensor,
        num_hypotheses: int = 1,
        asked: Mapping[str, Any] | None = None,
    ) -> dict[str, tf.Tensor]:
        """Translates any number of texts; see `Translator.translate`."""
        self.require_can_do(asked or ())
        names, told = self._source_tokens(texts)
        found = self._search(names)
        nothing = _Found([], IMPOSSIBLE)
        found = [
            (each + [nothing] * num_hypotheses)[:num_hypotheses]
            for each in found
        ]
        count = (len(found), num_hypotheses)
        tokens = _padded([one.ids for each in found for one in each], tf.int32)
        outputs = on_one_line(self.target_encoder.detokenize(tokens))
        scores = [[one.score for one in each] for each in found]
        return {
            "outputs": tf.reshape(outputs, count),
            "scores": tf.constant(scores, tf.float32, shape=count),
            "tokens": tf.reshape(tokens, (*count, tokens.shape[1])),
            **told,
        }

    def score(
        self, sources: tf.Tensor, targets: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Scores given translations; see `Translator.score`."""
        names, told = self._source_tokens(sources)
        ids, lengths, targets_cut = with_eos(
            self.target_encoder.tokenize(targets), self.max_length
        )
        answers = self._engine.score_batch(
            names,
            _named(self._target_names, ids, lengths),
            max_batch_size=self._share(names),
            max_input_length=0,
        )
        each = _padded([answer.log_probs for answer in answers], tf.float32)
        log_probs = tf.reduce_sum(each, axis=1)
        return {
            **told,
            "log_probabilities": log_probs,
            "scores": log_probs / length_penalty(lengths, self.settings.alpha),
            "lengths": lengths,
            "tokens": ids,
            "token_log_probabilities": each,
            "cut": told["cut"] | targets_cut,
        }

    def warm_up(self, num_hypotheses: int = 1) -> None:
        """Does nothing: there is no graph to make."""

    def _source_tokens(self, texts):
        """The tokens of each text without EOS, by name, and what is told."""
        ids, lengths, cut = with_eos(
            self.source_encoder.tokenize(prepare(texts, self.form)),
            self.max_length,
        )
        told = {"source_lengths": lengths, "cut": cut}
        return _named(self._source_names, ids, lengths), told

    def _search(self, sources: list[list[str]]) -> list[list[_Found]]:
        """The hypotheses of each source, best first."""
        found = [[_Found([], 0.0)] * self.settings.beam_size for _ in sources]
        # With its EOS, which counts in a limit.
        limits = {
            row: len(names) + 1 + self.extra_decode_length
            for row, names in enumerate(sources)
            if names
        }
        if not limits:
            return found
        # A call has one limit. Whoever went past its own is asked alone.
        answers = self._ask(
            [sources[row] for row in limits], max(limits.values())
        )
        for (row, limit), answer in zip(limits.items(), answers, strict=True):
            if max(map(len, answer.hypotheses)) > limit:
                (answer,) = self._ask([sources[row]], limit)
            found[row] = self._ranked(answer)
        return found

    def _target_id(self, name: str) -> int:
        known = self._target_ids.get(name)
        return int(name) if known is None else known  # beyond the vocabulary

    def _ask(self, sources: Sequence[list[str]], limit: int) -> list[Any]:
        beam_size = self.settings.beam_size
        finished = beam_size * (_PATIENCE if beam_size > 1 else 1)
        return self._engine.translate_batch(
            sources,
            max_batch_size=self._share(sources),
            beam_size=beam_size,
            num_hypotheses=finished,
            patience=finished / beam_size,
            length_penalty=0,  # ours is another, see `_ranked`
            return_scores=True,
            return_end_token=True,
            max_input_length=0,
            min_decoding_length=0,
            max_decoding_length=limit,
        )

    def _share(self, rows):
        """How many rows each search takes."""
        return -(-len(rows) // self._searches)

    def _ranked(self, answer: Any) -> list[_Found]:
        """The hypotheses by our score, those without EOS last."""
        found = []
        for names, log_prob in zip(
            answer.hypotheses, answer.scores, strict=True
        ):
            ids = [self._target_id(name) for name in names]
            penalty = ((5 + len(ids)) / 6) ** self.settings.alpha
            found.append(_Found(ids, log_prob / penalty))
        return sorted(
            found, key=lambda one: (one.ids[-1] != EOS_ID, -one.score)
        )


def _named(names, ids, lengths):
    """Rows of ids as names, without their EOS."""
    rows = zip(ids.numpy().tolist(), lengths.numpy().tolist(), strict=True)
    return [[names[token] for token in row[: end - 1]] for row, end in rows]


def _padded(rows, dtype):
    """Lists of any length as a tensor [N, L], zeros at their ends."""
    return tf.ragged.constant(rows, dtype=dtype, ragged_rank=1).to_tensor()
