"""`Problem`: the declaration of a task."""

import collections
import contextlib
import copy
import dataclasses
import hashlib
import inspect
import itertools
import json
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

from t2t_lite.corpus import filters
from t2t_lite.corpus.download import RawFiles, RemoteFile
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.validators import changed, require_known, validate

if TYPE_CHECKING:
    from t2t_lite.tokenizers.base import Tokenizer

T = TypeVar("T")
# Attributes that score or describe: a change of them leaves the data valid.
_DO_NOT_SHAPE_DATA = ("name", "options", "metric", "reversed", "tfds_bytes")
_SHOWN_CHARACTERS = 60  # of a wrong pair


@dataclasses.dataclass(frozen=True)
class ProblemOptions:
    """The options of a problem; a subclass has a `validators.setting` for each.

    Raises:
      UsageError: a value breaks its rule.
    """

    def __post_init__(self) -> None:
        validate(self)


class Problem:
    """A task: where its text pairs come from, how they are encoded and scored.

    A problem is declared by subclassing; most declare a few class attributes
    and write `samples`. A direct subclass also defines its encoders;
    `Text2TextProblem` has them.

    Attributes:
      name: set by `register_problem`; a reversed copy has `NAME_rev`.
      base_name: the name of its files, the same in both directions.
      reversed: the pipeline swaps `inputs` and `targets`.
      options_type: the dataclass of the options that `with_options` takes.
      settings: the values of the options.
      options: the values that differ from the defaults, fit for JSON.
      version: raise it when a change of code changes the data.
      vocab_size: pieces of a vocabulary, special pieces and bytes included.
      filters: which pairs of train are left out, see the module `filters`.
      metric: the key of reports, as in `dev_bleu`.
      files: files to download without `raw_dir`.
      splits: the splits that `samples` knows.
      tfds_name: dataset and configuration, where `samples` reads TensorFlow
        Datasets; else empty.
      tfds_bytes: to download from there, about.
    """

    name: str = ""
    base_name: str = ""
    reversed: bool = False
    options_type: type[ProblemOptions] = ProblemOptions
    settings: Any = ProblemOptions()
    options: Mapping[str, Any] = {}
    version: int = 1
    vocab_size: int = 8000
    filters: Mapping[str, Any] = {}
    metric: str = "bleu"
    files: tuple[RemoteFile, ...] = ()
    splits: tuple[str, ...] = ("train", "dev", "test")
    tfds_name: str = ""
    tfds_bytes: int = 0

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "options_type" in vars(cls):
            cls.settings = cls.options_type()

    def samples(self, split: str, raw: RawFiles) -> Iterator[tuple[str, str]]:
        """Yield the (source, target) texts of a split, in a fixed order.

        They are in the direction of the name without `_rev`.

        Args:
          split: one of `splits`.
          raw: finds the files of the corpus: `raw.path("train.en")`.
        """
        raise _undefined(self, "samples")

    def check_sources(self, raw: RawFiles) -> None:
        """Find and check the corpus before long work.

        It reads the beginnings of dev and test. Train is read next anyway.

        Raises:
          T2TLiteError: files of `files` are missing, all of which are named.
          Exception: `samples` raises it.
        """
        raw.require(raw.files)
        for split in self.splits:
            if split != "train":
                read_some(self.samples(split, raw))

    @property
    def source_tags(self) -> tuple[str, ...]:
        """Tags before source texts, see `text.tags`; each is one piece."""
        return ()

    def corpus_counts(self) -> list[dict[str, Any]]:
        """Return `Manifest.corpora`."""
        return []

    def vocabulary_lines(self, raw: RawFiles) -> Iterator[str]:
        """Yield the text for a vocabulary: both sides of train, filtered."""
        reason = filters.make_filter(self.filters, self.source_tags)
        label = f"{self.base_name} train"
        for pair in validate_pairs(self.samples("train", raw), label):
            if not reason(*pair):
                yield from pair

    def vocabulary_files(self) -> dict[str, str]:
        """Return the vocabulary files of `inputs` and `targets` of `samples`.

        Equal names mean one shared vocabulary.
        """
        raise _undefined(self, "vocabulary_files")

    def expected_vocab_sizes(self) -> tuple[int, int]:
        """Return the sizes of both vocabularies before they exist."""
        return self.vocab_size, self.vocab_size

    def train_encoders(
        self, raw: RawFiles, data_dir: str | os.PathLike, seed: int
    ) -> None:
        """Make the vocabulary files in `data_dir`."""
        raise _undefined(self, "train_encoders")

    def load_encoders(
        self, directory: str | os.PathLike
    ) -> dict[str, "Tokenizer"]:
        """Return the encoders of `inputs` and `targets` of this direction.

        They are one object if they are shared.

        Raises:
          T2TLiteError: a file is missing, damaged, or not a vocabulary.
        """
        from t2t_lite.tokenizers.vocabulary import open_vocabulary

        files = self.vocabulary_files()
        encoders = {
            name: open_vocabulary(pathlib.Path(directory) / name)
            for name in set(files.values())
        }
        inputs, targets = self.swap_if_reversed(
            files["inputs"], files["targets"]
        )
        return {"inputs": encoders[inputs], "targets": encoders[targets]}

    def evaluate(
        self,
        sources: Sequence[str],
        references: Sequence[str],
        outputs: Sequence[str],
    ) -> dict[str, Any]:
        """Return a report: at least `metric`, `score` (0-100) and `sentences`.

        Args:
          sources: the source texts, as they are in the shards.
          references: the target texts of the shards.
          outputs: the outputs of the model, without `postprocess`.
        """
        raise _undefined(self, "evaluate")

    def tokenize(self, text: str) -> str:
        """Return a raw source text as the corpus has it, for `tokenize`.

        By default the corpus has raw text, and this is a UsageError.
        """
        raise UsageError(
            f"{self.registered_name} reads text as it is: leave `tokenize` out."
        )

    def postprocess(
        self, source: str, output: str
    ) -> tuple[str, dict[str, Any]]:
        """Return the answer of an output, and facts on it, fit for JSON.

        By default that is the output, and no facts.
        """
        return output, {}

    def output_constraint(self, encoders: Mapping[str, "Tokenizer"]) -> Any:
        """Return the form of the texts for graphs; None, the default: any.

        It has the methods of `parsing.TreeConstraint`; `encoders` are those
        of `load_encoders`.
        """
        return None

    def with_options(self, options: Mapping[str, Any]) -> Self:
        """Return a copy with options, which data and runs remember.

        Args:
          options: values or their texts, by name; None leaves one out.

        Raises:
          UsageError: the problem has no such option, or a value breaks its
            rule.
        """
        require_known(options, self.options_type, self.registered_name)
        given = {k: v for k, v in options.items() if v is not None}
        other = copy.copy(self)
        other.settings = self.options_type(**given)
        other.options = changed(other.settings)
        return other

    def option_words(self) -> list[str]:
        """Return its options as words of a command line, without dashes."""
        if not self.options:
            return []
        told = ",".join(f"{key}={value}" for key, value in self.options.items())
        return [f"problem_options={told}"]

    @property
    def registered_name(self) -> str:
        """The name it is looked up by; an option may choose another `name`."""
        name = type(self).name or self.base_name
        return f"{name}_rev" if self.reversed else name

    def reverse(self) -> Self:
        """Return a copy in the other direction, with the same data."""
        other = copy.copy(self)
        other.reversed = not self.reversed
        other.name = self.base_name + ("_rev" if other.reversed else "")
        return other

    def swap_if_reversed(self, source_side: T, target_side: T) -> tuple[T, T]:
        """Return the values of the sides of `samples`, swapped in `_rev`."""
        if self.reversed:
            return target_side, source_side
        return source_side, target_side

    def definition(self) -> dict[str, Any]:
        """Return all that shapes the data, in either direction, fit for JSON.

        These are the class attributes that are plain data, `version` among
        them, and the options if there are some. Code is not compared.
        """
        attributes = {}
        for name in dir(type(self)):
            value = inspect.getattr_static(type(self), name)
            if name.startswith("_") or name in _DO_NOT_SHAPE_DATA:
                continue
            if name == "files":  # an address may move, the content may not
                value = [[file.name, file.sha256] for file in value]
            with contextlib.suppress(TypeError):  # it is not plain data
                json.dumps(value, sort_keys=True)
                attributes[name] = value
        definition: dict[str, Any] = {"attributes": attributes}
        if self.options:
            definition["options"] = dict(self.options)
        return definition

    def fingerprint(self) -> str:
        """Return the sha256 of the definition, in hex."""
        text = json.dumps(self.definition(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


class Text2TextProblem(Problem):
    """A problem with one shared vocabulary that is learned, and BLEU.

    If the `vocabulary_files` of a subclass are two, each side has a vocabulary.

    Attributes:
      source_language, target_language: such as "en" and "de", in the direction
        of the name without `_rev`, as in `samples`.
    """

    source_language: str = ""
    target_language: str = ""

    @property
    def languages(self) -> tuple[str, str]:
        """The (source, target) languages of this direction, for reports."""
        return self.swap_if_reversed(self.source_language, self.target_language)

    def vocabulary_files(self) -> dict[str, str]:
        file = f"{self.base_name}.vocab.{self.vocab_size}.model"
        return {"inputs": file, "targets": file}

    def train_encoders(
        self, raw: RawFiles, data_dir: str | os.PathLike, seed: int
    ) -> None:
        from t2t_lite.tokenizers.sentencepiece import SentencePieceTokenizer

        names = dict.fromkeys(self.vocabulary_files().values())
        for side, name in enumerate(names):
            lines = self.vocabulary_lines(raw)
            SentencePieceTokenizer.train(
                itertools.islice(lines, side, None, len(names)),
                self.vocab_size,
                pathlib.Path(data_dir) / name,
                seed,
                self.source_tags,
            )

    def evaluate(
        self,
        sources: Sequence[str],
        references: Sequence[str],
        outputs: Sequence[str],
    ) -> dict[str, Any]:
        """Return corpus BLEU, cased, lower-cased, tokenized, and exact matches.

        Returns:
          `metric`, `score`, `signature`, `sentences`; `score_lowercase` and
          `signature_lowercase`; `exact_match`. With a target language also
          `tokenized_bleu`, None for a language without rules, and
          `tokenized_bleu_procedure`. Scores are 0-100.

        Raises:
          T2TLiteError: unequal numbers of sentences, or none.
        """
        from t2t_lite.evaluation.bleu import bleu

        cased = bleu(outputs, references)
        lower = bleu(outputs, references, lowercase=True)
        exact = sum(map(str.__eq__, outputs, references))
        return {
            "metric": self.metric,
            **cased,
            "score_lowercase": lower["score"],
            "signature_lowercase": lower["signature"],
            "exact_match": 100.0 * exact / len(references),
            **_tokenized_bleu(outputs, references, self.languages[1]),
        }


def read_some(pairs: Iterable[tuple[str, str]]) -> None:
    """Read up to 10,000 pairs, so that errors in them are raised now."""
    collections.deque(itertools.islice(pairs, 10_000), maxlen=0)


def validate_pairs(
    pairs: Iterable[tuple[str, str]], label: str
) -> Iterator[tuple[str, str]]:
    """Yield the pairs unchanged.

    Args:
      pairs: (source, target) texts, streamed.
      label: their name in an error, such as "wmt_ende train".

    Raises:
      T2TLiteError: something is not a pair of texts.
    """
    for number, pair in enumerate(pairs, 1):
        match pair:
            case [str(), str()]:
                yield pair
            case _:
                raise T2TLiteError(
                    "samples must yield (source, target) texts; got "
                    f"{str(pair)[:_SHOWN_CHARACTERS]!r} as pair {number} of "
                    f"{label}."
                )


def _undefined(problem: Problem, method: str) -> T2TLiteError:
    """Return the error for a declaration that lacks a method."""
    return T2TLiteError(
        f"{type(problem).__name__} must define {method}. A Text2TextProblem "
        "has all but samples."
    )


def _tokenized_bleu(hypotheses, references, language):
    """Return the entries of a report; no error for an unknown language."""
    if not language:
        return {}
    from t2t_lite.evaluation import tokenized_bleu

    score, procedure = None, f"none: sacremoses has no rules for {language!r}"
    if language in tokenized_bleu.languages():
        report = tokenized_bleu.tokenized_bleu(hypotheses, references, language)
        score, procedure = report["score"], report["procedure"]
    return {"tokenized_bleu": score, "tokenized_bleu_procedure": procedure}
