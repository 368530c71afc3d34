"""Tokenized BLEU, as in arXiv:1706.03762; differs from sacreBLEU's score."""

import re
from collections.abc import Iterable, Sequence
from importlib import metadata
from typing import Any

from t2t_lite.errors import UsageError
from t2t_lite.evaluation import bleu

_HYPHEN = re.compile(rb"(\S)-(\S)")


def tokenized_bleu(
    hypotheses: Sequence[str], references: bleu.References, language: str
) -> dict[str, Any]:
    """Compute corpus BLEU of Moses tokens, with compounds split.

    The steps are those of tensor2tensor's `get_ende_bleu.sh` at the time of the
    paper: `tokenizer.perl` (here sacremoses), `split_compounds`, and
    `multi-bleu.perl` (here sacreBLEU without smoothing). The score depends on
    the tokenizer, so compare it only with scores of that script. Later versions
    of the script also replace quotes.

    Args:
      hypotheses: detokenized translations.
      references: one reference per hypothesis, or several lists of them.
      language: language code of both, one of `languages()`.

    Returns:
      `score` (0-100, cased; 0 without a match of each n-gram order up to 4;
      None for a language without spaces between words), the `procedure`
      with versions, and the number of `sentences`.

    Raises:
      UsageError: the tokenizer has no rules for the language.
      T2TLiteError: there are no sentences, or the numbers of sentences differ.
    """
    if bleu.tokenizer_of(language) != bleu.TOKENIZERS[0]:
        reason = f"none: Moses does not split {language!r} into words"
        count = len(hypotheses)
        return {"score": None, "procedure": reason, "sentences": count}
    hypotheses, *lists = (
        tokenize(side, language)
        for side in (hypotheses, *bleu.list_references(references))
    )
    report = bleu.bleu(hypotheses, lists, "none", smooth_method="none")
    return {
        "score": report["score"],
        "procedure": "Moses tokens of both sides (sacremoses "
        f"{metadata.version('sacremoses')}, language {language}, escaped), "
        "compounds split at ##AT##-##AT##, multi-bleu (sacreBLEU "
        f"{report['signature']})",
        "sentences": report["sentences"],
    }


def tokenize(lines: Iterable[str], language: str) -> list[str]:
    """Tokenize lines; spaces separate the tokens.

    Example: `A "world-wide" test.` becomes
    `A &quot; world ##AT##-##AT## wide &quot; test .`

    Raises:
      UsageError: the tokenizer has no rules for the language.
    """
    known = languages()
    if language not in known:  # the tokenizer would use English rules
        raise UsageError(
            "Tokenized BLEU requires a language of sacremoses (got "
            f"{language!r}): choose one of {', '.join(known)}."
        )
    from sacremoses import MosesTokenizer

    tokenizer = MosesTokenizer(lang=language)
    return [
        split_compounds(tokenizer.tokenize(line, return_str=True, escape=True))
        for line in lines
    ]


def split_compounds(text: str) -> str:
    """Split words at hyphens, which become separate tokens.

    Example: `rich-text` becomes `rich ##AT##-##AT## text`. Matches do not
    overlap, so `a-b-c` becomes `a ##AT##-##AT## b-c`.
    """
    # The script's perl matches bytes. A letter of two bytes between two hyphens
    # has one byte for each match, so both hyphens are split.
    return _HYPHEN.sub(rb"\1 ##AT##-##AT## \2", text.encode()).decode()


def languages() -> list[str]:
    """Return the language codes that the tokenizer has rules for."""
    from sacremoses.corpus import NonbreakingPrefixes

    # The dict maps names and codes to codes; only codes select all rules.
    return sorted(set(NonbreakingPrefixes().available_langs.values()))
