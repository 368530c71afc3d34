"""The options of every `ParsingProblem`."""

from typing import Any

from t2t_lite.parsing.treebank import Numbers
from t2t_lite.problem.option import (
    Option,
    file_path,
    one_of,
    share,
    whole_number,
)


def _numbers(split):
    return lambda value: str(Numbers.parse(str(value), split))


def _paths(value: Any) -> str:
    """Paths that are joined by ":", each made absolute."""
    return ":".join(file_path(name) for name in str(value).split(":") if name)


OPTIONS = (
    *(
        Option(
            split,
            "NUMBERS",
            f"numbers of the files of {split}, such as 200-2199 or 1-9+12; for "
            "all three splits or for none",
            _numbers(split),
            without="by the files that are there",
        )
        for split in ("train", "dev", "test")
    ),
    Option(
        "vocab_size",
        "V",
        "pieces of the source vocabulary",
        whole_number(1),
        without="by the files that are there",
    ),
    Option(
        "leaves",
        "XX|tags",
        "what a word is in the target: XX or its part-of-speech tag",
        one_of("XX", "tags"),
        default="XX",
    ),
    Option(
        "subtrees",
        "N",
        "constituents of 2 to N words are sentences of train, too",
        whole_number(2),
        without="none are",
    ),
    Option(
        "trees",
        "FILES",
        "files with additional trees for train, one or more a line, joined by "
        "a colon",
        _paths,
    ),
    Option(
        "treebank_share",
        "SHARE",
        "of the sentences of train, where there are additional trees",
        share,
        without="the problem's own",
    ),
)
