"""Chunks on disk, read back as one sequence in the order of their keys."""

import numpy as np
import pytest

from t2t_lite.datagen import external_shuffle
from t2t_lite.datagen.external_shuffle import INDEX, RecordsInOrder, write_chunk
from t2t_lite.errors import T2TLiteError

KEYS = np.random.default_rng(0).integers(1 << 64, size=300, dtype=np.uint64)


def spill(folder, keys, cuts=(), checks=None):
    """Writes record i, "i", under key i; cut into chunks."""
    folder.mkdir()
    index = np.zeros(len(keys), INDEX)
    index["key"] = keys
    index["check"] = keys if checks is None else checks
    index["pair"] = np.arange(1, len(keys) + 1)
    index["source_tokens"] = np.arange(len(keys)) % 7 + 1
    index["target_tokens"] = 3
    records = [b"%d" % i for i in range(len(keys))]
    index["bytes"] = list(map(len, records))
    borders = [0, *cuts, len(keys)]
    paths, counts = [], []
    for number, (start, end) in enumerate(
        zip(borders, borders[1:], strict=False)
    ):
        paths.append(folder / str(number))
        counts.append(end - start)
        write_chunk(paths[-1], index[start:end], records[start:end])
    return paths, counts


def order(records, start=0):
    return [int(bytes(record)) for record in records.records(start)]


@pytest.mark.parametrize("memory_bytes", [1, 3000, 10**9])
@pytest.mark.parametrize("cuts", [(), (7, 7, 100), range(20, 300, 20)])
def test_the_order_is_that_of_the_keys_however_it_is_cut(
    tmp_path, memory_bytes, cuts
):
    written = spill(tmp_path / "a", KEYS, cuts)
    records = RecordsInOrder(*written, memory_bytes=memory_bytes)
    assert order(records) == np.argsort(KEYS).tolist()
    assert records.totals.lengths.total() == 300
    assert records.totals.source_tokens == sum(i % 7 + 1 for i in range(300))
    assert records.totals.target_tokens == 900
    assert records.totals.lengths == {3: 129, 4: 43, 5: 43, 6: 43, 7: 42}


@pytest.mark.parametrize("start", [0, 1, 150, 299, 300])
def test_it_can_begin_anywhere(tmp_path, start):
    written = spill(tmp_path / "a", KEYS, [50, 200])
    records = RecordsInOrder(*written, memory_bytes=1000)
    assert order(records, start) == order(records)[start:]


@pytest.mark.parametrize("memory_bytes", [1, 10**9])
def test_an_order_is_kept(tmp_path, memory_bytes):
    written = spill(tmp_path / "a", np.arange(1, 31), [3, 3, 20])
    records = RecordsInOrder(*written, in_order=True, memory_bytes=memory_bytes)
    assert order(records) == list(range(30))


@pytest.mark.parametrize("cuts", [(), (2, 4), range(1, 8)])
@pytest.mark.parametrize("memory_bytes", [1, 10**9])
def test_of_equal_records_the_first_of_the_corpus_is_kept(
    tmp_path, cuts, memory_bytes
):
    keys = np.array([5, 9, 5, 5, 9, 1, 5, 9], np.uint64) << np.uint64(60)
    checks = np.array([1, 1, 2, 1, 1, 1, 1, 1])  # record 2 is another
    written = spill(tmp_path / "a", keys, cuts, checks)
    records = RecordsInOrder(*written, distinct=True, memory_bytes=memory_bytes)
    assert order(records) == [5, 0, 2, 1]
    assert records.totals.lengths.total() == 4
    assert records.totals.copies == 4
    assert records.totals.first_copies == [4, 5, 7]  # numbers are from 1


def test_memory_holds_a_group_at_a_time(tmp_path):
    written = spill(tmp_path / "a", KEYS, [100])
    records = RecordsInOrder(*written, memory_bytes=2000)
    groups = [len(records._index(group)) for group in records._groups]
    assert sum(groups) == 300
    assert max(groups) * INDEX.itemsize <= 2000
    assert len(groups) < external_shuffle._SLOTS // 10


def test_a_short_file_is_damaged(tmp_path):
    paths, counts = spill(tmp_path / "a", KEYS, [100])
    paths[1].write_bytes(paths[1].read_bytes()[:-1])
    with pytest.raises(T2TLiteError, match="1 is damaged: it must have 200"):
        RecordsInOrder(paths, counts)


def test_nothing_is_nothing(tmp_path):
    for in_order in (False, True):
        assert order(RecordsInOrder([], [], in_order)) == []
        written = spill(tmp_path / str(in_order), KEYS[:0])
        records = RecordsInOrder(*written, in_order)
        assert order(records) == []
        assert records.totals.lengths.total() == 0
