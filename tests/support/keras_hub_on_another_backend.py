"""Check a preset on the backend of KERAS_BACKEND: generation and training.

`test_keras_hub.py` runs this script: Keras has one backend per process.
"""

import json
import pathlib
import sys

import keras

from t2t_lite.keras_hub import T2TSeq2SeqLM


def main(folder):
    backend = keras.backend.backend()
    expected = json.loads((folder / "expected.json").read_text())
    texts = list(expected)
    model = T2TSeq2SeqLM.from_preset(str(folder / "preset"))
    model.compile(keras.optimizers.Adam(0.01), sampler="greedy")
    outputs = model.generate(texts, max_length=16)
    assert outputs == list(expected.values())
    pairs = {"encoder_text": texts, "decoder_text": texts}
    losses = model.fit(pairs, batch_size=50, epochs=2, verbose=0).history
    assert losses["loss"][1] < losses["loss"][0], losses
    print(f"the preset runs on {backend}")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
