"""Open a vocabulary file of any kind by its content."""

import os

from t2t_lite.errors import T2TLiteError
from t2t_lite.tokenizers.base import TextEncoder, lines_of, read_vocabulary
from t2t_lite.tokenizers.closed import SPECIAL_TOKENS, TokenEncoder
from t2t_lite.tokenizers.sentencepiece import SentencePieceEncoder
from t2t_lite.tokenizers.t2t_subword import SubwordEncoder, subwords_of
from t2t_lite.tokenizers.wordpiece import WordPieceEncoder


def open_vocabulary(path: str | os.PathLike) -> TextEncoder:
    """Return the encoder of a vocabulary file, whatever its name is.

    Raises:
      T2TLiteError: the file is missing, damaged or of another kind.
    """
    content = read_vocabulary(path)
    lines = lines_of(content)
    if subwords_of(lines):
        return SubwordEncoder(path)
    if "[UNK]" in lines:
        return WordPieceEncoder(path)
    if tuple(lines[:3]) == SPECIAL_TOKENS:
        return TokenEncoder(path)
    if b"\0" in content or (content and not lines):
        return SentencePieceEncoder(path)  # it is not text
    raise T2TLiteError(
        f"{path} is not a vocabulary, or is damaged: it is not a SentencePiece "
        "model, not a WordPiece vocabulary (one piece a line, [UNK] among "
        "them) and not a tensor2tensor subword file ('<pad>_' and '<EOS>_' "
        "first). t2t-lite-datagen makes a new one."
    )
