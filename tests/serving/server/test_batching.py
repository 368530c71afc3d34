"""Batching: the requests that share a batch, and their results."""

import asyncio
import threading

import numpy as np
import pytest

from t2t_lite.serving.options import ServerOptions
from t2t_lite.serving.server.batching import Batcher


class Doubler:
    """A model that doubles numbers once `go` is set."""

    def __init__(self):
        self.batches = []
        self.started = threading.Event()
        self.go = threading.Event()

    def __call__(self, inputs):
        self.batches.append(inputs["x"].tolist())
        self.started.set()
        assert self.go.wait(10)
        if -1 in inputs["x"]:
            raise ValueError("no negative numbers")
        if -2 in inputs["x"]:  # one row for the whole batch
            return {"y": inputs["x"].sum(keepdims=True)}
        return {"y": 2 * inputs["x"]}


def play(requests, **limits):
    """Send requests while the model is busy with the number 0.

    Args:
      requests: tuples of numbers, their length or lengths, and a group.
      limits: options of `ServerOptions`.

    Returns:
      the results of the requests, and all batches except the first.
    """
    model = Doubler()

    async def run():
        batcher = Batcher(ServerOptions(**limits))

        def send(numbers, length=1, group="g"):
            lengths = np.broadcast_to(np.array(length), len(numbers))
            inputs = {"x": np.array(numbers)}
            answer = batcher.answer(model, inputs, lengths, group)
            return asyncio.ensure_future(answer)

        first = send([0])
        await asyncio.to_thread(model.started.wait, 10)
        others = [send(*request) for request in requests]
        await asyncio.sleep(0)
        model.go.set()
        found = await asyncio.gather(first, *others, return_exceptions=True)
        batcher.close()
        return [
            x if isinstance(x, Exception) else x["y"].tolist() for x in found
        ]

    return asyncio.run(run())[1:], model.batches[1:]


@pytest.mark.parametrize(
    ("requests", "limits", "batches"),
    [
        # Waiting requests share a batch.
        ([([1, 11],), ([2, 12],), ([3, 13],)], {}, [[1, 11, 2, 12, 3, 13]]),
        # Long texts run in a batch of their own after the short ones.
        (
            [([1], 10), ([2], 500), ([3], 20), ([4], 900), ([5], 64), ([6], 1)],
            {},
            [[1, 6, 3, 5], [2, 4]],
        ),
        # A large request is split by length.
        (
            [([1, 2, 3, 4], [9, 1, 700, 2])],
            {"max_batch_size": 2},
            [[2, 4], [1, 3]],
        ),
        # Requests of different groups, or without a group, are not joined.
        (
            [([n], 1, group) for n, group in enumerate("ab", 1)]
            + [([3], 1, None), ([4], 1, None), ([5], 1, "a")],
            {},
            [[1, 5], [2], [3], [4]],
        ),
        ([], {}, []),
    ],
    ids=["together", "length", "large", "group", "none"],
)
def test_requests_share_batches(requests, limits, batches):
    answers, found = play(requests, **limits)
    assert found == batches
    assert answers == [[2 * n for n in numbers] for numbers, *_ in requests]


def test_batches_respect_max_batch_size_and_lose_no_request():
    draw = np.random.default_rng(1)
    requests = [
        (list(range(size)), draw.integers(1, 200, size))
        for size in draw.integers(1, 12, 60).tolist()
    ]
    answers, batches = play(requests, max_batch_size=4, workers=2)
    assert answers == [[2 * n for n in numbers] for numbers, _ in requests]
    assert max(map(len, batches)) <= 4


def test_error_of_one_request_does_not_fail_the_others():
    answers, _ = play([([1],), ([-1],), ([2],)])
    assert [answers[0], answers[2]] == [[2], [4]]
    assert "no negative" in str(answers[1])


def test_requests_are_rerun_alone_if_outputs_lack_a_row_per_text():
    answers, batches = play([([-2, 5],), ([2],)])
    assert answers == [[3], [4]]
    assert batches == [[-2, 5, 2], [-2, 5], [2]]
