"""The two sides of a corpus are found by name and read line by line."""

import pytest

from t2t_lite.corpus.parallel import find_parallel_files, read_parallel
from t2t_lite.errors import T2TLiteError, UsageError

XY = ("xx", "yy")


def fill(folder, **files):
    """Write text files; `__` in a name stands for a dot, `_` for `-`."""
    for name, text in files.items():
        name = name.replace("__", ".").replace("_", "-")
        (folder / name).write_text(text, "utf-8")


def find_names(folder, stems=("train",)):
    sides = find_parallel_files(folder, stems, XY)
    return [(source.name, target.name) for source, target in sides]


@pytest.mark.parametrize(
    ("source", "target"),
    [("a\nb\nc\n", "x\n"), ("a\n", "x\ny\nz\n"), ("", "\n"), ("\n", "")],
)
def test_the_shorter_of_unequal_files_is_named(tmp_path, source, target):
    fill(tmp_path, a__xx=source, a__yy=target)
    counts = {"xx": source.count("\n"), "yy": target.count("\n")}
    short, long = sorted(counts, key=counts.__getitem__)
    message = rf"a\.{short} has {counts[short]} lines, .*a\.{long} has more"
    with pytest.raises(T2TLiteError, match=message):
        list(read_parallel(tmp_path / "a.xx", tmp_path / "a.yy"))


def test_parts_are_sorted_by_name(tmp_path):
    fill(
        tmp_path,
        train__2__xx="c",
        train__2__yy="C",
        train__1__xx="a\nb",
        train__1__yy="A\nB",
        train_news__xx="n",
        train_news__yy="N",
    )
    stems = ("train.1", "train.2", "train-news")
    assert find_names(tmp_path) == [(f"{x}.xx", f"{x}.yy") for x in stems]


def test_the_first_existing_name_of_a_split_is_used(tmp_path):
    stems = ("dev", "newstest")
    fill(tmp_path, newstest__xx="a", newstest__yy="A")
    assert find_names(tmp_path, stems) == [("newstest.xx", "newstest.yy")]
    fill(tmp_path, dev__xx="a", dev__yy="A")
    assert find_names(tmp_path, stems) == [("dev.xx", "dev.yy")]


def test_sgml_is_found_by_language_and_role_and_parsed_as_by_mteval(
    tmp_path,
):
    fill(
        tmp_path,
        test_xxyy_src__xx__sgm=(
            '<srcset setid="t">\n<DOC docid="1">\n<hl>\n'
            '<seg id="1">A &amp; B</seg>\n</hl><p>\n'
            '<seg id="2"> Q&A, 3 &lt; 4 – “ä” </seg>\n'
            '<seg id="3">if x <y then <segment&#11;</seg>\n'
            '<SEG id="4">two\nlines</SEG><seg id="5"></seg>\n'
            "</p></DOC></srcset>\n"
        ),
        test_xxyy_ref__yy__sgm="<seg>" * 5,
        test_xxyy_src__yy__sgm="",
        test_xxyy_ref__xx__sgm="",
        test_zzxx_src__xx__sgm="",
    )
    ((source, target),) = find_parallel_files(tmp_path, ["test"], XY)
    texts, empty = zip(*read_parallel(source, target), strict=True)
    assert texts == (
        *(
            "A & B",
            "Q&A, 3 < 4 – “ä”",
            "if x <y then <segment\ufffd",
            "two lines",
        ),
        "",
    )
    assert set(empty) == {""}
    target.write_text("plain text", "utf-8")
    with pytest.raises(T2TLiteError, match=rf"{target.name} .*<seg>"):
        list(read_parallel(source, target))


def test_the_error_without_files_lists_the_expected_names(tmp_path):
    fill(tmp_path, other__xx="a")
    with pytest.raises(T2TLiteError, match=r"dev\.xx .*newstest\.yy"):
        find_parallel_files(tmp_path, ("dev", "newstest"), XY)
    with pytest.raises(T2TLiteError, match="none"):
        find_parallel_files(tmp_path / "none", ("dev",), XY)


def test_one_side_alone_is_one_clear_error(tmp_path):
    fill(tmp_path, train__1__xx="a", train__1__yy="A", train__2__yy="B")
    with pytest.raises(T2TLiteError, match=r"train\.2\.yy.* train\.2\.xx"):
        find_parallel_files(tmp_path, ["train"], XY)


@pytest.mark.parametrize("other", ["train__xx__gz", "train__tok__xx"])
def test_two_forms_of_a_file_are_ambiguous(tmp_path, other):
    fill(tmp_path, train__xx="a", train__yy="A", **{other: "a"})
    with pytest.raises(UsageError, match=other.replace("__", r"\.")):
        find_parallel_files(tmp_path, ["train"], XY)
