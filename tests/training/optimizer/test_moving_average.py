import numpy as np
import tensorflow as tf

from t2t_lite.training.optimizer.moving_average import MovingAverage


def test_the_average_of_three_updates_worked_by_hand():
    weights = tf.Variable([0.0])
    average = MovingAverage([weights], decay=0.24)
    seen = []
    for n, value in enumerate([11.0, 8.0, 4.0], start=1):
        weights.assign([value])
        average.update(tf.Variable(n, dtype=tf.int64))
        seen.append(float(average.averages[0][0]))
    # It keeps 2/11, then min(0.24, 3/12) and min(0.24, 4/13).
    np.testing.assert_allclose(
        seen, [9.0, 0.24 * 9 + 0.76 * 8, 0.24 * 8.24 + 0.76 * 4], rtol=1e-6
    )


def test_the_average_begins_as_the_weights_are():
    weights = tf.Variable([3.0, 4.0])
    average = MovingAverage([weights], decay=0.999)
    np.testing.assert_array_equal(average.averages[0], [3.0, 4.0])
    weights.assign([5.0, 6.0])
    average.begin()
    np.testing.assert_array_equal(average.averages[0], [5.0, 6.0])
