"""A vocabulary file of whatever kind, opened by what is in it."""

import os

from t2t_lite.errors import T2TLiteError
from t2t_lite.text.encoder import TextEncoder, lines_of, read_vocabulary
from t2t_lite.text.sentencepiece_encoder import SentencePieceEncoder
from t2t_lite.text.subword_encoder import SubwordEncoder, subwords_of
from t2t_lite.text.token_encoder import TokenEncoder, tokens_of
from t2t_lite.text.wordpiece_encoder import WordPieceEncoder, wordpieces_of


def open_vocabulary(path: str | os.PathLike) -> TextEncoder:
    """The encoder of a vocabulary file; its name plays no part.

    Raises:
      T2TLiteError: the file is missing, damaged or of another kind.
    """
    content = read_vocabulary(path)
    if subwords_of(content):
        return SubwordEncoder(path)
    if wordpieces_of(content):
        return WordPieceEncoder(path)
    if tokens_of(content):
        return TokenEncoder(path)
    if b"\0" in content or (content and not lines_of(content)):
        return SentencePieceEncoder(path)  # it is not text
    raise T2TLiteError(
        f"{path} is not a vocabulary, or is damaged: it is not a SentencePiece "
        "model, not a WordPiece vocabulary (one piece a line, [UNK] among "
        "them) and not a tensor2tensor subword file ('<pad>_' and '<EOS>_' "
        "first). t2t-lite-datagen makes a new one."
    )
