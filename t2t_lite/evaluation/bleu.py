"""Detokenized BLEU, which is sacreBLEU's."""

from collections.abc import Sequence
from typing import Any

from t2t_lite.errors import T2TLiteError


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    tokenize: str = "13a",
    lowercase: bool = False,
    smooth_method: str = "exp",
) -> dict:
    """Corpus BLEU of plain text, one reference a sentence (arXiv:1804.08771).

    keras-hub's Bleu comes to the same number for "13a", in float32. It has no
    signature to report beside it, no `lowercase` and no tokenizers for Chinese,
    Japanese and Korean.

    Args:
      hypotheses: the translations, detokenized.
      references: line i is the right translation of line i.
      tokenize: sacreBLEU's tokenizer; papers use "13a".
      lowercase: count `The` and `the` as one word.
      smooth_method: sacreBLEU's; "exp" is its default.

    Returns: `score` (0-100; an empty hypothesis adds nothing, identical lists
      are 100), sacreBLEU's `signature`, and the number of `sentences`.

    Raises:
      T2TLiteError: no sentences at all, or unequal numbers of them; or a
        package of the tokenizer is not installed.
    """
    check_paired(hypotheses, references)
    from sacrebleu.metrics import BLEU

    try:
        # `force` silences the guess that text which ends in " ." is tokenized.
        metric = BLEU(
            tokenize=tokenize,
            lowercase=lowercase,
            smooth_method=smooth_method,
            force=True,
        )
    except RuntimeError as error:  # it says what to install
        raise T2TLiteError(" ".join(str(error).split())) from error
    score = metric.corpus_score(list(hypotheses), [list(references)]).score
    _forget_lines(metric.tokenizer)
    return {
        "score": score,
        "signature": str(metric.get_signature()),
        "sentences": len(references),
    }


def _forget_lines(tokenizer: Any) -> None:
    """Drops the lines that sacreBLEU keeps for a next score.

    Training scores dev again and again, and other hypotheses each time.
    """
    for part in (tokenizer, *vars(tokenizer).values()):
        call = vars(type(part)).get("__call__")
        if hasattr(call, "cache_clear"):
            call.cache_clear()


def check_paired(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Raises T2TLiteError unless there is one hypothesis a reference."""
    if len(hypotheses) != len(references):
        raise T2TLiteError(
            "There must be one hypothesis for each reference; got "
            f"{len(hypotheses)} hypotheses and {len(references)} references."
        )
    if not references:
        raise T2TLiteError(
            "A score needs at least one sentence; got an empty list."
        )
