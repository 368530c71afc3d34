"""Multi30k, task 1: captions of photographs, 29,000 pairs (arXiv:1605.00459).

English captions of Flickr30k with human translations into German and French,
distributed at https://github.com/multi30k/dataset for research. The terms of
Flickr30k apply to the captions: non-commercial research and education.
"""

from collections.abc import Iterator

from t2t_lite.problem import (
    RawFiles,
    RemoteFile,
    Text2TextProblem,
    read_parallel,
)
from t2t_lite.registry import register_problem

_URL = (
    "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
)

# File name, size of the compressed file in bytes and sha256 of the uncompressed
# text, so that a recompressed copy is the same corpus. Computed from a copy of
# the corpus (29,000, 1,014 and 1,000 lines per language) and spot-checked
# against the tokenized files in the same repository.
_FILES = """
train.en 562688 460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6
train.de 626192 2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72
train.fr 595900 5925a3c18f1587b6b54b87743106e6e8ab93618edb6f65d19eac0621f853a10d
dev.en 21514 1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227
dev.de 24435 660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660
dev.fr 22798 5304e444d842e962b2dda4d816b70b22a1765b15401642b7ca37a67477e708dc
test.en 20933 399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182
test.de 22645 4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16
test.fr 22144 cb3160d69b002bb638e66cc7612fcd56cb0af82eadc9c142dedc438afb885ef6
"""
_FILE_OF_SPLIT = {"train": "train", "dev": "val", "test": "test_2016_flickr"}


def _files(*languages: str) -> tuple[RemoteFile, ...]:
    rows = (line.split() for line in _FILES.strip().splitlines())
    return tuple(
        RemoteFile(name, f"{_URL}/{name}", sha256, int(size))
        for file, size, sha256 in rows
        for split, language in [file.split(".")]
        for name in [f"{_FILE_OF_SPLIT[split]}.{language}.gz"]
        if language in languages
    )


class _Multi30k(Text2TextProblem):
    """Pairs of two languages; dev is `val`, test is `test_2016_flickr`."""

    vocab_size = 8000

    def samples(self, split: str, raw: RawFiles) -> Iterator[tuple[str, str]]:
        file = _FILE_OF_SPLIT[split]
        return read_parallel(
            raw.path(f"{file}.{self.source_language}.gz"),
            raw.path(f"{file}.{self.target_language}.gz"),
        )


@register_problem("multi30k_ende")
class Multi30kEnDe(_Multi30k):
    """Multi30k English to German: captions of photographs."""

    source_language = "en"
    target_language = "de"
    files = _files("en", "de")


@register_problem("multi30k_enfr")
class Multi30kEnFr(_Multi30k):
    """Multi30k English to French: captions of photographs."""

    source_language = "en"
    target_language = "fr"
    files = _files("en", "fr")
