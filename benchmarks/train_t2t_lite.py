"""One side of training_step.py: an update as the trainer makes it."""

import itertools
import sys

from side import serve
from training_step import hparams_of

from t2t_lite.tf_setup import start_tensorflow


def make_step(sizes, precision):
    """Return a function that does one whole update on the fixed batch."""
    start_tensorflow()  # as the commands do
    import tensorflow as tf

    from t2t_lite.model.transformer import Transformer
    from t2t_lite.training import distribute
    from t2t_lite.training.distribute import choose_strategy
    from t2t_lite.training.update import Updater

    hparams = hparams_of(
        sizes,
        residual_dropout=0.1,
        precision=precision,
        gradient_accumulation_steps=1,
    )
    vocab_size = sizes["vocab_size"]
    strategy = choose_strategy(hparams=hparams)
    model = Transformer.from_hparams(hparams, vocab_size, vocab_size)
    updater = Updater(model.build_weights(), hparams, strategy, 1)
    shape = (sizes["rows"], sizes["length"])
    batch = {
        side: tf.random.uniform(shape, 2, vocab_size, tf.int32)
        for side in ("inputs", "targets")
    }
    numbers = itertools.count(1)

    def step():
        stats = updater.update([batch], next(numbers)).read()
        return {
            "loss": stats.loss_sum / stats.target_tokens,
            "peak_bytes": distribute.peak_bytes(),
        }

    return step


if __name__ == "__main__":
    serve(make_step, sys.argv[1:])
