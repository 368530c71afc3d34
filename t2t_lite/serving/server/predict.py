"""From a request to its answer, by whatever way it came."""

import asyncio
import dataclasses
from collections.abc import Callable

import numpy as np

from t2t_lite.serving.server.batching import Batcher, Tensors
from t2t_lite.serving.server.models import Models, Version
from t2t_lite.serving.server.monitoring import Record
from t2t_lite.serving.server.refusal import Refusal, Status, invalid
from t2t_lite.serving.server.signature import (
    DEFAULT_SIGNATURE,
    Signature,
    lengths_of,
)


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a request may hold.

    Attributes:
      body_bytes: of the whole request.
      texts: of it.
      characters: of each text.
      seconds: until its answer, at most.
    """

    body_bytes: int = 16 << 20
    texts: int = 1024
    characters: int = 10_000
    seconds: float = 30.0

    def check(self, record: Record, inputs: Tensors, rows: int) -> None:
        """Refuses a request that holds more; notes what it holds."""
        if rows > self.texts:
            raise invalid(
                f"A request may hold {self.texts} texts; got {rows}. Send "
                "several."
            )
        record.texts, record.inputs = rows, inputs
        for tensor in inputs.values():
            if tensor.dtype.kind != "O":
                continue
            counts = [_characters(text) for text in tensor.flat]
            record.characters += sum(counts)
            if max(counts, default=0) > self.characters:
                raise invalid(
                    f"A text may have {self.characters} characters; got "
                    f"{max(counts)}."
                )


def _characters(text: bytes) -> int:
    return len(text) if text.isascii() else len(text.decode("utf-8", "replace"))


@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """The model that a request asks for; see `Model.find`."""

    name: str
    version: int | None = None
    label: str = ""


class Predictor:
    """Answers requests.

    Args:
      models: that it knows.
      batcher: runs them.
      limits: of requests.
    """

    def __init__(self, models: Models, batcher: Batcher, limits: Limits):
        self.models = models
        self.limits = limits
        self._batcher = batcher

    def version(self, spec: ModelSpec) -> Version:
        """The version that a request asks for.

        Raises:
          Refusal: it is not there.
        """
        return self.models.model(spec.name).find(spec.version, spec.label)

    async def predict(
        self,
        spec: ModelSpec,
        signature_name: str,
        read: Callable[[Signature], Tensors],
        record: Record,
        seconds: float | None = None,
    ) -> Tensors:
        """The outputs for a request.

        Args:
          spec: of the model.
          signature_name: "" for the default one.
          read: makes the inputs of the signature; may raise Refusal.
          record: is told what the request holds and what answers it.
          seconds: that the client waits.

        Raises:
          Refusal: no answer.
        """
        deadline = asyncio.get_running_loop().time() + min(
            self.limits.seconds, np.inf if seconds is None else seconds
        )
        version = self.version(spec)
        record.model, record.version = spec.name, version.number
        with version.in_use() as model:
            signature = self._signature(model.signatures, signature_name)
            record.signature = signature.name
            inputs = read(signature)
            lengths = lengths_of(inputs)
            self.limits.check(record, inputs, len(lengths))
            outputs = await self._batcher.answer(
                signature.run,
                inputs,
                lengths,
                _group(signature, inputs),
                deadline,
            )
            record.source_tokens = _total(outputs.get("source_lengths"))
            record.target_tokens = _total(outputs.get("lengths"))
            return outputs

    @staticmethod
    def _signature(signatures: dict[str, Signature], name: str) -> Signature:
        name = name or DEFAULT_SIGNATURE
        if name not in signatures:
            raise Refusal(
                Status.FAILED_PRECONDITION,
                f'Serving signature name: "{name}" not found in signature def',
            )
        return signatures[name]


def _total(counts: np.ndarray | None) -> int:
    """Of numbers [rows] or [rows, beam], the first of each row; else 0."""
    if counts is None or counts.dtype.kind != "i" or not counts.ndim:
        return 0
    best = counts if counts.ndim == 1 else counts[:, 0]
    return sum(best.tolist())


def _group(signature: Signature, inputs: Tensors) -> object:
    """What requests must have in common to be joined; None: they cannot."""
    rows = {tensor.shape[:1] for tensor in inputs.values()}
    if not signature.joins or len(rows) != 1:
        return None
    shapes = (tensor.shape[1:] for tensor in inputs.values())
    return (id(signature), *shapes)
