import asyncio
import threading

import grpc
import numpy as np
import pytest

from t2t_lite.serving.server import metrics
from t2t_lite.serving.server.batching import Batcher, Batching
from t2t_lite.serving.server.refusal import Refusal


class Doubler:
    """A model that doubles numbers, when it is let."""

    def __init__(self, held=False):
        self.batches = []
        self.started = threading.Event()
        self.go = threading.Event()
        if not held:
            self.go.set()

    def __call__(self, inputs):
        self.batches.append(inputs["x"].tolist())
        self.started.set()
        assert self.go.wait(10)
        if -1 in inputs["x"]:
            raise ValueError("no negative numbers")
        return {"y": 2 * inputs["x"]}


def request(batcher, model, numbers, length=1, group="g", deadline=None):
    """A request as a task; its rows have this length, or these lengths."""
    lengths = np.broadcast_to(np.array(length), len(numbers))
    inputs = {"x": np.array(numbers)}
    asked = batcher.answer(model, inputs, lengths, group, deadline)
    return asyncio.ensure_future(asked)


async def started(model):
    await asyncio.to_thread(model.started.wait, 10)


def play(scenario, **how):
    """Runs a scenario with a batcher of one worker."""

    async def run():
        batcher = Batcher(Batching(**how))
        try:
            return await scenario(batcher)
        finally:
            batcher.close()

    return asyncio.run(run())


def queued():
    """The length of the queue."""
    (metric,) = metrics.QUEUE.collect()
    return metric.samples[0].value


async def answers(*requests):
    done = await asyncio.gather(*requests)
    return [each["y"].tolist() for each in done]


def test_requests_that_wait_together_run_together():
    async def scenario(batcher):
        model = Doubler(held=True)
        first = request(batcher, model, [0])
        await started(model)
        others = [request(batcher, model, [n, n + 10]) for n in range(1, 4)]
        await asyncio.sleep(0)
        model.go.set()
        assert await answers(first, *others) == [
            [0],
            [2, 22],
            [4, 24],
            [6, 26],
        ]
        assert model.batches == [[0], [1, 11, 2, 12, 3, 13]]
        assert queued() == 0

    play(scenario)


def test_an_idle_server_does_not_wait_for_others():
    async def scenario(batcher):
        assert await answers(request(batcher, Doubler(), [1])) == [[2]]

    play(scenario, timeout=3600)


def test_a_free_worker_waits_for_a_full_batch_while_another_runs():
    async def scenario(batcher):
        held, model = Doubler(held=True), Doubler()
        first = request(batcher, held, [0], group="other")
        await started(held)
        others = [request(batcher, model, [n]) for n in range(4)]
        assert await answers(*others) == [[0], [2], [4], [6]]
        assert model.batches == [[0, 1, 2, 3]]
        held.go.set()
        await first

    play(scenario, workers=2, timeout=3600, max_batch_size=4)


def test_no_batch_has_more_rows_than_allowed_and_none_is_lost():
    async def scenario(batcher):
        model = Doubler()
        draw = np.random.default_rng(1)
        numbers = [
            list(range(size)) for size in draw.integers(1, 12, 60).tolist()
        ]
        found = await answers(
            *(
                request(batcher, model, each, draw.integers(1, 200, len(each)))
                for each in numbers
            )
        )
        assert found == [[2 * n for n in each] for each in numbers]
        assert max(map(len, model.batches)) <= 4

    play(scenario, max_batch_size=4, workers=2)


def test_a_long_text_does_not_run_with_short_ones_and_is_not_forgotten():
    async def scenario(batcher):
        model = Doubler(held=True)
        first = request(batcher, model, [0])
        await started(model)
        lengths = {1: 10, 2: 500, 3: 20, 4: 900, 5: 64, 6: 1}
        others = [
            request(batcher, model, [n], length)
            for n, length in lengths.items()
        ]
        await asyncio.sleep(0)
        model.go.set()
        await answers(first, *others)
        assert model.batches == [[0], [1, 6, 3, 5], [2, 4]]

    play(scenario)


def test_rows_of_a_large_request_are_cut_by_length_and_come_back_in_order():
    async def scenario(batcher):
        model = Doubler()
        asked = request(batcher, model, [1, 2, 3, 4], [9, 1, 700, 2])
        assert await answers(asked) == [[2, 4, 6, 8]]
        assert model.batches == [[2, 4], [1, 3]]

    play(scenario, max_batch_size=2)


def test_requests_of_different_groups_or_none_are_not_joined():
    async def scenario(batcher):
        model = Doubler(held=True)
        first = request(batcher, model, [0])
        await started(model)
        others = [
            request(batcher, model, [n], group=group)
            for n, group in enumerate(["a", "b", None, None, "a"], 1)
        ]
        await asyncio.sleep(0)
        model.go.set()
        await answers(first, *others)
        assert model.batches == [[0], [1, 5], [2], [3], [4]]

    play(scenario)


def test_a_full_queue_refuses_at_once():
    async def scenario(batcher):
        model = Doubler(held=True)
        first = request(batcher, model, [0])
        await started(model)
        second = request(batcher, model, [1, 2])
        await asyncio.sleep(0)
        with pytest.raises(Refusal, match="2 texts of at most 3") as found:
            await request(batcher, model, [3, 4])
        assert found.value.status == grpc.StatusCode.RESOURCE_EXHAUSTED
        third = request(batcher, model, [5])
        model.go.set()
        assert await answers(first, second, third) == [[0], [2, 4], [10]]

    play(scenario, max_queue=3)


def test_what_nobody_waits_for_is_not_computed_and_frees_the_queue():
    async def scenario(batcher):
        model = Doubler(held=True)
        first = request(batcher, model, [0])
        await started(model)
        now = asyncio.get_running_loop().time()
        left = request(batcher, model, [1])
        late = request(batcher, model, [2], deadline=now + 0.01)
        await asyncio.sleep(0)
        left.cancel()
        with pytest.raises(Refusal, match="The deadline passed") as found:
            await late
        assert found.value.status == grpc.StatusCode.DEADLINE_EXCEEDED
        await asyncio.wait([left])
        assert queued() == 0
        last = request(batcher, model, [3])
        model.go.set()
        assert await answers(first, last) == [[0], [6]]
        assert model.batches == [[0], [3]]

    play(scenario)


def test_a_deadline_that_has_passed_starts_nothing():
    async def scenario(batcher):
        model = Doubler()
        now = asyncio.get_running_loop().time()
        with pytest.raises(Refusal, match="deadline"):
            await request(batcher, model, [1], deadline=now)
        assert model.batches == []

    play(scenario)


def test_the_fault_of_one_request_is_not_that_of_those_beside_it():
    async def scenario(batcher):
        model = Doubler(held=True)
        first = request(batcher, model, [0])
        await started(model)
        others = [request(batcher, model, [n]) for n in (1, -1, 2)]
        await asyncio.sleep(0)
        model.go.set()
        found = await asyncio.gather(first, *others, return_exceptions=True)
        assert [each["y"].tolist() for each in (found[1], found[3])] == [
            [2],
            [4],
        ]
        assert "no negative" in str(found[2])

    play(scenario)


def test_outputs_without_a_row_for_each_text_are_computed_alone():
    async def scenario(batcher):
        go = threading.Event()
        began = threading.Event()

        def total(inputs):
            began.set()
            assert go.wait(10)
            return {"y": inputs["x"].sum(keepdims=True)}

        asked = [request(batcher, total, [0])]
        await asyncio.to_thread(began.wait, 10)
        asked += [request(batcher, total, [n, n]) for n in (1, 2)]
        await asyncio.sleep(0)
        go.set()
        assert await answers(*asked) == [[0], [2], [4]]

    play(scenario)
