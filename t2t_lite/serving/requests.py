"""Sample requests for the warm-up and the verification of an export."""

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from t2t_lite.decoding.translator import Translator
from t2t_lite.errors import T2TLiteError
from t2t_lite.tokenizers.base import EOS_ID
from t2t_lite.training.run import Run

# TensorFlow Serving reads warm-up requests from this file of a version.
WARMUP_FILE = Path("assets.extra", "tf_serving_warmup_requests")
_DEV_PAIRS = 1000
_RANDOM_PAIRS = 10


class Request(NamedTuple):
    """The input texts of a request by name, for a signature."""

    signature: str
    inputs: dict[str, list[str]]


def sample_pairs(
    translator: Translator, run: Run | None
) -> list[tuple[str, str]]:
    """Return (source, target) pairs, sorted by length of the source.

    The pairs come from dev; without its data, they are up to 255 random pieces.
    """
    pairs: list[tuple[str, str]] = []
    # The data may be missing or may not match the run.
    with contextlib.suppress(T2TLiteError, OSError):
        if run:
            pairs += zip(*run.data.texts("dev", _DEV_PAIRS), strict=True)
    if not pairs:
        longest = min(translator.max_length, 256) - 1
        lengths = np.geomspace(1, longest, _RANDOM_PAIRS)
        sides = []
        for encoder in (translator.source_encoder, translator.target_encoder):
            draw = np.random.default_rng(1).integers
            ids = [
                draw(EOS_ID + 1, encoder.vocab_size, size).tolist()
                for size in lengths.round().astype(int)
            ]
            sides.append(encoder.decode(ids))
        pairs += zip(*sides, strict=True)
    return sorted(pairs, key=lambda pair: (len(pair[0]), pair))


def select_lengths(
    pairs: Sequence[tuple[str, str]], count: int
) -> list[tuple[str, str]]:
    """Select at most `count` evenly spaced pairs, the last one included."""
    indices = np.linspace(len(pairs) - 1, 0, min(count, len(pairs)))
    return [pairs[index] for index in sorted(indices.round().astype(int))]


def requests_for(
    pairs: Sequence[tuple[str, str]], signatures: Iterable[str]
) -> list[Request]:
    """Build one request per signature, with all pairs as its batch."""
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    both = {"inputs": sources, "targets": targets}
    inputs, only = {"score": both, "attention": both}, {"inputs": sources}
    return [Request(name, inputs.get(name, only)) for name in signatures]


def write_warmup(path: str | os.PathLike, requests: Iterable[Request]) -> None:
    """Write a TFRecord file of `tensorflow.serving.PredictionLog`."""
    with tf.io.TFRecordWriter(os.fspath(path)) as writer:
        for signature, inputs in requests:
            log = prediction_log_pb2.PredictionLog()
            request = log.predict_log.request
            request.model_spec.signature_name = signature
            for name, texts in inputs.items():
                proto = tf.make_tensor_proto(texts, tf.string, [len(texts)])
                request.inputs[name].CopyFrom(proto)
            writer.write(log.SerializeToString(deterministic=True))
