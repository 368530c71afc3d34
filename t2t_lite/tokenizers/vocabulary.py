"""Open a vocabulary file; its content determines the type."""

from t2t_lite.errors import T2TLiteError
from t2t_lite.files import PathLike
from t2t_lite.tokenizers.base import Tokenizer, read_vocabulary, vocab_lines
from t2t_lite.tokenizers.closed import SPECIAL_TOKENS, ClosedVocabulary
from t2t_lite.tokenizers.marian import MarianVocabulary
from t2t_lite.tokenizers.sentencepiece import SentencePieceTokenizer
from t2t_lite.tokenizers.t2t_subword import T2TSubwordTokenizer, parse_subwords
from t2t_lite.tokenizers.wordpiece import WordPieceVocabulary


def open_vocabulary(path: PathLike) -> Tokenizer:
    """Return the tokenizer of a vocabulary file, whatever its name.

    Raises:
      T2TLiteError: the file is missing, damaged or not a vocabulary.
    """
    content = read_vocabulary(path)
    if content.startswith(b"PK"):  # a zip archive
        return MarianVocabulary(path)
    lines = vocab_lines(content)
    if parse_subwords(lines):
        return T2TSubwordTokenizer(path)
    if "[UNK]" in lines:
        return WordPieceVocabulary(path)
    if tuple(lines[:3]) == SPECIAL_TOKENS:
        return ClosedVocabulary(path)
    if b"\0" in content or (content and not lines):
        return SentencePieceTokenizer(path)  # a binary file
    raise T2TLiteError(
        f"{path} is not a vocabulary or is damaged. A vocabulary must be a "
        "SentencePiece model, a WordPiece vocabulary (one piece per line, with "
        "[UNK]) or a tensor2tensor subword file (first '<pad>_' and '<EOS>_'). "
        "t2t-lite-datagen creates a new one."
    )
