"""`OwnText`: a problem whose files and choices are options, not code."""

import itertools
import os
import pathlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from t2t_lite.corpus import filters
from t2t_lite.corpus.held_out import choose_held_out
from t2t_lite.corpus.lines import CORPUS, UTF_8, Encoding, require_text
from t2t_lite.corpus.mixture import (
    Corpus,
    copies_for,
    count_usable,
    read_corpora,
    repeated,
)
from t2t_lite.corpus.pair_files import format_of, read_json_lines, read_tsv
from t2t_lite.corpus.parallel_lines import (
    cut_lines,
    read_parallel,
    read_part,
)
from t2t_lite.corpus.raw_files import RawFiles, state_of
from t2t_lite.corpus.tmx import read_tmx
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.problem.base import Text2TextProblem
from t2t_lite.problem.own_text_options import (
    ADOPTED,
    FILE_OPTIONS,
    OPTIONS,
    PREFIXES,
    flags_of,
    require_consistent,
)
from t2t_lite.text.tags import parted, tagged

# That a copy of a given vocabulary keeps; others become .model.
_VOCABULARY_ENDINGS = (".txt", ".subwords")
_LANGUAGES = ("source_language", "target_language")


class OwnText(Text2TextProblem):
    """The text pairs of files that the options name, packed or not.

    Train is `source` and `target`, or `pairs`; dev and test have options of
    their own, and a split without files is held out of train, see `held_out`.
    `pairs` may be several corpora, with shares and tags, see `mixture`. Raise
    `version` when the readers, `held_out` or `mixture` change what they give.
    """

    known_options = (*OPTIONS, ADOPTED)

    def with_options(self, options: Mapping[str, Any]) -> Self:
        other = super().with_options(options)
        chosen = other.options
        require_consistent(chosen, options)
        other.base_name = chosen.get("name", type(self).base_name)
        other.name = other.base_name + ("_rev" if self.reversed else "")
        for name in ("vocab_size", "filters", *_LANGUAGES):
            setattr(other, name, chosen.get(name, getattr(type(self), name)))
        return other

    def option_flags(self) -> list[str]:
        return flags_of(self.options)

    @property
    def source_tags(self) -> tuple[str, ...]:
        corpora = self._corpora("train")
        return tuple(sorted({c.tag for c in corpora if c.tag}))

    def reverse(self) -> Self:
        if self.source_tags and not self.reversed:
            raise UsageError(
                f"{self.registered_name}_rev would have tags before its "
                f"targets: {', '.join(self.source_tags)}. Give --pairs without "
                "tags, and another --name."
            )
        return super().reverse()

    def samples(self, split: str, raw: RawFiles) -> Iterator[tuple[str, str]]:
        self._require_files(raw)
        if split in self._cut_splits():
            return (
                (tagged(tag, source), target)
                for source, target, tag in self._held_out()[split]
            )
        corpora = self._corpora(split)
        counts = self._counts() if _have_shares(corpora) else ()
        return itertools.chain.from_iterable(
            self._samples_of(split, corpus, *count)
            for corpus, count in itertools.zip_longest(
                corpora, counts, fillvalue=()
            )
        )

    def corpus_counts(self, raw: RawFiles) -> list[dict[str, Any]]:
        corpora = self._corpora("train")
        if len(corpora) < 2:
            return []
        self._require_files(raw)
        return [
            {
                "files": list(corpus.files),
                "tag": corpus.tag,
                "share": corpus.share,
                "pairs": pairs,
                "copies": copies,
            }
            for corpus, (pairs, copies) in zip(
                corpora, self._counts(), strict=True
            )
        ]

    def parts(self, split: str, raw: RawFiles) -> Sequence[Any]:
        self._require_files(raw)
        self._held_out()  # once, here: copies of this object know it then
        corpora = self._corpora(split)
        if _have_shares(corpora):
            self._counts()  # likewise
        cuttable = [c.files for c in corpora if len(c.files) == 2]
        lines = []
        if cuttable and self._encoding.name == UTF_8:
            lines = cut_lines(*cuttable[0])
        return lines or super().parts(split, raw)

    def part_samples(
        self, split: str, raw: RawFiles, part: Any
    ) -> Iterator[tuple[str, str]]:
        if part is None:
            return self.samples(split, raw)
        self._require_files(raw)
        return self._left_of(split, read_part(part, self._encoding))

    def tell_sources(self, raw: RawFiles) -> list[str]:
        return [
            f"{'found' if os.path.isfile(path) else 'missing'}: {path}"
            for _, path in self._paths()
        ] + [f"to be held out of train: {s}" for s in self._cut_splits()]

    def vocabulary_files(self) -> dict[str, str]:
        if "adopted" in self.options:
            source, *target = self.options["adopted"].split(",")
            return {"inputs": source, "targets": (target or [source])[0]}
        if "vocabulary" in self.options:
            ending = os.path.splitext(self.options["vocabulary"])[1]
            if ending not in _VOCABULARY_ENDINGS:
                ending = ".model"
            file = f"{self.base_name}.vocab{ending}"
            return {"inputs": file, "targets": file}
        if self.options.get("shared_vocabulary", True):
            return super().vocabulary_files()
        stem = f"{self.base_name}.vocab.{self.vocab_size}"
        return {
            "inputs": f"{stem}.source.model",
            "targets": f"{stem}.target.model",
        }

    def expected_vocab_sizes(self) -> tuple[int, int]:
        """Pieces of a vocabulary: of the given one, or as asked for."""
        if "vocabulary" in self.options:
            size = _usable(self.options["vocabulary"]).vocab_size
            return size, size
        return super().expected_vocab_sizes()

    def require_sources(self, raw: RawFiles) -> None:
        self._require_files(raw)

    def train_encoders(
        self, raw: RawFiles, data_dir: str | os.PathLike, seed: int
    ) -> dict[str, Any]:
        """Learns the vocabularies, or copies the one that is given."""
        self._require_files(raw)
        for corpus in itertools.chain(*map(self._corpora, self.splits)):
            files = corpus.files
            if len(files) == 2 or format_of(*files) != ".tmx":
                require_text(files, self._encoding)
        if "vocabulary" not in self.options:
            return super().train_encoders(raw, data_dir, seed)
        path = self.options["vocabulary"]
        _require_pieces(_usable(path), self.source_tags)
        name = self.vocabulary_files()["inputs"]
        shutil.copyfile(path, pathlib.Path(data_dir) / name)
        return {}

    def evaluate(
        self,
        sources: Sequence[str],
        references: Sequence[str],
        outputs: Sequence[str],
    ) -> dict[str, Any]:
        """As in `Text2TextProblem`; with tags also the BLEU `by_tag`.

        Those without a tag count under "no tag".
        """
        report = super().evaluate(sources, references, outputs)
        if not (tags := self.source_tags):
            return report
        from t2t_lite.evaluation.bleu import bleu

        found: dict[str, tuple[list[str], list[str]]] = {}
        for source, *texts in zip(sources, outputs, references, strict=True):
            tag, _ = parted(source, tags)
            for side, text in zip(
                found.setdefault(tag or "no tag", ([], [])), texts, strict=True
            ):
                side.append(text)
        by_tag = {tag: bleu(*sides) for tag, sides in sorted(found.items())}
        return report | {
            "by_tag": {
                tag: {key: each[key] for key in ("score", "sentences")}
                for tag, each in by_tag.items()
            }
        }

    @property
    def _encoding(self):
        """Of the files that have lines."""
        return Encoding(
            self.options.get("encoding", UTF_8),
            self.options.get("broken_share", CORPUS.broken_share),
        )

    def _paths(self):
        """The files that are given, each behind its option."""
        for option in FILE_OPTIONS:
            value = self.options.get(option.name)
            if value and option.name.endswith("pairs"):
                for corpus in read_corpora(value):
                    yield option.name, corpus.files[0]
            elif value:
                yield option.name, value
        if "vocabulary" in self.options:
            yield "vocabulary", self.options["vocabulary"]

    def _corpora(self, split):
        """The corpora of a split, in order; none if it has no files."""
        names = [f"{PREFIXES[split]}{p}" for p in ("source", "target", "pairs")]
        source, target, pairs = map(self.options.get, names)
        if pairs:
            return read_corpora(pairs)
        return (Corpus((source, target)),) if source and target else ()

    def _samples_of(self, split, corpus, count=None, copies=None):
        """What a corpus gives to a split with files."""
        pairs = self._left_of(split, self._read(corpus))
        if corpus.tag:
            pairs = ((tagged(corpus.tag, source), t) for source, t in pairs)
        if copies:
            pairs = repeated(pairs, count, copies, self._is_usable())
        return pairs

    def _is_usable(self):
        """What says of a pair of train whether it is not left out."""
        reason = filters.find_reason(self.filters, self.source_tags)
        return lambda source, target: bool(
            source.strip() and target.strip() and not reason(source, target)
        )

    def _left_of(self, split, pairs):
        """The pairs of the files of a split that are not held out of it."""
        if split != "train" or not self._cut_splits():
            return pairs
        held_out = itertools.chain(*self._held_out().values())
        taken = {(source, target) for source, target, _ in held_out}
        return (pair for pair in pairs if pair not in taken)

    def _require_files(self, raw):
        """Checks that the files are there, and notes them."""
        if "adopted" in self.options:
            raise T2TLiteError(
                f"{self.base_name} was adopted, so its text is not here: put "
                "its shards back, and adopt them again with t2t-lite-datagen "
                f"--adopt=FOLDER --problem={self.base_name} --vocabulary=FILE."
            )
        if not self._corpora("train"):
            raise UsageError(
                f"{self.registered_name} needs files to train on: --source and "
                "--target, or --pairs."
            )
        missing = [
            f"--{option}: {path} is a folder, not a file"
            if os.path.isdir(path)
            else f"--{option}: there is no file {path}"
            for option, path in self._paths()
            if not os.path.isfile(path)
        ]
        if missing:
            raise T2TLiteError(f"{'; '.join(missing)}.")
        for _, path in self._paths():
            raw.note(path)

    def _read(self, corpus):
        """The pairs of a corpus, at least one, without its tag."""
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
        options = self.options
        if len(files) == 2:
            source, target = files
            return read_parallel(source, target, encoding=self._encoding)
        (file,) = files
        form = format_of(file)
        if form == ".tmx":
            return read_tmx(file, *(options[name] for name in _LANGUAGES))
        if form == ".tsv":
            return read_tsv(file, self._encoding)
        return read_json_lines(
            file,
            options.get("source_key", "source"),
            options.get("target_key", "target"),
            self._encoding,
        )

    def _cut_splits(self):
        """The splits that are held out of train."""
        return [s for s in self.splits if s != "train" and not self._corpora(s)]

    def _held_out(self):
        """The pairs held out for each split, each with its tag."""
        return self._found_once("held out", self._choose_held_out)

    def _choose_held_out(self):
        cut = self._cut_splits()
        if not cut:
            return {}
        pairs = (
            (*pair, corpus.tag)
            for corpus in self._corpora("train")
            for pair in self._read(corpus)
        )
        return choose_held_out(pairs, cut, self.options.get("holdout"))

    def _counts(self):
        """Of each corpus of train the pairs to use, and how many it gives."""
        return self._found_once("counts", self._count)

    def _count(self):
        corpora, is_usable = self._corpora("train"), self._is_usable()
        counts = [
            count_usable(self._samples_of("train", corpus), corpus, is_usable)
            for corpus in corpora
        ]
        copies = counts
        if _have_shares(corpora):
            copies = copies_for(counts, [corpus.share for corpus in corpora])
        return list(zip(counts, copies, strict=True))

    def _found_once(self, name, find):
        """What `find` gives; found once for the same files of train."""
        files = [p for c in self._corpora("train") for p in c.files]
        state = [(path, state_of(path)) for path in files]
        known = getattr(self, "_known", {})
        if known.get(name, (None,))[0] != state:
            known = self._known = {**known, name: (state, find())}
        return known[name][1]


def _have_shares(corpora):
    """Whether corpora are there in given shares."""
    return any(corpus.share is not None for corpus in corpora)


def _require_pieces(encoder, tags):
    """Raises T2TLiteError for a tag that a vocabulary would cut."""
    for tag in tags:
        pieces = encoder.pieces(encoder.encode([tag])[0].tolist())
        if tag not in pieces:
            raise T2TLiteError(
                f"A tag must be one piece of the vocabulary; {encoder.path} "
                f"cuts {tag} into {len(pieces)}. Leave --vocabulary out to "
                "learn one with it."
            )


def _usable(path):
    """The encoder of a vocabulary that the user names."""
    from t2t_lite.text.vocabulary import open_vocabulary

    try:
        return open_vocabulary(path)
    except T2TLiteError as error:
        raise T2TLiteError(
            f"--vocabulary must name a vocabulary or be left out: {error}"
        ) from error
