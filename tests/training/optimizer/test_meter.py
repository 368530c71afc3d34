import math

import tensorflow as tf

from t2t_lite.training.optimizer.meter import Meter
from t2t_lite.training.optimizer.updates import UpdateStats


def _stats(skipped=0.0):
    """Loss 2 a token, 10 and 12 tokens on 40 positions."""
    loss, norm = (math.nan, math.nan) if skipped else (20.0, 3.0)
    sums = [tf.constant(v) for v in (loss, 10.0, 12.0, norm, skipped)]
    return UpdateStats(1e-3, *sums, positions=40)


def test_meter_gives_the_loss_per_target_token():
    meter = Meter()
    for _ in range(3):
        meter.add(_stats())
    meter.read()
    meter.seconds = 2.0
    assert meter.loss == 2.0
    assert meter.gradient_norm == 3.0
    assert meter.learning_rate == 1e-3
    assert meter.tokens_per_second == 3 * 22 / 2
    assert meter.padding == 1 - 22 / 40


def test_meter_reads_an_update_when_the_next_one_is_under_way():
    meter = Meter()
    meter.add(_stats(skipped=1.0))
    assert meter.skipped == 0
    meter.add(_stats())
    assert meter.skipped == 1


def test_meter_leaves_skipped_updates_out_of_the_loss():
    meter = Meter(skipped=5)
    for skipped in (0.0, 1.0, 1.0):
        meter.add(_stats(skipped))
    meter.read()
    assert (meter.loss, meter.gradient_norm) == (2.0, 3.0)
    assert meter.skipped == 7
    assert meter.skipped_in_interval == meter.skipped_in_a_row == 2
    meter.start_interval()
    assert meter.skipped_in_interval == 0
    assert meter.skipped_in_a_row == 2
    assert math.isnan(meter.loss)
    meter.add(_stats())
    meter.read()
    assert meter.skipped_in_a_row == 0


def test_meter_counts_only_the_time_of_updates():
    meter = Meter(seconds=100.0)
    with meter.timed():
        pass
    assert 100.0 < meter.seconds < 100.5
