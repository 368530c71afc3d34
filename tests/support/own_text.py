"""Problems of the user's own text files, and their pairs."""

from t2t_lite import registry
from t2t_lite.corpus.download import RawFiles
from t2t_lite.plugins import load_plugins


def text(pairs=None, problem="text", **options):
    """Return the problem `text` or `text_rev` with these options."""
    load_plugins()
    return registry.problem(problem, {"pairs": pairs, **options})


def samples(problem, split="train", raw=None):
    return list(problem.samples(split, raw or RawFiles()))


def splits_of(problem, raw=None):
    return {split: samples(problem, split, raw) for split in problem.splits}
