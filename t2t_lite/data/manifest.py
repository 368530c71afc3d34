"""The manifest: what the generated data of a problem is made of.

`DATA_DIR/PROBLEM.manifest.json` is written last, so data without one does not
count; `checks` refuses data that no longer fits it.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from t2t_lite import files
from t2t_lite.corpus.raw_files import state_of
from t2t_lite.data.remedies import (
    how_to_adopt,
    how_to_make,
    how_to_remake,
    registered_name_of,
)
from t2t_lite.errors import T2TLiteError
from t2t_lite.problem import Problem
from t2t_lite.values import is_of_type

FORMAT_VERSION = 1


@dataclasses.dataclass(frozen=True)
class ShardRecord:
    """One TFRecord file of a split, and how many records it has."""

    file: str
    examples: int
    bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class SplitRecord:
    """One split, in the direction of the name without `_rev`.

    Attributes:
      examples: pairs in the shards.
      source_tokens, target_tokens: of all pairs, EOS counted.
      lengths: number of pairs by the tokens of their longer side.
      dropped: number of pairs left out, by reason.
      dropped_samples: the first of them, by reason.
      shards: the files, in order.
      unknown_words: of both sides, that the vocabulary cannot write; none
        if it can write bytes.
      damaged: number of pairs with broken text that are there all the same,
        by what is wrong; copies that were left out count, too.
      damaged_samples: the first of them, by what is wrong.
      row_lengths: of records that are packed rows of pairs, how many have so
        many positions on their longer side; empty: a record is one pair.
    """

    examples: int
    source_tokens: int
    target_tokens: int
    lengths: dict[int, int]
    dropped: dict[str, int]
    dropped_samples: dict[str, list[dict[str, Any]]]
    shards: tuple[ShardRecord, ...]
    unknown_words: int = 0
    damaged: dict[str, int] = dataclasses.field(default_factory=dict)
    damaged_samples: dict[str, list[dict[str, Any]]] = dataclasses.field(
        default_factory=dict
    )
    row_lengths: dict[int, int] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "SplitRecord":
        """The inverse of `dataclasses.asdict`, after a file."""
        counts = {
            name: {int(length): n for length, n in counted.items()}
            for name, counted in (
                ("lengths", record["lengths"]),
                ("row_lengths", record.get("row_lengths", {})),
            )
        }
        shards = tuple(ShardRecord(**shard) for shard in record["shards"])
        return cls(**record | counts | {"shards": shards})

    @property
    def is_packed(self) -> bool:
        """Whether a record is a row of several pairs, as others packed it."""
        return bool(self.row_lengths)

    @property
    def records(self) -> int:
        """Records in the shards: pairs, or packed rows of them."""
        return sum(shard.examples for shard in self.shards)

    @property
    def as_rows(self) -> "SplitRecord":
        """This split where each packed row counts as one example."""
        return dataclasses.replace(
            self, examples=self.records, lengths=self.row_lengths
        )

    @property
    def drops(self) -> str:
        """What was left out in words: "2 dropped (empty source)"."""
        dropped = [f"{n:,} dropped ({why})" for why, n in self.dropped.items()]
        parts = dropped or ["none dropped"]
        parts += [f"{n:,} with {what}" for what, n in self.damaged.items()]
        if self.unknown_words:
            parts.append(f"{self.unknown_words:,} words not in the vocabulary")
        return ", ".join(parts)

    @property
    def longest(self) -> int:
        """Tokens of the longest side of any pair."""
        return max(self.lengths, default=0)

    def too_long(self, max_length: int) -> int:
        """How many pairs have a side of more than `max_length` tokens."""
        return sum(
            n for length, n in self.lengths.items() if length > max_length
        )


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What was generated, from what and with what.

    Attributes:
      problem: the base name; both directions share the data.
      fingerprint, definition: of the problem, as it was then.
      vocabulary: `{"sha256", "bytes"}` of each vocabulary file, by name.
      splits: a `SplitRecord` by split.
      seed: of the order of examples and of the vocabulary's sample.
      versions: of the packages that took part; for the record only.
      corpora: of train, if there are several, each `{"files", "tag", "share",
        "pairs", "copies"}`: how many pairs it has for train, after filters but
        with duplicates, and how many it gives, copies included.
      sources: size, time of the last change and sha256 of each file that the
        corpus was read from, by path.
    """

    problem: str
    fingerprint: str
    definition: dict[str, Any]
    vocabulary: dict[str, dict[str, Any]]
    splits: dict[str, SplitRecord]
    seed: int
    versions: dict[str, str]
    sources: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    corpora: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    @staticmethod
    def path(data_dir: str | os.PathLike, problem: Problem) -> pathlib.Path:
        """Where the manifest of a problem lies."""
        return pathlib.Path(data_dir) / f"{problem.base_name}.manifest.json"

    @classmethod
    def load(cls, data_dir: str | os.PathLike, problem: Problem) -> "Manifest":
        """The manifest of a problem's data.

        Raises:
          T2TLiteError: there is none, or it cannot be read.
        """
        path = cls.path(data_dir, problem)
        remake = how_to_remake(problem, data_dir)
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            way = how_to_adopt(data_dir, problem.base_name) or (
                f"make it with {how_to_make(problem, data_dir)}."
            )
            raise T2TLiteError(
                f"{data_dir} holds no data of {problem.base_name}: {way}"
            ) from error
        except (OSError, ValueError, RecursionError) as error:
            raise T2TLiteError(
                f"Cannot read {path}: {error}. {remake}"
            ) from error
        try:
            version = record.pop("format_version")
            if version == FORMAT_VERSION:
                splits = {
                    name: SplitRecord.from_json(split)
                    for name, split in record["splits"].items()
                }
                manifest = cls(**record | {"splits": splits})
                manifest._require_types()
                return manifest
        except (
            AttributeError,
            KeyError,
            OverflowError,
            TypeError,
            ValueError,
        ) as error:
            raise T2TLiteError(
                f"{path} is not a manifest: {error!r}. {remake}"
            ) from error
        raise T2TLiteError(
            f"{path} must have format_version {FORMAT_VERSION}; got "
            f"{version!r}. {remake}"
        )

    def _require_types(self) -> None:
        """Raises TypeError for a value of another type than it must have."""
        files, sources = self.vocabulary, self.sources
        if not (
            is_of_type(self, Manifest)
            and self.splits
            and isinstance(self.options, dict)
            and isinstance(self.definition.get("attributes", {}), dict)
            and _have(files, sha256=str)
            and _have(sources, sha256=str, bytes=int, mtime_ns=int)
            and _have(
                dict(enumerate(self.corpora)),
                files=list,
                tag=str,
                pairs=int,
                copies=int,
            )
        ):
            raise TypeError("a value is of another type than it must be")

    def save(self, data_dir: str | os.PathLike) -> pathlib.Path:
        """Writes the manifest, complete or not at all."""
        path = pathlib.Path(data_dir) / f"{self.problem}.manifest.json"
        record = {"format_version": FORMAT_VERSION} | dataclasses.asdict(self)
        text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
        with files.write_file(path) as file:
            # As JSON escapes it, what is no UTF-8 in the name of a file.
            file.write(text.encode("utf-8", "backslashreplace"))
        return path

    @property
    def told_corpora(self) -> list[str]:
        """What each of the corpora gives to train, in words."""
        total = sum(corpus["copies"] for corpus in self.corpora) or 1
        return [
            f"{corpus['tag']} {' and '.join(corpus['files'])}".lstrip()
            + f": {corpus['pairs']:,} pairs, {corpus['copies']:,} with copies, "
            f"{corpus['copies'] / total:.1%}"
            for corpus in self.corpora
        ]

    @property
    def options(self) -> dict[str, Any]:
        """The options of the problem; most problems have none."""
        return self.definition.get("options", {})

    @property
    def digest(self) -> str:
        """The sha256 of what a run was trained on.

        Of all but the versions, and where the corpora lay.
        """
        record = dataclasses.asdict(self)
        del record["versions"], record["sources"], record["corpora"]
        for split in record["splits"].values():
            # What only describes the pairs, and was not always there.
            del split["damaged"], split["damaged_samples"]
            for name in ("unknown_words", "row_lengths"):
                if not split[name]:  # as before there was the field
                    del split[name]
        text = json.dumps(record, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def split(self, name: str) -> SplitRecord:
        """The record of a split.

        Raises:
          T2TLiteError: the problem has no such split.
        """
        if name not in self.splits:
            raise T2TLiteError(
                f"{self.problem} has the splits {', '.join(self.splits)}; got "
                f"{name!r}."
            )
        return self.splits[name]


def _have(records: Mapping[Any, Mapping[str, Any]], **kinds: type) -> bool:
    """Whether each record has values of these types."""
    return all(
        is_of_type(record.get(key), kind)
        for record in records.values()
        for key, kind in kinds.items()
    )


def find_data(data_dir: str | os.PathLike, problem: Problem) -> list[str]:
    """The names that data of a problem with options has in a folder, sorted.

    A file that cannot be read is somebody else's.
    """
    names = []
    for path in sorted(pathlib.Path(data_dir).glob("*.manifest.json")):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            definition = record["definition"]
            is_same = registered_name_of(definition) == type(problem).name
            name = record["problem"]
            if definition.get("options") and is_same and name == str(name):
                names.append(name)
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            RecursionError,
        ):
            continue
    return names


def describe_sources(
    noted: Mapping[str, Mapping[str, int]],
) -> dict[str, dict[str, Any]]:
    """What a manifest keeps of the files in `RawFiles.noted`, by path.

    Reads them, about a second per gigabyte.

    Raises:
      T2TLiteError: a file has changed since it was noted.
    """
    sources = {}
    for path, state in sorted(noted.items()):
        if state_of(path) != state:
            raise T2TLiteError(
                f"{path} must not change while data is made of it; it did. "
                "The same command starts over."
            )
        sources[path] = {**state, "sha256": sha256_of(path)}
    return sources


def sha256_of(path: str | os.PathLike) -> str:
    """The sha256 of a file, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
