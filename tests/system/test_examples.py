"""The example problem `roman_numerals`: registration, data, vocabulary."""

import re
import sys

import pytest

from support.places import ROOT
from t2t_lite import plugins, registry
from t2t_lite.corpus.download import RawFiles

EXAMPLE = ROOT / "examples" / "roman_numerals"


@pytest.fixture
def roman_numerals(forget_plugins):
    plugins.load_plugins(str(EXAMPLE))
    yield registry.problem("roman_numerals")
    for name in [name for name in sys.modules if name.startswith("roman_num")]:
        del sys.modules[name]


def test_roman_numerals_are_correct(roman_numerals):
    pairs = dict(
        pair
        for split in roman_numerals.splits
        for pair in roman_numerals.samples(split, RawFiles())
    )
    assert len(pairs) == 3999
    assert pairs["1987"] == "MCMLXXXVII"
    assert pairs["4"] == "IV"
    assert pairs["3999"] == "MMMCMXCIX"


def test_vocabulary_size_matches_and_texts_fit(roman_numerals, tmp_path):
    roman_numerals.train_encoders(RawFiles(), tmp_path, seed=0)
    encoder = roman_numerals.load_encoders(tmp_path)["inputs"]
    assert encoder.vocab_size == roman_numerals.vocab_size
    longest = registry.hparams("transformer_roman").max_length
    for split in roman_numerals.splits:
        for side in zip(*roman_numerals.samples(split, None), strict=True):
            assert max(map(len, encoder.encode(side))) < longest


def test_the_problem_of_the_readme_reads_two_files(forget_plugins, tmp_path):
    (code,) = re.findall(
        r"```python\n(.*?)```", (EXAMPLE / "README.md").read_text(), re.DOTALL
    )
    folder = tmp_path / "usr_readme"
    folder.mkdir()
    (folder / "usr_my_problem.py").write_text(code)
    (tmp_path / "train.en").write_text("one\ntwo\n")
    (tmp_path / "train.de").write_text("eins\nzwei\n")
    plugins.load_plugins(str(folder))
    problem = registry.problem("my_ende")
    pairs = list(problem.samples("train", RawFiles(raw_dir=tmp_path)))
    assert pairs == [("one", "eins"), ("two", "zwei")]
    assert len(problem.fingerprint()) == 64
