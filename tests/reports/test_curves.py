import math

import pytest

from support.written_run import evaluation, training
from t2t_lite.reports.curves import Point, curves_of, thinned


def test_every_number_has_its_curve_in_the_order_of_the_page():
    records = [training(1), training(100), evaluation(100)]
    records.append(evaluation(100, weights="average-2-step-00000100"))
    curves = curves_of(records)
    assert [(curve.key, curve.weights) for curve in curves] == [
        ("loss", None),
        ("dev_loss", None),
        ("dev_loss", "average-2-step-00000100"),
        ("dev_bleu", None),
        ("dev_bleu", "average-2-step-00000100"),
        ("learning_rate", None),
        ("tokens_per_second", None),
        ("gradient_norm", None),
        ("padding", None),
    ]
    assert [point.step for point in curves[0].points] == [1, 100]
    assert curves[1].points[0].value == records[2]["dev_loss"]


def test_the_time_of_an_evaluation_lies_between_lines_of_training():
    records = [
        {"step": 10, "loss": 3.0, "seconds": 20.0},
        {"step": 20, "loss": 2.0, "seconds": 60.0},
        *({"step": step, "dev_loss": 1.0} for step in (5, 10, 15, 20, 25)),
    ]
    of_dev = curves_of(records)[1]
    seconds = [point.seconds for point in of_dev.points]
    assert seconds == [None, 20.0, 40.0, 60.0, None]


@pytest.mark.parametrize(
    "value", [None, "3", True, math.nan, math.inf, [1.0], {}]
)
def test_what_is_no_number_is_left_out(value):
    records = [{"step": 1, "loss": value}, {"step": 2, "loss": 2.0}]
    (curve,) = curves_of(records)
    assert curve.points == [Point(2, None, 2.0)]


def test_lines_in_any_order_are_put_in_order_and_the_last_one_counts():
    records = [
        {"step": s, "loss": v} for s, v in [(3, 1.0), (1, 2.0), (3, 5.0)]
    ]
    (curve,) = curves_of(records)
    assert [(p.step, p.value) for p in curve.points] == [(1, 2.0), (3, 5.0)]


def test_a_short_curve_keeps_every_point():
    points = [Point(step, None, 1.0) for step in range(1000)]
    assert thinned(points) == points


def test_of_many_points_the_lowest_and_highest_of_each_stretch_stay():
    values = [math.sin(i / 700) for i in range(100_000)]
    values[31_415], values[92_653] = 9.0, -9.0  # spikes
    points = [Point(i, float(i), value) for i, value in enumerate(values)]
    kept = thinned(points)
    assert len(kept) <= 1002
    assert kept == sorted(kept)
    assert {points[0], points[-1], points[31_415], points[92_653]} <= set(kept)
    for first in range(0, 100_000, 200):  # 500 stretches
        stretch = values[first : first + 200]
        told = [p.value for p in kept if first <= p.step < first + 200]
        assert (min(told), max(told)) == (min(stretch), max(stretch))
