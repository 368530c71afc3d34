"""Batches of similar length: their limits, workers and order of results."""

import _thread
import itertools
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_lite.decoding.batching import Batching, map_sorted
from t2t_lite.errors import UsageError


@pytest.mark.parametrize(
    ("size", "tokens", "lengths", "shares", "batches"),
    [
        (2, None, [3, 9, 4, 8], 1, [[1, 3], [2, 0]]),
        (None, 30, [10, 10, 10, 10], 1, [[0, 1, 2], [3]]),
        (None, 30, [15, 14, 8, 9], 1, [[0, 1], [3, 2]]),
        (2, 30, [10, 10, 10], 1, [[0, 1], [2]]),
        (None, 30, [100, 5, 100], 1, [[0], [2], [1]]),
        (None, 32, [1, 1, 1, 1, 1], 1, [[0, 1, 2, 3], [4]]),  # each counts as 8
        (None, None, [5, 5], 1, [[0, 1]]),
        (3, None, [], 1, []),
        (None, None, [1, 3, 2, 4], 2, [[3, 1], [2, 0]]),
        (None, None, [1, 3, 2, 4], 3, [[3, 1], [2, 0]]),  # 4 / 3, rounded up
        (None, None, [1, 3, 2, 4], 9, [[3], [1], [2], [0]]),
    ],
)
def test_batches_as_worked_out_by_hand(size, tokens, lengths, shares, batches):
    assert Batching(size, tokens).batches(lengths, shares) == batches


@given(
    st.lists(st.integers(0, 300), max_size=80),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 400),
    st.integers(1, 5),
)
def test_each_text_is_in_one_batch_within_the_limits(
    lengths, size, tokens, shares
):
    batches = Batching(size, tokens).batches(lengths, shares)
    rows = sorted(itertools.chain.from_iterable(batches))
    assert rows == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[row] for row in batch)
        assert len(batch) <= (size or (64 if tokens is None else len(lengths)))
        assert len(batch) == 1 or not tokens or len(batch) * longest <= tokens


@pytest.mark.parametrize("bound", ["size", "tokens"])
def test_limits_must_be_positive(bound):
    with pytest.raises(UsageError, match=f"batch_{bound}.*got 0"):
        Batching(**{bound: 0})


def run(items, work, batching, parts=lambda item: [item]):
    lengths = [len] if parts is str.split else []
    return map_sorted(
        items,
        parts,
        work,
        lambda batch: [len(x) if lengths else 1 for x in batch],
        batching,
    )


def test_a_few_items_are_divided_among_the_workers():
    seen = []

    def work(batch):
        seen.append(len(batch))
        return batch

    found = run("abcde", [work] * 2, Batching(flush_early=False))
    assert [item for item, _ in found] == list("abcde")
    assert sorted(seen) == [2, 3]


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("batching", [Batching(3), Batching(None, 20, False)])
def test_items_come_in_order_with_the_results_of_their_parts(workers, batching):
    lines = [f"{'a' * (n % 7)} b{n} c" if n % 5 else "" for n in range(300)]
    work = [lambda batch: [word * 2 for word in batch]] * workers
    found = list(run(lines, work, batching, str.split))
    assert found == [(line, [w * 2 for w in line.split()]) for line in lines]
    assert list(run([], work, batching)) == []


def test_workers_run_in_parallel_on_one_batch_each():
    locks = [threading.Lock() for _ in range(3)]
    barrier = threading.Barrier(3, timeout=60)

    def worker(lock):
        def work(batch):
            assert lock.acquire(blocking=False)
            barrier.wait()
            lock.release()
            return batch

        return work

    found = run(range(9), [worker(lock) for lock in locks], Batching(1))
    assert [item for item, _ in found] == list(range(9))


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_a_worker_ends_the_stream(workers):
    def work(batch):
        raise OSError("out of memory")

    with pytest.raises(OSError, match="out of memory"):
        list(run(range(100), [work] * workers, Batching(2)))


def test_a_stream_is_not_read_far_ahead_or_after_it_is_closed():
    read = itertools.count()
    before = threading.active_count()
    found = run(iter(read.__next__, None), [list], Batching(1))
    next(found)
    found.close()
    assert next(read) < 1000
    for thread in threading.enumerate():
        if "_read_ahead" in thread.name:
            thread.join(timeout=5)
    assert threading.active_count() <= before


def test_ctrl_c_does_not_wait_for_running_batches():
    finish, calls = threading.Event(), itertools.count()
    finished = []

    def work(batch):
        if next(calls) == 0:
            _thread.interrupt_main()
        finish.wait(60)
        finished.append(batch)
        return batch

    try:
        with pytest.raises(KeyboardInterrupt):
            list(run(range(2), [work, work], Batching(1)))
        assert finished == []
    finally:
        finish.set()
