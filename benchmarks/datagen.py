"""Measure the throughput and peak memory of t2t-lite-datagen.

    python benchmarks/datagen.py --pairs=5000000 [FLAGS OF t2t-lite-datagen]

The corpus has random words with Zipf frequencies and sentences as long as those
of WMT 2014. Writing the corpus and learning its vocabulary are not timed.
Memory is the sum over all processes, with shared pages counted once (Linux).
"""

import argparse
import contextlib
import itertools
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

from t2t_lite.tokenizers.sentencepiece import SentencePieceTokenizer

WORD_TYPES = 200_000
LETTERS = "eeeeeeeetttttaaaaooooiiinnnsssshhhrrrdddlllcumwfgypbvkjxqz"
BLOCK = 50_000  # pairs that are written at a time
HELD_OUT = 2000  # pairs of dev and of test


def make_words(random):
    """Return distinct words by rank; frequent words are shorter."""
    words = {}
    while len(words) < WORD_TYPES:
        length = 2 + int(random.gamma(2, 1 + np.log10(1 + len(words)) / 3))
        letters = random.integers(len(LETTERS), size=length)
        words["".join(LETTERS[letter] for letter in letters)] = None
    return np.array(list(words), object)


def write_corpus(folder, pairs):
    """Write train, dev and test, two files each, and a vocabulary."""
    random = np.random.default_rng(0)
    words = make_words(random)
    frequencies = np.cumsum(1 / np.arange(1, WORD_TYPES + 1))
    frequencies /= frequencies[-1]
    for split, size in (
        ("train", pairs),
        ("dev", HELD_OUT),
        ("test", HELD_OUT),
    ):
        with (
            open(folder / f"{split}.source", "w") as source,
            open(folder / f"{split}.target", "w") as target,
        ):
            for start in range(0, size, BLOCK):
                count = min(BLOCK, size - start)
                mean = random.lognormal(np.log(15), 0.6, count)
                for file in (source, target):
                    lengths = mean * random.normal(1, 0.2, count)
                    lengths = np.clip(lengths, 1, 200).astype(int)
                    drawn = random.random(lengths.sum())
                    ranks = np.searchsorted(frequencies, drawn)
                    text = iter(words[ranks].tolist())
                    file.writelines(
                        " ".join(itertools.islice(text, length)) + ".\n"
                        for length in lengths.tolist()
                    )
    with open(folder / "train.source") as lines:
        first = map(str.rstrip, itertools.islice(lines, BLOCK))
        SentencePieceTokenizer.train(first, 32_000, folder / "ready.model")


def arguments_for(corpus, data_dir):
    """Return the arguments of Python that write shards of a corpus."""
    prefixes = {"train": "", "dev": "dev_", "test": "test_"}
    return [
        *("-m", "t2t_lite.bin.main", "datagen", "--problem=text"),
        f"--data_dir={data_dir}",
        f"--vocabulary={corpus / 'ready.model'}",
        *(
            f"--{prefix}{side}={corpus / split}.{side}"
            for split, prefix in prefixes.items()
            for side in ("source", "target")
        ),
    ]


def memory_of(pid):
    """Return the MiB of a process and its children."""
    own, shared = 0, [0]
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            memory = process.memory_info()
            own += memory.rss - memory.shared
            shared.append(memory.shared)
    return (own + max(shared)) / 2**20


def main():
    """Print the throughput, the CPU time per pair and the peak memory."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=5_000_000)
    parser.add_argument("--folder", help="keep the corpus in this folder")
    flags, others = parser.parse_known_args()
    with tempfile.TemporaryDirectory(dir=flags.folder) as temporary:
        corpus = Path(flags.folder or temporary) / str(flags.pairs)
        if not (corpus / "ready.model").exists():
            corpus.mkdir(exist_ok=True)
            write_corpus(corpus, flags.pairs)
        command = [
            sys.executable,
            *arguments_for(corpus, Path(temporary, "data")),
        ]
        before, start, peak = os.times(), time.perf_counter(), 0
        process = subprocess.Popen(
            [*command, *others], stdout=subprocess.DEVNULL
        )
        while process.poll() is None:
            peak = max(peak, memory_of(process.pid))
            time.sleep(0.25)
        seconds, after = time.perf_counter() - start, os.times()
    if process.returncode:
        sys.exit(f"The command failed with {process.returncode}.")
    cpu = after.children_user + after.children_system
    cpu -= before.children_user + before.children_system
    cores = len(os.sched_getaffinity(0))
    print(
        f"{seconds:.1f} s, start and end included: "
        f"{flags.pairs / seconds:,.0f} pairs/s on {cores} cores; "
        f"{cpu / flags.pairs * 1e6:.1f} us of CPU per pair; "
        f"peak {peak:,.0f} MiB"
    )


if __name__ == "__main__":
    main()
