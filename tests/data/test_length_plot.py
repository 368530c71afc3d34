"""The picture of lengths: what is drawn, and where it goes."""

import struct
import sys

import pytest

from t2t_lite.data.inspection_records import Inspection, Side, SplitInspection
from t2t_lite.data.length_plot import draw_lengths, length_figure
from t2t_lite.errors import T2TLiteError


def split_of(source, target, longer):
    sides = (Side(lengths, None, 0, 0) for lengths in (source, target))
    count = sum(longer.values())
    return SplitInspection(count, {}, {}, *sides, longer, 0, (), ())


@pytest.fixture
def inspection():
    train = split_of({2: 3, 4: 1}, {2: 2, 3: 2}, {2: 2, 3: 1, 4: 1})
    dev = split_of({5: 1}, {6: 1}, {6: 1})
    splits = {"train": train, "dev": dev}
    return Inspection("toy", "somewhere", {}, 0, splits)


def test_bars_are_counts_and_lines_end_with_every_pair(inspection):
    pytest.importorskip("matplotlib")
    left, right = length_figure(inspection).axes
    source, target = (patch.get_data().values for patch in left.patches)
    assert source.tolist() == [0, 3, 0, 1]  # of 1 to 4 tokens
    assert target.tolist() == [0, 2, 2, 0]
    train, dev = right.lines
    assert list(train.get_xdata()) == [2, 3, 4]
    assert list(train.get_ydata()) == [50, 75, 100]
    assert list(dev.get_ydata()) == [100]


def test_few_endless_pairs_do_not_squash_the_others(inspection):
    pytest.importorskip("matplotlib")
    lengths = {3: 999, 5000: 1}
    inspection.splits["train"] = split_of(lengths, lengths, lengths)
    left, right = length_figure(inspection).axes
    assert left.get_xlim() == (0.5, 3.5)
    assert "(1 pairs go on beyond)" in left.get_xlabel()
    assert right.lines[0].get_xdata()[-1] == 5000


def test_the_picture_lies_beside_the_data(inspection, tmp_path):
    pytest.importorskip("matplotlib")
    for _ in range(2):  # the second time it is replaced
        path = draw_lengths(inspection, tmp_path)
        assert list(tmp_path.iterdir()) == [path]
    assert path == tmp_path / "toy.lengths.png"
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">2I", data[16:24]) == (1320, 540)


def test_a_place_that_cannot_be_written_is_named(inspection, tmp_path):
    pytest.importorskip("matplotlib")
    with pytest.raises(T2TLiteError, match="Cannot write .*nowhere/toy.leng"):
        draw_lengths(inspection, tmp_path / "nowhere")


def test_without_matplotlib_it_says_what_to_install(
    inspection, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(T2TLiteError, match=r"pip install 't2t-lite\[plot\]'"):
        draw_lengths(inspection, tmp_path)
    assert not list(tmp_path.iterdir())
