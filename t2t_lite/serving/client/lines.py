"""Lines to a server and back: in batches, several at once, in their order."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from t2t_lite.decoding.streams.batching import Batching, map_sorted
from t2t_lite.serving.client.address import Address
from t2t_lite.serving.client.columns import Answer, Model, answers_of
from t2t_lite.serving.client.patience import Late, Patience, Refused


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
    ask = _Asker(model, asking.nbest, patience)
    answered = map_sorted(
        map(_decoded, lines),
        parts=lambda text: [text],
        work=[ask] * asking.at_once,
        lengths=lambda texts: [len(text) for text in texts],
        batching=Batching(asking.batch_size),
    )
    for number, (source, (answer,)) in enumerate(answered, 1):
        yield Line(number, source, answer)


class _Asker:
    """The answers to texts; see `ask_lines`.

    Once no answer came in time, texts are not asked for again until one does:
    a server that hangs would take that time for each of them.
    """

    def __init__(self, model: Model, nbest: bool, patience: Patience):
        self._model = model
        self._signature = "nbest" if nbest else "serving_default"
        self._patience = patience

    def __call__(self, texts: Sequence[str]) -> list[Answer]:
        return self._ask(texts, self._patience.in_vain)

    def _ask(self, texts: Sequence[str], in_vain: bool) -> list[Answer]:
        try:
            columns = self._patience(
                lambda seconds: self._model.predict(
                    self._signature, texts, seconds
                )
            )
            return answers_of(columns, len(texts))
        except Refused as refused:
            lost = in_vain and isinstance(refused, Late)
            if len(texts) == 1 or lost or not refused.for_a_text:
                return [Answer(error=str(refused))] * len(texts)
        half = len(texts) // 2
        return [
            *self._ask(texts[:half], in_vain),
            *self._ask(texts[half:], in_vain),
        ]


def _decoded(line: bytes) -> str:
    return line.removesuffix(b"\n").removesuffix(b"\r").decode(errors="replace")
