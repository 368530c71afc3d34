"""t2t-lite-datagen alone: pairs a second and memory, from plain text.

    .venv/bin/python benchmarks/datagen.py --pairs=5000000

Writes a corpus of random words (their frequencies by Zipf's law, sentences
about as long as those of WMT 2014) and a vocabulary of it, neither of which
counts, then runs the command as a user would: two files and a ready vocabulary
to shards. Further flags, such as --processes=1, go to the command. Memory is
that of the command and its workers together, mapped files counted once,
sampled several times a second; needs Linux.
"""

import argparse
import contextlib
import itertools
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import psutil

WORD_TYPES = 200_000
MEAN_WORDS, SPREAD, SIDE_SPREAD, MOST_WORDS = 18, 0.6, 0.2, 200
LETTERS = "eeeeeeeetttttaaaaooooiiinnnsssshhhrrrdddlllcumwfgypbvkjxqz"
VOCABULARY_LINES = 50_000
BLOCK = 50_000  # pairs written at a time
HELD_OUT = 2000  # pairs of dev and of test
SECONDS_BETWEEN_LOOKS = 0.25


def make_words(random: np.random.Generator) -> list[str]:
    """Different words, the frequent ones shorter, by rank."""
    words: dict[str, None] = {}
    while len(words) < WORD_TYPES:
        length = 2 + int(random.gamma(2, 1 + np.log10(1 + len(words)) / 3))
        letters = random.integers(len(LETTERS), size=length)
        words["".join(LETTERS[letter] for letter in letters)] = None
    return list(words)


def write_corpus(folder: pathlib.Path, pairs: int) -> None:
    """Write train, dev and test, two files each."""
    random = np.random.default_rng(0)
    words = np.array(make_words(random), object)
    frequencies = np.cumsum(1 / np.arange(1, WORD_TYPES + 1))
    frequencies /= frequencies[-1]
    sizes = {"train": pairs, "dev": HELD_OUT, "test": HELD_OUT}
    for split, size in sizes.items():
        with (
            open(folder / f"{split}.source", "w") as source,
            open(folder / f"{split}.target", "w") as target,
        ):
            for start in range(0, size, BLOCK):
                count = min(BLOCK, size - start)
                mean = random.lognormal(
                    np.log(MEAN_WORDS) - SPREAD**2 / 2, SPREAD, count
                )
                for file in (source, target):
                    lengths = mean * random.normal(1, SIDE_SPREAD, count)
                    lengths = np.clip(lengths, 1, MOST_WORDS).astype(int)
                    drawn = random.random(lengths.sum())
                    ranks = np.searchsorted(frequencies, drawn)
                    text = iter(words[ranks].tolist())
                    file.writelines(
                        " ".join(itertools.islice(text, length)) + ".\n"
                        for length in lengths.tolist()
                    )


def write_vocabulary(folder: pathlib.Path, size: int) -> None:
    """Learns one of the first lines of train."""
    from t2t_lite.tokenizers.sentencepiece import SentencePieceTokenizer

    with (
        open(folder / "train.source") as source,
        open(folder / "train.target") as target,
    ):
        lines = (
            line.rstrip("\n")
            for line in itertools.chain(
                itertools.islice(source, VOCABULARY_LINES // 2),
                itertools.islice(target, VOCABULARY_LINES // 2),
            )
        )
        SentencePieceTokenizer.train(lines, size, folder / "ready.model")


def arguments_for(corpus: pathlib.Path, data_dir: pathlib.Path) -> list[str]:
    """Return what Python needs to make shards of a corpus written here."""
    return [
        *("-m", "t2t_lite.bin.main", "datagen", "--problem=text"),
        f"--data_dir={data_dir}",
        f"--vocabulary={corpus / 'ready.model'}",
        *(
            f"--{prefix}{side}={corpus / split}.{side}"
            for split, prefix in (
                ("train", ""),
                ("dev", "dev_"),
                ("test", "test_"),
            )
            for side in ("source", "target")
        ),
    ]


def mib_of(pid: int) -> float:
    """Return the memory of a process and its children, in MiB.

    Pages of files, which the processes share, count once.
    """
    own, shared = 0, [0]
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            memory = process.memory_info()
            own += memory.rss - memory.shared
            shared.append(memory.shared)
    return (own + max(shared)) / 2**20


def run(command: list[str]) -> tuple[float, float, float]:
    """Run the command: (seconds, processor seconds, peak MiB together)."""
    before, started = os.times(), time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(SECONDS_BETWEEN_LOOKS):
            peak[0] = max(peak[0], mib_of(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    code = process.wait()
    seconds = time.perf_counter() - started
    done.set()
    watcher.join()
    if code:
        sys.exit(f"The command failed with {code}.")
    after = os.times()
    used = (after.children_user + after.children_system) - (
        before.children_user + before.children_system
    )
    return seconds, used, peak[0]


def main() -> None:
    """Make what is needed, runs the command and prints what it took."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=5_000_000)
    parser.add_argument("--vocab_size", type=int, default=32_000)
    parser.add_argument("--folder", help="kept; default: a temporary one")
    flags, others = parser.parse_known_args()
    with tempfile.TemporaryDirectory(dir=flags.folder) as temporary:
        corpus = pathlib.Path(flags.folder or temporary) / str(flags.pairs)
        if not (corpus / "ready.model").exists():
            corpus.mkdir(exist_ok=True)
            write_corpus(corpus, flags.pairs)
            write_vocabulary(corpus, flags.vocab_size)
        data_dir = pathlib.Path(temporary) / "data"
        command = [sys.executable, *arguments_for(corpus, data_dir), *others]
        seconds, used, peak = run(command)
        report(data_dir, flags.pairs, seconds, used, peak)


def report(
    data_dir: pathlib.Path,
    pairs: int,
    seconds: float,
    used: float,
    peak: float,
) -> None:
    """Print what came out and what it took."""
    from t2t_lite import registry
    from t2t_lite.data.manifest import Manifest
    from t2t_lite.plugins import load_plugins

    load_plugins()
    train = Manifest.load(data_dir, registry.problem("text")).split("train")
    cores = len(os.sched_getaffinity(0))
    print(
        f"{pairs:,} pairs of {train.source_tokens / train.examples:.1f} and "
        f"{train.target_tokens / train.examples:.1f} pieces, "
        f"{sum(shard.bytes for shard in train.shards) / pairs:.0f} bytes each, "
        f"{pairs - train.examples:,} left out"
    )
    print(
        f"{seconds:.1f} s, start and end included: {pairs / seconds:,.0f} "
        f"pairs/s on {cores} cores"
    )
    print(f"{used:.1f} processor seconds, {used / pairs * 1e6:.1f} us a pair")
    print(f"peak memory of all processes: {peak:,.0f} MiB")


if __name__ == "__main__":
    sys.exit(main())
