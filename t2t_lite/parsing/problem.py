"""`ParsingProblem`: sentences to their constituency trees.

arXiv:1706.03762, section 6.3, after arXiv:1412.7449: the source is the words,
the target the linearized tree.
"""

import collections
import dataclasses
import itertools
import os
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from t2t_lite.corpus.download import RawFiles
from t2t_lite.corpus.lines import COMPRESSED_SUFFIXES
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.parsing import trees
from t2t_lite.parsing.linearize import PUNCTUATION, delinearize, linearize
from t2t_lite.parsing.trees import (
    NO_TAG,
    OPEN,
    TOP,
    Tree,
    format_tree,
    read_trees,
    strip_annotation,
    walk,
)
from t2t_lite.problem import Problem, ProblemOptions
from t2t_lite.validators import (
    Validator,
    file_path,
    integer,
    real,
    setting,
)

_RANGE = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)
_WORD = re.compile(r"\S+", re.ASCII)


def _parse_numbers(text: str) -> list[range]:
    """Return the ranges of a text such as "200-2199" or "1-9+12"."""
    ranges = []
    for part in text.split("+"):
        found = _RANGE.fullmatch(part.strip())
        numbers = found and range(int(found[1]), int(found[2] or found[1]) + 1)
        if not numbers:
            raise ValueError
        ranges.append(numbers)
    return ranges


def _checked_numbers(value: Any) -> str:
    _parse_numbers(str(value))
    return str(value)


def _paths(value: Any) -> str:
    """Return paths that are joined by ":", each made absolute."""
    return ":".join(file_path(name) for name in str(value).split(":") if name)


_Numbers = Annotated[
    str,
    Validator("numbers of files such as 200-2199 or 1-9+12", _checked_numbers),
]
_MEANING = (
    "file numbers, such as 200-2199 or 1-9+12; give all three splits or none "
    "(default: chosen by the files that are there)"
)
_Share = Annotated[float, real(above=0, below=1)]


@dataclasses.dataclass(frozen=True)
class ParsingOptions(ProblemOptions):
    """The options of a `ParsingProblem`."""

    train: _Numbers | None = setting(None, _MEANING, "NUMBERS")
    dev: _Numbers | None = setting(None, _MEANING, "NUMBERS")
    test: _Numbers | None = setting(None, _MEANING, "NUMBERS")
    vocab_size: Annotated[int, integer(1)] | None = setting(
        None,
        "pieces of the source vocabulary (default: chosen by the files that "
        "are there)",
        "V",
    )
    leaves: Literal["XX", "tags"] = setting(
        "XX", "the word in the target: XX or its part-of-speech tag"
    )
    subtrees: Annotated[int, integer(2)] | None = setting(
        None, "use constituents of 2 to N words as sentences of train, too"
    )
    trees: Annotated[str, Validator("paths", _paths, "FILES")] | None = setting(
        None,
        "files with additional trees for train, one or more per line; a colon "
        "between files",
    )
    treebank_share: _Share | None = setting(
        None,
        "share of the treebank in train, with additional trees (default: the "
        "problem's own)",
        "SHARE",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        numbers = {"train": self.train, "dev": self.dev, "test": self.test}
        if any(numbers.values()) and not all(numbers.values()):
            given = " and ".join(name for name in numbers if numbers[name])
            raise UsageError(
                "The numbers of files must be given for train, dev and test; "
                f"got {given} only."
            )
        if self.treebank_share and not self.trees:
            raise UsageError(
                "treebank_share says how additional trees are mixed with the "
                "treebank; give them with trees=FILE."
            )


class SplitRanges(NamedTuple):
    """The split of a treebank of a given extent by numbers of files."""

    train: str  # such as "200-2199"
    dev: str
    test: str
    vocab_size: int  # pieces of a source vocabulary that fits it


class ParsingProblem(Problem):
    """Sentences and their trees, from the numbered files of a treebank.

    Traces and function tags are left out. In the target, a word is `XX` and
    punctuation is its tag; with `leaves=tags` a word is its tag, too. Scores
    are bracket F1 by EVALB's rules. Raise `version` when `samples` gives
    something else.

    Attributes:
      file_stem: how the names of the treebank's files begin.
      layouts: the first one is used for whose splits `raw_dir` has files.
      labels: of constituents that targets may have; those of train are added.
      tags: of words, likewise.
      treebank_share: of the sentences of train, if there are additional trees.
    """

    options_type = ParsingOptions
    metric = "f1"
    file_stem: str = ""
    layouts: tuple[SplitRanges, ...] = ()
    labels: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    treebank_share: float = 0.5

    @property
    def keeps_tags(self) -> bool:
        """Return whether part-of-speech tags are part of the target."""
        return self.settings.leaves == "tags"

    def samples(self, split: str, raw: RawFiles) -> Iterator[tuple[str, str]]:
        """Yield (words, tokens of the tree), both joined by spaces.

        Example: `("It works .", "(S (NP XX )NP (VP XX )VP . )S")`. A tree
        without words gives two empty texts, which are counted and left out.
        """
        found = _trees(self._chosen(split, raw), raw)
        if split == "train" and self.settings.subtrees:
            found = _with_subtrees(found, self.settings.subtrees)
        treebank = map(self._pair, found)
        files = self._additional_files()
        if split != "train" or not files:
            return treebank
        share = self.settings.treebank_share or self.treebank_share
        return interleave(treebank, map(self._pair, _trees(files, raw)), share)

    def vocabulary_files(self) -> dict[str, str]:
        return {
            "inputs": f"{self.base_name}.vocab.words.model",
            "targets": f"{self.base_name}.vocab.brackets.txt",
        }

    def expected_vocab_sizes(self) -> tuple[int, int]:
        size = self.settings.vocab_size or self.layouts[0].vocab_size
        return size, 3 + len(self._declared_tokens())

    def train_encoders(
        self, raw: RawFiles, data_dir: str | os.PathLike, seed: int
    ) -> None:
        """Learn the vocabulary of the words, and list that of the targets."""
        from t2t_lite.tokenizers.closed import ClosedVocabulary
        from t2t_lite.tokenizers.sentencepiece import SentencePieceTokenizer

        files = self.vocabulary_files()
        found: set[str] = set()

        def sources():
            for source, target in self.samples("train", raw):
                found.update(target.split())
                yield source

        size = self.settings.vocab_size or self._layout(raw).vocab_size
        SentencePieceTokenizer.train(
            sources(), size, pathlib.Path(data_dir) / files["inputs"], seed
        )
        brackets = _brackets({token[1:] for token in found if token[0] in "()"})
        ClosedVocabulary.write(
            [*self._declared_tokens(), *sorted({*found, *brackets})],
            pathlib.Path(data_dir) / files["targets"],
        )

    def check_sources(self, raw: RawFiles) -> None:
        missing = [p for p in self._additional_files() if not os.path.isfile(p)]
        if missing:
            raise T2TLiteError(f"trees: there is no file {', '.join(missing)}.")
        super().check_sources(raw)

    def output_constraint(self, encoders: Mapping[str, Any]) -> Any:
        """Return a `TreeConstraint`; None for trees to sentences."""
        if self.reversed:
            return None
        from t2t_lite.parsing.tree_constraint import TreeConstraint

        targets = encoders["targets"]
        return TreeConstraint(targets.ids_to_pieces(range(targets.vocab_size)))

    def tokenize(self, text: str) -> str:
        """Return a sentence as the Penn Treebank writes it.

        Example: `"It isn't (yet)."` gives `"It is n't -LRB- yet -RRB- ."`.
        """
        from t2t_lite.parsing.ptb_tokenizer import tokenize

        return " ".join(tokenize(text))

    def postprocess(
        self, source: str, output: str
    ) -> tuple[str, dict[str, Any]]:
        """Return the tree over the words of the source, and its repairs.

        Example: `("It works .", "(S (NP XX )NP (VP XX )VP . )S")` gives
        `"(S (NP (XX It)) (VP (XX works)) (. .))"`. A source without words has
        no tree: an empty line answers it.
        """
        words = _words(source)
        if not words:
            return "", {"repairs": {}}
        tree, repairs = delinearize(output.split(), words, correct_tags=True)
        return format_tree(tree), {"repairs": dict(repairs)}

    def evaluate(
        self,
        sources: Sequence[str],
        references: Sequence[str],
        outputs: Sequence[str],
    ) -> dict[str, Any]:
        """Return bracket F1 by EVALB's rules, and the repairs of outputs.

        Returns:
          the `bracket_f1.report`, without tagging where tags are not part of
          the target; `repaired`, the outputs that needed a repair, in percent;
          and `repairs`, by name.
        """
        from t2t_lite.parsing.bracket_f1 import percent, report, score_trees

        scores, repairs = [], []
        for source, reference, output in zip(
            sources, references, outputs, strict=True
        ):
            words = _words(source)
            gold, _ = delinearize(reference.split(), words)
            test, needed = delinearize(output.split(), words, correct_tags=True)
            scores.append(score_trees([gold], [test]))
            repairs.append(needed)
        counts = report(scores)
        if not self.keeps_tags:
            for part in (counts, counts["within_cutoff"]):
                del part["tagging_accuracy"], part["correct_tags"]
        return {
            **counts,
            "repaired": percent(sum(map(bool, repairs)), len(repairs)),
            "repairs": dict(sum(repairs, collections.Counter())),
        }

    def _pair(self, tree):
        if tree is None:
            return "", ""
        tokens = linearize(tree, self.keeps_tags)
        return " ".join(trees.words(tree)), " ".join(tokens)

    def _chosen(self, split, raw):
        """Return the files of a split."""
        numbers = getattr(self._layout(raw), split)
        files = numbered_files(raw.raw_dir, self.file_stem)
        if chosen := _choose(files, numbers):
            return chosen
        raise T2TLiteError(
            f"The {split} split must have files; there is none with a number "
            f"in {numbers}, only {min(files)} to {max(files)}."
        )

    def _layout(self, raw):
        """Return the layout that the options say or the files fit."""
        if raw.raw_dir is None:
            raise T2TLiteError(
                f"{self.base_name} reads the files of a treebank, which are "
                "licensed and cannot be downloaded: name the folder that holds "
                f"{self.file_stem}NNNN.mrg with `raw_dir`."
            )
        files = numbered_files(raw.raw_dir, self.file_stem)
        fitting = [
            layout
            for layout in self.layouts
            if all(_choose(files, numbers) for numbers in layout[:3])
        ]
        if self.settings.train:
            # The size of the vocabulary that a treebank of this extent has.
            size = (fitting or self.layouts)[0].vocab_size
            numbers = {
                name: getattr(self.settings, name) for name in self.splits
            }
            return SplitRanges(**numbers, vocab_size=size)
        if fitting:
            return fitting[0]
        known = "; or ".join(
            f"train {each.train}, dev {each.dev}, test {each.test}"
            for each in self.layouts
        )
        raise T2TLiteError(
            f"{raw.raw_dir} must have files of each split ({known}); it has "
            f"the numbers {min(files)} to {max(files)}. Add what is missing, "
            "or say which are which: "
            "`problem_options=train=1-80,dev=81-90,test=91-99`."
        )

    def _additional_files(self):
        return list(filter(None, (self.settings.trees or "").split(":")))

    def _declared_tokens(self):
        """Return the tokens that a target may have, in the order of ids."""
        tags = self.tags if self.keeps_tags else ()
        brackets = _brackets((TOP, *self.labels))
        return list(dict.fromkeys((NO_TAG, *PUNCTUATION, *tags, *brackets)))


def numbered_files(
    folder: str | os.PathLike, stem: str
) -> dict[int, pathlib.Path]:
    """Return the files of a treebank by number, in order, also in folders.

    Example, for the stem "wsj_": `wsj/02/wsj_0201.mrg` has the number 201. No
    files, or two of a number, are a T2TLiteError.
    """
    packed = "|".join(map(re.escape, COMPRESSED_SUFFIXES))
    name = re.compile(
        rf"{re.escape(stem)}(\d+)(?:\.(?:mrg|mrgs|txt|trees?))?(?:{packed})?",
        re.ASCII | re.IGNORECASE,
    )
    files: dict[int, pathlib.Path] = {}
    for path in sorted(pathlib.Path(folder).rglob(f"{stem}*")):
        found = name.fullmatch(path.name)
        if not found or not path.is_file():
            continue
        number = int(found[1])
        if number in files:
            raise T2TLiteError(
                f"A treebank must have one file of each number; got {path} "
                f"and {files[number]}. Name the folder of one of them with "
                "`raw_dir`."
            )
        files[number] = path
    if not files:
        raise T2TLiteError(
            f"{folder} must hold files {stem}NNNN.mrg, also in folders; got "
            "none. Name the folder of the treebank with `raw_dir`."
        )
    return dict(sorted(files.items()))


def _choose(
    files: Mapping[int, pathlib.Path], numbers: str
) -> list[pathlib.Path]:
    """Return the files whose numbers a text such as "1-9+12" says."""
    chosen = {*itertools.chain(*_parse_numbers(numbers))}
    return [path for number, path in files.items() if number in chosen]


def _with_subtrees(
    found: Iterable[Tree | None], most: int
) -> Iterator[Tree | None]:
    """Yield each tree, then its constituents of 2 to `most` words.

    Example, for 2: `(S (NP (X a) (X b)) (VP (X c)))`, then `(NP (X a) (X b))`.
    """
    for tree in found:
        yield tree
        inside = itertools.islice(walk(tree), 1, None) if tree else ()
        for event, part in inside:
            if event is OPEN and 2 <= len(trees.words(part)) <= most:
                yield part


def interleave(
    treebank: Iterable[Any], additional: Iterable[Any], share: float
) -> Iterator[Any]:
    """Yield each additional item once, and the treebank as often as its share.

    Example: [a, b], [1, 2, 3, 4, 5, 6], a share of a third:
    1, 2, 3, 4, 5, 6, a, b, a. Train is shuffled when its data is made. Each
    item of the treebank comes at least once.
    """
    count = 0
    for item in additional:
        count += 1
        yield item
    items = list(treebank)
    copies = max(len(items), round(count * share / (1 - share)))
    yield from itertools.islice(itertools.cycle(items), copies)


def _words(source):
    """Return the words of a sentence, as trees can hold them."""
    return [trees.escape_brackets(word) for word in _WORD.findall(source)]


def _trees(files, raw):
    """Return the stripped trees of files, which are noted as read."""
    for path in files:
        raw.record_source(path)
    read = itertools.chain.from_iterable(map(read_trees, files))
    return map(strip_annotation, read)


def _brackets(labels):
    """Return the tokens that open and close constituents of these labels."""
    return [f"({x}" for x in labels] + [f"){x}" for x in labels]
