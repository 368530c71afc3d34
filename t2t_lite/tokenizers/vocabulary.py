"""Open a vocabulary file of any kind by its content."""

import os

from t2t_lite.errors import T2TLiteError
from t2t_lite.tokenizers.base import Tokenizer, read_vocabulary, vocab_lines
from t2t_lite.tokenizers.closed import SPECIAL_TOKENS, ClosedVocabulary
from t2t_lite.tokenizers.sentencepiece import SentencePieceTokenizer
from t2t_lite.tokenizers.t2t_subword import T2TSubwordTokenizer, parse_subwords
from t2t_lite.tokenizers.wordpiece import WordPieceVocabulary


def open_vocabulary(path: str | os.PathLike) -> Tokenizer:
    """Return the encoder of a vocabulary file, whatever its name is.

    Raises:
      T2TLiteError: the file is missing, damaged or of another kind.
    """
    content = read_vocabulary(path)
    lines = vocab_lines(content)
    if parse_subwords(lines):
        return T2TSubwordTokenizer(path)
    if "[UNK]" in lines:
        return WordPieceVocabulary(path)
    if tuple(lines[:3]) == SPECIAL_TOKENS:
        return ClosedVocabulary(path)
    if b"\0" in content or (content and not lines):
        return SentencePieceTokenizer(path)  # it is not text
    raise T2TLiteError(
        f"{path} is not a vocabulary, or is damaged: it is not a SentencePiece "
        "model, not a WordPiece vocabulary (one piece a line, [UNK] among "
        "them) and not a tensor2tensor subword file ('<pad>_' and '<EOS>_' "
        "first). t2t-lite-datagen makes a new one."
    )
