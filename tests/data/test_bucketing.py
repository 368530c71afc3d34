import numpy as np
import pytest

from support.random_lengths import random_lengths
from t2t_lite.data import bucketing


def batches_of(plan):
    return np.split(plan.examples, plan.batches[1:-1])


def plan(sources, targets, max_positions=256, max_length=64, seed=0):
    return bucketing.plan_batches(
        np.array(sources),
        np.array(targets),
        max_positions=max_positions,
        max_length=max_length,
        generator=None if seed is None else np.random.default_rng(seed),
    )


@pytest.mark.parametrize(
    "max_length, growth, boundaries",
    [
        (4, 1.1, [1, 2, 3, 4]),
        (1, 1.1, [1]),
        (30, 1.1, [*range(1, 21), 22, 24, 26, 28, 30]),
        (12, 1.5, [1, 2, 3, 4, 6, 9, 12]),
    ],
)
def test_boundaries_are_every_integer_then_grow(max_length, growth, boundaries):
    found = bucketing.length_boundaries(max_length, growth)
    assert found.tolist() == boundaries


@pytest.mark.parametrize(
    "boundary, max_positions, rows",
    [
        (15, 2048, 136),  # 136.5; 136 is a multiple of 8
        (17, 2048, 120),  # 120.5
        (100, 2048, 16),  # 20.5, rounded down to 16
        (300, 2048, 6),  # less than 8 is not rounded
        (2048, 2048, 1),
    ],
)
def test_rows_fill_the_positions(boundary, max_positions, rows):
    assert bucketing.bucket_batch_size(boundary, max_positions) == rows


def test_small_window_worked_out_by_hand():
    # A batch of 8 positions has two rows of 4 tokens, or four of 2.
    result = plan(
        [4, 2, 4, 2, 2, 2, 3, 0, 9],
        [4, 2, 4, 2, 2, 2, 4, 2, 2],
        max_positions=8,
        max_length=8,
        seed=None,
    )
    assert [batch.tolist() for batch in batches_of(result)] == [
        [6],  # the remainder, which is not full
        [0, 2],
        [1, 3, 4, 5],
    ]
    assert result.widths[:, 0].tolist() == [3, 4, 2]
    assert result.widths[:, 1].tolist() == [4, 4, 2]


def test_a_remainder_moves_to_the_next_larger_bucket():
    # 5 pairs of 4 tokens and 11 of 5 tokens give two batches of 8 rows.
    result = plan([4] * 5 + [5] * 11, [4] * 5 + [5] * 11, max_positions=40)
    assert np.diff(result.batches).tolist() == [8, 8]
    assert result.widths[:, 0].tolist() == [5, 5]


@pytest.mark.parametrize("max_positions", [40, 64, 300, 2048])
def test_batches_stay_within_max_positions_and_hold_their_rows(max_positions):
    sources, targets = random_lengths(3000)
    result = plan(sources, targets, max_positions=max_positions)
    rows = np.diff(result.batches)
    for lengths, widths in (
        (sources, result.widths[:, 0]),
        (targets, result.widths[:, 1]),
    ):
        assert (rows * widths).max() <= max_positions
        longest = [lengths[batch].max() for batch in batches_of(result)]
        assert (widths >= longest).all()


def test_widths_are_boundaries_and_shapes_few():
    lengths = random_lengths(20_000, longest=100)
    shapes = set()
    for seed in range(4):
        result = plan(*lengths, 2048, max_length=100, seed=seed)
        rows = np.diff(result.batches)
        full = rows >= 2048 // 100 // 8 * 8
        shapes |= set(zip(rows[full], *result.widths[full].T, strict=True))
    widths = {width for _, *sides in shapes for width in sides}
    assert widths <= set(bucketing.length_boundaries(100))
    assert len(shapes) < 600


def test_at_most_one_batch_of_a_window_is_not_full():
    sources, targets = random_lengths(5000)
    result = plan(sources, targets, max_positions=1024)
    allowed = {
        bucketing.bucket_batch_size(boundary, 1024)
        for boundary in bucketing.length_boundaries(64)
    }
    rows = np.diff(result.batches).tolist()
    assert sum(count not in allowed for count in rows) <= 1
