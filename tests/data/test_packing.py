import numpy as np
import pytest

from support.random_lengths import random_lengths
from t2t_lite.data import packing


def plan(sources, targets, max_positions=256, max_length=64, seed=0):
    return packing.plan_rows(
        np.array(sources),
        np.array(targets),
        max_positions=max_positions,
        max_length=max_length,
        generator=None if seed is None else np.random.default_rng(seed),
    )


def bins_of(plan):
    return np.split(plan.examples, plan.rows[1:-1])


@pytest.mark.parametrize(
    ("max_positions", "max_length", "shape"),
    [
        (4096, 256, (16, 256)),
        (3125, 256, (12, 256)),
        (256, 256, (1, 256)),
        (100, 256, (1, 100)),
    ],
)
def test_every_batch_has_one_shape(max_positions, max_length, shape):
    assert packing.packed_shape(max_positions, max_length) == shape
    sources, targets = random_lengths(300)
    found = plan(sources, targets, max_positions, max_length)
    assert len(found.widths) > 1 and (found.widths == shape[1]).all()
    assert (np.diff(found.batches) == shape[0]).all()


@pytest.mark.parametrize("examples", [1, 2, 100, 3000])
@pytest.mark.parametrize("seed", [None, 0])
def test_no_example_lost_or_duplicated_and_rows_within_width(examples, seed):
    sides = random_lengths(examples)
    found = plan(*sides, seed=seed)
    assert sorted(found.examples) == list(range(examples))
    for row in bins_of(found):
        assert all(side[row].sum() <= 64 for side in sides)


def test_pairs_that_fill_a_row_exactly_share_it():
    """Fill two rows of ten, for which there is only one assignment."""
    found = plan([8, 7, 3, 2], [6, 7, 3, 4], 10, 10, seed=None)
    assert sorted(sorted(row) for row in bins_of(found)) == [[0, 3], [1, 2]]


def test_the_fuller_side_limits_a_row():
    found = plan([9, 9, 2, 2], [1, 1, 1, 1], 12, 12, seed=None)
    assert sorted(sorted(row) for row in bins_of(found)) == [[0, 2], [1, 3]]
    found = plan([1, 1, 1, 1], [9, 9, 2, 2], 12, 12, seed=None)
    assert sorted(sorted(row) for row in bins_of(found)) == [[0, 2], [1, 3]]


@pytest.mark.parametrize("length", [64, 40, 33, 1])
def test_no_batch_has_only_empty_rows(length):
    """Prevent a division of the loss of a batch by zero tokens."""
    for examples in (1, 397, 400):
        found = plan([length] * examples, [length] * examples)
        sizes = np.diff(found.rows).reshape(-1, 4)  # 4 rows of 64 a batch
        assert sizes.any(axis=1).all()
        assert len(sizes) == -(-examples // (64 // length) // 4)


def test_too_long_and_empty_pairs_are_left_out():
    found = plan([5, 65, 0, 9, 70, 3], [4, 5, 7, 80, 0, 0])
    assert list(found.examples) == [0]
    nothing = plan([65, 0], [5, 5])
    assert len(nothing.examples) == len(nothing.widths) == 0


def test_the_generator_determines_the_plan():
    sides = random_lengths(1000)
    first, again, other = (plan(*sides, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.examples, again.examples)
    np.testing.assert_array_equal(first.rows, again.rows)
    rows = [{tuple(sorted(row)) for row in bins_of(p)} for p in (first, other)]
    assert len(rows[0] & rows[1]) < len(rows[0]) / 4


def test_every_part_of_a_window_has_long_and_short_pairs():
    """Check that batches are not sorted by length."""
    sources, targets = random_lengths(4000)
    found = plan(sources, targets)
    lengths = sources[found.examples]
    parts = [part.mean() for part in np.array_split(lengths, 10)]
    assert max(parts) - min(parts) < 0.1 * lengths.mean()


def test_97_percent_of_the_positions_are_tokens_at_news_lengths():
    generator = np.random.default_rng(0)
    means = generator.lognormal(np.log(28) - 0.18, 0.6, 20_000)
    sides = generator.normal(1, 0.2, (2, 20_000)) * means
    sources, targets = np.clip(sides, 2, 256).astype(int)
    batches = len(plan(sources, targets, 4096, 256).widths)
    for side in (sources, targets):
        assert side.sum() >= 0.97 * batches * 4096
