"""What the processes of a cluster say to each other, besides tensors.

Every worker keeps one connection to the chief, over which JSON lines go. It is
made before TensorFlow starts, so that a wrong command, a wrong version or a
missing worker is told by name, in words. Once all are there the chief's port
is TensorFlow's; connections that are made stay.

All that workers must do alike is decided by one means: `exchange`, in which
each gives a value and gets the values of all. Who is silent, gone or has
failed is told to everybody at once.
"""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol, Self, TypeVar

from t2t_lite.errors import Interrupted, T2TLiteError, in_words
from t2t_lite.training.cluster.early_stop import cause, stopped_early
from t2t_lite.training.cluster.members import Members
from t2t_lite.training.cluster.peer import Peer
from t2t_lite.training.cluster.roll_call import (
    LostWorkerError,
    await_workers,
    reach_chief,
)

T = TypeVar("T")

# A worker that is not heard of for so long is taken for hung or cut off. The
# threads that send heartbeats need little; a saving disk does not stop them.
SILENCE_SECONDS = 20.0
_BEAT_SECONDS = 1.0
# What TensorFlow raises where another worker does not answer: cancelled,
# deadline exceeded, aborted, internal, unavailable.
_CODES_OF_LOSS = (1, 4, 10, 13, 14)


class Cluster(Protocol):
    """What training needs to know of the processes that take part in it."""

    index: int
    size: int

    @property
    def is_chief(self) -> bool:
        """Whether this process writes what all of them make."""

    def name(self, index: int) -> str:
        """How people know a worker."""

    def exchange(self, topic: str, value: T) -> list[T]:
        """Gives a value, fit for JSON; returns those of all, in their order."""

    def share_stop(
        self, asked: Callable[[], str | None], ask: Callable[[str], None]
    ) -> None:
        """Lets a signal that one process got reach all others."""

    def naming_losses(self) -> contextlib.AbstractContextManager[None]:
        """Turns TensorFlow's errors about lost workers into one with names."""


class Alone:
    """The cluster of one process."""

    index = 0
    size = 1
    is_chief = True

    def name(self, index: int) -> str:
        """How people know the only process."""
        return f"worker {index}"

    def exchange(self, topic: str, value: T) -> list[T]:
        """The value as the only one."""
        del topic
        return [value]

    def share_stop(
        self, asked: Callable[[], str | None], ask: Callable[[str], None]
    ) -> None:
        """There is nobody to tell."""

    def naming_losses(self) -> contextlib.AbstractContextManager[None]:
        """There is nobody to lose."""
        return contextlib.nullcontext()


ALONE = Alone()


class Workers:
    """The cluster of several processes, of which this is one.

    Enter it to call the roll; leave it to say goodbye, or, with an error, to
    tell the others why this one stops.

    Args:
      members: who belongs to it.
      timeout: seconds until all must have come.

    Attributes:
      index: of this process; 0 is the chief.
      size: how many there are.
      when_lost: is called, in a thread, with the words about a lost worker.
        `exchange` raises them in any case.
      before_exchange: is called by `exchange`; what it raises ends all.
    """

    def __init__(self, members: Members, timeout: float):
        self.members = members
        self.index = members.index
        self.size = len(members.addresses)
        self.when_lost: Callable[[str], None] = lambda text: None
        self.before_exchange: Callable[[], None] = lambda: None
        self._timeout = timeout
        self._patience = SILENCE_SECONDS
        self._asked: Callable[[], str | None] = lambda: None
        self._ask: Callable[[str], None] = lambda why: None
        self._peers: dict[int, Peer] = {}
        self._changed = threading.Condition()
        self._values: dict[int, list[dict[str, Any]]] = {}
        self._gone: set[int] = set()
        self._lost: str | None = None
        self._stopped = False  # the lost one was, before training began
        self._trains = False
        self._closed = threading.Event()

    @property
    def is_chief(self) -> bool:
        """Whether this process writes what all of them make."""
        return self.index == 0

    def name(self, index: int) -> str:
        """How people know a worker: `worker 2 (node-b:2222)`."""
        return self.members.name(index)

    def __enter__(self) -> Self:
        if self.is_chief:
            self._peers = await_workers(self.members, self._timeout)
        else:
            self._peers = {0: reach_chief(self.members, self._timeout)}
        self._values = {index: [] for index in self._peers}
        for index, peer in self._peers.items():
            self._start(self._listen, index, peer)
        self._start(self._beat)
        return self

    def __exit__(self, kind: Any, error: BaseException | None, *_: Any) -> None:
        message: dict[str, Any] = {"bye": self.index}
        # All agree to save and leave; whoever was lost, all know already.
        agreed = error is None or isinstance(error, Interrupted)
        if error and not (agreed or self._lost):
            message = self._why_stopped(error)
        self._send(message)
        self._closed.set()
        for peer in self._peers.values():
            peer.close()

    def exchange(self, topic: str, value: T) -> list[T]:
        """Gives a value, fit for JSON; returns those of all, in their order.

        It waits for all, however long, unless one is lost.

        Raises:
          LostWorkerError: a worker is gone, silent or has failed.
          Interrupted: one was stopped before training began.
        """
        self.before_exchange()
        message = {"topic": topic, "value": value}
        if not self.is_chief:
            self._send(message)
            return self._next(0, topic)["value"]
        values = [json.loads(json.dumps(value))]  # as others come through
        values += [self._next(i, topic)["value"] for i in range(1, self.size)]
        self._send({"topic": topic, "value": values})
        return values

    def share_stop(
        self, asked: Callable[[], str | None], ask: Callable[[str], None]
    ) -> None:
        """Lets a signal that one process got reach all others.

        It is called when training begins. A process that a signal ends before
        leaves nothing, and so do the others.

        Args:
          asked: gives the name of the signal that came to this process.
          ask: is called, in a thread, with one that came to another.
        """
        self._ask, self._asked, self._trains = ask, asked, True

    def require_all(self) -> None:
        """Refuses to go on without one that is lost.

        Raises:
          LostWorkerError: a worker is gone, silent or has failed.
          Interrupted: one was stopped before training began.
        """
        if self._lost:
            raise self._loss()

    @contextlib.contextmanager
    def patient(self, seconds: float) -> Iterator[None]:
        """Work during which the others may be silent for so long."""
        self._patience = seconds
        try:
            yield
        finally:
            self._patience = SILENCE_SECONDS

    @contextlib.contextmanager
    def naming_losses(self) -> Iterator[None]:
        """Turns TensorFlow's errors about lost workers into one with names.

        Raises:
          LostWorkerError: instead of what TensorFlow says.
        """
        try:
            yield
        except Exception as error:
            if getattr(error, "error_code", None) not in _CODES_OF_LOSS:
                raise
            # TensorFlow may notice it before it can be told by name.
            with self._changed:
                self._changed.wait_for(
                    lambda: self._lost, SILENCE_SECONDS + 2 * _BEAT_SECONDS
                )
            raise self._loss(
                "All workers answer, but their sums do not get through "
                f"({in_words(error)}): look at the network between them."
            ) from error

    def _send(self, message: dict[str, Any], but: int | None = None) -> None:
        for index, peer in self._peers.items():
            if index != but:
                peer.send(message)

    def _next(self, index: int, topic: str) -> dict[str, Any]:
        """The next value of a peer, which must be about the topic."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._lost or self._values[index] or index in self._gone
            )
            if not self._values[index]:
                raise self._loss(
                    f"{self.members.name(index)} has left, and this one "
                    f"waits for it at {topic!r}: start the same command on "
                    "all workers again."
                )
            message = self._values[index].pop(0)
        if message["topic"] != topic:
            raise T2TLiteError(
                f"{self.members.name(index)} is at {message['topic']!r} where "
                f"this one is at {topic!r}: the workers are out of step. Start "
                "the same command on all of them again."
            )
        return message

    def _start(self, work: Callable[..., None], *args: Any) -> None:
        threading.Thread(
            target=work, args=args, name=f"cluster {work.__name__}", daemon=True
        ).start()

    def _listen(self, index: int, peer: Peer) -> None:
        for message in peer.messages():
            if "topic" in message:
                with self._changed:
                    self._values[index].append(message)
                    self._changed.notify_all()
            elif "stop" in message:
                self._ask(message["stop"])  # its heart tells the others
            elif "lost" in message:
                self._lose(
                    message["lost"], but=index, stopped=message.get("stopped")
                )
            elif "bye" in message:
                with self._changed:
                    self._gone.add(index)
                    self._changed.notify_all()
        if index not in self._gone:
            self._lose(f"{self.members.name(index)} is gone", but=index)

    def _beat(self) -> None:
        told = None
        while not self._closed.wait(_BEAT_SECONDS):
            asked = self._asked()
            self._send({"stop": asked} if asked != told else {})
            told = asked
            now = time.monotonic()
            for index, peer in self._peers.items():
                silent = now - peer.heard
                if silent > self._patience and index not in self._gone:
                    self._lose(
                        f"{self.members.name(index)} has not been heard of "
                        f"for {silent:.0f} s: it hangs, or the network "
                        "between us is cut",
                        but=index,
                    )

    def _lose(self, text: str, but: int, stopped: bool | None = False) -> None:
        """Notes the first loss, and tells everybody."""
        with self._changed:
            if self._lost or self._closed.is_set():
                return
            self._lost = (
                text
                if text.endswith(".")
                else (
                    f"{text}. What is saved is sound: start the same command "
                    "on all workers again."
                )
            )
            self._stopped = bool(stopped)
            self._changed.notify_all()
        if self.is_chief:
            self._send({"lost": self._lost, "stopped": stopped}, but=but)
        self.when_lost(self._lost)

    def _loss(self, otherwise: str = "") -> T2TLiteError:
        """The error about who is lost."""
        kind = Interrupted if self._stopped else LostWorkerError
        return kind(self._lost or otherwise)

    def _why_stopped(self, error: BaseException) -> dict[str, Any]:
        """What the others are told when an error ends this one."""
        me = self.members.name(self.index)
        if not isinstance(error, KeyboardInterrupt):
            return {"lost": f"{me} has stopped: {in_words(error)}"}
        if self._trains:
            return {"lost": f"{me} was stopped at once by {cause(error)}"}
        return {"lost": stopped_early(me, error), "stopped": True}
