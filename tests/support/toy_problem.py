"""Problems with an encoder that needs no training, and their data."""

import pathlib

import numpy as np

from t2t_lite.data.pipeline import read_pairs
from t2t_lite.datagen.generate import DataGenerator
from t2t_lite.problem import Problem


class Letters:
    """An encoder whose ids are the characters' code points."""

    def __init__(self, path):
        assert path.read_text() == "letters"

    def encode(self, texts):
        return [np.array([ord(c) for c in text], np.int32) for text in texts]


class Toy(Problem):
    """A problem with an encoder that needs no training."""

    name = base_name = "toy"
    encoder = Letters
    pairs_of = {"train": 40, "dev": 3, "test": 2}

    def samples(self, split, raw):
        for i in range(self.pairs_of[split]):
            yield f"{split} {i}", f"{split}, number {i}"

    def vocabulary_files(self):
        return {"inputs": "toy.vocab", "targets": "toy.vocab"}

    def train_encoders(self, raw, data_dir, seed):
        (pathlib.Path(data_dir) / "toy.vocab").write_text("letters")

    def load_encoders(self, directory):
        encoder = self.encoder(pathlib.Path(directory) / "toy.vocab")
        return {"inputs": encoder, "targets": encoder}


class WithPairs(Toy):
    """The toy problem with a train split of given pairs."""

    def __init__(self, train):
        self.train = train

    def samples(self, split, raw):
        return self.train if split == "train" else super().samples(split, raw)


def make(problem, folder, overwrite=False, **options):
    """Generate the data of a problem, with options of `DataGenerator`."""
    return DataGenerator(problem, folder, progress=False, **options).run(
        overwrite
    )


def texts(folder, problem, manifest, split):
    return [
        tuple("".join(map(chr, side[:-1])) for side in pair)
        for pair in read_pairs(folder, problem, manifest, split)
    ]


def files_in(folder):
    return {path.name for path in folder.iterdir()}


COMPLETE = {
    ".toy.lock",
    "toy.manifest.json",
    "toy.vocab",
    "toy-train-00000-of-00001",
    "toy-dev-00000-of-00001",
    "toy-test-00000-of-00001",
}


class Endless(Toy):
    """A corpus of any size that is never held in memory."""

    def __init__(self, train):
        self.pairs_of = Toy.pairs_of | {"train": train}
