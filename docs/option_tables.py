"""Write the option tables of the docs from the dataclasses that declare them.

A table stands between two comments:

    <!-- options: t2t_lite.hparam.HParams Model -->
    <!-- end of options -->

The first one names a dataclass and, optionally, help groups. `make docs` runs
this file; a test checks that the tables are up to date.
"""

import dataclasses
import json
import pathlib
import pydoc
import re

from t2t_lite.hparam import HParams

DOCS = pathlib.Path(__file__).parent
_TABLE = re.compile(
    r"(<!-- options: (\S+) ?(.*?) -->\n).*?(<!-- end of options -->)", re.DOTALL
)


_OPTION = re.compile(r"`([a-z]\w*(?:=\w+)?)`")  # in a help text


def with_tables(page: str) -> str:
    """Return the text of a page with new tables."""
    return _TABLE.sub(_table, page)


def _table(match):
    opening, path, groups, closing = match.groups()
    owner = pydoc.locate(path)
    flag = "" if owner is HParams else "--"
    rows = [
        f"| `{flag}{field.name}` | {default} | "
        + _OPTION.sub(rf"`{flag}\1`", help_text)
        + " |"
        for field in dataclasses.fields(owner)
        for default, help_text in [_default_and_help(field)]
        if not groups or field.metadata["group"] in groups.split(", ")
    ]
    assert rows, f"no options: {opening}"
    head = "| Option | Default | Meaning |\n|---|---|---|\n"
    return f"{opening}\n{head}" + "\n".join(rows) + f"\n\n{closing}"


def _default_and_help(field):
    help_text = field.metadata["help"].replace("|", "\\|")
    if stated := re.search(r" \(default: (.*)\)$", help_text):
        return stated[1], help_text[: stated.start()]
    default = field.default
    if default in (None, (), ""):
        return "none", help_text
    return json.dumps(default).strip('"'), help_text


if __name__ == "__main__":
    for file in DOCS.glob("*.md"):
        text = file.read_text("utf-8")
        file.write_text(with_tables(text), "utf-8")
