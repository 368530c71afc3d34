"""One side of decoding.py: this package's model and search."""

import sys
from concurrent.futures import ThreadPoolExecutor

from side import serve

from t2t_lite.runtime import start_tensorflow

# No hypothesis may end early: the end of sequence is an id that does not exist.
NO_EOS = -1
# What a compiled search has room for beyond the source, as in the decoder.
ROOM = 50


def make_step(sizes, beam_size, precision="float32", model=None, searches=1):
    """A function that decodes the fixed batch, in parts side by side."""
    start(precision)
    import numpy as np
    import tensorflow as tf

    from t2t_lite.decoding.compiled import compiled
    from t2t_lite.decoding.search.beam_search import beam_search
    from t2t_lite.model.transformer import Transformer

    tf.keras.utils.set_random_seed(1)
    model = (
        model
        or Transformer(
            sizes["vocab_size"],
            hidden_size=sizes["hidden_size"],
            filter_size=sizes["filter_size"],
            num_heads=sizes["num_heads"],
            num_hidden_layers=sizes["num_hidden_layers"],
            dtype={"float32": None, "bfloat16": "mixed_bfloat16"}[precision],
        ).build_weights()
    )
    rows, length = sizes["rows"], sizes["length"]
    count = sizes.get("hypotheses", beam_size)
    inputs = tf.random.uniform(
        (rows, length), 2, sizes["vocab_size"], tf.int32, seed=1
    )

    def search(inputs, limits, longest=length):
        memory, mask = model.encode(inputs)
        return beam_search(
            model.decode_step,
            model.follow_beams,
            model.start_decoding(memory, mask, beam_size, longest),
            batch_size=tf.shape(inputs)[0],
            beam_size=beam_size,
            vocab_size=sizes["vocab_size"],
            limits=limits,
            longest=longest,
            alpha=0.6,
            eos_id=NO_EOS,
            num_hypotheses=count,
        )

    if sizes.get("jit"):
        search = compiled(search, lambda width: width + ROOM)

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def decode(inputs):
        return search(inputs, tf.fill([tf.shape(inputs)[0]], length))

    parts = [inputs[place::searches] for place in range(searches)]
    threads = ThreadPoolExecutor(searches)

    def run():
        found = threads.map(lambda part: decode(part)[0].numpy(), parts)
        ids = np.concatenate(list(found))
        assert ids.shape == (rows, count, length)
        return length

    run.model = model
    return run


def start(precision):
    """Starts TensorFlow as the commands do."""
    start_tensorflow(fixed_weights=precision == "bfloat16")


def as_the_decoder(sizes, beam_size, precision="float32"):
    """The same with as many searches as the decoder makes of a file."""
    start(precision)
    from t2t_lite.decoding.streams.replicas import share_processor

    one = sizes["rows"] == 1
    searches = share_processor(
        1 if one else None, sizes["hidden_size"] if one else None
    )
    return make_step(sizes, beam_size, precision, searches=searches)


if __name__ == "__main__":
    serve(as_the_decoder, sys.argv[1:])
