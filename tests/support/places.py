"""Paths of the checkout and of data outside of it."""

import pathlib

ROOT = pathlib.Path(__file__).parents[2]
TESTS = ROOT / "tests"
SHARED_DATA = ROOT.parent / "shared" / "data"
TREEBANK_SAMPLE = SHARED_DATA / "treebank" / "wsj_0001-0159.tar.gz"
