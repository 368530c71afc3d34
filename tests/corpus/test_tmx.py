"""Translation memories (TMX): pairs of two languages, read as a stream."""

import gzip

import pytest
from lxml import etree

from t2t_lite.corpus.parallel import read_tmx
from t2t_lite.errors import T2TLiteError

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'


def unit(**texts):
    """Return a `<tu>`; keywords are languages, with `_` for `-`."""
    variants = "".join(
        f'<tuv xml:lang="{language.replace("_", "-")}"><seg>{text}</seg></tuv>'
        for language, text in texts.items()
    )
    return f'<tu tuid="1"><prop type="x">p</prop>{variants}</tu>\n'


def memory(folder, *units, head=HEAD, tmx="tmx"):
    body = "".join(units)
    path = folder / "memory.tmx"
    path.write_text(
        f'{head}<{tmx} version="1.4">\n<header srclang="xx"/>\n'
        f"<body>\n{body}</body>\n</{tmx.split()[0]}>\n",
        encoding="utf-8",
    )
    return path


def pairs(path, source="xx", target="yy"):
    return list(read_tmx(path, source, target))


def test_a_unit_is_a_pair_in_any_order_of_its_languages(tmp_path):
    path = memory(
        tmp_path,
        unit(xx="a &amp; &lt;b&gt; &#233;", yy="A"),
        unit(zz="?", yy="B", xx="b"),
    )
    assert pairs(path) == [("a & <b> \u00e9", "A"), ("b", "B")]
    assert pairs(path, "yy", "xx") == [("A", "a & <b> \u00e9"), ("B", "b")]
    compressed = tmp_path / "memory.tmx.gz"
    compressed.write_bytes(gzip.compress(path.read_bytes()))
    assert pairs(compressed) == pairs(path)


def test_formatting_is_removed_and_highlighted_text_is_kept(tmp_path):
    path = memory(
        tmp_path,
        unit(
            xx='a <bpt i="1">&lt;b></bpt>b<ept i="1">&lt;/b></ept> '
            "<ph>{0}</ph><hi>c <it>x</it>d</hi><!-- e --> f",
            yy="\n  A\n  B ",
        ),
    )
    assert pairs(path) == [("a b c d f", "A   B")]


def test_an_old_attribute_and_a_namespace_are_supported(tmp_path):
    old = '<tu><tuv lang="XX"><seg>a</seg></tuv>' + (
        '<tuv lang="yy_AA"><seg>A</seg></tuv></tu>'
    )
    path = memory(tmp_path, old, tmx='tmx xmlns="http://www.lisa.org/tmx14"')
    assert pairs(path) == [("a", "A")]


def test_a_language_includes_its_regions(tmp_path):
    path = memory(
        tmp_path,
        unit(xx_AA="a", yy="A"),
        unit(xx="b", xx_BB="c", yy_CC="B"),
        unit(xx="x"),
        unit(yy="Y"),
        unit(),
    )
    no_pair = [("x", ""), ("", "Y"), ("", "")]
    assert pairs(path) == [("a", "A"), ("b", "B"), ("c", "B"), *no_pair]
    assert pairs(path, "xx-BB", "yy")[:2] == [("", "A"), ("c", "B")]


def test_the_error_for_a_missing_language_lists_the_others(tmp_path):
    path = memory(tmp_path, unit(xx_AA="a", zz="A"), unit(xx_AA="b"))
    with pytest.raises(T2TLiteError, match=r"tmx .*'yy'; .*'xx-aa', 'zz'"):
        pairs(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("</tu>\n</body>", "\n</body>", "is damaged: line 6: .*mismatch"),
        ("<seg>A</seg>", "<seg>A & B</seg>", "is damaged: line 5: "),
        ("<seg>A</seg>", "<seg>&nothing;</seg>", "line 5: .*nothing"),
        ("</body>", "", "is damaged: line 7: "),
        ("tu>", "unit>", "no <tu>"),
        ("seg>", "s>", "no <seg>"),
        ("UTF-8", "klingon", "klingon"),
    ],
)
def test_the_error_for_invalid_tmx_names_the_cause(tmp_path, old, new, message):
    path = memory(tmp_path, unit(xx="a", yy="A").replace(' tuid="1"', ""))
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(T2TLiteError, match=f"memory.tmx .*{message}"):
        pairs(path)


@pytest.mark.parametrize("data", [b"", b"a\tb\n", b"\x1f\x8b"])
def test_a_file_that_is_not_xml_is_damaged(tmp_path, data):
    (tmp_path / "memory.tmx").write_bytes(data)
    with pytest.raises(T2TLiteError, match="memory.tmx is damaged: "):
        pairs(tmp_path / "memory.tmx")


def test_entities_and_other_files_are_not_read(tmp_path):
    (tmp_path / "secret").write_text("secret")
    head = (
        f'{HEAD}<!DOCTYPE tmx SYSTEM "tmx14.dtd" ['
        '<!ENTITY inner "inside"> '
        f'<!ENTITY outer SYSTEM "{(tmp_path / "secret").as_uri()}">]>\n'
    )
    path = memory(tmp_path, unit(xx="a", yy="A"), head=head)
    assert pairs(path) == [("a", "A")]
    for name in ("inner", "outer"):
        path = memory(tmp_path, unit(xx=f"a &{name};", yy="A"), head=head)
        with pytest.raises(T2TLiteError, match=f"got &{name}; in .*, line 6"):
            pairs(path)


def test_a_unit_is_freed_when_the_next_is_read(tmp_path, monkeypatch):
    roots = []

    class Parser(etree.XMLPullParser):
        def close(self):
            roots.append(super().close())

    monkeypatch.setattr(etree, "XMLPullParser", Parser)
    assert len(pairs(memory(tmp_path, *[unit(xx="a", yy="A")] * 500))) == 500
    ((_, body),) = roots
    assert len(body) <= 1


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a &#11; b", "a \ufffd b"),
        ("a \x0b b\x1f", "a \ufffd b\ufffd"),
        ("&#x0;&#0000;&#xD800;&#xFFFE;", "\ufffd" * 4),
        (f"&#{'9' * 5000};&#x110000;&#x10FFFF;", "\ufffd\ufffd\U0010ffff"),
        ("&#9;&#233;&#xe9;&amp;#11;", "\xe9\xe9&#11;"),
        (" " * 65530 + "x&#00000000000011;", "x\ufffd"),
    ],
)
def test_a_control_character_is_replaced(tmp_path, text, found):
    path = memory(tmp_path, unit(xx=text, yy="A"), unit(xx="b", yy="B"))
    assert pairs(path) == [(found, "A"), ("b", "B")]


@pytest.mark.parametrize(
    ("encoding", "declared"),
    [
        *(("utf-8-sig", "utf-8"), ("utf-16", "utf-16")),
        *(("utf-16-le", "utf-16"), ("latin-1", "ISO-8859-1")),
        ("utf-8", "utf-16"),  # with a wrong declaration
    ],
)
def test_the_encoding_is_detected(tmp_path, encoding, declared):
    path = memory(tmp_path, unit(xx="\xe9", yy="A"))
    text = path.read_text("utf-8").replace("UTF-8", declared)
    path.write_bytes(text.encode(encoding))
    assert pairs(path) == [("\xe9", "A")]


def test_invalid_bytes_are_limited_as_in_other_formats(tmp_path):
    path = memory(tmp_path, *[unit(xx="\xe9", yy="A")] * 99)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"\xc3\xa9", b"\xe9", 1))
    assert pairs(path)[:2] == [("\ufffd", "A"), ("\xe9", "A")]
    path.write_bytes(content.replace(b"\xc3\xa9", b"\xe9"))
    with pytest.raises(T2TLiteError, match="must be UTF-8 text; 99 of "):
        pairs(path)
