"""A run of a toy model on made-up data, for tests of training.

`TinyRun` stands in for `t2t_lite.training.run.Run`: the same loop, checkpoints
and updates work on it, without data files or a vocabulary. Its model is traced
in a tenth of the time of a Transformer; tests of the Transformer pass it as
`make_model`.
"""

import pathlib
from types import SimpleNamespace

import keras
import numpy as np
import tensorflow as tf

from t2t_lite.hparam import HParams
from t2t_lite.model.layers import DropoutMasks
from t2t_lite.problem import Text2TextProblem

VOCAB_SIZE = 16
BATCHES_IN_EPOCH = 40


def tiny_hparams(**changes):
    values = {
        "hidden_size": 8,
        "filter_size": 16,
        "num_heads": 2,
        "num_hidden_layers": 1,
        "batch_tokens": 96,
        "gradient_accumulation_steps": 3,
        "warmup_steps": 20,
        "train_steps": 6,
        "residual_dropout": 0.0,
        "average_checkpoints": 1,
    }
    return HParams(**{**values, **changes})


def batch(seed, epoch, number):
    """Return a batch for copying, with random numbers of rows and tokens."""
    random = np.random.default_rng([seed, epoch, number])
    rows, width = random.integers(1, 5), random.integers(2, 8)
    ids = random.integers(2, VOCAB_SIZE, (rows, width)).astype(np.int32)
    lengths = random.integers(1, width + 1, rows)
    for row, length in zip(ids, lengths, strict=True):
        row[length - 1 :] = 0
        row[length - 1] = 1
    return {"inputs": tf.constant(ids), "targets": tf.constant(ids)}


def packed(features):
    """Return the batch packed into one row, with the features of packing."""
    one_row = {}
    for side, ids in features.items():
        real = np.flatnonzero(ids)
        rows, columns = np.indices(ids.shape)
        for name, values in [
            (side, ids.numpy()),
            (f"{side}_segmentation", rows + 1),
            (f"{side}_position", columns),
        ]:
            values = values.reshape(1, -1)[:, real]
            one_row[name] = tf.constant(values, tf.int32)
    return one_row


class ToyModel(keras.Model):
    """Scores a target by the tokens before it and the mean of the source."""

    def __init__(self, hidden_size, dropout):
        super().__init__(name="toy")
        self._size = hidden_size
        self._dropout = dropout

    @classmethod
    def from_hparams(cls, hparams, source_vocab_size, target_vocab_size):
        return cls(hparams.hidden_size, hparams.residual_dropout)

    def build_weights(self):
        for name in ("source", "target", "softmax"):
            table = self.add_weight(
                shape=(VOCAB_SIZE, self._size),
                initializer="glorot_uniform",
                name=name,
            )
            setattr(self, f"{name}_table", table)
        self.built = True
        return self

    def loss_sum(self, features, label_smoothing=0.0, seed=None):
        inputs, targets = features["inputs"], features["targets"]
        source = tf.gather(self.source_table.value, inputs)
        mask = tf.cast(inputs != 0, tf.float32)[..., None]
        source = tf.math.divide_no_nan(
            tf.reduce_sum(source * mask, 1), tf.reduce_sum(mask, 1)
        )
        previous = tf.pad(targets, ((0, 0), (1, 0)))[:, :-1]
        hidden = tf.gather(self.target_table.value, previous)
        hidden += source[:, None, :]
        if seed is not None and self._dropout:
            hidden = DropoutMasks(seed)(hidden, self._dropout)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
            targets,
            tf.matmul(hidden, self.softmax_table.value, transpose_b=True),
        )
        real = tf.cast(targets != 0, tf.float32)
        return tf.reduce_sum(losses * real), tf.reduce_sum(real)


class TinyRun:
    def __init__(self, output_dir, seed=1, make_model=ToyModel, **changes):
        self.output_dir = pathlib.Path(output_dir)
        self.output_dir.mkdir(exist_ok=True)
        self.checkpoints_dir = self.output_dir / "checkpoints"
        self.hparams = tiny_hparams(**changes)
        self.config = {}
        self.seed = seed
        self._make_model = make_model
        self.evaluate_text = dict
        self.problem = Text2TextProblem()
        self.problem.evaluate = lambda *texts: self.evaluate_text()
        self.vocab_sizes = VOCAB_SIZE, VOCAB_SIZE
        self.data = TinyData(seed, self.hparams.packing)

    def update_config(self, **facts):
        self.config |= facts

    def model(self):
        return self._make_model.from_hparams(
            self.hparams, VOCAB_SIZE, VOCAB_SIZE
        ).build_weights()

    def translator(self, model, **options):
        """Return a stub, because `TinyData` has no texts to translate."""
        return SimpleNamespace(check_supported=lambda options: None)


class TinyData:
    """Stands in for `RunData`; calls `before_batch` with the position."""

    def __init__(self, seed, packing):
        self._seed = seed
        self._packing = packing
        self.before_batch = lambda epoch, number: None

    def check(self):
        return "made-up data"

    def training_batches(self, position=(0, 0, 0)):
        epoch, _, number = (int(part) for part in position)
        while True:
            self.before_batch(epoch, number)
            features = batch(self._seed, epoch, number)
            if self._packing:
                features = packed(features)
            number += 1
            if number == BATCHES_IN_EPOCH:
                epoch, number = epoch + 1, 0
            yield {**features, "position": tf.constant([epoch, 0, number])}

    def batches(self, split):
        assert split == "dev"
        return (batch(1000, 0, number) for number in range(3))

    def texts(self, split):
        return [], []

    def attended_lengths(self):
        return 4.0, 4.0
