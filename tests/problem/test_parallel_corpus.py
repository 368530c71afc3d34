"""A corpus of files or of TensorFlow Datasets gives the same pairs."""

import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from support.own_text import splits_of, text
from support.toy_problem import make
from t2t_lite import plugins, registry
from t2t_lite.corpus.download import RawFiles
from t2t_lite.errors import T2TLiteError, UsageError

OWN = "tfds:wmt14_translate/de-en"
SPLITS = {"train": "train", "dev": "validation", "test": "test"}
PAIRS = {
    "train": [(f"the house {i}", f"das Häuschen {i}") for i in range(50)],
    "dev": [("one", "eins"), ("", "leer"), ("two", "zwei")],
    "test": [("three 🙂", "drei")],
}


@pytest.fixture(scope="module")
def tfds_dir(tmp_path_factory):
    """A TFDS folder with a small wmt14_translate/de-en."""
    folder = tmp_path_factory.mktemp("tfds")
    tfds.dataset_builders.store_as_tfds_dataset(
        name="wmt14_translate",
        config="de-en",
        version="1.0.0",
        data_dir=folder,
        features=tfds.features.Translation(("de", "en")),
        split_datasets={
            SPLITS[split]: tf.data.Dataset.from_tensor_slices(
                {"en": [en for en, _ in pairs], "de": [de for _, de in pairs]}
            )
            for split, pairs in PAIRS.items()
        },
        disable_shuffling=True,
    )
    return folder


@pytest.fixture
def raw_dir(tmp_path):
    folder = tmp_path / "raw"
    folder.mkdir()
    for split, pairs in PAIRS.items():
        for side, language in enumerate(("en", "de")):
            text = "".join(f"{pair[side]}\n" for pair in pairs)
            (folder / f"{split}.{language}").write_text(text, "utf-8")
    return folder


@pytest.fixture(scope="module")
def problem():
    plugins.load_plugins()
    return registry.problem("wmt_ende")


@pytest.mark.parametrize("split", SPLITS)
def test_files_and_tensorflow_datasets_give_the_same_pairs(
    problem, tfds_dir, raw_dir, split
):
    from_files = problem.samples(split, RawFiles(raw_dir=raw_dir))
    from_tfds = problem.samples(split, RawFiles(tfds_dir=tfds_dir))
    assert list(from_files) == list(from_tfds) == PAIRS[split]


def test_own_pairs_may_be_a_tensorflow_dataset(tfds_dir, tmp_path):
    swapped = {
        split: [pair[::-1] for pair in pairs] for split, pairs in PAIRS.items()
    }
    raw = RawFiles(tfds_dir=tfds_dir)
    german = text(pairs=OWN, vocab_size=290)
    assert german.languages == ("de", "en")
    assert splits_of(german, raw) == swapped
    english = "tfds:wmt14_translate/en-de"
    assert splits_of(text(pairs=english), raw) == PAIRS
    assert splits_of(text(pairs=OWN, source_language="en"), raw) == PAIRS
    by_keys = text(pairs=OWN, source_key="en", target_key="de")
    assert splits_of(by_keys, raw) == PAIRS
    manifest = make(german, tmp_path / "data", tfds_dir=tfds_dir)
    assert manifest.splits["train"].examples == 50
    assert any(str(tfds_dir) in path for path in manifest.sources)


def test_dev_and_test_options_replace_the_splits_of_a_dataset(
    tfds_dir, tmp_path
):
    raw, name = RawFiles(tfds_dir=tfds_dir), "tfds:wmt14_translate/en-de"
    (tmp_path / "a.tsv").write_text("a\tb\n")
    tagged = text(pairs=f"{name}:0.5:2de,{tmp_path}/a.tsv:0.5", test_pairs=name)
    splits = splits_of(tagged, raw)
    assert splits["train"].count(("a", "b")) == 50
    assert ("<2de> one", "eins") in splits["dev"]
    assert splits["test"] == PAIRS["test"]
    held_out = splits_of(text(pairs=name, holdout=5), raw)
    assert [len(pairs) for pairs in held_out.values()] == [40, 5, 5]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pairs": "tfds:wmt14_translate/fr-en"}, "wmt14_translate"),
        ({"pairs": "tfds:no_such_dataset"}, "no_such_dataset"),
        ({"pairs": OWN, "target_language": "fr"}, "row 1"),
    ],
)
def test_a_dataset_that_cannot_be_read_is_named(tfds_dir, options, message):
    with pytest.raises(T2TLiteError, match=message):
        list(text(**options).samples("dev", RawFiles(tfds_dir=tfds_dir)))


def test_raw_dir_conflicts_with_tfds_dir(problem, tfds_dir, raw_dir, tmp_path):
    with pytest.raises(UsageError, match="`tfds_dir` conflicts with `raw_dir`"):
        make(problem, tmp_path, raw_dir=raw_dir, tfds_dir=tfds_dir)


def test_the_error_without_network_and_files_lists_all_options(
    problem, tmp_path, monkeypatch
):
    def no_network(*args, **kwargs):
        raise ConnectionError("Name or service not known")

    monkeypatch.setattr(
        tfds.core.download.DownloadManager, "download_and_extract", no_network
    )
    with pytest.raises(T2TLiteError) as caught:
        problem.samples("train", RawFiles((), None, tmp_path, False, tmp_path))
    message = str(caught.value)
    assert "Name or service not known" in message
    assert "1.7 GB" in message
    assert "`tfds_dir`" in message
    assert "train.en, train.de, dev.en, dev.de, test.en, test.de" in message


def test_without_a_folder_for_downloads_nothing_is_downloaded(
    problem, tmp_path
):
    with pytest.raises(T2TLiteError, match="wmt14_translate/de-en.*1.7 GB"):
        problem.check_sources(RawFiles(tfds_dir=tmp_path))
