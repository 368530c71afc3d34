"""Constituency parsing of the Wall Street Journal (arXiv:1706.03762, sec. 6.3).

The Penn Treebank is licensed by the Linguistic Data Consortium (LDC99T42):
https://catalog.ldc.upenn.edu/LDC99T42. NLTK contains a sample of its first
files for non-commercial use; file numbers define its splits.
"""

from t2t_lite.parsing.problem import ParsingProblem, SplitRanges
from t2t_lite.registry import OTHER_NAMES, register_problem

# File numbers of sections 2-21, 22 and 23: wsj_0201 is the first of section 2.
_SECTIONS = ("200-2199", "2200-2299", "2300-2399")
_SAMPLE = ("1-139", "140-149", "150-159")

# From the bracketing guidelines for Treebank II style (Bies et al., 1995).
_LABELS = (
    *("S", "SBAR", "SBARQ", "SINV", "SQ"),
    *("ADJP", "ADVP", "CONJP", "FRAG", "INTJ", "LST", "NAC", "NP", "NX"),
    *("PP", "PRN", "PRT", "QP", "RRC", "UCP", "VP"),
    *("WHADJP", "WHADVP", "WHNP", "WHPP", "X"),
)
_TAGS = (
    *("CC", "CD", "DT", "EX", "FW", "IN", "JJ", "JJR", "JJS", "LS", "MD"),
    *("NN", "NNS", "NNP", "NNPS", "PDT", "POS", "PRP", "PRP$", "RB", "RBR"),
    *("RBS", "RP", "SYM", "TO", "UH", "VB", "VBD", "VBG", "VBN", "VBP", "VBZ"),
    *("WDT", "WP", "WP$", "WRB", "#", "$", "-LRB-", "-RRB-"),
)


@register_problem("wsj_parsing")
class WsjParsing(ParsingProblem):
    """Parsing, trained only on the treebank's 40,000 sentences."""

    file_stem = "wsj_"
    layouts = (SplitRanges(*_SECTIONS, 16_000), SplitRanges(*_SAMPLE, 2_000))
    labels = _LABELS
    tags = _TAGS


@register_problem("wsj_parsing_semisupervised")
class WsjParsingSemisupervised(WsjParsing):
    """Parsing, trained also on automatic trees (17 million in the paper).

    The option `trees` gives their files with one or more trees per line.
    """

    layouts = (SplitRanges(*_SECTIONS, 32_000), SplitRanges(*_SAMPLE, 2_000))
    treebank_share = 0.1


# Names in tensor2tensor.
for name in ("parsing_english_ptb8k", "parsing_english_ptb16k"):
    OTHER_NAMES[name] = "wsj_parsing"
