"""What counts in bracket F1: the parameters of the EVALB program."""

import dataclasses
import os
import re
from typing import Any

from t2t_lite.corpus.lines import read_lines
from t2t_lite.errors import T2TLiteError, nearest
from t2t_lite.parsing.trees import Tree


@dataclasses.dataclass(frozen=True)
class Parameters:
    """The parameters of EVALB; without any, it deletes and equates nothing."""

    # Tags whose words, and labels whose brackets, are left out of all counts;
    # words likewise, which EVALB itself does not know.
    deleted_labels: tuple[str, ...] = ()
    deleted_words: tuple[str, ...] = ()
    # Tags whose words add nothing to the length that the cutoff is about.
    uncounted_labels: tuple[str, ...] = ()
    # Tags of quotes that may be taken for one another: where only one of both
    # trees deletes such a word, it is kept.
    quote_labels: tuple[str, ...] = ()
    equal_labels: tuple[tuple[str, str], ...] = ()  # pairs that count as one
    equal_words: tuple[tuple[str, str], ...] = ()
    labeled: bool = True  # labels must be equal, not only spans
    cutoff_length: int = 40  # words, for the second block of totals
    max_errors: int = 10  # EVALB would stop after these; here scoring goes on

    def same_label(self, one: str, other: str) -> bool:
        """Whether two labels, or two tags, count as one."""
        return _same(one, other, self.equal_labels)

    def same_word(self, one: str, other: str) -> bool:
        """Whether two words count as one."""
        return _same(one, other, self.equal_words)

    def deletes_label(self, label: str) -> bool:
        """Whether the brackets of a constituent do not count."""
        return any(self.same_label(label, x) for x in self.deleted_labels)

    def deletes_leaf(self, leaf: Tree) -> bool:
        """Whether a word is left out, by its tag or as itself."""
        return (
            leaf.label in self.deleted_labels or leaf.word in self.deleted_words
        )


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
    if not re.fullmatch("[0-9]+", values[0]):
        raise T2TLiteError(
            f"{place}: {key} must be a whole number, at least 0; got "
            f"{values[0]}. Write for example {key} "
            f"{1 if key == 'LABELED' else 10}."
        )
    return field, kind(int(values[0]))
