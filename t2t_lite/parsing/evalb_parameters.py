"""What counts in bracket F1: the parameters of the EVALB program."""

import dataclasses
import os
import re
from typing import Any

from t2t_lite.corpus.lines import read_lines
from t2t_lite.errors import T2TLiteError, nearest
from t2t_lite.parsing.trees import Tree

_QUOTES = ("'", '"', "/")  # the words that QUOTE_LABEL is about
_FUNCTION = re.compile("[-=].*", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Parameters:
    """The parameters of EVALB; without any, it deletes and equates nothing.

    Attributes:
      deleted_labels: tags whose words, and labels whose brackets, are left
        out of all counts (DELETE_LABEL).
      deleted_words: words that are left out like those (DELETE_WORD, which
        EVALB itself does not know).
      uncounted_labels: tags whose words add nothing to the length that is
        held against the cutoff (DELETE_LABEL_FOR_LENGTH).
      quote_labels: tags of quotes that may be taken for one another: where
        only one of both trees deletes such a word, it is kept (QUOTE_LABEL).
      equal_labels: pairs of labels or tags that count as one (EQ_LABEL).
      equal_words: pairs of words that count as one (EQ_WORD).
      labeled: labels must be equal, not only spans (LABELED).
      cutoff_length: words of the longest sentence in the second block of
        totals (CUTOFF_LEN).
      max_errors: error sentences after which EVALB would stop (MAX_ERROR);
        here they are counted, and scoring goes on.
    """

    deleted_labels: tuple[str, ...] = ()
    deleted_words: tuple[str, ...] = ()
    uncounted_labels: tuple[str, ...] = ()
    quote_labels: tuple[str, ...] = ()
    equal_labels: tuple[tuple[str, str], ...] = ()
    equal_words: tuple[tuple[str, str], ...] = ()
    labeled: bool = True
    cutoff_length: int = 40
    max_errors: int = 10

    def same_label(self, one: str, other: str) -> bool:
        """Whether two labels, or two tags, count as one."""
        return _same(one, other, self.equal_labels)

    def same_word(self, one: str, other: str) -> bool:
        """Whether two words count as one."""
        return _same(one, other, self.equal_words)

    def counted_label(self, label: str) -> str:
        """A constituent's label without function tags: `NP-SBJ` is `NP`.

        Here a leading `-` ends the label too, as it does in EVALB.
        """
        return _FUNCTION.sub("", label)

    def deletes_label(self, label: str) -> bool:
        """Whether the brackets of a constituent do not count."""
        return any(self.same_label(label, x) for x in self.deleted_labels)

    def deletes_leaf(self, leaf: Tree) -> bool:
        """Whether a word is left out, by its tag or as itself."""
        return (
            leaf.label in self.deleted_labels or leaf.word in self.deleted_words
        )

    def is_quote(self, leaf: Tree) -> bool:
        """Whether QUOTE_LABEL is about this word."""
        return leaf.label in self.quote_labels and leaf.word in _QUOTES


def _same(one, other, pairs):
    return one == other or (one, other) in pairs or (other, one) in pairs


# EVALB's file COLLINS.prm: the rules behind published scores.
COLLINS = Parameters(
    deleted_labels=("TOP", "-NONE-", ",", ":", "``", "''", "."),
    uncounted_labels=("-NONE-",),
    equal_labels=(("ADVP", "PRT"),),
)

# Of each key: the field, and what a line gives it: a label or word more, a
# pair of them more, or a number.
_KEYS = {
    "DEBUG": (None, int),  # what EVALB prints; nothing to do with the scores
    "MAX_ERROR": ("max_errors", int),
    "CUTOFF_LEN": ("cutoff_length", int),
    "LABELED": ("labeled", bool),
    "DELETE_LABEL": ("deleted_labels", str),
    "DELETE_LABEL_FOR_LENGTH": ("uncounted_labels", str),
    "QUOTE_LABEL": ("quote_labels", str),
    "DELETE_WORD": ("deleted_words", str),
    "EQ_LABEL": ("equal_labels", tuple),
    "EQ_WORD": ("equal_words", tuple),
}


def read_parameters(path: str | os.PathLike) -> Parameters:
    """The parameters of an EVALB file: one key and its value a line.

    Lines that begin with `#` are comments; a list grows with each line of its
    key. Example: `DELETE_LABEL TOP`, `EQ_LABEL ADVP PRT`, `LABELED 1`.

    Raises:
      T2TLiteError: the file cannot be read, or a line has an unknown key or a
        wrong value; it names the line.
    """
    found: dict[str, Any] = {}
    for number, line in enumerate(read_lines(path), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        field, value = _setting(words, f"{path}, line {number}")
        if isinstance(value, tuple):
            value = found.get(field, ()) + value
        if field:
            found[field] = value
    return Parameters(**found)


def _setting(words, place):
    """The field that a line sets, and its value."""
    key, *values = words
    if key not in _KEYS:
        raise T2TLiteError(
            f"{place}: unknown key {key}.{nearest(key, _KEYS)} Known are "
            f"{', '.join(_KEYS)}."
        )
    field, kind = _KEYS[key]
    needed = 2 if kind is tuple else 1
    if len(values) != needed:
        raise T2TLiteError(
            f"{place}: {key} needs {needed} value{'s' * (needed > 1)}; got "
            f"{len(values)}. Write {key}{' VALUE' * needed}."
        )
    if kind is tuple:
        return field, (tuple(values),)
    if kind is str:
        return field, tuple(values)
    return field, kind(_number(key, values[0], place))


def _number(key, value, place):
    if not re.fullmatch("[0-9]+", value):
        raise T2TLiteError(
            f"{place}: {key} must be a whole number, at least 0; got {value}. "
            f"Write for example {key} {1 if key == 'LABELED' else 10}."
        )
    return int(value)
