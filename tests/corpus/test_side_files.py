"""The sides of a corpus are found by name, and read in step."""

import bz2
import gzip
import lzma

import pytest
from backports import zstd

from t2t_lite.corpus.side_files import find_sides, read_segments, read_sides
from t2t_lite.errors import T2TLiteError, UsageError

PACK = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd.compress,
}
XY = ("xx", "yy")


def fill(folder, **files):
    """Files of a text each; `__` in a name stands for a dot, `_` for `-`."""
    for name, text in files.items():
        name = name.replace("__", ".").replace("_", "-")
        (folder / name).write_text(text, "utf-8")


def found(folder, stems=("train",)):
    sides = find_sides(folder, stems, XY)
    return [(source.name, target.name) for source, target in sides]


@pytest.mark.parametrize("ending", PACK)
def test_a_pair_of_files_is_read_packed_or_not(tmp_path, ending):
    pack = PACK[ending]
    (tmp_path / f"train.xx{ending}").write_bytes(pack(b"a\nb \xf0\x9f\x99\x82"))
    (tmp_path / f"train.yy{ending}").write_bytes(pack(b"c\nd\n"))
    (tmp_path / "train.zz").write_text("another language")
    sides = find_sides(tmp_path, ["train"], XY)
    assert list(read_sides(sides)) == [("a", "c"), ("b 🙂", "d")]


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz", ".zst"])
@pytest.mark.parametrize("what", ["cut", "no archive"])
def test_a_damaged_archive_is_named(tmp_path, ending, what):
    data = PACK[ending](b"some words\n" * 9999)
    data = data[:-9] if what == "cut" else b"some words\n" * 99
    (tmp_path / f"train.xx{ending}").write_bytes(data)
    (tmp_path / "train.yy").write_text("some words\n" * 9999)
    with pytest.raises(T2TLiteError, match=f"train.xx{ending} is damaged: ."):
        list(read_sides(find_sides(tmp_path, ["train"], XY)))


def test_parts_follow_one_another_by_name(tmp_path):
    fill(
        tmp_path,
        train__2__xx="c",
        train__2__yy="C",
        train__1__xx="a\nb",
        train__1__yy="A\nB",
        train_news__xx="n",
        train_news__yy="N",
    )
    sides = find_sides(tmp_path, ["train"], XY)
    assert list(read_sides(sides)) == [
        ("a", "A"),
        ("b", "B"),
        ("c", "C"),
        ("n", "N"),
    ]


def test_the_first_name_of_a_split_that_is_there_counts(tmp_path):
    fill(tmp_path, newstest__xx="a", newstest__yy="A")
    assert found(tmp_path, ("dev", "newstest")) == [
        ("newstest.xx", "newstest.yy")
    ]
    fill(tmp_path, dev__xx="a", dev__yy="A")
    assert found(tmp_path, ("dev", "newstest")) == [("dev.xx", "dev.yy")]


def test_sgml_of_the_right_languages_and_roles_is_found(tmp_path):
    fill(
        tmp_path,
        test_xxyy_src__xx__sgm="",
        test_xxyy_ref__yy__sgm="",
        test_xxyy_src__yy__sgm="",
        test_xxyy_ref__xx__sgm="",
        test_zzxx_src__xx__sgm="",
        test_zzxx_ref__zz__sgm="",
    )
    assert found(tmp_path, ("test",)) == [
        ("test-xxyy-src.xx.sgm", "test-xxyy-ref.yy.sgm")
    ]


def test_segments_are_read_with_entities_and_broken_markup(tmp_path):
    path = tmp_path / "test-src.xx.sgm"
    path.write_text(
        '<srcset setid="t" srclang="any">\n<DOC docid="1">\n<hl>\n'
        '<seg id="1">A &amp; B</seg>\n</hl><p>\n'
        '<seg id="2"> Q&A, 3 &lt; 4 – “ä” </seg>\n'
        '<SEG id="3">two\nlines</SEG><seg id="4"></seg>\n'
        "</p></DOC></srcset>\n",
        "utf-8",
    )
    assert list(read_segments(path)) == [
        "A & B",
        "Q&A, 3 < 4 – “ä”",
        "two lines",
        "",
    ]


def test_sgml_without_segments_is_one_clear_error(tmp_path):
    path = tmp_path / "test-src.xx.sgm"
    path.write_text("plain text")
    with pytest.raises(T2TLiteError, match="has no <seg>: is it a test set"):
        list(read_segments(path))


def test_nothing_found_says_what_was_looked_for(tmp_path):
    fill(tmp_path, other__xx="a")
    with pytest.raises(T2TLiteError) as caught:
        find_sides(tmp_path, ("dev", "newstest"), XY)
    assert (
        f"{tmp_path} holds no dev.xx and dev.yy or newstest.xx and newstest.yy."
        in str(caught.value)
    )
    with pytest.raises(T2TLiteError, match="none: No such file or directory"):
        find_sides(tmp_path / "none", ("dev",), XY)


def test_one_side_alone_is_one_clear_error(tmp_path):
    fill(tmp_path, train__1__xx="a", train__1__yy="A", train__2__yy="B")
    with pytest.raises(
        T2TLiteError, match="train.2.yy, which is in yy, and no train.2.xx"
    ):
        find_sides(tmp_path, ["train"], XY)


def test_the_same_side_packed_and_not_is_ambiguous(tmp_path):
    fill(tmp_path, train__xx="a", train__xx__gz="a", train__yy="A")
    with pytest.raises(UsageError, match="once; got train.xx and train.xx.gz"):
        find_sides(tmp_path, ["train"], XY)


def test_a_whole_file_beside_another_form_of_it_is_ambiguous(tmp_path):
    fill(tmp_path, train__xx="a", train__yy="A", train__tok__xx="a")
    with pytest.raises(UsageError, match="got train.xx and train.tok.xx in"):
        find_sides(tmp_path, ["train"], XY)


def test_parts_with_unequal_lines_are_named(tmp_path):
    fill(tmp_path, train__1__xx="a\nb\n", train__1__yy="A\n")
    with pytest.raises(T2TLiteError, match="2 lines in .*1.xx and 1 in .*1.yy"):
        list(read_sides(find_sides(tmp_path, ["train"], XY)))
