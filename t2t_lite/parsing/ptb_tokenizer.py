r"""Penn Treebank tokenization of sentences.

"It didn't (yet) cost 1/4," he said.
`` It did n't -LRB- yet -RRB- cost 1\/4 , '' he said .
"""

import functools
import re

_BARE = re.compile(r"(?<!\\)[/*]")
_TYPOGRAPHIC_QUOTES = str.maketrans(
    {"“": " `` ", "”": " '' ", "‘": "`", "’": "'"}
)


def tokenize(text: str) -> list[str]:
    r"""Split a sentence into words, as a treebank writes them.

    The rules are those of the treebank's script, as implemented by nltk:
    contractions are split (`did n't`, `they 'll`, `Ann 's`), and so is
    punctuation. A period is split only at the end of the line, so a line must
    be one sentence. Double quotes become "``" and "''", brackets `-LRB-`,
    `-RRB-` and so on, `/` becomes `\/` and `*` becomes `\*`.

    A tokenized line does not change, unless it contains words that the rules
    split, such as `AT&T`, `US$` and, at the end of a line, `D.C.`: 1 to 2 % of
    sentences.
    """
    text = text.translate(_TYPOGRAPHIC_QUOTES)
    words = _tokenizer().tokenize(text, convert_parentheses=True)
    return [_BARE.sub(r"\\\g<0>", word) for word in words]


@functools.cache
def _tokenizer():
    from nltk.tokenize.treebank import TreebankWordTokenizer

    class Tokenizer(TreebankWordTokenizer):
        # A separate '' is a closing quote that a tokenizer wrote. nltk takes it
        # for an opening quote, except at the start of a line.
        STARTING_QUOTES = [
            (re.compile(r"``"), r" `` "),
            (re.compile(r"""(^|[ (\[{<])("|''(?=\S))"""), r"\1 `` "),
        ]

    return Tokenizer()
