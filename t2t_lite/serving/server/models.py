"""Models by name, each in its versions: watched, loaded, swapped, unloaded."""

import asyncio
import contextlib
import dataclasses
import enum
import gc
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, TypeAlias

from t2t_lite.errors import T2TLiteError, in_words
from t2t_lite.serving.server.refusal import Refusal, Status, invalid

Load: TypeAlias = Callable[[pathlib.Path], Any]
Say: TypeAlias = Callable[[str], None]
LARGEST_VERSION = 2**63 - 1  # that the protos hold


class State(enum.IntEnum):
    """Of a version; names and numbers are those of TensorFlow Serving."""

    LOADING = 20
    AVAILABLE = 30
    UNLOADING = 40
    END = 50


@dataclasses.dataclass(frozen=True)
class Policy:
    """Which versions to serve.

    Attributes:
      newest: so many; None for all.
      only: these; None for no choice.
    """

    newest: int | None = 1
    only: frozenset[int] | None = None

    def choose(self, there: Iterable[int]) -> set[int]:
        """The versions to serve of those that could be."""
        if self.only is not None:
            return set(self.only & set(there))
        ordered = sorted(there, reverse=True)
        return set(ordered[: self.newest])


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """A model to serve.

    Attributes:
      name: in requests.
      base_path: the folder of its versions.
      policy: which of them.
      labels: versions by the names that requests may use for them.
    """

    name: str
    base_path: pathlib.Path
    policy: Policy = Policy()
    labels: Mapping[str, int] = dataclasses.field(default_factory=dict)


class Version:
    """One version: its state, and what it serves while it is available.

    Attributes:
      number: its folder's name.
      state: see `State`.
      error: why it is not available, with paths, so for the log alone; ""
        for no reason.
      model: what was loaded, or None.
    """

    def __init__(self, number: int, folder: pathlib.Path):
        self.number = number
        self.folder = folder
        self.state = State.LOADING
        self.error = ""
        self.model: Any = None
        self._users = 0
        self._unused = asyncio.Event()
        self._unused.set()
        self._files = _files_of(folder)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[Any]:
        """The model, which stays loaded within the block."""
        self._users += 1
        self._unused.clear()
        try:
            yield self.model
        finally:
            self._users -= 1
            if not self._users:
                self._unused.set()

    @property
    def is_broken(self) -> bool:
        """Whether it cannot be loaded as its files are now."""
        return bool(self.error) and _files_of(self.folder) == self._files

    async def load(self, load: Load, pool: Executor) -> None:
        """Makes it available, or says why it is not."""
        try:
            loop = asyncio.get_running_loop()
            self.model = await loop.run_in_executor(pool, load, self.folder)
            self.state = State.AVAILABLE
        except Exception as error:
            self.error = in_words(error)
            self.state = State.END

    async def unload(self) -> None:
        """Frees it when the last request is done with it."""
        self.state = State.UNLOADING
        await self._unused.wait()
        self.model = None
        self.state = State.END
        gc.collect()  # what TensorFlow loads refers to itself


class Model:
    """A model in its versions.

    Args:
      config: what to serve.
      load: makes of a version's folder what serves it.
      pool: the thread that loads.
      say: is told what was loaded, what was not and why.
    """

    def __init__(
        self, config: ModelConfig, load: Load, pool: Executor, say: Say
    ):
        self.config = config
        self.versions: dict[int, Version] = {}
        self._load = load
        self._pool = pool
        self._say = say
        self._unloading: set[asyncio.Task[None]] = set()

    def newest_first(self) -> list[Version]:
        """All versions that it knows of."""
        return [self.versions[n] for n in sorted(self.versions, reverse=True)]

    @property
    def available(self) -> list[Version]:
        """The versions that can be asked, the newest first."""
        return [
            version
            for version in self.newest_first()
            if version.state == State.AVAILABLE
        ]

    @property
    def newest(self) -> Version | None:
        """The available version with the largest number."""
        return next(iter(self.available), None)

    def find(self, number: int | None = None, label: str = "") -> Version:
        """The version that a request asks for; by default the newest.

        Raises:
          Refusal: it is not there.
        """
        name = self.config.name
        if label:
            if label not in self.config.labels:
                raise invalid(f"Unrecognized servable version label: {label}")
            number = self.config.labels[label]
        if number is None:
            found, asked = self.newest, f"Latest({name})"
        else:
            found = self.versions.get(number)
            asked = f"Specific({name}, {number})"
        if found is None or found.state != State.AVAILABLE:
            raise _not_found(asked)
        return found

    async def refresh(self) -> None:
        """Loads and unloads what the folder asks for now.

        A version is unloaded when one that should be served is available. One
        that cannot be loaded counts as missing until its files change.
        """
        there = await asyncio.to_thread(_versions_in, self.config.base_path)
        for number, version in list(self.versions.items()):
            if version.state == State.END and number not in there:
                del self.versions[number]
        while True:
            broken = {n for n in there if self._is_broken(n)}
            wanted = self.config.policy.choose(there.keys() - broken)
            serving = {version.number for version in self.available}
            if not wanted - serving:
                break
            number = max(wanted - serving)
            await self._try(Version(number, there[number]))
        if wanted:
            for number in serving - wanted:
                self._unload(self.versions[number])

    def _is_broken(self, number: int) -> bool:
        return number in self.versions and self.versions[number].is_broken

    async def _try(self, version: Version) -> None:
        self.versions[version.number] = version
        await version.load(self._load, self._pool)
        what = f"{self.config.name} version {version.number}"
        if version.error:
            self._say(f"Skipped {what}: {version.error}.")
        else:
            self._say(f"Loaded {what}.")

    def _unload(self, version: Version) -> None:
        task = asyncio.create_task(version.unload())
        self._unloading.add(task)
        task.add_done_callback(self._unloading.discard)
        self._say(f"Unloading {self.config.name} version {version.number}.")


class Models:
    """All models by name.

    Args:
      configs: what to serve.
      load: as in `Model`.
      say: as in `Model`.
    """

    def __init__(self, configs: Iterable[ModelConfig], load: Load, say: Say):
        # One after the other: loading takes memory and time of the requests.
        self._pool = ThreadPoolExecutor(1, "load")
        self.by_name = {
            config.name: Model(config, load, self._pool, say)
            for config in configs
        }
        self._say = say

    async def start(self) -> None:
        """Loads what is there.

        Raises:
          T2TLiteError: a model has no version that can be served.
        """
        for name, model in self.by_name.items():
            await model.refresh()
            if model.newest is None:
                raise T2TLiteError(
                    f"{model.config.base_path} holds no version of {name} that "
                    "can be served: a version is a folder named 1, 2, ... with "
                    "a saved_model.pb."
                )

    async def watch(self, seconds: float) -> None:
        """Looks for new versions again and again; never returns."""
        said: dict[str, str] = {}  # once, until it changes
        while True:
            await asyncio.sleep(seconds)
            for name, model in self.by_name.items():
                why = ""
                try:
                    await model.refresh()
                except Exception as error:
                    why = in_words(error)
                if why and why != said.get(name):
                    with contextlib.suppress(OSError):  # nobody reads the log
                        self._say(
                            f"Cannot look for versions of {name}, and will "
                            f"look again: {why}."
                        )
                said[name] = why

    @property
    def is_loading(self) -> bool:
        """Whether the thread that loads has work."""
        return any(
            version.state == State.LOADING
            for model in self.by_name.values()
            for version in model.versions.values()
        )

    def close(self) -> None:
        """Ends the thread that loads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def model(self, name: str) -> Model:
        """The model of a name.

        Raises:
          Refusal: there is none.
        """
        if not name:
            raise invalid("ModelSpec has no name specified.")
        if name not in self.by_name:
            raise _not_found(f"Latest({name})")
        return self.by_name[name]


def _not_found(asked: str) -> Refusal:
    """The refusal of a model or version that is not there."""
    return Refusal(Status.NOT_FOUND, f"Servable not found for request: {asked}")


def _versions_in(base_path: pathlib.Path) -> dict[int, pathlib.Path]:
    """The numbered folders with a SavedModel.

    Raises:
      OSError: the folder cannot be read.
    """
    return {
        int(folder.name): folder
        for folder in base_path.iterdir()
        if folder.name.isdecimal()
        and int(folder.name) <= LARGEST_VERSION
        and (folder / "saved_model.pb").is_file()
    }


def _files_of(folder: pathlib.Path) -> frozenset[tuple[str, int, int]]:
    """What tells whether the files of a version have changed."""
    found = set()
    with contextlib.suppress(OSError):  # it is being removed
        for file in folder.rglob("*"):
            about = file.stat()
            found.add((str(file), about.st_size, about.st_mtime_ns))
    return frozenset(found)
