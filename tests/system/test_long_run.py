"""A long training run in many short rounds, to detect resource leaks."""

import threading

import psutil
import pytest

import t2t_lite
from support.words import HPARAMS, Words
from t2t_lite.registry import register_problem

ROUNDS, UPDATES = 100, 4  # a round trains on the corpus more than once
WARM_UP = 20  # rounds

USAGE = []  # of resources, at each evaluation


class Watched(Words):
    """A problem that records the usage of resources at each evaluation."""

    def evaluate(self, sources, references, outputs):
        process = psutil.Process()
        USAGE.append(
            {
                "memory": process.memory_info().rss,
                "files": process.num_fds(),
                "threads": process.num_threads(),
                "python_threads": threading.active_count(),
            }
        )
        return super().evaluate(sources, references, outputs)


@pytest.mark.slow
def test_memory_files_and_threads_do_not_grow(tmp_path, forget_plugins):
    register_problem("long_run")(Watched)
    t2t_lite.train(
        "long_run",
        HPARAMS.replace(
            batch_tokens=1024, average_checkpoints=2, extra_decode_length=5
        ),
        data_dir=tmp_path / "data",
        output_dir=tmp_path / "run",
        train_steps=ROUNDS * UPDATES,
        eval_steps_every=UPDATES,
        save_steps=UPDATES,
        keep_checkpoints=3,
        log_steps=UPDATES,
    )
    warm = USAGE[WARM_UP:]
    assert len(warm) >= ROUNDS - WARM_UP
    fifth = len(warm) // 5
    for name in warm[0]:
        first = max(usage[name] for usage in warm[:fifth])
        last = max(usage[name] for usage in warm[-fifth:])
        # A leak in each round would exceed this by far.
        most = first * 1.05 if name == "memory" else first + 3
        assert last <= most, name
