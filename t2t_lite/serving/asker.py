"""Runs requests on a SavedModel, with TensorFlow and TF Text alone.

`verify` starts this file in a process of its own, in which this package and
packages that only it needs cannot be imported.
"""

import json
import sys


def main(saved_model: str, requests: str, folder: str) -> None:
    """Write the output NAME of request N to the file `FOLDER/N.NAME`.

    Args:
      saved_model: the folder of the export.
      requests: a JSON file, a list of [signature, {input: texts}].
      folder: receives the outputs as serialized tensors.
    """
    # A module that is None cannot be imported.
    hidden = dict.fromkeys(("t2t_lite", "keras_hub", "sentencepiece"))
    sys.modules |= hidden  # type: ignore[arg-type]
    import tensorflow as tf
    import tensorflow_text  # noqa: F401 (registers the ops of tokenizers)

    signatures = tf.saved_model.load(saved_model).signatures
    with open(requests, encoding="utf-8") as file:
        for number, (signature, inputs) in enumerate(json.load(file)):
            texts = {k: tf.constant(v, tf.string) for k, v in inputs.items()}
            for name, value in signatures[signature](**texts).items():
                content = tf.io.serialize_tensor(value)
                tf.io.write_file(f"{folder}/{number}.{name}", content)


if __name__ == "__main__":
    main(*sys.argv[1:])
