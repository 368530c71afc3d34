"""One side of training_step.py: this package's model, loss and Adam."""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as the commands do

import tensorflow as tf
from side import serve
from training_step import hparams_of

from t2t_lite.model.transformer import Transformer
from t2t_lite.training.fit import memory
from t2t_lite.training.optimizer.adam import Adam


def make_step(sizes, precision, recompute=False):
    """A function that does one whole update on the fixed batch."""
    hparams = hparams_of(sizes, residual_dropout=0.1, precision=precision)
    vocab_size = sizes["vocab_size"]
    model = Transformer.from_hparams(hparams, vocab_size, vocab_size)
    model.build_weights()
    model.recompute = recompute
    variables = [v.value for v in model.trainable_variables]
    adam = Adam(variables, 0.9, 0.98, 1e-9)
    shape = (sizes["rows"], sizes["length"])
    batch = {
        side: tf.random.uniform(shape, 2, vocab_size, tf.int32)
        for side in ("inputs", "targets")
    }

    @tf.function(autograph=False)
    def update(number):
        with tf.GradientTape() as tape:
            loss, count = model.loss_sum(batch, 0.1, tf.stack([0, number]))
            loss = loss / count
        gradients = tape.gradient(loss, variables)
        adam.apply([tf.convert_to_tensor(g) for g in gradients], 1e-4)
        return loss

    numbers = iter(range(1 << 30))

    def step():
        loss = float(update(tf.constant(next(numbers))))
        return {"loss": loss, "peak_bytes": memory.peak_bytes()}

    return step


if __name__ == "__main__":
    serve(make_step, sys.argv[1:])
