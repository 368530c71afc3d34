"""Asks an export with TensorFlow and TF Text alone.

`verify` runs this file in a process of its own, in which neither this package
nor what only this package needs can be imported.
"""

import json
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

HIDDEN = ("t2t_lite", "keras_hub", "sentencepiece")
# Files in the folder that both processes know.
REQUESTS = "requests.json"
ANSWERS = "answers.npz"


def answer(saved_model: str, folder: str) -> None:
    """Writes what an export answers to requests.

    Args:
      saved_model: the folder of the export.
      folder: REQUESTS in it is a list of [signature, {input: texts}]; ANSWERS
        will have the arrays `NUMBER.OUTPUT`, see `arrays_of`.
    """
    # What is None here cannot be imported, nor can anything in it.
    sys.modules |= dict.fromkeys(HIDDEN)  # type: ignore[arg-type]
    import numpy as np
    import tensorflow as tf
    import tensorflow_text  # noqa: F401 (the model uses its ops)

    place = pathlib.Path(folder)
    signatures = tf.saved_model.load(saved_model).signatures
    answers = {}
    requests = json.loads((place / REQUESTS).read_text("utf-8"))
    for number, (name, inputs) in enumerate(requests):
        texts = {k: tf.constant(v, tf.string) for k, v in inputs.items()}
        for output, array in arrays_of(signatures[name](**texts)).items():
            answers[f"{number}.{output}"] = array
    np.savez(place / ANSWERS, **answers)


def arrays_of(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Tensors as arrays, texts in hex, which loses no byte of them."""
    import numpy as np

    in_hex = np.vectorize(bytes.hex, otypes=[str])
    arrays = {name: value.numpy() for name, value in outputs.items()}
    return {
        name: in_hex(array) if array.dtype == object else array
        for name, array in arrays.items()
    }


if __name__ == "__main__":
    answer(*sys.argv[1:])
