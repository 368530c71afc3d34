"""`ParsingProblem`: constituency parsing of sentences.

The source is the sentence, the target its linearized tree (arXiv:1706.03762,
section 6.3; arXiv:1412.7449).
"""

import collections
import dataclasses
import itertools
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from t2t_lite.corpus.download import RawFiles
from t2t_lite.corpus.lines import COMPRESSED_SUFFIXES, require_files
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.files import PathLike
from t2t_lite.parsing import trees
from t2t_lite.parsing.linearize import PUNCTUATION, delinearize, linearize
from t2t_lite.problem import Problem, ProblemOptions
from t2t_lite.validators import Validator, file_path, integer, real, setting

_RANGE = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)
_WORD = re.compile(r"\S+", re.ASCII)


def _parse_numbers(text: str) -> list[range]:
    """Parse ranges of file numbers, such as "200-2199" or "1-9+12"."""
    ranges = []
    for text_range in text.split("+"):
        match = _RANGE.fullmatch(text_range.strip())
        numbers = match and range(int(match[1]), int(match[2] or match[1]) + 1)
        if not numbers:
            raise ValueError
        ranges.append(numbers)
    return ranges


def _paths(value: Any) -> str:
    """Make paths, separated by ":", absolute."""
    return ":".join(file_path(name) for name in str(value).split(":") if name)


_numbers = Validator(
    "numbers of files such as 200-2199 or 1-9+12",
    lambda value: _parse_numbers(str(value)) and str(value),
)
_Numbers = Annotated[str, _numbers]
_NUMBERS_HELP = (
    "file numbers, such as 200-2199 or 1-9+12; required for all three splits "
    "or none (default: depends on the files in raw_dir)"
)
_Share = Annotated[float, real(above=0, below=1)]
_EXCHANGED = 0.2  # fraction of the nodes of a synthetic tree


@dataclasses.dataclass(frozen=True)
class ParsingOptions(ProblemOptions):
    """The options of a `ParsingProblem`."""

    train: _Numbers | None = setting(None, _NUMBERS_HELP, "NUMBERS")
    dev: _Numbers | None = setting(None, _NUMBERS_HELP, "NUMBERS")
    test: _Numbers | None = setting(None, _NUMBERS_HELP, "NUMBERS")
    vocab_size: Annotated[int, integer(1)] | None = setting(
        None,
        "number of pieces of the source vocabulary (default: depends on the "
        "files in raw_dir)",
        "V",
    )
    leaves: Literal["XX", "tags"] = setting(
        "XX", "representation of words in the target: XX or part-of-speech tags"
    )
    augmentation: Annotated[int, integer(0)] = setting(
        0, "synthetic trees per tree of train, with exchanged constituents", "N"
    )
    trees: Annotated[str, Validator("paths", _paths, "FILES")] | None = setting(
        None,
        "files with additional trees for train, separated by colons, with one "
        "or more trees per line",
    )
    treebank_share: _Share | None = setting(
        None,
        "fraction of train from the treebank if there are additional trees "
        "(default: set by the problem)",
        "SHARE",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        numbers = {"train": self.train, "dev": self.dev, "test": self.test}
        if any(numbers.values()) and not all(numbers.values()):
            named = " and ".join(name for name in numbers if numbers[name])
            raise UsageError(
                "File numbers must be given for all of train, dev and test "
                f"(got {named} only)."
            )
        if self.treebank_share and not self.trees:
            raise UsageError(
                "treebank_share requires additional trees: add trees=FILE."
            )


class SplitRanges(NamedTuple):
    """File numbers of the splits of a treebank, and its vocabulary size."""

    train: str  # such as "200-2199"
    dev: str
    test: str
    vocab_size: int  # number of pieces of the source vocabulary


class ParsingProblem(Problem):
    """Sentences and their trees, from the numbered files of a treebank.

    Traces and function tags are removed. In targets, a word is `XX` and a
    punctuation mark its tag; with `leaves=tags` words are tags, too. The metric
    is bracket F1 by EVALB's rules. Increase `version` when the output of
    `samples` changes.

    Attributes:
      file_stem: common prefix of the names of the treebank's files.
      layouts: possible splits; the first whose files are in `raw_dir` is used.
      labels: constituent labels in targets, in addition to the labels in train.
      tags: part-of-speech tags in targets, in addition to the tags in train.
      treebank_share: fraction of train from the treebank if there are
        additional trees, above 0 and below 1.
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
        """True if part-of-speech tags are part of the target."""
        return self.settings.leaves == "tags"

    def samples(self, split: str, raw: RawFiles) -> Iterator[tuple[str, str]]:
        """Yield (words, tokens of the tree), both joined by spaces.

        Example: `("It works .", "(S (NP XX )NP (VP XX )VP . )S")`. A tree
        without words gives two empty texts, which datagen counts and drops.
        """
        found = _trees(self._split_files(split, raw), raw)
        if split == "train" and self.settings.augmentation:
            found = exchange_constituents(found, self.settings.augmentation)
        treebank = map(self._pair, found)
        files = self._additional_files()
        if split != "train" or not files:
            return treebank
        share = self.settings.treebank_share or self.treebank_share
        additional = map(self._pair, _trees(files, raw))
        return append_treebank(treebank, additional, share)

    def vocabulary_files(self) -> dict[str, str]:
        return {
            "inputs": f"{self.base_name}.vocab.words.model",
            "targets": f"{self.base_name}.vocab.brackets.txt",
        }

    def expected_vocab_sizes(self) -> tuple[int, int]:
        size = self.settings.vocab_size or self.layouts[0].vocab_size
        return size, 3 + len(self._declared_tokens())

    def train_encoders(
        self, raw: RawFiles, data_dir: PathLike, seed: int
    ) -> None:
        """Train the source vocabulary and write the target vocabulary."""
        from t2t_lite.tokenizers.closed import ClosedVocabulary
        from t2t_lite.tokenizers.sentencepiece import SentencePieceTokenizer

        files = self.vocabulary_files()
        tokens: set[str] = set()

        def sources():
            for source, target in self.samples("train", raw):
                tokens.update(target.split())
                yield source

        size = self.settings.vocab_size or self._layout(raw).vocab_size
        SentencePieceTokenizer.train(
            sources(), size, Path(data_dir) / files["inputs"], seed
        )
        labels = {token[1:] for token in tokens if token[0] in "()"}
        ClosedVocabulary.write(
            [*self._declared_tokens(), *sorted({*tokens, *_brackets(labels)})],
            Path(data_dir) / files["targets"],
        )

    def reverse(self) -> Self:
        raise UsageError(f"{self.name} has no reverse direction (_rev).")

    def check_sources(self, raw: RawFiles) -> None:
        require_files(self._additional_files())
        super().check_sources(raw)

    def output_constraint(self, encoders: Mapping[str, Any]) -> Any:
        """Return a `TreeConstraint`."""
        from t2t_lite.parsing.tree_constraint import TreeConstraint

        targets = encoders["targets"]
        return TreeConstraint(targets.ids_to_pieces(range(targets.vocab_size)))

    def tokenize(self, text: str) -> str:
        """Tokenize a sentence by the rules of the Penn Treebank.

        Example: `"It isn't (yet)."` gives `"It is n't -LRB- yet -RRB- ."`.
        """
        from t2t_lite.parsing.ptb_tokenizer import tokenize

        return " ".join(tokenize(text))

    def postprocess(
        self, source: str, output: str
    ) -> tuple[str, dict[str, Any]]:
        """Return the tree over the words of the source, and its repairs.

        Example: `("It works .", "(S (NP XX )NP (VP XX )VP . )S")` gives
        `"(S (NP (XX It)) (VP (XX works)) (. .))"`. A source without words gives
        an empty line.
        """
        words = _words(source)
        if not words:
            return "", {"repairs": {}}
        tree, repairs = delinearize(output.split(), words, correct_tags=True)
        return trees.format_tree(tree), {"repairs": dict(repairs)}

    def evaluate(
        self,
        sources: Sequence[str],
        references: Sequence[str],
        outputs: Sequence[str],
    ) -> dict[str, Any]:
        """Return the `bracket_f1.report`, and the repairs of outputs.

        There is no tagging accuracy unless targets contain tags. `repaired` is
        the percentage of repaired outputs, `repairs` their number by name.
        """
        from t2t_lite.parsing.bracket_f1 import percent, report, score_trees

        scores, repairs = [], []
        sentences = zip(sources, references, outputs, strict=True)
        for source, reference, output in sentences:
            words = _words(source)
            gold, _ = delinearize(reference.split(), words)
            test, counts = delinearize(output.split(), words, correct_tags=True)
            scores.append(score_trees([gold], [test]))
            repairs.append(counts)
        totals = report(scores)
        if not self.keeps_tags:
            for block in (totals, totals["within_cutoff"]):
                del block["tagging_accuracy"], block["correct_tags"]
        return {
            **totals,
            "repaired": percent(sum(map(bool, repairs)), len(repairs)),
            "repairs": dict(sum(repairs, collections.Counter())),
        }

    def _pair(self, tree):
        if tree is None:
            return "", ""
        tokens = linearize(tree, self.keeps_tags)
        return " ".join(trees.words(tree)), " ".join(tokens)

    def _split_files(self, split, raw):
        numbers = getattr(self._layout(raw), split)
        files = numbered_files(raw.raw_dir, self.file_stem)
        if selected := _select_files(files, numbers):
            return selected
        raise T2TLiteError(
            f"The {split} split requires files with numbers in {numbers} (got "
            f"{min(files)} to {max(files)})."
        )

    def _layout(self, raw):
        """Return the split ranges from the options or for the files."""
        if raw.raw_dir is None:
            raise T2TLiteError(
                f"{self.base_name} requires the files of a treebank, which are "
                "licensed and cannot be downloaded: specify the folder of "
                f"{self.file_stem}NNNN.mrg with `raw_dir`."
            )
        files = numbered_files(raw.raw_dir, self.file_stem)
        fitting = [
            layout
            for layout in self.layouts
            if all(_select_files(files, numbers) for numbers in layout[:3])
        ]
        if self.settings.train:
            numbers = {x: getattr(self.settings, x) for x in self.splits}
            # The vocabulary size of the layout that fits these files.
            return (fitting or self.layouts)[0]._replace(**numbers)
        if fitting:
            return fitting[0]
        known = "; or ".join(
            f"train {each.train}, dev {each.dev}, test {each.test}"
            for each in self.layouts
        )
        raise T2TLiteError(
            f"{raw.raw_dir} must contain files of each split, {known} (got "
            f"{min(files)} to {max(files)}). Add the missing files, or specify "
            "their numbers: `problem_options=train=1-80,dev=81-90,test=91-99`."
        )

    def _additional_files(self):
        return list(filter(None, (self.settings.trees or "").split(":")))

    def _declared_tokens(self):
        """Return the tokens that targets may contain, in the order of ids."""
        tags = self.tags if self.keeps_tags else ()
        brackets = _brackets((trees.TOP, *self.labels))
        return list(
            dict.fromkeys((trees.NO_TAG, *PUNCTUATION, *tags, *brackets))
        )


def numbered_files(folder: PathLike, stem: str) -> dict[int, Path]:
    """Find the files of a treebank, sorted by number, also in subfolders.

    Example, for the stem "wsj_": `wsj/02/wsj_0201.mrg` has the number 201.

    Raises:
      T2TLiteError: there are no files, or two files have the same number.
    """
    suffixes = "|".join(map(re.escape, COMPRESSED_SUFFIXES))
    name = re.compile(
        rf"{re.escape(stem)}(\d+)(?:\.(?:mrg|mrgs|txt|trees?))?(?:{suffixes})?",
        re.ASCII | re.IGNORECASE,
    )
    files: dict[int, Path] = {}
    for path in sorted(Path(folder).rglob(f"{stem}*")):
        match = name.fullmatch(path.name)
        if not match or not path.is_file():
            continue
        number = int(match[1])
        if number in files:
            raise T2TLiteError(
                f"A treebank must have one file per number (got {path} and "
                f"{files[number]}): specify the folder of one of them with "
                "`raw_dir`."
            )
        files[number] = path
    if not files:
        raise T2TLiteError(
            f"{folder} must contain files {stem}NNNN.mrg, also in subfolders "
            "(got none): specify the folder of the treebank with `raw_dir`."
        )
    return dict(sorted(files.items()))


def _select_files(files: Mapping[int, Path], numbers: str) -> list[Path]:
    """Select files by numbers such as "1-9+12"."""
    selected = {*itertools.chain(*_parse_numbers(numbers))}
    return [path for number, path in files.items() if number in selected]


def exchange_constituents(
    whole_trees: Iterable[trees.Tree | None], copies: int
) -> Iterator[trees.Tree | None]:
    """Yield all trees, then copies of them with exchanged constituents.

    In a copy, a fifth of the constituents and words, selected at random with a
    fixed seed, are exchanged for others with the same label under the same
    parent's label (arXiv:2101.00411).

    Example: `(S (NP (PRP I)) (VP (VBP do)))` and `(S (NP (NNP Al)) (VP (VBZ
    is)))` give `(S (NP (NNP Al)) (VP (VBP do)))`, among others.
    """
    originals = list(whole_trees)
    yield from originals
    nodes = collections.defaultdict(list)
    for tree in filter(None, originals):
        for event, parent in trees.walk(tree):
            for node in parent.children if event is trees.OPEN else ():
                nodes[parent.label, node.label].append(node)
    generator = random.Random(0)

    def exchange(parent, children):
        return parent._replace(
            children=tuple(
                generator.choice(nodes[parent.label, node.label])
                if generator.random() < _EXCHANGED
                else node
                for node in children
            )
        )

    for _ in range(copies):
        for tree in filter(None, originals):
            yield trees.fold(tree, lambda leaf: leaf, exchange)


def append_treebank(
    treebank: Iterable[Any], additional: Iterable[Any], share: float
) -> Iterator[Any]:
    """Yield the additional items once, then repeat the treebank to its share.

    Example: [a, b], [1, 2, 3, 4, 5, 6], a share of a third:
    1, 2, 3, 4, 5, 6, a, b, a. Datagen shuffles the train split. The treebank
    appears at least once.
    """
    count = 0
    for item in additional:
        count += 1
        yield item
    items = list(treebank)
    copies = max(len(items), round(count * share / (1 - share)))
    yield from itertools.islice(itertools.cycle(items), copies)


def _words(source):
    """Return the words of a sentence, with brackets escaped as in trees."""
    return [trees.escape_brackets(word) for word in _WORD.findall(source)]


def _trees(files, raw):
    """Read stripped trees from files, and record the files as sources."""
    for path in files:
        raw.record_source(path)
    read = itertools.chain.from_iterable(map(trees.read_trees, files))
    return map(trees.strip_annotation, read)


def _brackets(labels):
    """Return the opening and closing tokens of constituents with labels."""
    return [f"({x}" for x in labels] + [f"){x}" for x in labels]
