"""From the inputs of a request to its outputs, for both APIs."""

import asyncio
import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import grpc
import numpy as np

from t2t_lite.serving.server import metrics
from t2t_lite.serving.server.batching import Batcher, Tensors
from t2t_lite.serving.server.models import Model, Version
from t2t_lite.serving.server.refusal import Refusal, invalid


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of one request."""

    body_bytes: int = 16 << 20
    texts: int = 1024
    characters: int = 10_000  # of each text
    seconds: float = 30.0  # until the answer


class Predictor:
    """Checks requests and runs them in batches.

    Attributes:
      model: the model to serve.
      limits: of each request.
    """

    def __init__(self, model: Model, batcher: Batcher, limits: Limits):
        self.model = model
        self.limits = limits
        self._batcher = batcher

    async def predict(
        self,
        version: Version,
        signature_name: str,
        inputs: Mapping[str, Any],
        seconds: float = math.inf,
    ) -> Tensors:
        """Return the outputs of a request.

        Args:
          version: from `Model.find`.
          signature_name: "" is "serving_default".
          inputs: lists of str or bytes by name; "" is the only input.
          seconds: how long the client waits.

        Raises:
          Refusal: the request is malformed, exceeds a limit or is too late.
        """
        deadline = asyncio.get_running_loop().time()
        deadline += min(self.limits.seconds, seconds)
        signature = version.signatures.get(signature_name or "serving_default")
        if not signature:
            raise Refusal(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"The signatures are {', '.join(version.signatures)}; got "
                f"{signature_name}.",
            )
        if inputs.keys() == {""} and len(signature.inputs) == 1:
            inputs = {signature.inputs[0]: inputs[""]}
        if inputs.keys() != set(signature.inputs):
            expected = ", ".join(signature.inputs)
            raise invalid(f"The inputs of this signature are {expected}.")
        tensors = {k: self._tensor(k, v) for k, v in inputs.items()}
        columns = list(tensors.values())
        if len({len(column) for column in columns}) > 1:
            raise invalid("All inputs must have equally many texts.")
        outputs = await self._batcher.answer(
            signature.run,
            tensors,
            [sum(map(len, row)) for row in zip(*columns, strict=True)],
            signature.run if signature.is_batchable else None,
            deadline,
        )
        metrics.TEXTS.inc(len(columns[0]))
        return outputs

    def _tensor(self, name: str, texts: Any) -> np.ndarray:
        if not isinstance(texts, list):
            raise invalid(f"{name} must be a list of strings.")
        if len(texts) > self.limits.texts:
            raise invalid(
                f"A request may have {self.limits.texts} texts; got "
                f"{len(texts)}. Send several requests."
            )
        tensor = np.empty(len(texts), object)
        for row, text in enumerate(texts):
            if isinstance(text, str):
                text = text.encode("utf-8", "replace")
            if not isinstance(text, bytes):
                got = type(text).__name__
                raise invalid(f"{name} must hold strings; got {got}.")
            tensor[row] = text
            if len(text) > self.limits.characters:
                count = len(text.decode("utf-8", "replace"))
                if count > self.limits.characters:
                    raise invalid(
                        f"A text may have {self.limits.characters} "
                        f"characters; got {count}."
                    )
        return tensor
