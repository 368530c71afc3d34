"""Records equal those of tensor2tensor, except for the order of the sides."""

import numpy as np
import tensorflow as tf

from t2t_lite.datagen.encode import serialize_pairs

# Protobuf tags, each with a length: 0a Features of the Example, 0a feature, 0a
# its name, 12 its value, 1a int64 list, 0a packed varints.
BY_HAND = bytes.fromhex(
    "0a 27"
    "0a 11 0a 07 74617267657473 12 06 1a 04 0a 02 07 01"
    "0a 12 0a 06 696e70757473 12 08 1a 06 0a 04 05 ac02 01"
)


def test_a_record_equals_the_one_worked_out_by_hand():
    (ours,) = serialize_pairs([np.array([5, 300])], [np.array([7])], eos_id=1)
    assert len(ours) == len(BY_HAND)
    parse = tf.train.Example.FromString
    assert parse(ours) == parse(BY_HAND)
