"""BLEU, chrF and TER of plain text, computed by sacreBLEU."""

import itertools
import re
from collections.abc import Sequence
from typing import Any

from t2t_lite.errors import T2TLiteError

TOKENIZERS = ("13a", "intl", "char", "none", "zh", "ja-mecab", "ko-mecab")
METRICS = ("chrf", "chrf++", "ter")  # besides BLEU; chrf is chrF2
# Tokenizers for languages that 13a cannot split into words, by ISO 639 codes;
# sacreBLEU chooses the same for zh, ja and ko.
_BY_LANGUAGE = {
    **dict.fromkeys("zh zho chi cmn yue wuu nan lzh".split(), "zh"),
    **dict.fromkeys("ja jpn".split(), "ja-mecab"),
    **dict.fromkeys("ko kor".split(), "ko-mecab"),
    **dict.fromkeys("th tha lo lao km khm my mya bur".split(), "char"),
    **dict.fromkeys("bo bod tib dz dzo".split(), "char"),
}


def tokenizer_of(language: str) -> str:
    """Return sacreBLEU's tokenizer for a language code, such as "zh-TW"."""
    code = re.split("[-_]", language.lower())[0]
    return _BY_LANGUAGE.get(code, TOKENIZERS[0])


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    tokenize: str = "13a",
    lowercase: bool = False,
    smooth_method: str = "exp",
    *,
    more_references: Sequence[Sequence[str]] = (),
    metrics: Sequence[str] = (),
    baseline: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Compute corpus BLEU of plain text (arXiv:1804.08771), and other metrics.

    Args:
      hypotheses: detokenized translations.
      references: one reference per hypothesis.
      tokenize: sacreBLEU's tokenizer; papers use "13a", or "zh" for Chinese.
      lowercase: ignore case.
      smooth_method: sacreBLEU's smoothing; its default is "exp".
      more_references: other references, each like `references`.
      metrics: other scores to compute, from METRICS.
      baseline: translations of another system, for a paired bootstrap test.

    Returns:
      `score` (0-100; identical lists score 100, empty hypotheses 0),
      sacreBLEU's `signature`, and the number of `sentences`. A metric M adds
      `M` and `M_signature`. A baseline adds `baseline` and `p_value`, dicts by
      metric, and the signature `paired_bootstrap`.

    Raises:
      T2TLiteError: there are no sentences, the numbers of sentences differ, or
        a package of the tokenizer is not installed.
    """
    every = [list(each) for each in (references, *more_references)]
    systems = [("system", list(hypotheses))]
    if baseline is not None:
        systems.insert(0, ("baseline", list(baseline)))
    for (_, texts), lines in itertools.product(systems, every):
        if len(texts) != len(lines):
            raise T2TLiteError(
                "The numbers of hypotheses and references must be equal (got "
                f"{len(texts)} hypotheses and {len(lines)} references)."
            )
    if not references:
        raise T2TLiteError(
            "A score requires at least one sentence (got an empty list)."
        )
    from sacrebleu.metrics import BLEU, CHRF, TER

    try:
        # `force` silences the warning about text that looks tokenized.
        scorers: dict[str, Any] = {
            "bleu": BLEU(
                tokenize=tokenize,
                lowercase=lowercase,
                smooth_method=smooth_method,
                force=True,
            )
        }
    except RuntimeError as error:  # names the package to install
        text = " ".join(str(error).split())
        raise T2TLiteError(f"Tokenizer {tokenize} of BLEU: {text}.") from error
    unspaced = tokenize in _BY_LANGUAGE.values()
    others = {
        "chrf": CHRF(lowercase=lowercase),
        "chrf++": CHRF(word_order=2, lowercase=lowercase),
        "ter": TER(normalized=unspaced, asian_support=unspaced),
    }
    scorers |= {name: others[name] for name in metrics}
    report: dict[str, Any] = {}
    for name, scorer in scorers.items():
        keys = (name, f"{name}_signature")
        key, signature = ("score", "signature") if name == "bleu" else keys
        report[key] = scorer.corpus_score(systems[-1][1], every).score
        report[signature] = str(scorer.get_signature())
    report["sentences"] = len(references)
    if baseline is not None:
        from sacrebleu.significance import PairedTest

        signatures, columns = PairedTest(systems, scorers, every, "bs")()
        del columns["System"]  # the names; a column per metric follows
        pairs = dict(zip(scorers, columns.values(), strict=True))
        report |= {
            "baseline": {k: first.score for k, (first, _) in pairs.items()},
            "p_value": {  # sacreBLEU computes 1 / 1001 for equal systems
                k: 1.0 if first.score == second.score else second.p_value
                for k, (first, second) in pairs.items()
            },
            "paired_bootstrap": str(signatures["BLEU"]),
        }
    return report
