"""The vocabulary of MarianMT: two SentencePiece models over one id table."""

import io
import json
import re
import zipfile
import zlib
from collections.abc import Sequence
from typing import Literal

import tensorflow as tf
import tensorflow_text as tf_text

from t2t_lite.errors import T2TLiteError
from t2t_lite.files import PathLike
from t2t_lite.tokenizers.base import UNK_ID, Tokenizer, clean_utf8, lookup_table
from t2t_lite.tokenizers.closed import SPECIAL_TOKENS

_CODE = r"(?s)^(>>.*?<<)?.*"  # a language code and the rest
# White space as `str.strip` defines it.
_ENDS = r"^[\s\v\x1c-\x1f\x{85}\pZ]+|[\s\v\x1c-\x1f\x{85}\pZ]+$"


class MarianVocabulary(Tokenizer):
    """The vocabulary of MarianMT models of Hugging Face's transformers.

    The file is a zip archive of `source.spm`, `target.spm` and `pieces.json`,
    a list. A code at the start of a text, such as `>>deu<<`, is one token.
    Decoded texts have no unknown tokens and no white space at their ends, as in
    `transformers`. Unlike in `transformers`, `</s>` in a text is not a token.

    Raises:
      T2TLiteError: the file is missing or damaged.
    """

    unknown_id = UNK_ID

    def __init__(
        self, path: PathLike, side: Literal["source", "target"] = "source"
    ):
        super().__init__(path)
        try:
            with zipfile.ZipFile(io.BytesIO(self._content)) as archive:
                self.models = {n: archive.read(n) for n in archive.namelist()}
            pieces = json.loads(self.models["pieces.json"])
            if tuple(pieces[:3]) != SPECIAL_TOKENS:
                raise ValueError(f"the first pieces are not {SPECIAL_TOKENS}")
            self.side, self._model = side, self.models[f"{side}.spm"]
            self._tokenizer()
        except (
            *(zipfile.BadZipFile, zlib.error, KeyError, ValueError),
            *(AttributeError, TypeError, RecursionError, tf.errors.OpError),
        ) as error:
            raise T2TLiteError(
                f"{path} is not a vocabulary of MarianMT or is damaged: import "
                "the model again."
            ) from error
        self._pieces = pieces
        self.vocab_size = len(pieces)
        self.tags = tuple(p for p in pieces if re.fullmatch(">>.+<<", p))
        ids = {piece: index for index, piece in enumerate(pieces)}
        self._ids = lookup_table(ids, UNK_ID)

    def _tokenizer(self):
        """Return the tokenizer, created in this graph; see SentencePiece's."""
        return tf_text.SentencepieceTokenizer(self._model, out_type=tf.string)

    def for_targets(self) -> "MarianVocabulary":
        return MarianVocabulary(self.path, "target")

    def encode_tf(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Return the ids of each text; UNK_ID for an unknown piece."""
        text = clean_utf8(text)
        code = tf.strings.regex_replace(text, _CODE, r"\1", False)
        rest = tf.strings.regex_replace(text, r"(?s)^>>.*?<<", "", False)
        pieces = self._tokenizer().tokenize(rest)
        codes = tf.ragged.boolean_mask(code[:, None], code[:, None] != "")
        pieces = tf.concat([codes, pieces], axis=1)
        ids = self._ids.lookup(pieces.flat_values)
        return pieces.with_flat_values(tf.maximum(ids, UNK_ID))

    def decode_tf(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        ids = self._strip_special(ids)
        ids = tf.ragged.boolean_mask(ids, ids != UNK_ID)
        pieces = tf.gather(tf.constant(self._pieces), ids.flat_values)
        text = self._tokenizer().detokenize(ids.with_flat_values(pieces))
        text = tf.strings.regex_replace(text, "\u2581", " ")
        return tf.strings.regex_replace(text, _ENDS, "")


def pack_vocabulary(
    path: PathLike, source: bytes, target: bytes, pieces: Sequence[str]
) -> None:
    """Write a vocabulary, given its models and the piece of each id."""
    members = {"source.spm": source, "target.spm": target}
    members["pieces.json"] = json.dumps(pieces).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            # ZipInfo has a fixed date: equal contents, equal files.
            archive.writestr(zipfile.ZipInfo(name), content)
