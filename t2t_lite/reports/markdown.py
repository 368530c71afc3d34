"""Markdown and YAML in which any text stays the text that it is."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def code(text: Any) -> str:
    """A code span: no mark in a text means anything in there.

    Example: "a`b" gives "``a`b``".
    """
    content = _on_one_line(str(text))
    fence = "`" * (_longest_run(content) + 1)
    # A reader takes off the spaces at both ends, which keep backticks apart.
    pad = " " if "`" in (content[0], content[-1]) else ""
    return f"{fence}{pad}{content}{pad}{fence}"


def code_block(text: str) -> str:
    """A block of lines to copy."""
    fence = "`" * max(3, _longest_run(text) + 1)
    lines = _printable(text, keep="\n")
    return f"{fence}sh\n{lines}\n{fence}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown, such as `code` gives."""
    lines = []
    for row in (header, ["---"] * len(header), *rows):
        cells = (cell.replace("|", r"\|") for cell in row)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def front_matter(values: Mapping[str, Any]) -> str:
    """The YAML before a Markdown text, between its lines of dashes."""
    return "\n".join(["---", *_yaml(values), "---"])


def _yaml(value: Any, indent: str = "") -> list[str]:
    """Lines of YAML; dicts and lists in them must not be empty."""
    lines = []
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if isinstance(inner, (Mapping, list)):
                lines += [f"{indent}{key}:", *_yaml(inner, f"{indent}  ")]
            else:
                lines.append(f"{indent}{key}: {_scalar(inner)}")
        return lines
    for inner in value:
        if isinstance(inner, Mapping):
            first, *others = _yaml(inner, f"{indent}  ")
            lines += [f"{indent}- {first.lstrip()}", *others]
        else:
            lines.append(f"{indent}- {_scalar(inner)}")
    return lines


def _scalar(value: Any) -> str:
    """As JSON writes it, which YAML reads: `no` stays text in quotes."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(c if _is_plain(c) else f"\\u{ord(c):04x}" for c in text)


def _on_one_line(text: str) -> str:
    return _printable(" ".join(text.split()) or " ")


def _printable(text: str, keep: str = "") -> str:
    """The text; what no reader would see is written as its number."""
    return "".join(
        c if _is_plain(c) or c in keep else f"\\u{ord(c):04x}" for c in text
    )


def _is_plain(character: str) -> bool:
    # Beyond the basic plane YAML takes all, and four digits would not do.
    return character.isprintable() or ord(character) > 0xFFFF


def _longest_run(text: str) -> int:
    """Of backticks in a text."""
    return max(map(len, re.findall("`+", text)), default=0)
