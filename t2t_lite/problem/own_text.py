"""`OwnText`: a problem whose files and choices are options, not code."""

import itertools
import os
import pathlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from t2t_lite.corpus.encoding import CORPUS, UTF_8, Encoding
from t2t_lite.corpus.held_out import choose_held_out
from t2t_lite.corpus.lines import require_text
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
    FILE_OPTIONS,
    OPTIONS,
    PREFIXES,
    require_consistent,
)

# That a copy of a given vocabulary keeps; others become .model.
_VOCABULARY_ENDINGS = (".txt", ".subwords")
_LANGUAGES = ("source_language", "target_language")


class OwnText(Text2TextProblem):
    """The text pairs of files that the options name, packed or not.

    Train is `source` and `target`, or `pairs`; dev and test have options of
    their own, and a split without files is held out of train, see `held_out`.
    Raise `version` when the readers or `held_out` change what they give.
    """

    known_options = OPTIONS

    def with_options(self, options: Mapping[str, Any]) -> Self:
        other = super().with_options(options)
        chosen = other.options
        require_consistent(chosen, options)
        other.base_name = chosen.get("name", type(self).base_name)
        other.name = other.base_name + ("_rev" if self.reversed else "")
        for name in ("vocab_size", "filters", *_LANGUAGES):
            setattr(other, name, chosen.get(name, getattr(type(self), name)))
        return other

    def samples(self, split: str, raw: RawFiles) -> Iterator[tuple[str, str]]:
        self._require_files(raw)
        if split not in self._cut_splits():
            return self._left_of(split, self._read(split))
        return iter(self._held_out()[split])

    def parts(self, split: str, raw: RawFiles) -> Sequence[Any]:
        self._require_files(raw)
        self._held_out()  # once, here: copies of this object know it then
        files = self._files(split)
        cuttable = len(files) == 2 and self._encoding.name == UTF_8
        lines = cut_lines(*files) if cuttable else []
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
            for path in self._paths().values()
        ] + [f"to be held out of train: {s}" for s in self._cut_splits()]

    def vocabulary_files(self) -> dict[str, str]:
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

    def train_encoders(
        self, raw: RawFiles, data_dir: str | os.PathLike, seed: int
    ) -> dict[str, Any]:
        """Learns the vocabularies, or copies the one that is given."""
        self._require_files(raw)
        for files in map(self._files, self.splits):
            if len(files) == 2 or (files and format_of(*files) != ".tmx"):
                require_text(files, self._encoding)
        if "vocabulary" not in self.options:
            return super().train_encoders(raw, data_dir, seed)
        path = self.options["vocabulary"]
        _usable(path)
        name = self.vocabulary_files()["inputs"]
        shutil.copyfile(path, pathlib.Path(data_dir) / name)
        return {}

    @property
    def _encoding(self):
        """Of the files that have lines."""
        return Encoding(
            self.options.get("encoding", UTF_8),
            self.options.get("broken_share", CORPUS.broken_share),
        )

    def _paths(self):
        """The files that are given, by option."""
        names = [*(option.name for option in FILE_OPTIONS), "vocabulary"]
        return {n: self.options[n] for n in names if n in self.options}

    def _left_of(self, split, pairs):
        """The pairs of the files of a split that are not held out of it."""
        if split != "train" or not self._cut_splits():
            return pairs
        taken = set(itertools.chain(*self._held_out().values()))
        return (pair for pair in pairs if pair not in taken)

    def _files(self, split):
        """The files of a split: two, one or none."""
        prefix = PREFIXES[split]
        names = (f"{prefix}{part}" for part in ("source", "target", "pairs"))
        return [self.options[name] for name in names if name in self.options]

    def _require_files(self, raw):
        """Checks that the files are there, and notes them."""
        if not self._files("train"):
            raise UsageError(
                f"{self.registered_name} needs files to train on: --source and "
                "--target, or --pairs."
            )
        for option, path in self._paths().items():
            if not os.path.isfile(path):
                raise T2TLiteError(
                    f"--{option} must name a file; there is none at {path}."
                )
            raw.note(path)

    def _read(self, split):
        """The pairs of the files of a split, at least one."""
        files = self._files(split)
        pairs = self._pairs(files)
        first = next(pairs, None)
        if first is None:
            raise T2TLiteError(
                "A split must have at least one pair; got nothing in "
                f"{' and '.join(files)}."
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
        return [s for s in self.splits if s != "train" and not self._files(s)]

    def _held_out(self):
        """The pairs held out for each split; found once for the same files."""
        state = [(path, state_of(path)) for path in self._files("train")]
        known, held_out = getattr(self, "_chosen", (None, None))
        if known != state:
            cut = self._cut_splits()
            count = self.options.get("holdout")
            held_out = (
                choose_held_out(self._read("train"), cut, count) if cut else {}
            )
            self._chosen = state, held_out
        return held_out


def _usable(path):
    """The encoder of a vocabulary that the user names."""
    from t2t_lite.text.vocabulary import open_vocabulary

    try:
        return open_vocabulary(path)
    except T2TLiteError as error:
        raise T2TLiteError(
            f"--vocabulary must name a vocabulary or be left out: {error}"
        ) from error
