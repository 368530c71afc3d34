"""Whether data on disk is what its manifest and its problem say.

Data that no longer fits is refused and never reused silently.
"""

import json
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from t2t_lite.corpus.raw_files import state_of
from t2t_lite.data.manifest import Manifest, sha256_of
from t2t_lite.data.remedies import how_to_remake
from t2t_lite.errors import T2TLiteError
from t2t_lite.problem import Problem

_MOST_CHANGES_SHOWN = 5


def check_data(
    data_dir: str | os.PathLike, problem: Problem, manifest: Manifest
) -> None:
    """Refuses data that does not fit the problem or its manifest.

    Compares the fingerprint, the vocabulary by checksum and the shards by size.

    Raises:
      T2TLiteError: names what differs and what to do.
    """
    data_dir = pathlib.Path(data_dir)
    remake = how_to_remake(problem, data_dir)
    if manifest.fingerprint != problem.fingerprint():
        # As it comes back from a file: tuples become lists.
        definition = json.loads(json.dumps(problem.definition()))
        changes = _changes(manifest.definition, definition)
        shown = "; ".join(changes[:_MOST_CHANGES_SHOWN]) or "its fingerprint"
        more = len(changes) - _MOST_CHANGES_SHOWN
        raise T2TLiteError(
            f"{data_dir} holds data of another definition of "
            f"{problem.base_name}: {shown}"
            + (f" and {more} more" if more > 0 else "")
            + f". {how_to_remake(problem, data_dir, bool(problem.options))}"
        )
    for name, record in manifest.vocabulary.items():
        path = data_dir / name
        if not path.is_file():
            raise T2TLiteError(f"The vocabulary {path} is missing. {remake}")
        if sha256_of(path) != record["sha256"]:
            raise T2TLiteError(
                f"The vocabulary {path} is not the one that the data was made "
                f"with: its checksum differs from the manifest's. {remake}"
            )
    verify_shards(data_dir, manifest, checksums=False)


def check_sources(
    data_dir: str | os.PathLike, problem: Problem, manifest: Manifest
) -> None:
    """Refuses data that was made of files that have changed since.

    A file is read only if its size is the same and its time is not. A file
    that is gone is not needed any more.

    Raises:
      T2TLiteError: names the file, what has changed and what to do.
    """
    for path, then in manifest.sources.items():
        now = state_of(path)
        if now is None:
            continue
        change = f"it had {then['bytes']:,} bytes, it has {now['bytes']:,}"
        if now["bytes"] == then["bytes"]:
            is_same_time = now["mtime_ns"] == then["mtime_ns"]
            if is_same_time or sha256_of(path) == then["sha256"]:
                continue
            change = "it has other text of the same size"
        raise T2TLiteError(
            f"{path} has changed since data of {manifest.problem} was made of "
            f"it: {change}. "
            f"{how_to_remake(problem, data_dir, bool(problem.options))}"
        )


def verify_shards(
    data_dir: str | os.PathLike,
    manifest: Manifest,
    splits: Iterable[str] | None = None,
    checksums: bool = True,
) -> None:
    """Compares the size and the checksum of every shard with the manifest.

    Args:
      data_dir: where the shards are.
      manifest: of the data.
      splits: None means all.
      checksums: read whole files, about a second per gigabyte; else compare
        sizes only.

    Raises:
      T2TLiteError: names the first file that is missing or damaged.
    """
    remake = how_to_remake(manifest, data_dir)
    for split in manifest.splits if splits is None else splits:
        for shard in manifest.split(split).shards:
            path = pathlib.Path(data_dir, shard.file)
            if not path.is_file():
                raise T2TLiteError(f"{path} is missing. {remake}")
            size = path.stat().st_size
            if size != shard.bytes:
                raise T2TLiteError(
                    f"{path} is damaged: it must have {shard.bytes} bytes; got "
                    f"{size}. {remake}"
                )
            if checksums and sha256_of(path) != shard.sha256:
                raise T2TLiteError(
                    f"{path} is damaged: its checksum differs from the "
                    f"manifest's. {remake}"
                )


def _changes(
    old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = ""
) -> list[str]:
    """What differs, key by key: ["vocab_size was 8000, is 16000", ...]."""
    changes: list[str] = []
    for key in sorted(old.keys() | new.keys()):
        name = f"{prefix}{key}"
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            changes += _changes(before, after, prefix=f"{name}.")
        elif key not in old:
            changes.append(f"{name} is new ({_short(after)})")
        elif key not in new:
            changes.append(f"{name} is gone (was {_short(before)})")
        elif before != after:
            # The paths of two files may differ only where they end.
            show = json.dumps if prefix == "options." else _short
            changes.append(f"{name} was {show(before)}, is {show(after)}")
    return changes


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:36]}...{text[-1]}"
