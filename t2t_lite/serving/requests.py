"""What an export is asked before people ask it: to warm up, and to verify."""

import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from t2t_lite.decoding.translator import Translator
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.text.encoder import EOS_ID, TextEncoder
from t2t_lite.training.run import Run

# Where TensorFlow Serving looks for requests, in the folder of a version.
WARMUP_FILE = pathlib.Path("assets.extra", "tf_serving_warmup_requests")
_MOST_WARMUP_REQUESTS = 1000  # with more, the server loads no version
_DEV_PAIRS = 1000  # of which some are chosen
_MADE_UP_PAIRS = 10
_MADE_UP_SEED = 1


class Request(NamedTuple):
    """A batch of texts for a signature: each input has one a row."""

    signature: str
    inputs: dict[str, list[str]]


def sample_pairs(
    translator: Translator, run: Run | None
) -> list[tuple[str, str]]:
    """Texts and their translations, the shortest text first.

    Of the dev split if its data is where the run had it; else made up, of
    pieces of the vocabulary, up to the longest text that the model takes.
    """
    pairs = _dev_pairs(run) if run else []
    return sorted(pairs or _made_up_pairs(translator), key=_length)


def _length(pair: tuple[str, str]) -> tuple[int, tuple[str, str]]:
    return len(pair[0]), pair


def _dev_pairs(run: Run) -> list[tuple[str, str]]:
    try:
        return list(zip(*run.data.texts("dev", _DEV_PAIRS), strict=True))
    except (T2TLiteError, OSError):  # it is gone, or is another now
        return []


def _made_up_pairs(translator: Translator) -> list[tuple[str, str]]:
    longest = translator.max_length - 1
    lengths = np.geomspace(1, longest, _MADE_UP_PAIRS).round().astype(int)
    encoders = (translator.source_encoder, translator.target_encoder)
    sources, targets = (_made_up(each, lengths) for each in encoders)
    return list(zip(sources, targets, strict=True))


def _made_up(encoder: TextEncoder, lengths: Iterable[int]) -> list[str]:
    generator = np.random.default_rng(_MADE_UP_SEED)
    return encoder.decode(
        [
            generator.integers(EOS_ID + 1, encoder.vocab_size, length).tolist()
            for length in lengths
        ]
    )


def at_several_lengths(
    pairs: Sequence[tuple[str, str]], count: int
) -> list[tuple[str, str]]:
    """So many pairs from the shortest to the longest, at even distances.

    Args:
      pairs: in the order of their lengths.
      count: fewer if there are fewer; one is the longest.
    """
    places = np.linspace(len(pairs) - 1, 0, min(count, len(pairs)))
    return [pairs[place] for place in sorted(places.round().astype(int))]


def requests_for(
    pairs: Sequence[tuple[str, str]], signatures: Iterable[str]
) -> list[Request]:
    """One request to each signature, with all of the pairs as its batch."""
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    words = [(target.split() or [""])[0] for target in targets]
    others = {
        "score": {"targets": targets},
        "attention": {"targets": targets},
        "prefixed": {"prefix": words},
    }
    return [
        Request(name, {"inputs": sources, **others.get(name, {})})
        for name in signatures
    ]


def check_warmup(count: int, signatures: Sized) -> None:
    """Refuses more lengths than TensorFlow Serving takes requests.

    Raises:
      UsageError: it would load no version with so many.
    """
    most = _MOST_WARMUP_REQUESTS // len(signatures)
    if count > most:
        raise UsageError(
            f"--warmup may be at most {most} with {len(signatures)} "
            f"signatures, as TensorFlow Serving takes {_MOST_WARMUP_REQUESTS} "
            f"requests; got {count}."
        )


def warmup_requests(
    pairs: Sequence[tuple[str, str]], count: int, signatures: Iterable[str]
) -> list[Request]:
    """A request to each signature at so many lengths; texts come alone."""
    signatures = list(signatures)
    return [
        request
        for pair in at_several_lengths(pairs, count)
        for request in requests_for([pair], signatures)
    ]


def write_warmup(path: str | os.PathLike, requests: Iterable[Request]) -> None:
    """Writes requests as TensorFlow Serving reads them when it starts.

    A TFRecord file of `tensorflow.serving.PredictionLog`. Of that message only
    four nested fields are needed, whose numbers are fixed for good, so the
    package tensorflow-serving-api is not.
    """
    with tf.io.TFRecordWriter(os.fspath(path)) as writer:
        for request in requests:
            writer.write(_prediction_log(request))


def _prediction_log(request: Request) -> bytes:
    # The name of the model is left open: whoever serves it chooses one.
    model_spec = _field(3, request.signature.encode())  # signature_name
    inputs = b"".join(
        _field(2, _field(1, name.encode()) + _field(2, _tensor(texts)))
        for name, texts in request.inputs.items()
    )
    predict_request = _field(1, model_spec) + inputs
    # PredictionLog.predict_log.request
    return _field(6, _field(1, predict_request))


def _tensor(texts: Sequence[str]) -> bytes:
    proto = tf.make_tensor_proto(
        [text.encode() for text in texts], tf.string, [len(texts)]
    )
    return proto.SerializeToString(deterministic=True)


def _field(number: int, content: bytes) -> bytes:
    """A field of a message that holds bytes, text or another message."""
    return bytes([number << 3 | 2, *_varint(len(content))]) + content


def _varint(value: int) -> Iterator[int]:
    """Seven bits a byte, the lowest first; all but the last are marked."""
    while value >= 0x80:
        yield value & 0x7F | 0x80
        value >>= 7
    yield value
