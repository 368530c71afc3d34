"""`TextFiles`: a problem whose files and choices are options, not code."""

import collections
import dataclasses
import functools
import itertools
import os
import pathlib
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Self

from t2t_lite.corpus import filters, mixture
from t2t_lite.corpus.download import RawFiles
from t2t_lite.corpus.lines import (
    CORPUS,
    ENCODING,
    UTF_8,
    Encoding,
    known_encoding,
)
from t2t_lite.corpus.mixture import Corpus
from t2t_lite.corpus.parallel import (
    format_of,
    read_json_lines,
    read_parallel,
    read_tmx,
    read_tsv,
)
from t2t_lite.corpus.splits import (
    MOST_BY_DEFAULT,
    SHARE_BY_DEFAULT,
    choose_held_out,
)
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.problem.base import (
    ProblemOptions,
    Text2TextProblem,
    read_some,
)
from t2t_lite.tokenizers.tags import add_tag, split_tag
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
_PREFIXES = {"train": "", "dev": "dev_", "test": "test_"}
_CACHED = ("_corpora", "_held_out", "_counts")

_name = condition(
    "letters, digits, _ and -, without _rev at the end",
    lambda name: (
        re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name)
        and not name.endswith("_rev")
    ),
)
_File = Annotated[str, file_path] | None
_Corpora = Annotated[str, Validator("corpora", mixture.checked, "FILES")] | None
_Filters = Annotated[
    Mapping[str, Any],
    Validator("filters", lambda value: filters.checked(value) or None, "LIST"),
]
_Share = Annotated[float, real(at_least=0, at_most=1)]


@dataclasses.dataclass(frozen=True)
class TextOptions(ProblemOptions):
    """The options of `problem=text`.

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
    dev_source: _File = setting(None, "like `source`, for the dev split")
    dev_target: _File = setting(None, "like `target`, for the dev split")
    dev_pairs: _Corpora = setting(
        None, "like `pairs`, for the dev split, without shares"
    )
    test_source: _File = setting(None, "like `source`, for the test split")
    test_target: _File = setting(None, "like `target`, for the test split")
    test_pairs: _Corpora = setting(
        None, "like `pairs`, for the test split, without shares"
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
    max_invalid_ratio: _Share = setting(
        CORPUS.max_invalid_ratio,
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
    # Set by `import_shards`; no flag sets it.
    imported: str | None = setting(
        None, "the vocabulary of imported shards, or two of them"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        corpora = {split: self.corpora(split) for split in _PREFIXES}
        train = corpora["train"]
        # Of files of pairs; "lines" of two files, and "" of none.
        formats = {
            format_of(*each.files) if len(each.files) == 1 else "lines"
            for each in itertools.chain(*corpora.values())
        } | {"" for found in corpora.values() if not found}
        has_shares = any(corpus.share is not None for corpus in train)
        languages = self.source_language and self.target_language
        keys = changed(self).keys() & {"source_key", "target_key"}
        conflicts = {
            "A `vocabulary` has its own size: leave `vocab_size` out.": (
                self.vocabulary
                and self.vocab_size != Text2TextProblem.vocab_size
            ),
            "One `vocabulary` is shared by both sides: leave "
            "`separate_vocabularies` out.": (
                self.vocabulary and not self.shared_vocabulary
            ),
            "A .tmx file may have many languages: name two of them with "
            "`source_language` and `target_language`.": (
                ".tmx" in formats and not languages
            ),
            f"--{' and --'.join(sorted(keys))} requires a .jsonl file.": (
                keys and ".jsonl" not in formats
            ),
            "`encoding` is for lines; a .tmx file says its encoding itself.": (
                self.encoding != UTF_8 and formats <= {".tmx", ""}
            ),
            "`holdout` is for splits without files; got files for all.": (
                self.holdout and "" not in formats
            ),
            "Shares are made with copies, which `filters=duplicates` leaves "
            "out: give one of them.": (
                has_shares and filters.DUPLICATES in (self.filters or {})
            ),
        }
        for rule, is_broken in conflicts.items():
            if is_broken:
                raise UsageError(rule)
        tags = {"", *(corpus.tag for corpus in train)}
        for split in ("dev", "test"):
            for corpus in corpora[split]:
                if corpus.share is not None or corpus.tag not in tags:
                    raise UsageError(
                        f"`{split}_pairs` takes tags of `pairs` and no shares; "
                        f"got {corpus}."
                    )

    def corpora(self, split: str) -> tuple[Corpus, ...]:
        """Return the corpora of a split, in order; () if it has no files."""
        prefix = _PREFIXES[split]
        source, target, pairs = (
            getattr(self, f"{prefix}{name}")
            for name in ("source", "target", "pairs")
        )
        if bool(source) != bool(target) or (source and pairs):
            raise UsageError(
                f"--{prefix}source and --{prefix}target require each other, "
                f"and conflict with --{prefix}pairs."
            )
        if pairs:
            return mixture.read_corpora(pairs)
        return (Corpus((source, target)),) if source else ()


class TextFiles(Text2TextProblem):
    """The text pairs of files that the options name, compressed or not.

    Train is `source` and `target`, or `pairs`; dev and test have options of
    their own, and a split without files is held out of train, see `held_out`.
    `pairs` may be several corpora, with shares and tags, see `mixture`. Raise
    `version` when the readers, `held_out` or `mixture` change their pairs.
    """

    options_type = TextOptions

    def with_options(self, options: Mapping[str, Any]) -> Self:
        other = super().with_options(options)
        for name in _CACHED:
            vars(other).pop(name, None)
        settings = other.settings
        other.base_name = other.options.get("name", type(self).base_name)
        other.name = other.base_name + ("_rev" if self.reversed else "")
        other.vocab_size = settings.vocab_size
        other.filters = settings.filters or {}
        other.source_language = settings.source_language or ""
        other.target_language = settings.target_language or ""
        return other

    def option_words(self) -> list[str]:
        options = dict(self.options)
        options.pop("imported", None)
        if "filters" in options:
            # {"length": 80, "identical": True} is "length=80,identical".
            options["filters"] = ",".join(
                k if v is True else f"{k}={v}"
                for k, v in options["filters"].items()
            )
        two = options.pop("shared_vocabulary", True) is False
        words = [f"{name}={value}" for name, value in options.items()]
        return words + ["separate_vocabularies"] * two

    @property
    def source_tags(self) -> tuple[str, ...]:
        tags = {corpus.tag for corpus in self._corpora["train"]}
        return tuple(sorted(tags - {""}))

    def reverse(self) -> Self:
        if self.source_tags and not self.reversed:
            raise UsageError(
                f"{self.registered_name}_rev would have tags before its "
                f"targets: {', '.join(self.source_tags)}. Give `pairs` without "
                "tags, and another `name`."
            )
        return super().reverse()

    def samples(self, split: str, raw: RawFiles) -> Iterator[tuple[str, str]]:
        self._require_files(raw)
        if not self._corpora[split]:
            return (
                (add_tag(tag, source), target)
                for source, target, tag in self._held_out[split]
            )
        read = functools.partial(self._samples_of, split)
        has_shares = self._has_shares(split)
        counts = self._counts if has_shares else itertools.repeat(None)
        pairs = map(read, self._corpora[split], counts)
        return itertools.chain.from_iterable(pairs)

    def corpus_counts(self) -> list[dict[str, Any]]:
        if not self._has_shares("train"):
            return []
        found = zip(self._corpora["train"], self._counts, strict=True)
        return [
            dataclasses.asdict(corpus)
            | {"files": list(corpus.files), "pairs": pairs, "copies": copies}
            for corpus, (pairs, copies) in found
        ]

    def check_sources(self, raw: RawFiles) -> None:
        self._require_files(raw)
        for split in ("dev", "test"):  # those with files; train is read next
            for corpus in self._corpora[split]:
                read_some(self._read(corpus))

    def _require_files(self, raw):
        """Check that all files are there, and note them."""
        if self.settings.imported:
            raise T2TLiteError(
                f"{self.base_name} has imported shards, but not its text: put "
                "them back, and import them again with t2t-lite-datagen "
                f"`import_shards=FOLDER` `problem={self.base_name}` "
                "`vocabulary=FILE`."
            )
        if not self._corpora["train"]:
            raise UsageError(
                f"{self.registered_name} needs files to train on: `source` and "
                "`target`, or `pairs`."
            )
        corpora = itertools.chain(*self._corpora.values())
        paths = [path for corpus in corpora for path in corpus.files]
        paths += filter(None, [self.settings.vocabulary])
        missing = [path for path in paths if not os.path.isfile(path)]
        if missing:
            raise T2TLiteError(f"There is no file {', '.join(missing)}.")
        for path in paths:
            raw.record_source(path)

    def vocabulary_files(self) -> dict[str, str]:
        settings = self.settings
        if settings.imported:
            source, *target = settings.imported.split(",")
            return {"inputs": source, "targets": (target or [source])[0]}
        if settings.vocabulary:
            ending = pathlib.Path(settings.vocabulary).suffix
            file = f"{self.base_name}.vocab{ending}"
            return {"inputs": file, "targets": file}
        if settings.shared_vocabulary:
            return super().vocabulary_files()
        stem = f"{self.base_name}.vocab.{self.vocab_size}"
        return {
            "inputs": f"{stem}.source.model",
            "targets": f"{stem}.target.model",
        }

    def expected_vocab_sizes(self) -> tuple[int, int]:
        if self.settings.vocabulary:
            from t2t_lite.tokenizers.vocabulary import open_vocabulary

            size = open_vocabulary(self.settings.vocabulary).vocab_size
            return size, size
        return super().expected_vocab_sizes()

    def train_encoders(
        self, raw: RawFiles, data_dir: str | os.PathLike, seed: int
    ) -> None:
        """Learn the vocabularies, or copy the given one."""
        path = self.settings.vocabulary
        if not path:
            super().train_encoders(raw, data_dir, seed)
            return
        from t2t_lite.tokenizers.vocabulary import open_vocabulary

        encoder = open_vocabulary(path)
        for tag in self.source_tags:
            pieces = encoder.ids_to_pieces(encoder.encode([tag])[0].tolist())
            if tag not in pieces:
                raise T2TLiteError(
                    f"A tag must be one piece of the vocabulary; {path} splits "
                    f"{tag} into {len(pieces)}. Leave `vocabulary` out to "
                    "learn one with it."
                )
        name = self.vocabulary_files()["inputs"]
        shutil.copyfile(path, pathlib.Path(data_dir) / name)

    def evaluate(
        self,
        sources: Sequence[str],
        references: Sequence[str],
        outputs: Sequence[str],
    ) -> dict[str, Any]:
        """Return the report of `Text2TextProblem`; with tags also `by_tag`."""
        report = super().evaluate(sources, references, outputs)
        if not (tags := self.source_tags):
            return report
        from t2t_lite.evaluation.bleu import bleu

        found = collections.defaultdict(list)
        for source, *texts in zip(sources, outputs, references, strict=True):
            found[split_tag(source, tags)[0] or "no tag"].append(texts)
        by_tag = {}
        for tag, pairs in sorted(found.items()):
            hypotheses, correct = zip(*pairs, strict=True)
            scores = bleu(hypotheses, correct)
            by_tag[tag] = {key: scores[key] for key in ("score", "sentences")}
        return report | {"by_tag": by_tag}

    @functools.cached_property
    def _corpora(self):
        """The corpora of each split; () for a split without files."""
        return {split: self.settings.corpora(split) for split in self.splits}

    def _has_shares(self, split):
        return any(c.share is not None for c in self._corpora[split])

    def _samples_of(self, split, corpus, counts=None):
        """Return the pairs that a corpus gives to a split with files."""
        pairs = self._read(corpus)
        if split == "train" and self._held_out:
            held_out = itertools.chain(*self._held_out.values())
            taken = {(source, target) for source, target, _ in held_out}
            pairs = (pair for pair in pairs if pair not in taken)
        if corpus.tag:
            pairs = ((add_tag(corpus.tag, source), t) for source, t in pairs)
        if counts:
            count, copies = counts
            pairs = mixture.oversample(pairs, count, copies, self._is_usable())
        return pairs

    def _is_usable(self):
        """Return a function that says whether a pair of train is kept."""
        reason = filters.make_filter(self.filters, self.source_tags)
        return lambda source, target: bool(
            source.strip() and target.strip() and not reason(source, target)
        )

    def _read(self, corpus):
        """Yield the pairs of a corpus, at least one, without its tag."""
        pair = None
        for pair in self._pairs(corpus.files):
            yield pair
        if pair is None:
            raise T2TLiteError(
                "A split must have at least one pair; got nothing in "
                f"{' and '.join(corpus.files)}."
            )

    def _pairs(self, files):
        settings = self.settings
        encoding = Encoding(settings.encoding, settings.max_invalid_ratio)
        if len(files) == 2:
            source, target = files
            return read_parallel(source, target, encoding=encoding)
        (file,) = files
        match format_of(file):
            case ".tmx":
                return read_tmx(
                    file, settings.source_language, settings.target_language
                )
            case ".tsv":
                return read_tsv(file, encoding)
        return read_json_lines(
            file, settings.source_key, settings.target_key, encoding
        )

    @functools.cached_property
    def _held_out(self):
        """The pairs held out of train for each split, each with its tag."""
        splits = [split for split in self.splits if not self._corpora[split]]
        if not splits:
            return {}
        pairs = (
            (*pair, corpus.tag)
            for corpus in self._corpora["train"]
            for pair in self._read(corpus)
        )
        return choose_held_out(pairs, splits, self.settings.holdout)

    @functools.cached_property
    def _counts(self):
        """Return the usable pairs of each training corpus, and their copies."""
        corpora, is_usable = self._corpora["train"], self._is_usable()
        counts = [
            sum(is_usable(*pair) for pair in self._samples_of("train", corpus))
            for corpus in corpora
        ]
        for corpus, count in zip(corpora, counts, strict=True):
            if not count:
                raise T2TLiteError(
                    f"{' and '.join(corpus.files)} must give a share of "
                    f"{corpus.share:g}, but has no pair to use. Check the "
                    "file, `filters` and `holdout`."
                )
        shares = [corpus.share for corpus in corpora]
        copies = mixture.target_counts(counts, shares)
        return list(zip(counts, copies, strict=True))
