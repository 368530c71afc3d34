"""Treebanks for tests that check every tree."""

import tarfile

import pytest

from support.places import TESTS, TREEBANK_SAMPLE

HAND_WRITTEN = TESTS / "testdata" / "treebank"


@pytest.fixture(scope="session", params=["hand-written", "sample"])
def treebank(request):
    """Return the texts of files by name: hand-written or Penn Treebank."""
    if request.param == "hand-written":
        return {file.name: file.read_text() for file in HAND_WRITTEN.iterdir()}
    if not TREEBANK_SAMPLE.exists():
        pytest.skip(f"needs {TREEBANK_SAMPLE.name} of the treebank's sample")
    with tarfile.open(TREEBANK_SAMPLE) as archive:
        texts = {
            member.name: archive.extractfile(member).read().decode("ascii")
            for member in archive.getmembers()
            if member.isfile()
        }
    assert len(texts) == 159
    return texts
