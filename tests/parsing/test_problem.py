"""Parsing problems: from files of a treebank to pairs and scores."""

import pytest

from support import tiny_treebank
from t2t_lite import registry
from t2t_lite.corpus.download import RawFiles
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.parsing import trees
from t2t_lite.parsing.problem import (
    exchange_constituents,
    numbered_files,
)
from t2t_lite.parsing.trees import read_trees
from t2t_lite.plugins import load_plugins


def problem(name="wsj_parsing", **options):
    load_plugins()
    return registry.problem(name, options)


def pairs(folder, split="train", **options):
    return list(problem(**options).samples(split, RawFiles((), folder)))


NINE_FILES = {"train": "1-7", "dev": "8", "test": "9"}


def test_pairs_have_no_traces_and_no_function_tags(tmp_path):
    folder = tiny_treebank.write(tmp_path)
    assert pairs(folder, "dev", **NINE_FILES) == [
        (
            "the bird sees a cat .",
            "(S (NP XX XX )NP (VP XX (NP XX XX )NP )VP . )S",
        ),
        ("bird , sees", "(S (NP XX )NP , (VP XX )VP )S"),
    ]
    _, (_, target) = pairs(folder, "dev", leaves="tags", **NINE_FILES)
    assert target == "(S (NP NN )NP , (VP VBZ )VP )S"
    path = folder / "wsj/00/wsj_0008.mrg"
    path.write_text("( (S (NP (-NONE- *)) ) )")  # no words, but counted
    assert pairs(folder, "dev", **NINE_FILES) == [("", "")]


def test_sections_divide_the_treebank_into_splits(tmp_path):
    folder = tiny_treebank.write(tmp_path, ("01", "02", "21", "22", "23"), 1)
    counts = [len(pairs(folder, split)) for split in ("train", "dev", "test")]
    assert counts == [4, 2, 2]  # two trees per file; section 1 is not used


def test_files_may_be_gzipped_in_one_folder_with_others(tmp_path):
    import gzip

    (tmp_path / "README").write_text("no tree")
    (tmp_path / "wsj_0009.pos").write_text("no tree")
    for number in range(1, 10):
        with gzip.open(tmp_path / f"WSJ_{number:04d}.MRG.gz", "wt") as file:
            file.write(tiny_treebank.trees(number))
    with pytest.raises(T2TLiteError, match="wsj_NNNN.mrg"):
        numbered_files(tmp_path, "wsj_")
    for path in tmp_path.glob("WSJ*"):
        path.rename(tmp_path / path.name.lower())
    assert list(numbered_files(tmp_path, "wsj_")) == list(range(1, 10))


def test_number_with_two_files_is_refused(tmp_path):
    folder = tiny_treebank.write(tmp_path)
    (folder / "wsj_0003").write_text(tiny_treebank.trees(3))
    with pytest.raises(T2TLiteError, match="wsj_0003"):
        pairs(folder, **NINE_FILES)


def test_missing_files_and_splits_are_named(tmp_path):
    folder = tiny_treebank.write(tmp_path)
    with pytest.raises(T2TLiteError, match="1 to 9") as error:
        pairs(folder)
    assert "train 200-2199" in str(error.value)
    with pytest.raises(T2TLiteError, match="dev split"):
        pairs(folder, "dev", train="1", dev="20-30", test="2")
    with pytest.raises(T2TLiteError, match="folder"):
        list(problem().samples("train", RawFiles(())))


def test_damaged_file_is_named_with_line_and_column(tmp_path):
    folder = tiny_treebank.write(tmp_path)
    path = folder / "wsj/00/wsj_0003.mrg"
    path.write_text(path.read_text()[:-5])
    with pytest.raises(T2TLiteError, match=r"wsj_0003.mrg, line 7, column 1:"):
        pairs(folder, **NINE_FILES)
    path.write_bytes("( (NP (NN Köln)) )".encode("latin-1"))
    with pytest.raises(T2TLiteError, match="UTF-8.*line 1"):
        pairs(folder, **NINE_FILES)


@pytest.mark.parametrize(
    ("share", "count"),
    [
        # A fifth would be 10, but each of the 14 is used at least once.
        ("0.2", 14),
        ("0.5", 40),
    ],
)
def test_additional_trees_are_mixed_at_the_stated_rate(tmp_path, share, count):
    folder = tiny_treebank.write(tmp_path)
    more = tmp_path / "more.txt"
    more.write_text("(S (NP (XX x)))\n" * 40)
    found = pairs(
        folder,
        name="wsj_parsing_semisupervised",
        trees=more,
        treebank_share=share,
        **NINE_FILES,
    )
    from_treebank = [source for source, _ in found if source != "x"]
    assert len(found) - len(from_treebank) == 40
    assert len(from_treebank) == count


def test_missing_files_of_additional_trees_are_named(tmp_path):
    given = {"trees": f"{tmp_path}/a:{tmp_path}/b", **NINE_FILES}
    found = problem("wsj_parsing_semisupervised", **given)
    raw = RawFiles((), tiny_treebank.write(tmp_path))
    with pytest.raises(T2TLiteError, match=f"{tmp_path}/a, {tmp_path}/b"):
        found.check_sources(raw)
    for name in "ab":
        (tmp_path / name).write_text("(S (NP (XX x)))\n")
    found.check_sources(raw)


def test_exchanged_constituents_have_the_same_labels():
    originals = [
        *trees.parse_trees(["(S (NP (D a) (N b)) (VP (V c) (NP (N d))))"]),
        None,
        *trees.parse_trees(["(S (NP (N e)) (VP (V f)))"]),
    ]
    found = list(exchange_constituents(originals, 200))
    assert found[:3] == originals
    assert len(found) == 3 + 2 * 200
    shapes = {"S": {"NP VP"}, "VP": {"V NP", "V"}, "NP": {"D N", "N"}}
    words = {"D": {"a"}, "N": {"b", "d", "e"}, "V": {"c", "f"}}
    seen = set()
    for tree in found[3:]:
        for event, node in trees.walk(tree):
            children = " ".join(child.label for child in node.children)
            if event is trees.LEAF:
                assert node.word in words[node.label]
            else:
                assert children in shapes[node.label]
            if event is trees.OPEN and node.label == "VP":
                for child in node.children[1:]:  # only (NP (N ...)) in a VP
                    assert [leaf.label for leaf in child.children] == ["N"]
        seen.add(tree)
    assert len(seen) > 10  # of 48
    assert list(exchange_constituents(originals, 200)) == found


def test_augmentation_adds_trees_to_train_only(tmp_path):
    folder = tiny_treebank.write(tmp_path)
    whole = pairs(folder, **NINE_FILES)
    more = pairs(folder, augmentation="3", **NINE_FILES)
    assert more[: len(whole)] == whole
    assert len(more) == 4 * len(whole)
    for split in ("dev", "test"):
        assert len(pairs(folder, split, augmentation="3", **NINE_FILES)) == 2


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"train": "1-5"}, "train only"),
        ({"train": "5-1", "dev": "1", "test": "2"}, "200-2199"),
        ({"leaves": "tag"}, "'tag'"),
        ({"vocab_size": "0"}, "'0'"),
        ({"treebank_share": "0.5"}, "trees=FILE"),
        ({"trees": "x", "treebank_share": "1"}, "below 1"),
        ({"leafs": "tags"}, "leafs.*leaves"),
    ],
)
def test_bad_options_are_refused(options, word):
    with pytest.raises(UsageError, match=word):
        problem(**options)


def test_postprocess_returns_a_tree_and_its_repairs():
    text, facts = problem().postprocess(
        " It  (works) . ", "(S (NP XX )NP (VP XX . )S"
    )
    assert text == "(S (NP (XX It)) (VP (XX -LRB-works-RRB-) (. .)))"
    assert facts == {"repairs": {"missing_closings": 1}}
    assert problem().postprocess("", "(S XX )S") == ("", {"repairs": {}})


def test_evaluate_scores_trees_and_counts_repairs():
    report = problem().evaluate(
        ["a b c .", "a b"],
        ["(S (NP XX XX )NP (VP XX )VP . )S", "(S XX XX )S"],
        ["(S (NP XX )NP (VP XX XX )VP . )S", "(S XX )S"],
    )
    # Correct are S of the first and, after a repair, S of the second.
    assert report["metric"] == "bracket_f1"
    assert report["matched_brackets"] == 2 and report["gold_brackets"] == 4
    assert report["score"] == report["f1"] == 50
    assert report["repaired"] == 50
    assert report["repairs"] == {"missing_leaves": 1}
    assert "tagging_accuracy" not in report
    assert problem().metric == "f1"  # dev_f1 in metrics.jsonl
    tagged = problem(leaves="tags").evaluate(
        ["a b"], ["(S DT NN )S"], ["(S DT VB )S"]
    )
    assert tagged["tagging_accuracy"] == 50


def test_the_sample_is_divided_by_number(tmp_path):
    folder = tiny_treebank.write(tmp_path, ("00", "01"), 59)
    train, dev, test = (pairs(folder, s) for s in ("train", "dev", "test"))
    assert [len(train), len(dev), len(test)] == [196, 20, 20]  # two per file
    assert train == pairs(folder, train="1-139", dev="140-149", test="150-159")
    (first, *_) = read_trees(numbered_files(folder, "wsj_")[150])
    assert test[0][0].split() == trees.words(trees.strip_annotation(first))
