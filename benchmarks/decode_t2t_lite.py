"""One side of decoding.py: this package's model and search."""

import contextlib
import sys
from concurrent.futures import ThreadPoolExecutor

from side import serve

from t2t_lite.tf_setup import start_tensorflow

# No hypothesis may end early: the end of sequence is an id that does not exist.
NO_EOS = -1
ROOM = 50  # tokens beyond the source, as in the decoder


def make_step(sizes, beam_size, precision="float32"):
    """Return a function that decodes the fixed batch as the decoder would."""
    start_tensorflow(frozen_weights=precision == "bfloat16")
    import numpy as np
    import tensorflow as tf

    from t2t_lite.decoding.search.beam_search import beam_search
    from t2t_lite.decoding.stream import configure_cpu_threads
    from t2t_lite.decoding.translator import compiled
    from t2t_lite.model.transformer import Transformer
    from t2t_lite.ops import for_xla

    is_one = sizes["rows"] == 1  # before TensorFlow makes its threads
    searches = configure_cpu_threads(
        1 if is_one else None, sizes["hidden_size"] if is_one else None
    )
    tf.keras.utils.set_random_seed(1)
    model = Transformer(
        sizes["vocab_size"],
        hidden_size=sizes["hidden_size"],
        filter_size=sizes["filter_size"],
        num_heads=sizes["num_heads"],
        num_hidden_layers=sizes["num_hidden_layers"],
        dtype={"float32": None, "bfloat16": "mixed_bfloat16"}[precision],
    ).build_weights()
    rows, length = sizes["rows"], sizes["length"]
    inputs = tf.random.uniform(
        (rows, length), 2, sizes["vocab_size"], tf.int32, seed=1
    )

    with for_xla() if sizes.get("jit") else contextlib.nullcontext():
        weights = model.step_weights()

    def search(inputs, limits, longest=length):
        memory, mask = model.encode(inputs)
        step_fn, cache = model.init_decoding(
            memory, mask, beam_size, longest, weights=weights
        )
        return beam_search(
            step_fn,
            model.reorder_cache,
            cache,
            batch_size=tf.shape(inputs)[0],
            beam_size=beam_size,
            limits=limits,
            longest=longest,
            alpha=0.6,
            eos_id=NO_EOS,
        )

    if sizes.get("jit"):
        search = compiled(search, lambda width: width + ROOM)

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def decode(inputs):
        return search(inputs, tf.fill([tf.shape(inputs)[0]], length))

    parts = [inputs[start::searches] for start in range(searches)]
    threads = ThreadPoolExecutor(searches)

    def run():
        found = threads.map(lambda part: decode(part)[0].numpy(), parts)
        ids = np.concatenate(list(found))
        assert ids.shape == (rows, beam_size, length)
        return length

    return run


if __name__ == "__main__":
    serve(make_step, sys.argv[1:])
