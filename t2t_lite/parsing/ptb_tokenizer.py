r"""Penn Treebank tokenisation: a sentence to the words that trees have.

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
    r"""Return the words of a sentence, as a treebank writes them.

    By the rules of the treebank's own script, which nltk has: contractions are
    split (`did n't`, `they 'll`, `Ann 's`), and so is punctuation; a period
    only at the end of the line, so a line must be one sentence. Double quotes
    are "``" and "''", brackets `-LRB-` and the like, `/` is `\/` and `*` is
    `\*`.

    A line of such words comes back as it is, as long as it does not have words
    that the rules would split: these know `AT&T`, `US$` and `D.C.` at the end
    of a line not as words. It happens in 1 to 2 of 100 sentences.
    """
    text = text.translate(_TYPOGRAPHIC_QUOTES)
    words = _tokenizer().tokenize(text, convert_parentheses=True)
    return [_BARE.sub(r"\\\g<0>", word) for word in words]


@functools.cache
def _tokenizer():
    from nltk.tokenize.treebank import TreebankWordTokenizer

    class Tokenizer(TreebankWordTokenizer):
        # A '' that stands alone has been made by a tokenizer: it closes. nltk
        # would take it for an opening one, and not that of a line's start.
        STARTING_QUOTES = [
            (re.compile(r"``"), r" `` "),
            (re.compile(r"""(^|[ (\[{<])("|''(?=\S))"""), r"\1 `` "),
        ]

    return Tokenizer()
