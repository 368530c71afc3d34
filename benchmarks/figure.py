"""Figures of curves as SVG, in the colors that a page around them has."""

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 300, 260  # of a panel, pixels
LEFT, RIGHT, TOP, BOTTOM = 46, 26, 40, 40  # its margins
STYLE = """
text { font: 12px sans-serif; fill: #333 }
.grid { stroke: #8884 }
.line { fill: none; stroke-width: 2 }
.counted { stroke-dasharray: 5 4; stroke-width: 1.5 }
.c0 { stroke: #1565c0 } circle.c0, text.c0 { fill: #1565c0; stroke: none }
.c1 { stroke: #c2571a } circle.c1, text.c1 { fill: #c2571a; stroke: none }
@media (prefers-color-scheme: dark) {
  text { fill: #ddd }
  .c0 { stroke: #79b8ff } circle.c0, text.c0 { fill: #79b8ff }
  .c1 { stroke: #ffab70 } circle.c1, text.c1 { fill: #ffab70 }
}
"""


class Curve(NamedTuple):
    """Points in a color, solid with dots or dashed."""

    xs: Sequence[float]
    ys: Sequence[float]  # as many
    color: int  # 0 or 1
    name: str = ""  # stands above the panel
    dashed: bool = False


class Panel(NamedTuple):
    """Curves over one axis, from 0 on both."""

    title: str  # of the axis
    ticks: Sequence[float]  # where it has numbers
    curves: list[Curve]


def svg(panels, unit):
    """The panels side by side: text of an SVG file.

    Args:
      panels: `Panel`s.
      unit: what the other axis counts.
    """
    panels = list(panels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" '
        f'viewBox="0 0 {len(panels) * WIDTH} {HEIGHT}">',
        f"<style>{STYLE}</style>",
    ]
    for number, panel in enumerate(panels):
        parts.append(f'<g transform="translate({number * WIDTH} 0)">')
        parts += _panel(panel, unit)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel, unit):
    top = max(max(curve.ys) for curve in panel.curves)
    step = _round_step(top)
    steps = math.ceil(top / step)
    right = max(max(curve.xs) for curve in panel.curves)
    x_scale = (WIDTH - LEFT - RIGHT) / right
    y_scale = (HEIGHT - TOP - BOTTOM) / (steps * step)

    def place(x, y):
        return LEFT + x * x_scale, HEIGHT - BOTTOM - y * y_scale

    for number in range(steps + 1):
        _, y = place(0, number * step)
        yield f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
        yield _text(LEFT - 5, y + 4, "end", f"{number * step:,g}")
    for tick in panel.ticks:
        x, y = place(tick, 0)
        yield _text(x, y + 16, "middle", f"{tick:,}")
    yield _text((LEFT + WIDTH) / 2, HEIGHT - 6, "middle", panel.title)
    yield _text(4, 14, "start", unit)
    named = [curve for curve in panel.curves if curve.name]
    for number, curve in enumerate(named):
        color = f' class="c{curve.color}"'
        x, y = WIDTH - RIGHT, 14 + 15 * number
        yield _text(x, y, "end", curve.name, color)
    for curve in panel.curves:
        dots = list(map(place, curve.xs, curve.ys))
        kind = " counted" if curve.dashed else ""
        line = "L".join(f"{x:.1f} {y:.1f}" for x, y in dots)
        yield f'<path class="line c{curve.color}{kind}" d="M{line}"/>'
        if not curve.dashed:
            for x, y in dots:
                yield (
                    f'<circle class="c{curve.color}" r="3" '
                    f'cx="{x:.1f}" cy="{y:.1f}"/>'
                )


def _text(x, y, anchor, text, more=""):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>'
        f"{escape(text)}</text>"
    )


def _round_step(top):
    """1, 2 or 5 times a power of ten; four or more of them make `top`."""
    power = 10.0 ** math.floor(math.log10(top))
    return power * next(
        part for part in (1, 0.5, 0.2) if top >= 4 * power * part
    )
