"""Batches: similar lengths together, bounded, order kept, any workers."""

import _thread
import itertools
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_lite.decoding.streams.batching import Batching, map_sorted

LENGTHS = st.lists(st.integers(0, 300), max_size=80)


@pytest.mark.parametrize(
    ("size", "tokens", "lengths", "batches"),
    [
        (2, None, [3, 9, 4, 8], [[1, 3], [2, 0]]),
        (None, 30, [10, 10, 10, 10], [[0, 1, 2], [3]]),
        (None, 30, [15, 14, 8, 9], [[0, 1], [3, 2]]),
        (2, 30, [10, 10, 10], [[0, 1], [2]]),
        (None, 30, [100, 5, 100], [[0], [2], [1]]),
        (None, 32, [1, 1, 1, 1, 1], [[0, 1, 2, 3], [4]]),  # 8 each at least
        (None, None, [5, 5], [[0, 1]]),
        (3, None, [], []),
    ],
)
def test_batches_as_worked_out_by_hand(size, tokens, lengths, batches):
    assert Batching(size, tokens).batches(lengths) == batches


@pytest.mark.parametrize(
    ("shares", "batches"),
    [
        (2, [[3, 1], [2, 0]]),
        (3, [[3, 1], [2, 0]]),  # a third of four, rounded up, is two
        (4, [[3], [1], [2], [0]]),
        (9, [[3], [1], [2], [0]]),
    ],
)
def test_few_texts_are_shared_out(shares, batches):
    assert Batching().batches([1, 3, 2, 4], shares) == batches


@pytest.mark.parametrize(("share_out", "sizes"), [(True, [2, 3]), (False, [5])])
def test_workers_may_get_a_share_of_few_items(share_out, sizes):
    seen = []

    def work(batch):
        seen.append(len(batch))
        return batch

    found = map_sorted(
        "abcde",
        lambda item: [item],
        [work, work],
        lambda batch: [1] * len(batch),
        Batching(prompt=False),
        share_out,
    )
    assert [item for item, _ in found] == list("abcde")
    assert sorted(seen) == sizes


@given(
    LENGTHS,
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 400),
    st.integers(1, 5),
)
def test_each_text_is_in_one_batch_that_keeps_the_bounds(
    lengths, size, tokens, shares
):
    batches = Batching(size, tokens).batches(lengths, shares)
    rows = sorted(itertools.chain.from_iterable(batches))
    assert rows == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[row] for row in batch)
        assert len(batch) <= (size or (64 if tokens is None else len(lengths)))
        assert len(batch) == 1 or not tokens or len(batch) * longest <= tokens


def test_bounds_must_be_positive():
    for bound in ("size", "tokens"):
        with pytest.raises(ValueError, match=f"batch_{bound} must be at least"):
            Batching(**{bound: 0})


def words_doubled(lines, workers=1, **batching):
    """Doubles the words of each line; a word is a part."""
    return [
        (line, " ".join(results))
        for line, results in map_sorted(
            lines,
            str.split,
            [lambda batch: [word * 2 for word in batch]] * workers,
            lambda batch: list(map(len, batch)),
            Batching(**batching),
        )
    ]


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_items_come_back_in_order_with_the_results_of_their_parts(workers):
    lines = [f"{'a' * (n % 7)} b{n} c" if n % 5 else "" for n in range(300)]
    wanted = [
        (line, " ".join(word * 2 for word in line.split())) for line in lines
    ]
    assert words_doubled(lines, workers, size=3) == wanted
    assert words_doubled(lines, workers, tokens=20, prompt=False) == wanted
    assert words_doubled([], workers) == []


def test_no_worker_is_asked_twice_at_the_same_time():
    locks = [threading.Lock() for _ in range(3)]
    both = threading.Barrier(3, timeout=60)

    def worker(lock):
        def work(batch):
            assert lock.acquire(blocking=False)
            both.wait()  # all of them work, and at the same time
            lock.release()
            return batch

        return work

    found = map_sorted(
        range(9),
        lambda item: [item],
        [worker(lock) for lock in locks],
        lambda batch: batch,
        Batching(size=1),
    )
    assert [item for item, _ in found] == list(range(9))


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_at_work_ends_it(workers):
    def work(batch):
        raise OSError("out of memory")

    with pytest.raises(OSError, match="out of memory"):
        list(
            map_sorted(
                range(100),
                lambda item: [item],
                [work] * workers,
                lambda batch: batch,
                Batching(size=2),
            )
        )


@pytest.mark.own_process
def test_ctrl_c_does_not_wait_for_the_batches_under_way():
    go_on = threading.Event()
    finished = []

    def work(batch):
        _thread.interrupt_main()
        go_on.wait(60)
        finished.append(batch)
        return batch

    try:
        with pytest.raises(KeyboardInterrupt):
            list(
                map_sorted(
                    range(2),
                    lambda item: [item],
                    [work, work],
                    lambda batch: batch,
                    Batching(size=1),
                )
            )
        assert finished == []
    finally:
        go_on.set()
