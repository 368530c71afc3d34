"""The numbers that an inspection prints."""

import pytest

from t2t_lite.bin.cli.inspection import length_of


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 2), (0.5, 2), (0.51, 3), (0.75, 3), (1, 9)]
)
def test_enough_texts_are_no_longer_than_the_length_of_a_share(share, expected):
    assert length_of(share, {9: 1, 2: 2, 3: 1}) == expected
