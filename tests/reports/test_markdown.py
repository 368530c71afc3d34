import pytest

from t2t_lite.reports.markdown import code, code_block, front_matter, table

NASTY = [
    "wmt_ende",
    "a|b",
    "``` end",
    "`tick",
    "<script>alert(1)</script>",
    "[x](javascript:1) ![y](z) **bold** <!-- -->",
    "a: b\n---\n# heading\n- item",
    "no",
    "null",
    "'quote\" \\ back",
    "\x00\x07\x85\u2028\ufeff\ud83d",
    "😀 ünïcode \U000e0001",
    "{a: [b, c]} & *anchor !tag %",
    "",
]


def _parsed(text):
    """The tokens of the text, those inside of paragraphs and cells, too."""
    markdown = pytest.importorskip("markdown_it")
    tokens = markdown.MarkdownIt().enable("table").parse(text)
    return [*tokens, *(inner for t in tokens for inner in t.children or ())]


def _seen(text):
    """What a code span shows of a text."""
    line = " ".join(text.split())
    return "".join(
        c if c.isprintable() or ord(c) > 0xFFFF else f"\\u{ord(c):04x}"
        for c in line
    )


@pytest.mark.parametrize("name", NASTY)
def test_any_text_is_one_code_span(name):
    told = [t for t in _parsed(f"# {code(name)}") if t.type == "code_inline"]
    assert [token.content.strip() for token in told] == [_seen(name)]


def test_no_text_breaks_a_table():
    rows = [[code(name), code(name)] for name in NASTY]
    tokens = _parsed(f"before\n\n{table(['A', 'B'], rows)}\n\nafter")
    kinds = {token.type for token in tokens}
    assert not kinds & {"html_inline", "html_block", "link_open", "image"}
    cells = [t.content.strip() for t in tokens if t.type == "code_inline"]
    assert cells == [_seen(name) for name in NASTY for _ in "AB"]


@pytest.mark.parametrize("text", ["a b", "```\nx", "'two\nlines'", "~~~ `` x"])
def test_no_text_ends_a_block_of_code(text):
    (block,) = [t for t in _parsed(f"{code_block(text)}\n\nafter") if t.markup]
    assert (block.type, block.content) == ("fence", f"{text}\n")


@pytest.mark.parametrize("name", [n for n in NASTY if "\ud83d" not in n])
def test_front_matter_is_yaml_of_the_same_values(name):
    yaml = pytest.importorskip("yaml")
    values = {
        "language": [name, "no"],
        "model-index": [{"name": name, "results": [{"task": {"type": name}}]}],
        "value": 27.5,
        "nothing": None,
    }
    text = front_matter(values)
    assert text.startswith("---\n") and text.endswith("\n---")
    assert text.splitlines().count("---") == 2
    assert yaml.safe_load(text.removesuffix("---")) == values
