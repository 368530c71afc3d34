"""The tokenized BLEU that arXiv:1706.03762 reports; not sacreBLEU's."""

import re
from collections.abc import Iterable, Sequence
from importlib import metadata
from typing import Any

from t2t_lite.errors import UsageError
from t2t_lite.evaluation.bleu import bleu, check_paired

_HYPHEN = re.compile(rb"(\S)-(\S)")


def tokenized_bleu(
    hypotheses: Sequence[str], references: Sequence[str], language: str
) -> dict[str, Any]:
    """Return corpus BLEU of Moses' tokens, with compounds split.

    The steps of tensor2tensor's `get_ende_bleu.sh` as it was for the paper:
    `tokenizer.perl`, here sacremoses; `split_compounds`; `multi-bleu.perl`,
    here sacreBLEU's counting without smoothing. The score depends on the
    tokenizer: compare it only with scores of that script. Punctuation counts as
    it is written; later versions of the script replace quotes.

    Args:
      hypotheses: the translations, detokenized.
      references: line i is the reference of hypothesis i.
      language: the code of the language of both, one of `languages()`.

    Returns:
      `score` (0-100, cased; 0 where no n-gram of some order up to 4 is right,
      as in an empty hypothesis or in sentences of under 4 tokens), the
      `procedure` in words with its versions, and the number of `sentences`.

    Raises:
      UsageError: the tokenizer has no rules for the language.
      T2TLiteError: no sentences at all, or unequal numbers of them.
    """
    check_paired(hypotheses, references)
    hypotheses, references = (
        tokenize(side, language) for side in (hypotheses, references)
    )
    report = bleu(hypotheses, references, "none", smooth_method="none")
    return {
        "score": report["score"],
        "procedure": "Moses tokens of both sides (sacremoses "
        f"{metadata.version('sacremoses')}, language {language}, escaped), "
        "compounds split at ##AT##-##AT##, multi-bleu (sacreBLEU "
        f"{report['signature']})",
        "sentences": report["sentences"],
    }


def tokenize(lines: Iterable[str], language: str) -> list[str]:
    """Return the tokens that are counted, with a space between them.

    Example: `A "world-wide" test.` becomes
    `A &quot; world ##AT##-##AT## wide &quot; test .`

    Raises:
      UsageError: the tokenizer has no rules for the language.
    """
    known = languages()
    if language not in known:  # the tokenizer would take English rules
        raise UsageError(
            "The language of a tokenized BLEU must have rules in sacremoses; "
            f"got {language!r}. Choose one of {', '.join(known)}."
        )
    from sacremoses import MosesTokenizer

    tokenizer = MosesTokenizer(lang=language)
    return [
        split_compounds(tokenizer.tokenize(line, return_str=True, escape=True))
        for line in lines
    ]


def split_compounds(text: str) -> str:
    """Make a token of each hyphen between two characters other than spaces.

    Example: `rich-text` becomes `rich ##AT##-##AT## text`. A character is part
    of one match only, so `a-b-c` becomes `a ##AT##-##AT## b-c`.
    """
    # On bytes, as the script's perl does it: of a letter that has two of them,
    # one is left for the next match, and both hyphens beside it are split.
    return _HYPHEN.sub(rb"\1 ##AT##-##AT## \2", text.encode()).decode()


def languages() -> list[str]:
    """Return the codes of the languages that the tokenizer has rules for."""
    from sacremoses.corpus import NonbreakingPrefixes

    # It maps names and codes to codes; the names do not get all of the rules.
    return sorted(set(NonbreakingPrefixes().available_langs.values()))
