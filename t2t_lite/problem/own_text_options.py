"""The options of `OwnText`: the meaning of each, and which conflict."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Annotated, Any

from t2t_lite.corpus import filters, mixture
from t2t_lite.corpus.held_out import MOST_BY_DEFAULT, SHARE_BY_DEFAULT
from t2t_lite.corpus.lines import CORPUS, ENCODING, UTF_8, known_encoding
from t2t_lite.corpus.mixture import Corpus
from t2t_lite.corpus.pair_files import format_of
from t2t_lite.errors import UsageError
from t2t_lite.problem.base import ProblemOptions, Text2TextProblem
from t2t_lite.validators import (
    Validator,
    changed,
    condition,
    file_path,
    integer,
    real,
    setting,
)

# The beginnings of the names of the options of a split's files.
PREFIXES = {"train": "", "dev": "dev_", "test": "test_"}


_name = condition(
    "letters, digits, _ and -, without _rev at the end",
    lambda name: (
        re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name)
        and not name.endswith("_rev")
    ),
)
_File = Annotated[str, file_path] | None
_Corpora = Annotated[str, Validator("corpora", mixture.checked, "FILES")] | None
_CorporaOnce = (
    Annotated[str, Validator("corpora", mixture.checked_once, "FILES")] | None
)
_Filters = Annotated[
    Mapping[str, Any],
    Validator("filters", lambda value: filters.checked(value) or None, "LIST"),
]
_Share = Annotated[float, real(at_least=0, at_most=1)]


@dataclasses.dataclass(frozen=True)
class TextOptions(ProblemOptions):
    """The options of `--problem=text`.

    Raises:
      UsageError: a value breaks its rule, or options conflict.
    """

    source: _File = setting(None, "source text, one sentence per line")
    target: _File = setting(None, "its translation: line i translates line i")
    pairs: _Corpora = setting(
        None,
        "both sides in one file: .tsv (one TAB per line), .jsonl or .tmx; or "
        "several: FILE:SHARE:TAG,..., where SHARE is of the pairs of train and "
        "TAG stands before the source texts, or without one or both of these; "
        "such as news.tsv:0.7:news,web.tsv:0.3:web",
    )
    dev_source: _File = setting(None, "like --source, for the dev split")
    dev_target: _File = setting(None, "like --target, for the dev split")
    dev_pairs: _CorporaOnce = setting(
        None, "like --pairs, for the dev split, without shares"
    )
    test_source: _File = setting(None, "like --source, for the test split")
    test_target: _File = setting(None, "like --target, for the test split")
    test_pairs: _CorporaOnce = setting(
        None, "like --pairs, for the test split, without shares"
    )
    source_language: str | None = setting(
        None, "such as en; for reports and for .tmx files", "CODE"
    )
    target_language: str | None = setting(
        None, "such as de; for reports and for .tmx files", "CODE"
    )
    source_key: str = setting("source", "in .jsonl files", "KEY")
    target_key: str = setting("target", "in .jsonl files", "KEY")
    encoding: Annotated[str, Validator(ENCODING, known_encoding)] = setting(
        UTF_8, "of the text files, such as windows-1252 or utf-16", "NAME"
    )
    broken_share: _Share = setting(
        CORPUS.broken_share,
        "the largest share of lines of a file with bytes that are not text, or "
        "NUL, 0-1",
        "SHARE",
    )
    holdout: Annotated[int, integer(1)] | None = setting(
        None,
        "how many different pairs to hold out of train for each split without "
        f"files (default: one in {SHARE_BY_DEFAULT}, at most "
        f"{MOST_BY_DEFAULT})",
    )
    name: Annotated[str, _name] = setting(
        "text", "the name of the data files", "NAME"
    )
    vocab_size: Annotated[int, integer(1)] = setting(
        Text2TextProblem.vocab_size,
        "pieces of a vocabulary, special pieces and bytes included",
        "V",
    )
    shared_vocabulary: bool = setting(
        True, "learn one vocabulary for both sides"
    )
    vocabulary: _File = setting(
        None,
        "an existing vocabulary: a SentencePiece model, a WordPiece vocab.txt "
        "or a tensor2tensor subword file",
    )
    filters: _Filters | None = setting(
        None,
        "which pairs to leave out of train: length=WORDS, length_ratio=R, "
        "characters=N, duplicates, identical, broken_encoding, "
        "control_characters",
    )
    # The shards of tensor2tensor that `--adopt` uses have it; no flag sets it.
    adopted: str | None = setting(
        None, "the vocabulary of adopted shards, or two of them"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        formats = {format_ for s in PREFIXES for format_ in self._formats(s)}
        if self.vocabulary and self.vocab_size != Text2TextProblem.vocab_size:
            raise UsageError(
                "A --vocabulary has its own size: leave --vocab_size out; got "
                f"{self.vocab_size}."
            )
        if self.vocabulary and not self.shared_vocabulary:
            raise UsageError(
                "One --vocabulary is shared by both sides: leave "
                "--separate_vocabularies out."
            )
        if ".tmx" in formats and not (
            self.source_language and self.target_language
        ):
            raise UsageError(
                "A .tmx file may have many languages: name two of them with "
                "--source_language and --target_language."
            )
        for key in ("source_key", "target_key"):
            if key in changed(self) and ".jsonl" not in formats:
                raise UsageError(f"--{key} requires a .jsonl file.")
        if self.encoding != UTF_8 and formats <= {".tmx", ""}:
            raise UsageError(
                "--encoding is for lines; a .tmx file says its encoding itself."
            )
        if self.holdout and "" not in formats:
            raise UsageError(
                "--holdout is for splits without files; got files for all."
            )
        self._require_consistent_tags()

    def corpora(self, split: str) -> tuple[Corpus, ...]:
        """Return the corpora of a split, in order; () if it has no files."""
        source, target, pairs = self._files(split)
        if pairs:
            return mixture.read_corpora(pairs)
        return (Corpus((source, target)),) if source and target else ()

    def flags(self) -> list[str]:
        """Return the words of a command line that give the options."""
        flags = {f"--{k}": v for k, v in changed(self).items()}
        flags.pop("--adopted", None)
        if self.filters:
            # {"length": 80, "identical": True} is "length=80,identical".
            flags["--filters"] = ",".join(
                k if v is True else f"{k}={v}" for k, v in self.filters.items()
            )
        two = flags.pop("--shared_vocabulary", True) is False
        words = [f"{flag}={value}" for flag, value in flags.items()]
        return words + ["--separate_vocabularies"] * two

    def _files(self, split):
        prefix = PREFIXES[split]
        names = (f"{prefix}source", f"{prefix}target", f"{prefix}pairs")
        return [getattr(self, name) for name in names]

    def _formats(self, split):
        """Return the formats of a split's files: endings, "lines" or ""."""
        source, target, pairs = self._files(split)
        prefix = PREFIXES[split]
        if pairs and (source or target):
            raise UsageError(
                f"Give --{prefix}source and --{prefix}target, or "
                f"--{prefix}pairs, not both."
            )
        if bool(source) != bool(target):
            raise UsageError(
                f"--{prefix}source and --{prefix}target require each other."
            )
        if not pairs:
            return {"lines" if source else ""}
        return {format_of(*corpus.files) for corpus in self.corpora(split)}

    def _require_consistent_tags(self):
        train = self.corpora("train")
        if filters.DUPLICATES in (self.filters or {}) and any(
            corpus.share is not None for corpus in train
        ):
            raise UsageError(
                "Shares are made with copies, which --filters=duplicates "
                "leaves out: give one of them."
            )
        tags = {corpus.tag for corpus in train if corpus.tag}
        for split, prefix in PREFIXES.items():
            for corpus in self.corpora(split):
                if corpus.tag and corpus.tag not in tags:
                    raise UsageError(
                        f"--pairs must have the tags of {split}, "
                        f"{', '.join(sorted(tags)) or 'but has none'}; got "
                        f"{corpus.tag} in --{prefix}pairs."
                    )
