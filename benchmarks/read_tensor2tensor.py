"""tensor2tensor 1.15.7's own reader, as a side of reading.py.

It runs in a virtual environment of Python 3.7 with tensorflow 1.15.5,
protobuf below 3.21, tensor2tensor 1.15.7 (--no-deps) and what that imports.
"""

import sys

import numpy as np
import tensorflow.compat.v1 as tf
from side import serve
from tensor2tensor.data_generators import problem
from tensor2tensor.utils import hparam


class Ids(problem.Problem):
    """The shards that reading.py made."""

    def dataset_filename(self):
        return "ids"

    def example_reading_spec(self):
        ids = tf.VarLenFeature(tf.int64)
        return {"inputs": ids, "targets": ids}, None

    def feature_encoders(self, data_dir):
        return {}

    def hparams(self, defaults, model_hparams):
        defaults.modality, defaults.vocab_size = {}, {}


def make_step(folder, tokens, max_positions, max_length):
    """A function that reads so many tokens on, in batches of train."""
    hparams = hparam.HParams(
        batch_size=max_positions,
        max_length=max_length,
        min_length=0,
        min_length_bucket=8,
        length_bucket_step=1.1,
        batch_size_multiplier=1,
        use_fixed_batch_size=False,
        max_input_seq_length=0,
        max_target_seq_length=0,
        prepend_mode="none",
        split_to_length=0,
        data_dir=folder,
    )
    tf.disable_v2_behavior()  # the benchmark's environment turns it on
    dataset = Ids().input_fn(tf.estimator.ModeKeys.TRAIN, hparams, folder)
    features = tf.data.make_one_shot_iterator(dataset).get_next()[0]
    batch = [features["inputs"], features["targets"]]
    session = tf.Session()

    def step():
        seen = 0
        while seen < tokens:
            seen += sum(np.count_nonzero(side) for side in session.run(batch))
        return int(seen)

    return step


if __name__ == "__main__":
    serve(make_step, sys.argv[1:])
