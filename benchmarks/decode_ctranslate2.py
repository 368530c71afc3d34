"""One side of decoding.py: CTranslate2, with the weights of transformers."""

import sys
import tempfile

import ctranslate2
import numpy as np
from ctranslate2.converters.transformers import _MODEL_LOADERS
from decode_transformers import make_model
from side import serve


def make_step(sizes, beam_size, compute_type="float32"):
    """Return a function that decodes the fixed batch."""
    tokens = [f"t{number}" for number in range(sizes["vocab_size"])]
    tokens[:3] = ["<pad>", "</s>", "<unk>"]
    spec = _MODEL_LOADERS["MarianConfig"].get_model_spec(make_model(sizes))
    spec.config.bos_token = spec.config.decoder_start_token = "<pad>"
    spec.config.eos_token = "</s>"
    spec.config.unk_token = "<unk>"
    tokens.pop()  # the converter drops the last row of a Marian model
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.validate()
    spec.optimize(quantization=None)
    # As in our side, parallel searches share the sentences and the cores.
    searches = 1 if sizes["rows"] == 1 else min(4, sizes["threads"])
    with tempfile.TemporaryDirectory() as folder:
        spec.save(folder)
        translator = ctranslate2.Translator(
            folder,
            device="cpu",
            compute_type=compute_type,
            inter_threads=searches,
            intra_threads=sizes["threads"] // searches,
        )
    length = sizes["length"]
    ids = np.random.default_rng(1).integers(
        3, len(tokens), (sizes["rows"], length)
    )
    sentences = [[tokens[token] for token in row] for row in ids]

    def run():
        results = translator.translate_batch(
            sentences,
            beam_size=beam_size,
            min_decoding_length=length,
            max_decoding_length=length,
            length_penalty=0.6,
            max_batch_size=-(-sizes["rows"] // searches),
        )
        assert all(len(r.hypotheses[0]) == length for r in results)
        return length

    return run


if __name__ == "__main__":
    serve(make_step, sys.argv[1:])
