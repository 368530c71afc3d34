"""Where tests find the checkout and the data that is not part of it."""

import pathlib

ROOT = pathlib.Path(__file__).parents[2]
TESTS = ROOT / "tests"
SHARED_DATA = ROOT.parent / "shared" / "data"
TREEBANK_SAMPLE = SHARED_DATA / "treebank" / "wsj_0001-0159.tar.gz"
