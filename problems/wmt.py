"""WMT 2014 translation (arXiv:1706.03762, section 5.1), two language pairs.

Train contains all corpora of WMT 2014 for the language pair, from TensorFlow
Datasets; dev is newstest2013, test is newstest2014.
https://www.statmt.org/wmt14/translation-task.html

The paper names no filters. For English to German, tensor2tensor's problem with
the paper's shared vocabulary of 37,000 (`translate_ende_wmt_bpe32k`) reads
`train.tok.clean.bpe.32000`, the output of Moses' `clean-corpus-n.perl` with 1
and 80. This script drops pairs with more than 80 tokens on a side or, by
default, a length ratio above 9. Our filters count words and punctuation marks,
which approximate Moses' tokens. For English to French, `translate_enfr_wmt32k`
drops only empty sides. For both pairs, training batches exclude sentences
longer than `max_length`, here as in tensor2tensor.
"""

from t2t_lite.problem import ParallelCorpus
from t2t_lite.registry import OTHER_NAMES, register_problem


class _Wmt14(ParallelCorpus):
    """The common settings of both language pairs."""

    source_language = "en"
    stems = {
        "train": ("train",),
        "dev": ("dev", "newstest2013"),
        "test": ("test", "newstest2014"),
    }


@register_problem("wmt_ende")
class WmtEnDe(_Wmt14):
    """WMT 2014 English to German: 4.5 million pairs."""

    target_language = "de"
    vocab_size = 37_000  # shared, section 5.1
    filters = {"length": 80, "length_ratio": 9}
    tfds_name = "wmt14_translate/de-en"
    tfds_bytes = 1_695_000_000


@register_problem("wmt_enfr")
class WmtEnFr(_Wmt14):
    """WMT 2014 English to French: 36 million pairs in the paper, 41 here."""

    target_language = "fr"
    vocab_size = 32_000  # shared, section 5.1
    tfds_name = "wmt14_translate/fr-en"
    tfds_bytes = 6_656_000_000


# Current and former names of tensor2tensor for nearly the same task.
OTHER_NAMES |= {
    "translate_ende_wmt32k": "wmt_ende",
    "translate_ende_wmt32k_packed": "wmt_ende",
    "translate_ende_wmt_clean32k": "wmt_ende",
    "translate_ende_wmt_bpe32k": "wmt_ende",
    "wmt_ende_tokens_32k": "wmt_ende",
    "wmt_ende_bpe32k": "wmt_ende",
    "translate_enfr_wmt32k": "wmt_enfr",
    "translate_enfr_wmt32k_packed": "wmt_enfr",
    "wmt_enfr_tokens_32k": "wmt_enfr",
}
