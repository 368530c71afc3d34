"""`OwnText`: a problem whose files and choices are options, not code."""

import functools
import itertools
import os
import pathlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from t2t_lite.corpus import filters, mixture
from t2t_lite.corpus.held_out import choose_held_out
from t2t_lite.corpus.lines import Encoding, require_text
from t2t_lite.corpus.pair_files import (
    format_of,
    read_json_lines,
    read_tmx,
    read_tsv,
)
from t2t_lite.corpus.parallel import read_parallel
from t2t_lite.corpus.raw_files import RawFiles
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.problem.base import Text2TextProblem
from t2t_lite.problem.own_text_options import PREFIXES, TextOptions
from t2t_lite.text.tags import parted, tagged

# Endings that a copy of a given vocabulary keeps; others become .model.
_VOCABULARY_ENDINGS = (".txt", ".subwords")
_CACHED = ("_corpora", "_held_out", "_counts")


class OwnText(Text2TextProblem):
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

    def option_flags(self) -> list[str]:
        return self.settings.flags()

    @property
    def source_tags(self) -> tuple[str, ...]:
        tags = {corpus.tag for corpus in self._corpora["train"]}
        return tuple(sorted(tags - {""}))

    def reverse(self) -> Self:
        if self.source_tags and not self.reversed:
            raise UsageError(
                f"{self.registered_name}_rev would have tags before its "
                f"targets: {', '.join(self.source_tags)}. Give --pairs without "
                "tags, and another --name."
            )
        return super().reverse()

    def samples(self, split: str, raw: RawFiles) -> Iterator[tuple[str, str]]:
        self.require_sources(raw)
        if not self._corpora[split]:
            return (
                (tagged(tag, source), target)
                for source, target, tag in self._held_out[split]
            )
        copies: Sequence[Any] = [None] * len(self._corpora[split])
        if self._has_shares(split):
            copies = self._counts
        return itertools.chain.from_iterable(
            self._samples_of(split, corpus, count)
            for corpus, count in zip(self._corpora[split], copies, strict=True)
        )

    def corpus_counts(self, raw: RawFiles) -> list[dict[str, Any]]:
        corpora = self._corpora["train"]
        if len(corpora) < 2:
            return []
        self.require_sources(raw)
        return [
            {
                "files": list(corpus.files),
                "tag": corpus.tag,
                "share": corpus.share,
                "pairs": pairs,
                "copies": copies,
            }
            for corpus, (pairs, copies) in zip(
                corpora, self._counts, strict=True
            )
        ]

    def tell_sources(self, raw: RawFiles) -> list[str]:
        return [
            f"{'found' if os.path.isfile(path) else 'missing'}: {path}"
            for _, path in self._paths()
        ] + [
            f"to be held out of train: {split}"
            for split in self.splits
            if split != "train" and not self._corpora[split]
        ]

    def require_sources(self, raw: RawFiles) -> None:
        """Check that all files are there, and note them."""
        if self.settings.adopted:
            raise T2TLiteError(
                f"{self.base_name} was adopted, so its text is not here: put "
                "its shards back, and adopt them again with t2t-lite-datagen "
                f"--adopt=FOLDER --problem={self.base_name} --vocabulary=FILE."
            )
        if not self._corpora["train"]:
            raise UsageError(
                f"{self.registered_name} needs files to train on: --source and "
                "--target, or --pairs."
            )
        missing = [
            f"--{option}: there is no file {path}"
            for option, path in self._paths()
            if not os.path.isfile(path)
        ]
        if missing:
            raise T2TLiteError(f"{'; '.join(missing)}.")
        for _, path in self._paths():
            raw.note(path)

    def vocabulary_files(self) -> dict[str, str]:
        settings = self.settings
        if settings.adopted:
            source, *target = settings.adopted.split(",")
            return {"inputs": source, "targets": (target or [source])[0]}
        if settings.vocabulary:
            ending = os.path.splitext(settings.vocabulary)[1]
            if ending not in _VOCABULARY_ENDINGS:
                ending = ".model"
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
            size = _open_vocabulary(self.settings.vocabulary).vocab_size
            return size, size
        return super().expected_vocab_sizes()

    def train_encoders(
        self, raw: RawFiles, data_dir: str | os.PathLike, seed: int
    ) -> dict[str, Any]:
        """Learn the vocabularies, or copy the given one."""
        self.require_sources(raw)
        for corpus in itertools.chain(*self._corpora.values()):
            files = corpus.files
            if len(files) == 2 or format_of(*files) != ".tmx":
                require_text(files, self._encoding)
        path = self.settings.vocabulary
        if not path:
            return super().train_encoders(raw, data_dir, seed)
        _require_pieces(_open_vocabulary(path), self.source_tags)
        name = self.vocabulary_files()["inputs"]
        shutil.copyfile(path, pathlib.Path(data_dir) / name)
        return {}

    def evaluate(
        self,
        sources: Sequence[str],
        references: Sequence[str],
        outputs: Sequence[str],
    ) -> dict[str, Any]:
        """Return the report of `Text2TextProblem`; with tags also `by_tag`.

        Texts without a tag count under "no tag".
        """
        report = super().evaluate(sources, references, outputs)
        if not (tags := self.source_tags):
            return report
        from t2t_lite.evaluation.bleu import bleu

        found: dict[str, list[tuple[str, str]]] = {}
        for source, *texts in zip(sources, outputs, references, strict=True):
            tag, _ = parted(source, tags)
            found.setdefault(tag or "no tag", []).append((texts[0], texts[1]))
        by_tag = {}
        for tag, pairs in sorted(found.items()):
            scores = bleu([o for o, _ in pairs], [r for _, r in pairs])
            by_tag[tag] = {key: scores[key] for key in ("score", "sentences")}
        return report | {"by_tag": by_tag}

    @property
    def _encoding(self):
        return Encoding(self.settings.encoding, self.settings.broken_share)

    def _paths(self):
        """Yield (option, file) of each given file."""
        for split, prefix in PREFIXES.items():
            for corpus in self._corpora[split]:
                names = ("source", "target") if corpus.files[1:] else ("pairs",)
                for name, file in zip(names, corpus.files, strict=True):
                    yield f"{prefix}{name}", file
        if self.settings.vocabulary:
            yield "vocabulary", self.settings.vocabulary

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
            pairs = ((tagged(corpus.tag, source), t) for source, t in pairs)
        if counts:
            count, copies = counts
            pairs = mixture.repeated(pairs, count, copies, self._is_usable())
        return pairs

    def _is_usable(self):
        """Return a function that says whether a pair of train is kept."""
        reason = filters.find_reason(self.filters, self.source_tags)
        return lambda source, target: bool(
            source.strip() and target.strip() and not reason(source, target)
        )

    def _read(self, corpus):
        """Yield the pairs of a corpus, at least one, without its tag."""
        pairs = self._pairs(corpus.files)
        first = next(pairs, None)
        if first is None:
            raise T2TLiteError(
                "A split must have at least one pair; got nothing in "
                f"{' and '.join(corpus.files)}."
            )
        yield first
        yield from pairs

    def _pairs(self, files):
        settings, encoding = self.settings, self._encoding
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
        """Of each corpus of train the usable pairs, and those with copies."""
        corpora, is_usable = self._corpora["train"], self._is_usable()
        counts = [
            mixture.count_usable(
                self._samples_of("train", corpus), corpus, is_usable
            )
            for corpus in corpora
        ]
        copies = counts
        if self._has_shares("train"):
            shares = [corpus.share for corpus in corpora]
            copies = mixture.copies_for(counts, shares)
        return list(zip(counts, copies, strict=True))


def _require_pieces(encoder, tags):
    """Raise T2TLiteError for a tag that is not one piece of a vocabulary."""
    for tag in tags:
        pieces = encoder.pieces(encoder.encode([tag])[0].tolist())
        if tag not in pieces:
            raise T2TLiteError(
                f"A tag must be one piece of the vocabulary; {encoder.path} "
                f"splits {tag} into {len(pieces)}. Leave --vocabulary out to "
                "learn one with it."
            )


def _open_vocabulary(path):
    """Return the encoder of a vocabulary that the user names."""
    from t2t_lite.text.vocabulary import open_vocabulary

    try:
        return open_vocabulary(path)
    except T2TLiteError as error:
        raise T2TLiteError(
            f"--vocabulary must name a vocabulary or be left out: {error}"
        ) from error
