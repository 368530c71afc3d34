"""The manifest: a record of the generated data of a problem, and its checks.

`DATA_DIR/PROBLEM.manifest.json` is written last, so data without one does not
count. Data that does not fit its manifest or its problem is refused.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from t2t_lite import files
from t2t_lite.corpus.download import file_stat
from t2t_lite.errors import T2TLiteError
from t2t_lite.problem import Problem

FORMAT_VERSION = 2
DEFAULT_SEED = 1  # of data
# Errors of reading JSON of another form.
_UNREADABLE = (
    *(OSError, ValueError, RecursionError),
    *(KeyError, TypeError, AttributeError),
)


@dataclasses.dataclass(frozen=True)
class ShardRecord:
    """A TFRecord file of a split, and its number of records."""

    file: str
    examples: int
    bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class SplitRecord:
    """One split, in the direction of the name without `_rev`.

    Attributes:
      examples: number of pairs in the shards.
      source_tokens, target_tokens: sums over all pairs, EOS included.
      lengths: number of pairs by the tokens of their longer side.
      dropped: number of dropped pairs by reason.
      shards: the files, in order.
      unknown_words: words of both sides that the vocabulary cannot write; 0 if
        it can write bytes.
      damaged: number of pairs with invalid text by its kind; they are kept,
        except for duplicates among them.
      row_lengths: if the records are packed rows of pairs, number of rows by
        the positions of their longer side; empty if a record is a pair.
    """

    examples: int
    source_tokens: int
    target_tokens: int
    lengths: dict[int, int]
    dropped: dict[str, int]
    shards: tuple[ShardRecord, ...]
    unknown_words: int = 0
    damaged: dict[str, int] = dataclasses.field(default_factory=dict)
    row_lengths: dict[int, int] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "SplitRecord":
        """Invert `dataclasses.asdict` after a round trip through JSON."""
        record = {**record}
        for name in ("lengths", "row_lengths"):
            record[name] = {int(n): count for n, count in record[name].items()}
        record["shards"] = tuple(ShardRecord(**s) for s in record["shards"])
        return cls(**record)

    @property
    def is_packed(self) -> bool:
        """Return whether a record is a row of several pairs."""
        return bool(self.row_lengths)

    @property
    def records(self) -> int:
        """Number of records in the shards: pairs or packed rows."""
        return sum(shard.examples for shard in self.shards)

    @property
    def by_row(self) -> "SplitRecord":
        """A copy in which each packed row counts as one example."""
        return dataclasses.replace(
            self, examples=self.records, lengths=self.row_lengths
        )

    @property
    def summary(self) -> str:
        """Return counts of bad pairs, such as "2 dropped (empty source)"."""
        parts = [f"{n:,} dropped ({why})" for why, n in self.dropped.items()]
        parts = parts or ["none dropped"]
        parts += [f"{n:,} with {what}" for what, n in self.damaged.items()]
        if self.unknown_words:
            parts.append(f"{self.unknown_words:,} words not in the vocabulary")
        return ", ".join(parts)

    @property
    def longest(self) -> int:
        """Tokens of the longest side of any pair."""
        return max(self.lengths, default=0)

    def too_long(self, max_length: int) -> int:
        """Count the pairs with a side of more than `max_length` tokens."""
        return sum(n for size, n in self.lengths.items() if size > max_length)


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The data of a problem: what it is and how it was generated.

    Attributes:
      problem: the base name; both directions share the data.
      fingerprint, definition: those of the problem at that time.
      vocabulary: `{"sha256", "bytes"}` of each vocabulary file by name.
      splits: a `SplitRecord` by split.
      seed: of the order of examples and of the vocabulary's sample.
      versions: of the packages that generated it; not part of the digest.
      sources: size, time of the last change and sha256 of each file of the
        corpus by path.
      corpora: of train, if they have shares, each `{"files", "tag", "share",
        "pairs", "copies"}`: the number of pairs after filters but with
        duplicates, and the number that it contributes, copies included.
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
        """Return the path of the manifest of a problem."""
        return pathlib.Path(data_dir) / f"{problem.base_name}.manifest.json"

    @classmethod
    def load(cls, data_dir: str | os.PathLike, problem: Problem) -> "Manifest":
        """Read the manifest of a problem's data.

        Raises:
          T2TLiteError: there is none, or it cannot be read.
        """
        path = cls.path(data_dir, problem)
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            version = record.pop("format_version")
            if version != FORMAT_VERSION:
                raise ValueError(
                    f"format_version must be {FORMAT_VERSION}; got {version!r}"
                )
            if record.pop("sha256") != _sha256_of_json(record):
                raise ValueError("it has changed since it was written")
            splits = {
                name: SplitRecord.from_json(split)
                for name, split in record["splits"].items()
            }
            return cls(**record | {"splits": splits})
        except FileNotFoundError as error:
            fix = import_hint(data_dir, problem.base_name) or (
                f"make it with {generate_command(problem, data_dir)}."
            )
            raise T2TLiteError(
                f"{data_dir} holds no data of {problem.base_name}: {fix}"
            ) from error
        except _UNREADABLE as error:
            raise T2TLiteError(
                f"Cannot read the manifest {path}: {error!r}. "
                f"{regenerate_hint(problem, data_dir)}"
            ) from error

    def save(self, data_dir: str | os.PathLike) -> None:
        """Write the manifest, complete or not at all."""
        path = pathlib.Path(data_dir) / f"{self.problem}.manifest.json"
        record = json.loads(json.dumps(dataclasses.asdict(self)))
        record = {
            "format_version": FORMAT_VERSION,
            "sha256": _sha256_of_json(record),
            **record,
        }
        text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
        with files.write_file(path) as file:
            # JSON escapes the bytes of a file name that are not UTF-8.
            file.write(text.encode("utf-8", "backslashreplace"))

    @property
    def corpus_summary(self) -> list[str]:
        """A line for each of several corpora of train."""
        total = sum(corpus["copies"] for corpus in self.corpora)
        return [
            f"{' '.join([corpus['tag'], *corpus['files']]).lstrip()}: "
            f"{corpus['pairs']:,} pairs, {corpus['copies']:,} with copies, "
            f"{corpus['copies'] / total:.1%}"
            for corpus in self.corpora
        ]

    @property
    def options(self) -> dict[str, Any]:
        """The options of the problem; most problems have none."""
        return self.definition.get("options", {})

    @property
    def digest(self) -> str:
        """The sha256 of what changes batches; a run keeps it."""
        record = dataclasses.asdict(self)
        for name in ("versions", "sources", "corpora"):
            del record[name]
        return _sha256_of_json(record)

    def split(self, name: str) -> SplitRecord:
        """Return the record of a split, or raise T2TLiteError without one."""
        if name not in self.splits:
            raise T2TLiteError(
                f"{self.problem} has the splits {', '.join(self.splits)}; got "
                f"{name!r}."
            )
        return self.splits[name]


def find_data(data_dir: str | os.PathLike, problem: Problem) -> list[str]:
    """Return the names of the data of a problem with options, sorted.

    A manifest that cannot be read belongs to somebody else.
    """
    names = []
    for path in sorted(pathlib.Path(data_dir).glob("*.manifest.json")):
        with contextlib.suppress(*_UNREADABLE):
            record = json.loads(path.read_text(encoding="utf-8"))
            definition = record["definition"]
            base_name = definition["attributes"]["base_name"]
            if definition["options"] and base_name == type(problem).name:
                names.append(str(record["problem"]))
    return names


def check_data(
    data_dir: str | os.PathLike, problem: Problem, manifest: Manifest
) -> None:
    """Refuse data that does not fit the problem or its manifest.

    Compares the fingerprint, the vocabulary by checksum and the shards by size.
    """
    hint = regenerate_hint(problem, data_dir)
    if manifest.fingerprint != problem.fingerprint():
        old = dict(_flatten(manifest.definition))
        new = dict(_flatten(problem.definition()))
        changes = [
            f"{key} was {old.get(key, 'absent')}, is {new.get(key, 'absent')}"
            for key in sorted(old.keys() | new.keys())
            if old.get(key) != new.get(key)
        ]
        raise T2TLiteError(
            f"{data_dir} holds data of another definition of "
            f"{problem.base_name}: "
            f"{'; '.join(changes) or 'another fingerprint'}. {hint}"
        )
    for name, record in manifest.vocabulary.items():
        _check_file(pathlib.Path(data_dir, name), None, record["sha256"], hint)
    check_shards(data_dir, problem, manifest, checksums=False)


def check_sources(
    data_dir: str | os.PathLike, problem: Problem, manifest: Manifest
) -> None:
    """Refuse data if a file of its corpus has changed; it may be gone.

    A file is read only if it has its size but another time.
    """
    for path, then in manifest.sources.items():
        now = file_stat(path)
        if now is None or then == now | {"sha256": then["sha256"]}:
            continue
        if now["bytes"] != then["bytes"] or sha256_of(path) != then["sha256"]:
            raise T2TLiteError(
                f"{path} has changed since data of {manifest.problem} was made "
                f"of it. {regenerate_hint(problem, data_dir)}"
            )


def check_shards(
    data_dir: str | os.PathLike,
    problem: Problem,
    manifest: Manifest,
    splits: Iterable[str] | None = None,
    checksums: bool = True,
) -> None:
    """Compare the shards of `splits`, by default all, with the manifest.

    Without `checksums` only their sizes.

    Raises:
      T2TLiteError: names the first file that is missing or damaged.
    """
    hint = regenerate_hint(problem, data_dir)
    for split in manifest.splits if splits is None else splits:
        for shard in manifest.split(split).shards:
            path = pathlib.Path(data_dir, shard.file)
            sha256 = shard.sha256 if checksums else None
            _check_file(path, shard.bytes, sha256, hint)


def _check_file(
    path: pathlib.Path, size: int | None, sha256: str | None, hint: str
) -> None:
    """Raise T2TLiteError for another file; None matches any."""
    if not path.is_file():
        raise T2TLiteError(f"{path} is missing. {hint}")
    if (size is not None and size != path.stat().st_size) or (
        sha256 is not None and sha256 != sha256_of(path)
    ):
        raise T2TLiteError(
            f"{path} is damaged or was replaced: its size or checksum differs "
            f"from the manifest's. {hint}"
        )


def _flatten(record, prefix=""):
    """Yield keys joined by dots, and JSON values."""
    for key, value in record.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", json.dumps(value)


def generate_command(
    problem: Problem, data_dir: str | os.PathLike, seed: int | None = None
) -> str:
    """Return the command that generates the data of a problem.

    Its options are in backticks, as in all messages.
    """
    name, registered = problem.base_name, type(problem).name
    words = [f"problem={registered or name}"]
    if registered and registered != name:
        words.append(f"name={name}")
    words += [word for word in problem.option_words() if word not in words]
    words.append(f"data_dir={data_dir}")
    if seed not in (None, DEFAULT_SEED):
        words.append(f"seed={seed}")
    options = [f"`{shlex.quote(word)}`" for word in words]
    return " ".join(["t2t-lite-datagen", *options])


def regenerate_hint(problem: Problem, data_dir: str | os.PathLike) -> str:
    """Return the fix for data that does not fit, a sentence."""
    command = generate_command(problem, data_dir)
    return (
        "Use another `data_dir`, or generate the data again with "
        f"{command} `overwrite`."
    )


def import_hint(data_dir: str | os.PathLike, name: str) -> str:
    """Return the fix for shards that have no manifest; "" without such."""
    if not any(pathlib.Path(data_dir).glob(f"{name}-train-*-of-*")):
        return ""
    return (
        "there are shards without a manifest, as tensor2tensor writes them, "
        f"which t2t-lite-datagen `import_shards={data_dir}` `problem={name}` "
        "`vocabulary=FILE` makes usable."
    )


def _sha256_of_json(record: Mapping[str, Any]) -> str:
    text = json.dumps(record, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def sha256_of(path: str | os.PathLike) -> str:
    """Return the sha256 of a file, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
