"""A long training run in many short rounds, to detect resource leaks."""

import threading

import psutil
import pytest

import t2t_lite
from t2t_lite.registry import register_problem

ROUNDS, UPDATES = 100, 4  # a round trains on the corpus more than once
WARM_UP = 20  # rounds

USAGE = []  # of resources, at each evaluation


class Digits(t2t_lite.Text2TextProblem):
    """A problem that copies digits."""

    vocab_size = 280

    def samples(self, split, raw):
        start, count = {"train": (0, 150), "dev": (150, 40)}.get(
            split, (190, 10)
        )
        for number in range(start, start + count):
            digits = " ".join(str(number * 37))
            yield digits, digits

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
    register_problem("long_run")(Digits)
    t2t_lite.train(
        "long_run",
        t2t_lite.HParams(
            hidden_size=16,
            filter_size=32,
            num_heads=2,
            num_hidden_layers=1,
            max_length=64,
            batch_tokens=1024,
            gradient_accumulation_steps=2,
            warmup_steps=100,
            learning_rate=0.1,
            average_checkpoints=2,
            extra_decode_length=5,
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
