"""Detokenized BLEU, computed by sacreBLEU."""

from collections.abc import Sequence

from t2t_lite.errors import T2TLiteError


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    tokenize: str = "13a",
    lowercase: bool = False,
    smooth_method: str = "exp",
) -> dict:
    """Compute corpus BLEU of plain text (arXiv:1804.08771).

    Args:
      hypotheses: detokenized translations.
      references: one reference per hypothesis.
      tokenize: sacreBLEU's tokenizer; papers use "13a".
      lowercase: ignore case.
      smooth_method: sacreBLEU's smoothing; its default is "exp".

    Returns:
      `score` (0-100; identical lists score 100, empty hypotheses 0),
      sacreBLEU's `signature`, and the number of `sentences`.

    Raises:
      T2TLiteError: there are no sentences, the numbers of sentences differ, or
        a package of the tokenizer is not installed.
    """
    if len(hypotheses) != len(references):
        raise T2TLiteError(
            "The numbers of hypotheses and references must be equal (got "
            f"{len(hypotheses)} hypotheses and {len(references)} references)."
        )
    if not references:
        raise T2TLiteError(
            "A score requires at least one sentence (got an empty list)."
        )
    from sacrebleu.metrics import BLEU

    try:
        # `force` silences the warning about text that looks tokenized.
        metric = BLEU(
            tokenize=tokenize,
            lowercase=lowercase,
            smooth_method=smooth_method,
            force=True,
        )
    except RuntimeError as error:  # names the package to install
        raise T2TLiteError(" ".join(str(error).split())) from error
    score = metric.corpus_score(list(hypotheses), [list(references)]).score
    return {
        "score": score,
        "signature": str(metric.get_signature()),
        "sentences": len(references),
    }
