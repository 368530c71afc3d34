"""A made-up treebank of a few files whose sentences can be learned.

Its trees have the features of real ones: several lines, an outer bracket
without a label, traces, function tags and punctuation.
"""

import pathlib

_NOUNS = ("cat", "dog", "bird")
_VERBS = ("sees", "hears")


def trees(number):
    """Return the two trees of a file as text."""
    subject, verb = _NOUNS[number % 3], _VERBS[number % 2]
    return f"""
( (S
    (NP-SBJ (DT the) (NN {subject}) )
    (VP (VBZ {verb})
      (NP (DT a) (NN {_NOUNS[(number + 1) % 3]}) ))
    (. .) ))
( (S (NP-SBJ-1 (NN {subject}) ) (, ,)
     (VP (VBZ {verb}) (S (NP-SBJ (-NONE- *-1) )) )) )
"""


def write(folder, sections=("00",), files=9):
    """Write `wsj/NN/wsj_NN01.mrg` and so on; return the folder."""
    folder = pathlib.Path(folder)
    for section in sections:
        for number in range(1, files + 1):
            path = folder / "wsj" / section / f"wsj_{section}{number:02d}.mrg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(trees(number))
    return folder
