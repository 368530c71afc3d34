"""`benchmarks/figure.py`: points stand where their numbers say."""

import importlib.util
import xml.etree.ElementTree as xml

import pytest

from support.places import ROOT

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def figure():
    place = ROOT / "benchmarks" / "figure.py"
    spec = importlib.util.spec_from_file_location("figure", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def panels_of(figure, *curves):
    panels = [figure.Panel("rows & columns", (0, 10), [c]) for c in curves]
    return xml.fromstring(figure.svg(panels, "ms")).findall(f"{SVG}g")


def texts(panel):
    return [text.text for text in panel.iter(f"{SVG}text")]


def dots(panel):
    return [
        (float(dot.get("cx")), float(dot.get("cy")))
        for dot in panel.iter(f"{SVG}circle")
    ]


def test_a_curve_goes_from_corner_to_corner_between_numbers(figure):
    curve = figure.Curve((0, 5, 10), (0, 20, 40), 0, "ours")
    (panel,) = panels_of(figure, curve)
    left, right = figure.LEFT, figure.WIDTH - figure.RIGHT
    top, bottom = figure.TOP, figure.HEIGHT - figure.BOTTOM
    middle = ((left + right) / 2, (top + bottom) / 2)
    assert dots(panel) == [(left, bottom), middle, (right, top)]
    numbers = ["0", "10", "20", "30", "40"]
    assert texts(panel) == [*numbers, "0", "10", "rows & columns", "ms", "ours"]


def test_panels_stand_side_by_side_and_what_is_counted_has_no_dots(figure):
    measured = figure.Curve((0, 10), (0, 40), 0)
    one, other = panels_of(figure, measured, measured._replace(dashed=True))
    assert one.get("transform") == "translate(0 0)"
    assert other.get("transform") == f"translate({figure.WIDTH} 0)"
    assert (len(dots(one)), len(dots(other))) == (2, 0)
    lines = [
        [
            path.get("d")
            for path in panel.iter(f"{SVG}path")
            if "line" in path.get("class")
        ]
        for panel in (one, other)
    ]
    assert lines[0] == lines[1]


@pytest.mark.parametrize(
    ("top", "numbers"),
    [
        (1, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (2, ["0", "0.5", "1", "1.5", "2"]),
        (2900, ["0", "500", "1,000", "1,500", "2,000", "2,500", "3,000"]),
        (4100, ["0", "1,000", "2,000", "3,000", "4,000", "5,000"]),
    ],
)
def test_numbers_are_round_and_reach_the_highest_point(figure, top, numbers):
    (panel,) = panels_of(figure, figure.Curve((0, 10), (0, top), 0))
    assert texts(panel)[:-4] == numbers
    assert min(y for _, y in dots(panel)) >= figure.TOP
