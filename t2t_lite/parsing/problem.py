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
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Self

from t2t_lite.corpus.raw_files import RawFiles
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.parsing import trees
from t2t_lite.parsing.linearization import PUNCTUATION, linearize, rebuild
from t2t_lite.parsing.treebank import (
    choose_files,
    mix,
    numbered_files,
    parse_numbers,
    with_subtrees,
)
from t2t_lite.parsing.trees import (
    NO_TAG,
    TOP,
    format_tree,
    read_trees,
    strip_annotation,
)
from t2t_lite.problem import Problem, ProblemOptions
from t2t_lite.validators import Validator, file_path, integer, real, setting

_WORD = re.compile(r"\S+", re.ASCII)


def _numbers(split):
    """Accept the file numbers of a split."""

    def parse(value):
        ranges = parse_numbers(str(value), split)
        return "+".join(
            f"{numbers[0]}-{numbers[-1]}" if numbers[1:] else f"{numbers[0]}"
            for numbers in ranges
        )

    return Validator("file numbers", parse, "NUMBERS")


def _paths(value: Any) -> str:
    """Return paths that are joined by ":", each made absolute."""
    return ":".join(file_path(name) for name in str(value).split(":") if name)


_MEANING = (
    "file numbers, such as 200-2199 or 1-9+12; give all three splits or none "
    "(default: chosen by the files that are there)"
)
_Share = Annotated[float, real(above=0, below=1)]


@dataclasses.dataclass(frozen=True)
class ParsingOptions(ProblemOptions):
    """The options of a `ParsingProblem`."""

    train: Annotated[str, _numbers("train")] | None = setting(None, _MEANING)
    dev: Annotated[str, _numbers("dev")] | None = setting(None, _MEANING)
    test: Annotated[str, _numbers("test")] | None = setting(None, _MEANING)
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


class Layout(NamedTuple):
    """How a treebank of a certain extent is divided by the numbers of files."""

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
    layouts: tuple[Layout, ...] = ()
    labels: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    treebank_share: float = 0.5

    def with_options(self, options: Mapping[str, Any]) -> Self:
        other = super().with_options(options)
        given = [name for name in self.splits if name in options]
        if given and len(given) < len(self.splits):
            raise UsageError(
                "The numbers of files must be given for train, dev and test; "
                f"got {' and '.join(given)} only."
            )
        if "treebank_share" in options and "trees" not in options:
            raise UsageError(
                "treebank_share says how additional trees are mixed with the "
                "treebank; give them with trees=FILE."
            )
        return other

    @property
    def keeps_tags(self) -> bool:
        """Whether part-of-speech tags are part of the target."""
        return self.options.get("leaves") == "tags"

    def samples(self, split: str, raw: RawFiles) -> Iterator[tuple[str, str]]:
        """Yields (words, tokens of the tree), both joined by spaces.

        Example: `("It works .", "(S (NP XX )NP (VP XX )VP . )S")`. A tree
        without words gives two empty texts, which are counted and left out.
        """
        found = _trees(self._chosen(split, raw)[1], raw)
        if split != "train":
            return map(self._pair, found)
        if most := self.options.get("subtrees"):
            found = with_subtrees(found, most)
        treebank = map(self._pair, found)
        files = self._additional_files()
        if not files:
            return treebank
        share = self.options.get("treebank_share", self.treebank_share)
        additional = map(self._pair, _trees(files, raw))
        return mix(list(treebank), additional, share)

    def vocabulary_files(self) -> dict[str, str]:
        return {
            "inputs": f"{self.base_name}.vocab.words.model",
            "targets": f"{self.base_name}.vocab.brackets.txt",
        }

    def expected_vocab_sizes(self) -> tuple[int, int]:
        """Pieces of the source vocabulary, tokens of the targets'."""
        size = self.options.get("vocab_size", self.layouts[0].vocab_size)
        return size, 3 + len(self._declared_tokens())

    def train_encoders(
        self, raw: RawFiles, data_dir: str | os.PathLike, seed: int
    ) -> dict[str, Any]:
        """Learns the vocabulary of the words and lists that of the targets."""
        from t2t_lite.text.sentencepiece_encoder import SentencePieceEncoder
        from t2t_lite.text.token_encoder import TokenEncoder

        files = self.vocabulary_files()
        found: set[str] = set()

        def sources():
            for source, target in self.samples("train", raw):
                found.update(target.split())
                yield source

        size = self.options.get("vocab_size", self._layout(raw).vocab_size)
        encoder = SentencePieceEncoder.train(
            sources(), size, pathlib.Path(data_dir) / files["inputs"], seed
        )
        brackets = _brackets({token[1:] for token in found if token[0] in "()"})
        TokenEncoder.write(
            [*self._declared_tokens(), *sorted({*found, *brackets})],
            pathlib.Path(data_dir) / files["targets"],
        )
        return {files["inputs"]: encoder.learned_from}

    def require_sources(self, raw: RawFiles) -> None:
        missing = [p for p in self._additional_files() if not os.path.isfile(p)]
        if missing:
            raise T2TLiteError(f"trees: there is no file {', '.join(missing)}.")
        super().require_sources(raw)

    def tell_sources(self, raw: RawFiles) -> list[str]:
        if raw.raw_dir is None:
            return [f"missing: {self._where_to_get()}"]
        told = []
        for split in self.splits:
            numbers, chosen = self._chosen(split, raw)
            told.append(f"found: {len(chosen)} files of {split}, {numbers}")
        for path in self._additional_files():
            is_there = os.path.isfile(path)
            told.append(f"{'found' if is_there else 'missing'}: {path}")
        return told

    def text_form(self, encoders: Mapping[str, Any]) -> Any:
        """A `tree_form.TreeForm`; None for trees to sentences."""
        if self.reversed:
            return None
        from t2t_lite.parsing.tree_form import TreeForm

        targets = encoders["targets"]
        return TreeForm(targets.pieces(range(targets.vocab_size)))

    def tokenize(self, text: str) -> str:
        """A sentence as the Penn Treebank writes it; see `treebank_tokens`.

        Example: `"It isn't (yet)."` gives `"It is n't -LRB- yet -RRB- ."`.
        """
        from t2t_lite.parsing.treebank_tokens import tokenize

        return " ".join(tokenize(text))

    def complete(self, source: str, output: str) -> tuple[str, dict[str, Any]]:
        """The tree over the words of the source, and its repairs by name.

        Example: `("It works .", "(S (NP XX )NP (VP XX )VP . )S")` gives
        `"(S (NP (XX It)) (VP (XX works)) (. .))"`. A source without words has
        no tree: an empty line answers it.
        """
        words = _words(source)
        if not words:
            return "", {"repairs": {}}
        tree, repairs = rebuild(output.split(), words, correct_tags=True)
        return format_tree(tree), {"repairs": dict(repairs)}

    def evaluate(
        self,
        sources: Sequence[str],
        references: Sequence[str],
        outputs: Sequence[str],
    ) -> dict[str, Any]:
        """Bracket F1 by EVALB's rules, and how many outputs needed repairs.

        Returns: what `evaluation.bracket_f1.report` does, without tagging where
          tags are not part of the target; `repaired`, the outputs that needed a
          repair, in percent; and `repairs`, by name.
        """
        from t2t_lite.parsing.bracket_f1 import percent, report, score_trees

        scores, repairs = [], []
        for source, reference, output in zip(
            sources, references, outputs, strict=True
        ):
            words = _words(source)
            gold, _ = rebuild(reference.split(), words)
            test, needed = rebuild(output.split(), words, correct_tags=True)
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
        """The numbers of a split, and the files of the treebank with these."""
        numbers = getattr(self._layout(raw), split)
        files = numbered_files(raw.raw_dir, self.file_stem)
        chosen = choose_files(files, numbers)
        if not chosen:
            raise T2TLiteError(
                f"The {split} split must have files; there is none with a "
                f"number in {numbers}, only {min(files)} to {max(files)}."
            )
        return numbers, chosen

    def _layout(self, raw):
        """The layout that the options say or the files fit."""
        if raw.raw_dir is None:
            raise T2TLiteError(self._where_to_get())
        files = numbered_files(raw.raw_dir, self.file_stem)
        fitting = [
            layout
            for layout in self.layouts
            if all(choose_files(files, numbers) for numbers in layout[:3])
        ]
        if "train" in self.options:
            # The size of the vocabulary that a treebank of this extent has.
            size = (fitting or self.layouts)[0].vocab_size
            numbers = {split: self.options[split] for split in self.splits}
            return Layout(**numbers, vocab_size=size)
        if fitting:
            return fitting[0]
        known = "; or ".join(
            f"train {each.train}, dev {each.dev}, test {each.test}"
            for each in self.layouts
        )
        raise T2TLiteError(
            f"{raw.raw_dir} must have files of each split ({known}); it has "
            f"the numbers {min(files)} to {max(files)}. Add what is missing, "
            "or say which are which: --problem_options=train=1-80,dev=81-90,"
            "test=91-99."
        )

    def _additional_files(self):
        return list(filter(None, self.options.get("trees", "").split(":")))

    def _declared_tokens(self):
        """The tokens that a target may have, in the order of their ids."""
        tags = self.tags if self.keeps_tags else ()
        brackets = _brackets((TOP, *self.labels))
        return list(dict.fromkeys((NO_TAG, *PUNCTUATION, *tags, *brackets)))

    def _where_to_get(self):
        """What to do without a treebank, in one sentence."""
        return (
            f"{self.base_name} reads the files of a treebank, which are "
            f"licensed and cannot be downloaded: name the folder that holds "
            f"{self.file_stem}NNNN.mrg with --raw_dir."
        )


def _words(source):
    """The words of a sentence, as trees can hold them."""
    return [trees.escape_brackets(word) for word in _WORD.findall(source)]


def _trees(files, raw):
    """The stripped trees of files, which are noted as read."""
    for path in files:
        raw.note(path)
    read = itertools.chain.from_iterable(map(read_trees, files))
    return map(strip_annotation, read)


def _brackets(labels):
    """The tokens that open and close constituents with these labels."""
    return [f"({x}" for x in labels] + [f"){x}" for x in labels]
