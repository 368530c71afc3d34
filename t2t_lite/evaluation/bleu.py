"""Detokenized BLEU, which is sacreBLEU's."""

from collections.abc import Sequence

from t2t_lite.errors import T2TLiteError


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    tokenize: str = "13a",
    lowercase: bool = False,
    smooth_method: str = "exp",
) -> dict:
    """Return corpus BLEU of plain text, one reference a sentence.

    arXiv:1804.08771.

    Args:
      hypotheses: the translations, detokenized.
      references: line i is the reference of hypothesis i.
      tokenize: sacreBLEU's tokenizer; papers use "13a".
      lowercase: count `The` and `the` as one word.
      smooth_method: sacreBLEU's; "exp" is its default.

    Returns:
      `score` (0-100; an empty hypothesis adds nothing, identical lists are
      100), sacreBLEU's `signature`, and the number of `sentences`.

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
    return {
        "score": score,
        "signature": str(metric.get_signature()),
        "sentences": len(references),
    }


def check_paired(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Raise T2TLiteError unless there is one hypothesis a reference."""
    if len(hypotheses) != len(references):
        raise T2TLiteError(
            "There must be one hypothesis for each reference; got "
            f"{len(hypotheses)} hypotheses and {len(references)} references."
        )
    if not references:
        raise T2TLiteError(
            "A score needs at least one sentence; got an empty list."
        )
