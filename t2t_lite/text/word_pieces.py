"""The pieces of a text from those of its words, each looked up once.

If no piece of a SentencePiece BPE model continues after a space, the pieces of
a text are those of its words, each with the space before it. Most words of a
corpus are frequent ones, so a table of words encodes several times faster.
"""

import array
import collections
import itertools
import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from t2t_lite.text.sentencepiece_model import NORMALIZATION

_SPACE = "\u2581"
_BPE = 2  # TrainerSpec.ModelType
# The table is emptied at this size in characters, 64 more for each word.
_MOST_CHARACTERS = 1 << 25
_WORD_COST = 64


class WordPieces:
    """Encodes texts with a SentencePiece model.

    Args:
      model: the bytes of the model file. One whose pieces may cross spaces is
        used on whole texts.
    """

    def __init__(self, model: bytes):
        import sentencepiece

        self._processor = sentencepiece.SentencePieceProcessor(
            model_proto=model
        )
        self.is_wordwise = _is_wordwise(model)
        self._empty()

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of each text, int32; texts must not have surrogates."""
        if not self.is_wordwise:
            rows = self._processor.encode(list(texts))
            return [np.array(ids, np.int32) for ids in rows]
        found, ends = array.array("q"), []
        look_up = self._table.__getitem__
        for text in texts:
            first, *words = text.split(" ")
            found.append(look_up((first,)))  # it has no space before it
            found.extend(map(look_up, words))
            ends.append(len(found))
        self._encode_new()
        rows = self._rows(
            np.frombuffer(found, np.int64), np.array(ends, np.int64)
        )
        if self._characters > _MOST_CHARACTERS:
            self._empty()
        return rows

    def _empty(self):
        # Numbers words as they are asked for.
        self._table: dict[Any, int] = collections.defaultdict(
            itertools.count().__next__
        )
        self._characters = 0
        self._ids = np.array([], np.int32)
        self._starts = np.array([0], np.int64)  # and where the last word ends

    def _encode_new(self):
        """Brings `_ids` and `_starts` up to what the table has."""
        number = len(self._table) - len(self._starts) + 1
        if not number:
            return
        words = [
            word[0] if isinstance(word, tuple) else f" {word}"
            for word in itertools.islice(reversed(self._table), number)
        ][::-1]
        pieces = self._processor.encode(words)
        lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
        ends = self._starts[-1] + np.cumsum(lengths)
        self._starts = np.append(self._starts, ends)
        new = np.array([i for ids in pieces for i in ids], np.int32)
        self._ids = np.append(self._ids, new)
        self._characters += sum(map(len, words)) + _WORD_COST * len(words)

    def _rows(self, found, ends):
        """The ids of the words at `found`, cut where texts end."""
        starts = self._starts[found]
        lengths = self._starts[found + 1] - starts
        word_ends = np.cumsum(lengths)
        shifts = np.repeat(starts - word_ends + lengths, lengths)
        ids = self._ids[shifts + np.arange(len(shifts))]
        cuts = [0, *word_ends[ends - 1].tolist()]
        return [ids[start:end] for start, end in itertools.pairwise(cuts)]


def _is_wordwise(model):
    """Whether the pieces of a text are certainly those of its words."""
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    normalizer = proto.normalizer_spec
    return (
        proto.trainer_spec.model_type == _BPE
        and proto.trainer_spec.byte_fallback
        and not proto.trainer_spec.treat_whitespace_as_suffix
        and normalizer.escape_whitespaces
        and not normalizer.add_dummy_prefix
        and not normalizer.remove_extra_whitespaces
        and not any(_SPACE in piece.piece[1:] for piece in proto.pieces)
        and normalizer.precompiled_charsmap in (b"", _compiled_normalization())
    )


def _compiled_normalization():
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    sentencepiece.set_min_log_level(2)  # errors only, as in training
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "normalize.tsv"
        path.write_text(NORMALIZATION)
        normalizer = sentencepiece.SentencePieceNormalizer(rule_tsv=str(path))
    model = normalizer.serialized_model_proto()
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    return proto.normalizer_spec.precompiled_charsmap
