"""BLEU, chrF and TER of plain text, computed by sacreBLEU."""

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from t2t_lite.errors import T2TLiteError

References: TypeAlias = Sequence[str] | Sequence[Sequence[str]]
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


def list_references(references: References) -> list[list[str]]:
    """Return one list of references per reference translation."""
    is_single = not references or isinstance(references[0], str)
    lists: Any = [references] if is_single else references
    return list(map(list, lists))


def bleu(
    hypotheses: Sequence[str],
    references: References,
    tokenize: str = TOKENIZERS[0],
    lowercase: bool = False,
    smooth_method: str = "exp",
    metrics: Sequence[str] = (),
    baseline: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Compute corpus BLEU of plain text (arXiv:1804.08771), and other metrics.

    Args:
      hypotheses: detokenized translations.
      references: one reference per hypothesis, or several lists of them.
      tokenize: sacreBLEU's tokenizer, see `tokenizer_of`.
      lowercase: ignore case.
      smooth_method: sacreBLEU's smoothing; its default is "exp".
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
    lists, hypotheses = list_references(references), list(hypotheses)
    for lines in (*lists, hypotheses if baseline is None else baseline):
        if len(lines) != len(hypotheses):
            raise T2TLiteError(
                "The numbers of hypotheses and references must be equal (got "
                f"{len(hypotheses)} hypotheses and {len(lines)} references)."
            )
    if not hypotheses:
        raise T2TLiteError(
            "A score requires at least one sentence (got an empty list)."
        )
    from sacrebleu.metrics import BLEU, CHRF, TER
    from sacrebleu.significance import PairedTest

    unspaced = tokenize in _BY_LANGUAGE.values()
    makers: dict[str, Callable[[], Any]] = {
        # `force` silences the warning about text that looks tokenized.
        "bleu": lambda: BLEU(
            lowercase,
            force=True,
            tokenize=tokenize,
            smooth_method=smooth_method,
        ),
        "chrf": lambda: CHRF(lowercase=lowercase),
        "chrf++": lambda: CHRF(word_order=2, lowercase=lowercase),
        "ter": lambda: TER(normalized=unspaced, asian_support=unspaced),
    }
    try:
        scorers = {name: makers[name]() for name in ("bleu", *metrics)}
    except RuntimeError as error:  # names the package to install
        text = " ".join(str(error).split())
        raise T2TLiteError(f"Tokenizer {tokenize} of BLEU: {text}.") from error
    report: dict[str, Any] = {}
    for name, scorer in scorers.items():
        keys = (name, f"{name}_signature")
        key, signature = ("score", "signature") if name == "bleu" else keys
        report[key] = scorer.corpus_score(hypotheses, lists).score
        report[signature] = str(scorer.get_signature())
    report["sentences"] = len(hypotheses)
    if baseline is not None:
        systems = [("baseline", list(baseline)), ("system", hypotheses)]
        signatures, columns = PairedTest(systems, scorers, lists, "bs")()
        del columns["System"]  # the names; a column per metric follows
        pairs = dict(zip(scorers, columns.values(), strict=True))
        report |= {
            "baseline": {k: base.score for k, (base, _) in pairs.items()},
            "p_value": {  # sacreBLEU computes 1 / 1001 for equal systems
                k: 1.0 if base.score == own.score else own.p_value
                for k, (base, own) in pairs.items()
            },
            "paired_bootstrap": str(signatures["BLEU"]),
        }
    return report
