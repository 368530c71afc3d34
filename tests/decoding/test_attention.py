"""Attention weights and their plot."""

import io
import sys

import numpy as np
import pytest

import t2t_lite
from t2t_lite.decoding.results import Attention
from t2t_lite.errors import T2TLiteError, UsageError

CROSS = np.zeros([2, 2, 3, 4])  # 2 layers of 2 heads, 3 targets, 4 sources
CROSS[1, 0, :, 0] = CROSS[1, 1, :, 2] = CROSS[0, :, :, 3] = 1


@pytest.fixture
def attention():
    source, target = [r"$\a$", "▁b", "c", "⟨end⟩"], ["x", "y", "⟨end⟩"]
    return Attention((r"$\a$ bc", "xy"), source, target, None, None, CROSS)


@pytest.fixture
def axes():
    figure = pytest.importorskip("matplotlib.figure")
    return figure.Figure().add_subplot()


@pytest.mark.parametrize(
    ("heads", "row"),
    [
        ({}, [0.5, 0, 0.5, 0]),
        ({"head": 1}, [0, 0, 1, 0]),
        ({"layer": 0}, [0, 0, 0, 1]),
        ({"layer": 0, "head": -1}, [0, 0, 0, 1]),
    ],
)
def test_a_plot_has_the_weights_of_a_head_or_their_mean(
    attention, axes, heads, row
):
    assert attention.plot(axes, **heads) is axes
    (image,) = axes.images
    np.testing.assert_array_equal(image.get_array(), [row] * 3)
    for axis, tokens in (
        (axes.xaxis, attention.source_tokens),
        (axes.yaxis, attention.target_tokens),
    ):
        assert [label.get_text() for label in axis.get_ticklabels()] == tokens
    axes.figure.savefig(io.BytesIO())  # labels are not parsed as formulas


def test_a_plot_of_a_run_makes_a_figure(tiny_run):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    translator = t2t_lite.load(tiny_run)
    attention = translator.attention("1 2")
    assert attention.texts == ("1 2", translator("1 2"))
    axes = attention.plot()
    assert axes.figure.number in pyplot.get_fignums()
    pyplot.close(axes.figure)


@pytest.mark.parametrize("index", [{"layer": 2}, {"head": 2}, {"head": "x"}])
def test_an_index_out_of_range_is_named(attention, axes, index):
    with pytest.raises(UsageError, match=next(iter(index))):
        attention.plot(axes, **index)


def test_without_matplotlib_the_extra_is_named(attention, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(T2TLiteError, match="notebook"):
        attention.plot()


def test_an_export_has_no_attention(tiny_export):
    with pytest.raises(UsageError, match="run"):
        t2t_lite.load(tiny_export).attention("1")
