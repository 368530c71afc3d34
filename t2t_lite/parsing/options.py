"""The options of every `ParsingProblem`."""

from typing import Any

from t2t_lite.parsing.treebank import parse_numbers
from t2t_lite.problem.option import Option
from t2t_lite.values import file_path, number, whole_number


def _numbers(split):
    def read(value):
        ranges = parse_numbers(str(value), split)
        return "+".join(
            f"{numbers[0]}-{numbers[-1]}" if numbers[1:] else f"{numbers[0]}"
            for numbers in ranges
        )

    return read


def _paths(value: Any) -> str:
    """Paths that are joined by ":", each made absolute."""
    return ":".join(file_path(name) for name in str(value).split(":") if name)


def _leaves(value: Any) -> str:
    if value not in ("XX", "tags"):
        raise ValueError("XX or tags")
    return value


OPTIONS = (
    *(
        Option(
            split,
            "NUMBERS",
            f"file numbers of {split}, such as 200-2199 or 1-9+12; give all "
            "three splits or none",
            _numbers(split),
            without="chosen by the files that are there",
            example=example,
        )
        for split, example in (
            ("train", "1-80+85"),
            ("dev", "81-84"),
            ("test", "86-99"),
        )
    ),
    Option(
        "vocab_size",
        "V",
        "pieces of the source vocabulary",
        whole_number(1),
        without="chosen by the files that are there",
        example="8000",
    ),
    Option(
        "leaves",
        "XX|tags",
        "what a word is in the target: XX or its part-of-speech tag",
        _leaves,
        default="XX",
        example="tags",
    ),
    Option(
        "subtrees",
        "N",
        "use constituents of 2 to N words as sentences of train, too",
        whole_number(2),
        without="none",
        example="12",
    ),
    Option(
        "trees",
        "FILES",
        "files with additional trees for train, one or more per line; a colon "
        "between files",
        _paths,
        example="A.txt.gz:B.txt",
    ),
    Option(
        "treebank_share",
        "SHARE",
        "share of the treebank in train, with additional trees",
        number(float, lambda x: 0 < x < 1, "a number above 0 and below 1"),
        without="the problem's own",
        example="0.1",
    ),
)
