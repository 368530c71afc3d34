"""Lines to a server and back: in batches, several at once, in their order."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from t2t_lite.decoding.streams.batching import Batching, map_sorted
from t2t_lite.serving.client.address import Address
from t2t_lite.serving.client.columns import Answer, Model, answers_of
from t2t_lite.serving.client.patience import Patience, Refused


def connect(address: Address, name: str, version: int | None = None) -> Model:
    """A model of a server; nothing is asked yet.

    Args:
      address: of the server.
      name: of the model.
      version: of it; None takes the newest.

    Raises:
      T2TLiteError: see `GrpcModel`.
    """
    if address.rest:
        from t2t_lite.serving.client.rest import RestModel

        return RestModel(address, name, version)
    from t2t_lite.serving.client.grpc_model import GrpcModel

    return GrpcModel(address, name, version)


@dataclasses.dataclass(frozen=True)
class Asking:
    """How lines are asked.

    Attributes:
      batch_size: texts in a request, at most.
      at_once: requests under way.
      seconds: that the answer to a request may take, all tries together.
      nbest: whether to ask for all hypotheses.
    """

    batch_size: int = 16
    at_once: int = 4
    seconds: float = 60.0
    nbest: bool = False


class Line(NamedTuple):
    """A line and its answer.

    Attributes:
      number: of the line, from 1.
      source: without its end, U+FFFD for what is not UTF-8.
      answer: to it.
    """

    number: int
    source: str
    answer: Answer


def ask_lines(
    model: Model,
    lines: Iterable[bytes],
    asking: Asking = Asking(),  # noqa: B008 (it is frozen)
    patience: Patience | None = None,
) -> Iterator[Line]:
    r"""Asks a model for each line; one answer a line, in their order.

    It asks the lines that have come without waiting for more, so `lines` may be
    a pipe. The texts of a request that is refused are asked for again, fewer at
    a time, so that one of them does not cost the others their answers.

    Args:
      model: from `connect`.
      lines: each ends with "\n", "\r\n" or nothing.
      asking: how.
      patience: None: a new one.
    """
    patience = patience or Patience(asking.seconds)
    signature = "nbest" if asking.nbest else "serving_default"

    def ask(texts: Sequence[str]) -> list[Answer]:
        try:
            columns = patience(
                lambda seconds: model.predict(signature, texts, seconds)
            )
            return answers_of(columns, len(texts))
        except Refused as refused:
            if len(texts) == 1 or not refused.for_a_text:
                return [Answer(error=str(refused))] * len(texts)
        half = len(texts) // 2
        return [*ask(texts[:half]), *ask(texts[half:])]

    answered = map_sorted(
        map(_decoded, lines),
        parts=lambda text: [text],
        work=[ask] * asking.at_once,
        lengths=lambda texts: [len(text) for text in texts],
        batching=Batching(asking.batch_size),
    )
    for number, (source, (answer,)) in enumerate(answered, 1):
        yield Line(number, source, answer)


def _decoded(line: bytes) -> str:
    return line.removesuffix(b"\n").removesuffix(b"\r").decode(errors="replace")
