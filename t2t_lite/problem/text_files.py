"""`TextFiles`: a problem over text files; options declare it, not code."""

import dataclasses
import functools
import itertools
import pathlib
import re
import shutil
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Self

from t2t_lite import validators
from t2t_lite.corpus import filters, lines, mixture, parallel, splits
from t2t_lite.corpus.datasets import SPLITS, Dataset
from t2t_lite.corpus.download import RawFiles
from t2t_lite.corpus.mixture import Corpus
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.files import PathLike
from t2t_lite.problem.base import ProblemOptions, Text2TextProblem, read_some
from t2t_lite.tokenizers.tags import add_tag, is_blank
from t2t_lite.validators import Validator, changed, integer, real, setting

# Prefixes of the file options of each split.
_PREFIXES = {"train": "", "dev": "dev_", "test": "test_"}
_CACHED = ("_corpora", "_held_out", "_counts")
_RECORDS = {".jsonl", ".parquet", "hf:", "tfds:"}  # with keys

_name = validators.condition(
    "letters, digits, _ and -, without _rev at the end",
    re.compile(r"(?!.*_rev$)[A-Za-z0-9][A-Za-z0-9_-]*").fullmatch,
)
_corpora = Validator("corpora", mixture.normalize_corpora, "FILE,...")
_encoding = Validator(lines.ENCODING, lines.normalize_encoding)
_filters = Validator(
    "filters", lambda x: filters.normalize_filters(x) or None, "FILTER,..."
)
_File = Annotated[str, validators.file_path] | None
_Corpora = Annotated[str, _corpora] | None
_Fraction = Annotated[float, real(at_least=0, at_most=1)]


@dataclasses.dataclass(frozen=True)
class TextOptions(ProblemOptions):
    """Options of `problem=text`.

    Raises:
      UsageError: a value is invalid, or options conflict.
    """

    source: _File = setting(None, "source text, one sentence per line")
    target: _File = setting(
        None, "target text: line i translates line i of the source"
    )
    pairs: _Corpora = setting(
        None,
        "both sides in one file: .tsv (one TAB per line), .jsonl, .tmx, "
        ".parquet or .zip of OPUS; a dataset hf:OWNER/NAME/CONFIG or "
        "tfds:NAME/CONFIG, where CONFIG is SOURCE-TARGET; or "
        "several files as FILE[:SHARE][:TAG],..., where SHARE is a fraction of "
        "the training pairs and TAG is put before the source texts, such as "
        "news.tsv:0.7:news,web.tsv:0.3:web",
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
        None,
        "source language for reports, .tmx and .zip files, datasets, and "
        ".jsonl and .parquet files of the Hugging Face Hub, such as en",
        "CODE",
    )
    target_language: str | None = setting(
        None, "like `source_language`, such as de", "CODE"
    )
    source_key: str = setting(
        "source",
        "key of the source in .jsonl, .parquet and datasets, such as "
        "translation.en",
        "KEY",
    )
    target_key: str = setting("target", "like `source_key`", "KEY")
    encoding: Annotated[str, _encoding] = setting(
        lines.UTF_8, "encoding of the text files, such as windows-1252", "NAME"
    )
    max_invalid_ratio: _Fraction = setting(
        lines.CORPUS.max_invalid_ratio,
        "largest fraction of lines with invalid bytes or control characters",
        "SHARE",
    )
    holdout: Annotated[int, integer(1)] | None = setting(
        None,
        "number of distinct pairs to hold out of train for each split without "
        f"files (default: one in {splits.HELD_OUT_DIVISOR}, at most "
        f"{splits.DEFAULT_MAX_PAIRS})",
    )
    name: Annotated[str, _name] = setting("text", "name of the data", "NAME")
    vocab_size: Annotated[int, integer(1)] = setting(
        Text2TextProblem.vocab_size,
        "vocabulary size in pieces, special pieces and bytes included",
        "V",
    )
    character_coverage: Annotated[float, real(above=0, at_most=1)] = setting(
        0.9999,
        "fraction of the characters of the text that get a piece, the most "
        "frequent ones first; bytes encode the others",
        "X",
    )
    shared_vocabulary: bool = setting(True, "one vocabulary for both sides")
    vocabulary: _File = setting(
        None,
        "an existing vocabulary: a SentencePiece model, a WordPiece vocab.txt, "
        "a tensor2tensor subword file, or the file of an imported run",
    )
    filters: Annotated[Mapping[str, Any], _filters] | None = setting(
        None,
        "filters that drop pairs of train: length=WORDS, length_ratio=R, "
        "characters=N, duplicates, identical, broken_encoding, "
        "control_characters",
    )
    # Set by `import_shards` only; it has no flag.
    imported: str | None = setting(None, "vocabularies of imported shards")

    def __post_init__(self) -> None:
        super().__post_init__()
        train = self.corpora["train"]
        # "lines" for two files, "" for a split without files.
        formats = {
            parallel.format_of(*each.files) if len(each.files) == 1 else "lines"
            for each in itertools.chain(*self.corpora.values())
        } | {"" for corpora in self.corpora.values() if not corpora}
        languages = self.source_language and self.target_language
        keys = changed(self).keys() & {"source_key", "target_key"}
        conflicts = {
            "`vocabulary` conflicts with `vocab_size`.": (
                self.vocabulary
                and self.vocab_size != Text2TextProblem.vocab_size
            ),
            "`vocabulary` conflicts with `character_coverage`.": (
                self.vocabulary and "character_coverage" in changed(self)
            ),
            "`vocabulary` conflicts with `separate_vocabularies`: both sides "
            "share it.": (self.vocabulary and not self.shared_vocabulary),
            "A .tmx file requires `source_language` and `target_language`.": (
                ".tmx" in formats and not languages
            ),
            f"`{'` and `'.join(sorted(keys))}` requires a .jsonl or .parquet "
            "file or a dataset.": (keys and not formats & _RECORDS),
            "`encoding` is not supported for .tmx and .parquet files and "
            "datasets, which declare theirs.": (
                self.encoding != lines.UTF_8
                and formats <= _RECORDS - {".jsonl"} | {".tmx", ""}
            ),
            "`holdout` requires a split without files.": (
                self.holdout and "" not in formats
            ),
            "Shares of `pairs` conflict with `filters=duplicates`, which drops "
            "the copies.": (
                any(corpus.share for corpus in train)
                and filters.DUPLICATES in (self.filters or {})
            ),
        }
        for message, is_present in conflicts.items():
            if is_present:
                raise UsageError(message)
        tags = {"", *(corpus.tag for corpus in train)}
        for split in ("dev", "test"):
            for corpus in self.corpora[split]:
                if corpus.share or corpus.tag not in tags:
                    raise UsageError(
                        f"`{split}_pairs` supports tags of `pairs`, but no "
                        f"shares (got {corpus})."
                    )

    @functools.cached_property
    def corpora(self) -> dict[str, tuple[Corpus, ...]]:
        """The corpora by split, in order; () for a split without files."""
        corpora: dict[str, tuple[Corpus, ...]] = {}
        for split, prefix in _PREFIXES.items():
            source, target, pairs = (
                getattr(self, f"{prefix}{name}")
                for name in ("source", "target", "pairs")
            )
            if bool(source) != bool(target) or (source and pairs):
                raise UsageError(
                    f"`{prefix}source` and `{prefix}target` require each other "
                    f"and conflict with `{prefix}pairs`."
                )
            corpora[split] = (Corpus((source, target)),) if source else ()
            if pairs:
                corpora[split] = mixture.read_corpora(pairs)
        return corpora


class TextFiles(Text2TextProblem):
    """A problem over text files, compressed or not, or over datasets.

    `source` and `target`, or `pairs`, are the files of train. If dev and test
    have no files, they are splits of the datasets of train; else, or with
    `holdout`, `corpus.splits` holds them out of train. `pairs` may name several
    corpora with shares and tags, see `corpus.mixture`. Raise `version` when the
    readers, `splits` or `mixture` yield other pairs.
    """

    options_type = TextOptions
    version = 2

    def with_options(self, options: Mapping[str, Any]) -> Self:
        other = super().with_options(options)
        for name in _CACHED:
            vars(other).pop(name, None)
        settings = other.settings
        other.base_name = other.options.get("name", type(self).base_name)
        other.name = other.base_name + ("_rev" if self.reversed else "")
        other.vocab_size = settings.vocab_size
        other._character_coverage = settings.character_coverage
        other.filters = settings.filters or {}
        corpora = settings.corpora
        files = [c.files[0] for c in itertools.chain(*corpora.values())]
        other.tfds_name = ", ".join(x for x in files if x.startswith("tfds:"))
        given = settings.source_language or "", settings.target_language or ""
        train = filter(parallel.match_dataset, files[: len(corpora["train"])])
        found = {parallel.languages_of(name, given) for name in train}
        languages = found.pop() if len(found) == 1 else given
        other.source_language, other.target_language = languages
        if other.reversed and other.source_tags:
            raise UsageError(
                f"{self.registered_name} would have tags in its targets "
                f"(got {', '.join(other.source_tags)}). Give `pairs` without "
                "tags and another `name`."
            )
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
        is_separate = options.pop("shared_vocabulary", True) is False
        words = [f"{name}={value}" for name, value in options.items()]
        return words + ["separate_vocabularies"] * is_separate

    @property
    def source_tags(self) -> tuple[str, ...]:
        tags = {corpus.tag for corpus in self.settings.corpora["train"]}
        return tuple(sorted(tags - {""}))

    def reverse(self) -> Self:
        return super().reverse().with_options(self.options)

    def samples(self, split: str, raw: RawFiles) -> Iterator[tuple[str, str]]:
        self._require_files(raw)
        if not self._corpora[split]:
            return (
                (add_tag(tag, source), target)
                for source, target, tag in self._held_out[split]
            )
        read = functools.partial(self._corpus_samples, split)
        counts = self._counts if split == "train" else itertools.repeat(None)
        pairs = map(read, self._corpora[split], counts)
        return itertools.chain.from_iterable(pairs)

    def corpus_counts(self) -> list[dict[str, Any]]:
        corpora = self.settings.corpora["train"]
        return [
            dataclasses.asdict(corpus)
            | {"files": list(corpus.files)}
            | dict(zip(("pairs", "copies"), counts, strict=True))
            for corpus, counts in zip(corpora, self._counts, strict=True)
            if counts
        ]

    def check_sources(self, raw: RawFiles) -> None:
        self._require_files(raw)
        for split in ("dev", "test"):  # train is read next anyway
            for corpus in self._corpora[split]:
                read_some(self._read(corpus, split))

    def _require_files(self, raw):
        self._raw = raw
        if self.settings.imported:
            raise T2TLiteError(
                f"{self.base_name} has imported shards and no corpus. Restore "
                "the shards and import them again with t2t-lite-datagen "
                f"`import_shards=FOLDER` `problem={self.base_name}` "
                "`vocabulary=FILE`."
            )
        if not self.settings.corpora["train"]:
            raise UsageError(
                f"{self.registered_name} requires training files: `source` and "
                "`target`, or `pairs`."
            )
        corpora = itertools.chain(*self.settings.corpora.values())
        names = itertools.chain.from_iterable(c.files for c in corpora)
        paths = list(itertools.filterfalse(parallel.match_dataset, names))
        paths += filter(None, [self.settings.vocabulary])
        lines.require_files(paths)
        for path in paths:
            raw.record_source(path)

    def vocabulary_files(self) -> dict[str, str]:
        settings = self.settings
        if settings.imported:
            source, *target = settings.imported.split(",")
            return {"inputs": source, "targets": (target or [source])[0]}
        if settings.vocabulary:
            suffix = pathlib.Path(settings.vocabulary).suffix
            file = f"{self.base_name}.vocab{suffix}"
            return {"inputs": file, "targets": file}
        if settings.shared_vocabulary:
            return super().vocabulary_files()
        stem = f"{self.base_name}.vocab.{self.vocab_size}"
        sides = {"inputs": "source", "targets": "target"}
        return {key: f"{stem}.{side}.model" for key, side in sides.items()}

    def expected_vocab_sizes(self) -> tuple[int, int]:
        if self.settings.vocabulary:
            from t2t_lite.tokenizers.vocabulary import open_vocabulary

            size = open_vocabulary(self.settings.vocabulary).vocab_size
            return size, size
        return super().expected_vocab_sizes()

    def train_encoders(
        self, raw: RawFiles, data_dir: PathLike, seed: int
    ) -> None:
        """Learn the vocabularies, or copy `vocabulary`."""
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
                    f"{tag} into {len(pieces)}. Omit `vocabulary` to learn one "
                    "with the tag."
                )
        name = self.vocabulary_files()["inputs"]
        shutil.copyfile(path, pathlib.Path(data_dir) / name)

    def _corpus_samples(self, split, corpus, counts=None):
        pairs = self._read(corpus, split)
        if split == "train" and self._held_out:
            held_out = itertools.chain(*self._held_out.values())
            excluded = {(source, target) for source, target, _ in held_out}
            pairs = (pair for pair in pairs if pair not in excluded)
        if corpus.tag:
            pairs = ((add_tag(corpus.tag, source), t) for source, t in pairs)
        if counts:
            count, copies = counts
            pairs = mixture.oversample(pairs, count, copies, self._is_usable())
        return pairs

    def _is_usable(self):
        reject = filters.make_filter(self.filters, self.source_tags)
        return lambda *pair: not any(map(is_blank, pair)) and not reject(*pair)

    @functools.cached_property
    def _corpora(self):
        """The corpora by split, with the dev and test splits of datasets."""
        corpora = dict(self.settings.corpora)
        for split in ("dev", "test"):
            if not (corpora[split] or self.settings.holdout):
                corpora[split] = tuple(
                    corpus
                    for corpus in corpora["train"]
                    if parallel.match_dataset(name := corpus.files[0])
                    and SPLITS[split] in Dataset(name, self._raw).splits
                )
        return corpora

    def _read(self, corpus, split):
        """Yield the pairs of a corpus, at least one, without their tag."""
        pair = None
        for pair in self._pairs(corpus.files, split):
            yield pair
        if pair is None:
            raise T2TLiteError(
                "A split must have at least one pair; "
                f"{' and '.join(corpus.files)} has none."
            )

    def _pairs(self, files, split):
        settings = self.settings
        encoding = lines.Encoding(settings.encoding, settings.max_invalid_ratio)
        file = files[0]
        if len(files) == 2:
            return parallel.read_parallel(file, files[1], encoding)
        keys = settings.source_key, settings.target_key
        given = self.source_language, self.target_language
        languages = parallel.languages_of(file, given)
        match parallel.format_of(file):
            case "hf:" | "tfds:":
                rows = Dataset(file, self._raw).rows(SPLITS[split])
                return parallel.read_rows(rows, file, keys, languages)
            case ".tmx":
                return parallel.read_tmx(file, *languages, encoding)
            case ".tsv":
                return parallel.read_tsv(file, encoding)
            case ".zip":
                return parallel.read_zip(file, languages, encoding)
            case ".parquet":
                return parallel.read_parquet(file, *keys, languages)
        return parallel.read_json_lines(file, *keys, encoding, languages)

    @functools.cached_property
    def _held_out(self):
        """The (source, target, tag) held out of train, by split."""
        missing = [split for split in self.splits if not self._corpora[split]]
        if not missing:
            return {}
        pairs = (
            (*pair, corpus.tag)
            for corpus in self._corpora["train"]
            for pair in self._read(corpus, "train")
        )
        return splits.choose_held_out(pairs, missing, self.settings.holdout)

    @functools.cached_property
    def _counts(self):
        """The (usable pairs, pairs with copies) of each training corpus.

        Without shares they are None.
        """
        corpora, is_usable = self.settings.corpora["train"], self._is_usable()
        if not any(corpus.share for corpus in corpora):
            return [None] * len(corpora)
        counts = [
            sum(itertools.starmap(is_usable, self._corpus_samples("train", c)))
            for c in corpora
        ]
        for corpus, count in zip(corpora, counts, strict=True):
            if not count:
                raise T2TLiteError(
                    f"{' and '.join(corpus.files)} has no usable pair for its "
                    f"share of {corpus.share:g}. Check the file, `filters` and "
                    "`holdout`."
                )
        shares = [corpus.share for corpus in corpora]
        copies = mixture.target_counts(counts, shares)
        return list(zip(counts, copies, strict=True))
