"""The manifest, a record of the generated data of a problem, and its checks.

`DATA_DIR/PROBLEM.manifest.json` is written last, so data without a manifest is
incomplete. Data that does not match its manifest or its problem is rejected.
"""

import contextlib
import dataclasses
import hashlib
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2t_lite import files
from t2t_lite.corpus.download import file_stat
from t2t_lite.errors import INVALID_JSON, T2TLiteError, UsageError
from t2t_lite.files import PathLike
from t2t_lite.problem import Problem

FORMAT_VERSION = 2
DEFAULT_SEED = 1  # of data generation
_UNREADABLE = (OSError, *INVALID_JSON)


@dataclasses.dataclass(frozen=True)
class ShardRecord:
    """A TFRecord file of a split."""

    file: str
    examples: int
    bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class SplitRecord:
    """A split, in the direction of the problem that is not reversed.

    Token counts include EOS.
    """

    examples: int  # pairs
    source_tokens: int
    target_tokens: int
    lengths: dict[int, int]  # pairs by the tokens of their longer side
    dropped: dict[str, int]  # dropped pairs by reason
    shards: tuple[ShardRecord, ...]  # in order
    # Words of both sides that the vocabulary cannot encode; 0 if it has bytes.
    unknown_words: int = 0
    # Pairs with invalid text, by type; they are kept.
    damaged: dict[str, int] = dataclasses.field(default_factory=dict)
    # Packed rows by the positions of their longer side; {} for single pairs.
    row_lengths: dict[int, int] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "SplitRecord":
        """Build a record from the JSON of its `dataclasses.asdict`."""
        record = {**record}
        for name in ("lengths", "row_lengths"):
            record[name] = {int(n): count for n, count in record[name].items()}
        record["shards"] = tuple(ShardRecord(**s) for s in record["shards"])
        return cls(**record)

    @property
    def is_packed(self) -> bool:
        """True if a record is a packed row of several pairs."""
        return bool(self.row_lengths)

    @property
    def records(self) -> int:
        """The number of records in the shards: pairs or packed rows."""
        return sum(shard.examples for shard in self.shards)

    @property
    def by_row(self) -> "SplitRecord":
        """A copy in which each packed row counts as one example."""
        return dataclasses.replace(
            self, examples=self.records, lengths=self.row_lengths
        )

    @property
    def summary(self) -> str:
        """Counts of dropped and invalid pairs: "2 dropped (empty source)"."""
        counts = [f"{n:,} dropped ({key})" for key, n in self.dropped.items()]
        counts = counts or ["none dropped"]
        counts += [f"{n:,} with {key}" for key, n in self.damaged.items()]
        if self.unknown_words:
            counts.append(f"{self.unknown_words:,} words not in the vocabulary")
        return ", ".join(counts)

    @property
    def max_length(self) -> int:
        """The number of tokens of the longest side of any pair."""
        return max(self.lengths, default=0)

    def too_long(self, max_length: int) -> int:
        """Count the pairs with a side of more than `max_length` tokens."""
        return sum(n for size, n in self.lengths.items() if size > max_length)


@dataclasses.dataclass(frozen=True)
class Manifest:
    """A record of the data of a problem and its provenance."""

    problem: str  # base name of the problem; both directions share the data
    fingerprint: str  # of the problem at generation, like `definition`
    definition: dict[str, Any]
    vocabulary: dict[str, dict[str, Any]]  # "sha256", "bytes" by file name
    splits: dict[str, SplitRecord]
    seed: int  # of the order of examples and of the vocabulary's sample
    versions: dict[str, str]  # of the packages used; not part of the digest
    # Size, modification time and sha256 of each corpus file by path.
    sources: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    # Training corpora with shares: "files", "tag", "share", "pairs" after
    # filters, and "copies", the number of pairs in train, copies included.
    corpora: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    @staticmethod
    def path(data_dir: PathLike, problem: Problem) -> Path:
        """Return the path of the manifest of a problem."""
        return Path(data_dir) / f"{problem.base_name}.manifest.json"

    @classmethod
    def load(cls, data_dir: PathLike, problem: Problem) -> "Manifest":
        """Read a problem's manifest; raise T2TLiteError if it is unreadable."""
        path = cls.path(data_dir, problem)
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            version = record.pop("format_version")
            if version != FORMAT_VERSION:
                raise ValueError(
                    f"format_version must be {FORMAT_VERSION}; got {version!r}"
                )
            if record.pop("sha256") != _sha256_of_json(record):
                raise ValueError("the checksum does not match the content")
            for name, split in record["splits"].items():
                record["splits"][name] = SplitRecord.from_json(split)
            return cls(**record)
        except FileNotFoundError as error:
            fix = import_hint(data_dir, problem.base_name) or (
                f"generate it with {generate_command(problem, data_dir)}."
            )
            raise T2TLiteError(
                f"{data_dir} holds no data of {problem.base_name}: {fix}"
            ) from error
        except _UNREADABLE as error:
            raise T2TLiteError(
                f"Cannot read the manifest {path}: {error!r}. "
                f"{regenerate_hint(problem, data_dir)}"
            ) from error

    def save(self, data_dir: PathLike) -> None:
        """Write the manifest atomically."""
        path = Path(data_dir) / f"{self.problem}.manifest.json"
        record = json.loads(json.dumps(dataclasses.asdict(self)))
        sha256 = _sha256_of_json(record)
        record = {"format_version": FORMAT_VERSION, "sha256": sha256, **record}
        text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
        # Bytes of file names that are not UTF-8 become JSON escapes.
        files.write_bytes(path, text.encode("utf-8", "backslashreplace"))

    @property
    def corpus_summary(self) -> list[str]:
        """A line about each training corpus with a share."""
        total = sum(corpus["copies"] for corpus in self.corpora)
        return [
            f"{' '.join([corpus['tag'], *corpus['files']]).lstrip()}: "
            f"{corpus['pairs']:,} pairs, {corpus['copies']:,} with copies, "
            f"{corpus['copies'] / total:.1%}"
            for corpus in self.corpora
        ]

    @property
    def options(self) -> dict[str, Any]:
        """The options of the problem; {} for most problems."""
        return self.definition.get("options", {})

    @property
    def digest(self) -> str:
        """The sha256, in hex, of all fields that affect batches, for runs."""
        record = dataclasses.asdict(self)
        for name in ("versions", "sources", "corpora"):
            del record[name]
        return _sha256_of_json(record)

    def split(self, name: str) -> SplitRecord:
        """Return the record of a split; raise UsageError if it is unknown."""
        if name not in self.splits:
            raise UsageError(
                f"The split of {self.problem} must be one of "
                f"{', '.join(self.splits)}; got {name!r}."
            )
        return self.splits[name]


def find_data(data_dir: PathLike, problem: Problem) -> list[str]:
    """Return the names of data with options; ignore unreadable manifests."""
    names = []
    for path in sorted(Path(data_dir).glob("*.manifest.json")):
        with contextlib.suppress(*_UNREADABLE):
            record = json.loads(path.read_text(encoding="utf-8"))
            definition = record["definition"]
            base_name = definition["attributes"]["base_name"]
            if definition["options"] and base_name == type(problem).name:
                names.append(str(record["problem"]))
    return names


def check_data(
    data_dir: PathLike, problem: Problem, manifest: Manifest
) -> None:
    """Raise T2TLiteError if data does not match the problem or its manifest.

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
            f"The data in {data_dir} has another definition of "
            f"{problem.base_name}: "
            f"{'; '.join(changes) or 'the fingerprint differs'}. {hint}"
        )
    for name, record in manifest.vocabulary.items():
        path = Path(data_dir, name)
        _check_file(path, record["bytes"], record["sha256"], hint)
    check_shards(data_dir, problem, manifest, checksums=False)


def check_sources(
    data_dir: PathLike, problem: Problem, manifest: Manifest
) -> None:
    """Raise T2TLiteError if a corpus file has changed; it may be deleted.

    A file is read only if its size is the same and its time differs.
    """
    for path, old in manifest.sources.items():
        new = file_stat(path)
        if new is None or old == new | {"sha256": old["sha256"]}:
            continue
        if new["bytes"] != old["bytes"] or sha256_of(path) != old["sha256"]:
            raise T2TLiteError(
                f"{path} has changed since the data of {manifest.problem} was "
                f"generated. {regenerate_hint(problem, data_dir)}"
            )


def check_shards(
    data_dir: PathLike,
    problem: Problem,
    manifest: Manifest,
    checksums: bool = True,
) -> None:
    """Raise T2TLiteError for the first shard that is missing or damaged.

    Compares the sizes, and with `checksums` the checksums.
    """
    hint = regenerate_hint(problem, data_dir)
    for split in manifest.splits.values():
        for shard in split.shards:
            sha256 = shard.sha256 if checksums else None
            _check_file(Path(data_dir, shard.file), shard.bytes, sha256, hint)


def _check_file(path: Path, size: int, sha256: str | None, hint: str) -> None:
    """Raise T2TLiteError if a file differs; None skips the checksum."""
    if not path.is_file():
        raise T2TLiteError(f"{path} is missing. {hint}")
    if size != path.stat().st_size or (sha256 and sha256 != sha256_of(path)):
        raise T2TLiteError(
            f"{path} is damaged or was replaced: its size or checksum differs "
            f"from the manifest. {hint}"
        )


def _flatten(record, prefix=""):
    """Yield (keys joined by dots, JSON value)."""
    for key, value in record.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", json.dumps(value)


def generate_command(
    problem: Problem, data_dir: PathLike, seed: int | None = None
) -> str:
    """Return the command that generates the data of a problem.

    Its options are in backticks, as in all messages of the engine.
    """
    name = type(problem).name or problem.base_name
    words = [f"problem={name}", *problem.option_words()]
    words.append(f"data_dir={data_dir}")
    if seed not in (None, DEFAULT_SEED):
        words.append(f"seed={seed}")
    options = [f"`{shlex.quote(word)}`" for word in words]
    return " ".join(["t2t-lite-datagen", *options])


def regenerate_hint(problem: Problem, data_dir: PathLike) -> str:
    """Return a sentence with the fix for data that does not match."""
    return (
        "Use another `data_dir`, or generate the data again with "
        f"{generate_command(problem, data_dir)} `overwrite`."
    )


def import_hint(data_dir: PathLike, name: str) -> str:
    """Return the fix for shards without a manifest; "" if there are none."""
    if not any(Path(data_dir).glob(f"{name}-train-*-of-*")):
        return ""
    return (
        "it holds shards without a manifest, as tensor2tensor writes them. "
        f"Import them with t2t-lite-datagen `import_shards={data_dir}` "
        f"`problem={name}` `vocabulary=FILE`."
    )


def _sha256_of_json(record: Mapping[str, Any]) -> str:
    text = json.dumps(record, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def sha256_of(path: PathLike) -> str:
    """Return the sha256 of a file, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
