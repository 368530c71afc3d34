"""The options of `OwnText`: what each means, and which go together."""

import re
from collections.abc import Mapping
from typing import Any

from t2t_lite.corpus import filters
from t2t_lite.corpus.held_out import MOST_BY_DEFAULT, SHARE_BY_DEFAULT
from t2t_lite.corpus.lines import CORPUS, UTF_8, known_encoding
from t2t_lite.corpus.mixture import checked, checked_once, read_corpora
from t2t_lite.corpus.pair_files import format_of
from t2t_lite.errors import UsageError
from t2t_lite.problem.base import Text2TextProblem
from t2t_lite.problem.option import Option
from t2t_lite.values import (
    file_path,
    number,
    text,
    true_or_false,
    whole_number,
)

# What comes before `source`, `target` and `pairs` in the options of a split.
PREFIXES = {"train": "", "dev": "dev_", "test": "test_"}
_FILES = {
    "source": ("source text, one sentence per line", "news.en"),
    "target": ("its translation: line i translates line i", "news.de"),
    "pairs": (
        "both sides in one file: .tsv (one TAB per line), .jsonl or .tmx; or "
        "several: FILE:SHARE:TAG,..., where SHARE is of the pairs of train and "
        "TAG stands before the source texts, or without one or both of these",
        "news.tsv:0.7:news,web.tsv:0.3:web",
    ),
}


def _kind(prefix, part):
    """The kind of a value of `FILE_OPTIONS`."""
    if part != "pairs":
        return file_path
    return checked_once if prefix else checked


FILE_OPTIONS = tuple(
    Option(
        f"{prefix}{part}",
        "FILES" if part == "pairs" else "FILE",
        f"as --{part}, for the {split} split" if prefix else meaning,
        _kind(prefix, part),
        example=example if part != "pairs" or not prefix else "dev.tsv",
    )
    for split, prefix in PREFIXES.items()
    for part, (meaning, example) in _FILES.items()
)


def _name(value):
    """What files can be called, in a way that says which direction is meant."""
    name = text(value)
    whole = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name)
    if not whole or name.endswith("_rev"):
        raise ValueError("letters, digits, _ and -, without _rev at the end")
    return name


OPTIONS = (
    *FILE_OPTIONS,
    *(
        Option(
            f"{side}_language",
            "CODE",
            f"such as {code}; for reports and for .tmx files",
            example=code,
        )
        for side, code in (("source", "en"), ("target", "de"))
    ),
    *(
        Option(
            f"{side}_key", "KEY", "in .jsonl files", default=side, example=code
        )
        for side, code in (("source", "en"), ("target", "de"))
    ),
    Option(
        "encoding",
        "NAME",
        "of the text files, such as windows-1252 or utf-16",
        known_encoding,
        default=UTF_8,
        example="windows-1252",
    ),
    Option(
        "broken_share",
        "SHARE",
        "the largest share of lines of a file with bytes that are no text or "
        "with NUL, 0-1",
        number(float, lambda share: 0 <= share <= 1, "a number from 0 to 1"),
        default=CORPUS.broken_share,
        example="0.05",
    ),
    Option(
        "holdout",
        "N",
        "how many different pairs to hold out of train for each split "
        "without files",
        whole_number(1),
        without=f"one in {SHARE_BY_DEFAULT}, at most {MOST_BY_DEFAULT}",
        example="500",
    ),
    Option(
        "name",
        "NAME",
        "what the data files are called",
        _name,
        default="text",
        example="news",
    ),
    Option(
        "vocab_size",
        "V",
        "pieces of a vocabulary, special pieces and bytes included",
        whole_number(1),
        default=Text2TextProblem.vocab_size,
        example="16000",
    ),
    Option(
        "shared_vocabulary",
        "BOOL",
        "learn a vocabulary of --vocab_size for each side; needs "
        "--hparams_override=shared_embedding=false",
        true_or_false,
        default=True,
        without="one for both",
        off_flag="separate_vocabularies",
    ),
    Option(
        "vocabulary",
        "FILE",
        "an existing vocabulary: a SentencePiece model, a WordPiece vocab.txt "
        "or a tensor2tensor subword file",
        file_path,
        example="news.model",
    ),
    Option(
        "filters",
        "LIST",
        "which pairs to leave out of train: length=WORDS, length_ratio=R, "
        "characters=N, duplicates, identical, broken_encoding, "
        "control_characters",
        filters.checked,
        default={},
        without="none",
        example="length=100,duplicates",
    ),
)

# The shards of tensor2tensor that are used, see `interop.tensor2tensor.shards`.
ADOPTED = Option(
    "adopted",
    "FILES",
    "their vocabulary, or those of source and target, joined by a comma",
    flagless=True,
)


def require_consistent(
    options: Mapping[str, Any], given: Mapping[str, Any]
) -> None:
    """Raises UsageError for options that contradict each other or do nothing.

    Args:
      options: those that count, as they are kept.
      given: with those that have their default.
    """
    if given.get("vocabulary") is not None:
        if given.get("vocab_size") is not None:
            raise UsageError(
                "A --vocabulary has its own size: leave --vocab_size out; got "
                f"{given['vocab_size']}."
            )
        if given.get("shared_vocabulary") is False:
            raise UsageError(
                "One --vocabulary is shared by both sides: leave "
                "--separate_vocabularies out."
            )
    forms = set().union(*(_forms_of(options, p) for p in PREFIXES.values()))
    languages = [options.get(f"{s}_language") for s in ("source", "target")]
    if ".tmx" in forms and not all(languages):
        raise UsageError(
            "A .tmx file may have many languages: name two of them with "
            "--source_language and --target_language."
        )
    for key in ("source_key", "target_key"):
        if key in options and ".jsonl" not in forms:
            raise UsageError(f"--{key} goes with a .jsonl file.")
    if "encoding" in options and forms <= {".tmx", None}:
        raise UsageError(
            "--encoding is for lines; a .tmx file says its encoding itself."
        )
    if "holdout" in options and None not in forms:
        raise UsageError(
            "--holdout goes with splits that have no files; got files for all."
        )
    _require_consistent_tags(options)


def _require_consistent_tags(options):
    """What shares and tags do not go with."""
    pairs = read_corpora(options.get("pairs", ""))
    if filters.DUPLICATES in options.get("filters", {}) and any(
        corpus.share is not None for corpus in pairs
    ):
        raise UsageError(
            "Shares are made with copies, which --filters=duplicates leaves "
            "out: give one of them."
        )
    tags = {corpus.tag for corpus in pairs if corpus.tag}
    for split, prefix in PREFIXES.items():
        for corpus in read_corpora(options.get(f"{prefix}pairs", "")):
            if corpus.tag and corpus.tag not in tags:
                raise UsageError(
                    f"--pairs must have the tags of {split}, "
                    f"{', '.join(sorted(tags)) or 'but has none'}; got "
                    f"{corpus.tag} in --{prefix}pairs."
                )


def _forms_of(options, prefix):
    """How a split is given: "lines", endings of `pairs`, or None."""
    source, target, pairs = (
        f"{prefix}{part}" for part in ("source", "target", "pairs")
    )
    given = [name for name in (source, target) if name in options]
    if pairs in options:
        if given:
            raise UsageError(
                f"Give --{source} and --{target}, or --{pairs}; got --{pairs} "
                f"and {' and '.join(f'--{name}' for name in given)}."
            )
        files = [c.files for c in read_corpora(options[pairs])]
        return {format_of(file) for (file,) in files}
    if len(given) == 1:
        missing = target if source in options else source
        raise UsageError(
            f"--{source} and --{target} go together; got --{given[0]} without "
            f"--{missing}."
        )
    return {"lines" if given else None}


def flags_of(options: Mapping[str, Any]) -> list[str]:
    """The words of a command line that give options."""
    return [
        option.flag if option.off_flag else f"{option.flag}={_as_flag(value)}"
        for option in OPTIONS
        if (value := options.get(option.name)) is not None
    ]


def _as_flag(value: Any) -> Any:
    """An option as its flag takes it.

    Example: {"length": 80, "identical": True} is "length=80,identical".
    """
    if not isinstance(value, Mapping):
        return value
    return ",".join(k if v is True else f"{k}={v}" for k, v in value.items())
