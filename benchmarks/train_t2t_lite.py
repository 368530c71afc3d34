"""One side of training_step.py: this package's model, loss and Adam."""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
from side import serve

from t2t_lite.transformer import Transformer


def make_step(sizes, precision):
    """A function that does one whole update on the fixed batch."""
    import keras

    model = Transformer(
        sizes["vocab_size"],
        sizes["vocab_size"],
        sizes["hidden_size"],
        sizes["filter_size"],
        sizes["num_heads"],
        sizes["num_hidden_layers"],
        residual_dropout=0.1,
        dtype={"float32": None, "bfloat16": "mixed_bfloat16"}[precision],
    ).build_weights()
    optimizer = keras.optimizers.Adam(1e-4, 0.9, 0.98, 1e-9)
    variables = model.trainable_variables
    optimizer.build(variables)
    batch = {
        side: tf.random.uniform(
            (sizes["rows"], sizes["length"]),
            2,
            sizes["vocab_size"],
            tf.int32,
            seed=1,
        )
        for side in ("inputs", "targets")
    }

    @tf.function
    def update(number):
        with tf.GradientTape() as tape:
            seed = tf.stack([0, number])
            loss, count = model.loss_sum(batch, 0.1, seed)
            loss = loss / count
        optimizer.apply(tape.gradient(loss, variables), variables)
        return loss

    numbers = iter(range(1 << 30))
    return lambda: float(update(tf.constant(next(numbers))))


if __name__ == "__main__":
    serve(make_step, sys.argv[1:])
