"""Printing of tables and reports to stdout."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on one line."""
    print(json.dumps(value, ensure_ascii=False))


def print_report(report: Mapping[str, Any], as_json: bool) -> None:
    """Print the report of a metric, as text or as JSON."""
    if as_json:
        print_json(report)
        return
    print(f"{report['metric']} {report['score']:.2f}")
    for key, value in report.items():
        if key not in ("metric", "score"):
            print(f"  {key}: {format_value(value)}")


def print_table(rows: Iterable[Sequence[Any]], numbers: bool = False) -> None:
    """Print rows of cells in aligned columns, `numbers` right-aligned."""
    table = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = [
            cell.rjust(width) if numbers and i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of dicts with the same keys; the keys are the header."""
    values = (map(format_value, row.values()) for row in rows)
    print_table([list(rows[0]), *map(list, values)])


def format_value(value: Any) -> str:
    """Return a value as text for a report."""
    if value is None:
        return "-"
    if isinstance(value, dict):
        items = (f"{key} {format_value(item)}" for key, item in value.items())
        return ", ".join(items) or "none"
    if isinstance(value, float):
        is_plain = value == 0 or 1 <= abs(value) < 1e6
        return f"{value:.2f}" if is_plain else f"{value:.4g}"
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return f"{value:,}" if is_count else str(value)
