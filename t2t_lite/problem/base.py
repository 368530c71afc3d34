"""`Problem`: the declaration of a task."""

import collections
import contextlib
import copy
import dataclasses
import hashlib
import inspect
import itertools
import json
import operator
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from t2t_lite.corpus import filters
from t2t_lite.corpus.download import RawFiles, RemoteFile
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.evaluation import bleu
from t2t_lite.files import PathLike
from t2t_lite.tokenizers.tags import split_tag
from t2t_lite.validators import changed, require_known, validate

if TYPE_CHECKING:
    from t2t_lite.tokenizers.base import Tokenizer

T = TypeVar("T")
# Attributes for scores or descriptions: the data does not depend on them.
_DO_NOT_SHAPE_DATA = (
    *("name", "options", "metric", "other_metrics", "reversed", "tfds_bytes"),
)


@dataclasses.dataclass(frozen=True)
class ProblemOptions:
    """Options of a problem; a subclass has a `validators.setting` for each.

    Raises:
      UsageError: a value is invalid.
    """

    def __post_init__(self) -> None:
        validate(self)


class Problem:
    """A task: the source, the encoding and the metric of text pairs.

    Subclass it to declare a problem. Most problems set a few class attributes
    and define `samples`. A direct subclass also defines its encoders;
    `Text2TextProblem` already has encoders.

    Attributes:
      name: set by `register_problem`; `NAME_rev` in a reversed copy.
      base_name: the name of the data files, the same in both directions.
      reversed: True if the pipeline swaps `inputs` and `targets`.
      options_type: the dataclass of the options for `with_options`.
      settings: the values of the options.
      options: the JSON-serializable values that differ from the defaults.
      version: raise it when a change of code changes the data.
      vocab_size: pieces of a vocabulary, special pieces and bytes included.
      filters: filters of training pairs, see the module `filters`.
      metric: the name of the score in reports, as in `dev_bleu`.
      other_metrics: keys of other scores, 0-100, as in `dev_chrf`.
      files: files to download without `raw_dir`.
      splits: the valid values of `split` in `samples`.
      tfds_name: dataset and configuration if `samples` reads TensorFlow
        Datasets; else empty.
      tfds_bytes: approximate download size of this dataset.
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
    other_metrics: tuple[str, ...] = ()
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

        `raw.path("train.en")` is the path of a corpus file. A reversed problem
        yields the texts in the same direction.
        """
        raise _undefined(self, "samples")

    def check_sources(self, raw: RawFiles) -> None:
        """Find the corpus; read the start of dev and test to check them.

        Raises:
          T2TLiteError: some of `files` are missing; the message lists them.
        """
        raw.require(raw.files)
        for split in self.splits:
            if split != "train":
                read_some(self.samples(split, raw))

    @property
    def source_tags(self) -> tuple[str, ...]:
        """Tags of source texts, see `tokenizers.tags`; each is one piece."""
        return ()

    def corpus_counts(self) -> list[dict[str, Any]]:
        """Return the value of `Manifest.corpora`."""
        return []

    def vocabulary_lines(self, raw: RawFiles) -> Iterator[str]:
        """Yield the training text of a vocabulary: filtered pairs of train."""
        drop_reason = filters.make_filter(self.filters, self.source_tags)
        label = f"{self.base_name} train"
        dropped: collections.Counter[str | None] = collections.Counter()
        for pair in validate_pairs(self.samples("train", raw), label):
            reason = drop_reason(*pair)
            dropped[reason] += 1
            if not reason:
                yield from pair
        if dropped and None not in dropped:
            counts = ", ".join(f"{k} {n:,}" for k, n in dropped.items())
            raise T2TLiteError(
                f"The filters drop all {dropped.total():,} pairs of {label} "
                f"({counts}): change `filters`."
            )

    def vocabulary_files(self) -> dict[str, str]:
        """Return the names of the vocabulary files of `inputs` and `targets`.

        They are not swapped in a reversed problem. Equal names mean one file.
        """
        raise _undefined(self, "vocabulary_files")

    def expected_vocab_sizes(self) -> tuple[int, int]:
        """Return the (source, target) sizes of vocabularies not yet made."""
        return self.vocab_size, self.vocab_size

    def train_encoders(
        self, raw: RawFiles, data_dir: PathLike, seed: int
    ) -> None:
        """Write the vocabulary files into `data_dir`."""
        raise _undefined(self, "train_encoders")

    def load_encoders(self, directory: PathLike) -> dict[str, "Tokenizer"]:
        """Return the encoders of `inputs` and `targets` in this direction.

        A shared vocabulary is one object under both keys, unless it encodes
        the sides differently.

        Raises:
          T2TLiteError: a file is missing, damaged or not a vocabulary.
        """
        from t2t_lite.tokenizers.vocabulary import open_vocabulary

        files = self.vocabulary_files()
        encoders = {
            name: open_vocabulary(Path(directory) / name)
            for name in set(files.values())
        }
        inputs, targets = self.swap_if_reversed(
            encoders[files["inputs"]], encoders[files["targets"]].for_targets()
        )
        return {"inputs": inputs, "targets": targets}

    def evaluate(
        self,
        sources: Sequence[str],
        references: Sequence[str],
        outputs: Sequence[str],
    ) -> dict[str, Any]:
        """Return a report: at least `metric`, `score` (0-100) and `sentences`.

        Sources and references are texts of the shards; outputs are texts of the
        model before `postprocess`.
        """
        raise _undefined(self, "evaluate")

    def check_metric(self, tokenize: str | None = None) -> None:
        """Raise T2TLiteError if `evaluate` requires a missing package."""

    def tokenize(self, text: str) -> str:
        """Tokenize a raw source text like the corpus, or raise UsageError."""
        raise UsageError(
            f"`tokenize` is not supported by {self.registered_name}: its input "
            "is raw text."
        )

    def postprocess(
        self, source: str, output: str
    ) -> tuple[str, dict[str, Any]]:
        """Return the result text of an output and JSON-serializable details."""
        return output, {}

    def output_constraint(self, encoders: Mapping[str, "Tokenizer"]) -> Any:
        """Return a constraint of outputs, such as `parsing.TreeConstraint`.

        None, the default, is no constraint. See `load_encoders` for `encoders`.
        """
        return None

    def with_options(self, options: Mapping[str, Any]) -> Self:
        """Return a copy with these values, or their texts; None is the default.

        Raises:
          UsageError: an option is unknown, or its value is invalid.
        """
        require_known(options, self.options_type, self.registered_name)
        given = {k: v for k, v in options.items() if v is not None}
        other = copy.copy(self)
        other.settings = self.options_type(**given)
        other.options = changed(other.settings)
        return other

    def option_words(self) -> list[str]:
        """Return the options as command-line words without dashes."""
        options = ",".join(f"{k}={v}" for k, v in self.options.items())
        return [f"problem_options={options}"] if options else []

    @property
    def registered_name(self) -> str:
        """The name in the registry; an option may choose another `name`."""
        name = type(self).name or self.base_name
        return f"{name}_rev" if self.reversed else name

    def reverse(self) -> Self:
        """Return a copy for the other direction of the same data."""
        other = copy.copy(self)
        other.reversed = not self.reversed
        other.name = self.base_name + ("_rev" if other.reversed else "")
        return other

    def swap_if_reversed(self, source_side: T, target_side: T) -> tuple[T, T]:
        """Return both arguments, swapped if the problem is reversed."""
        if self.reversed:
            return target_side, source_side
        return source_side, target_side

    def definition(self) -> dict[str, Any]:
        """Return the JSON-serializable settings that determine the data.

        They are class attributes with plain data, such as `version`, and the
        options, if any; equal for both directions. Code is ignored.
        """
        attributes = {}
        for name in dir(type(self)):
            value = inspect.getattr_static(type(self), name)
            if name.startswith("_") or name in _DO_NOT_SHAPE_DATA:
                continue
            if name == "files":  # a URL may change, the content may not
                value = [[file.name, file.sha256] for file in value]
            with contextlib.suppress(TypeError):  # not plain data
                json.dumps(value, sort_keys=True)
                attributes[name] = value
        definition: dict[str, Any] = {"attributes": attributes}
        if self.options:
            definition["options"] = dict(self.options)
        return definition

    def fingerprint(self) -> str:
        """Return the sha256 of `definition`, in hex."""
        text = json.dumps(self.definition(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


class Text2TextProblem(Problem):
    """A problem with one shared, learned vocabulary and BLEU.

    If `vocabulary_files` of a subclass names two files, each side has its own.

    Attributes:
      source_language, target_language: the languages of `samples`, such as "en"
        and "de"; not swapped in a reversed problem.
    """

    other_metrics = ("chrf",)
    source_language: str = ""
    target_language: str = ""
    _character_coverage: float = 0.9999  # as in SentencePieceTokenizer.train

    @property
    def languages(self) -> tuple[str, str]:
        """The (source, target) languages in this direction, for reports."""
        return self.swap_if_reversed(self.source_language, self.target_language)

    def vocabulary_files(self) -> dict[str, str]:
        file = f"{self.base_name}.vocab.{self.vocab_size}.model"
        return {"inputs": file, "targets": file}

    def train_encoders(
        self, raw: RawFiles, data_dir: PathLike, seed: int
    ) -> None:
        from t2t_lite.tokenizers.sentencepiece import SentencePieceTokenizer

        names = dict.fromkeys(self.vocabulary_files().values())
        for side, name in enumerate(names):
            lines = self.vocabulary_lines(raw)
            SentencePieceTokenizer.train(
                itertools.islice(lines, side, None, len(names)),
                self.vocab_size,
                Path(data_dir) / name,
                seed,
                self.source_tags,
                self._character_coverage,
            )

    def evaluate(
        self,
        sources: Sequence[str],
        references: bleu.References,
        outputs: Sequence[str],
        tokenize: str | None = None,
        metrics: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Return corpus BLEU (cased, lower-cased, tokenized) and chrF2.

        See `evaluation.bleu` for the arguments. The default of `tokenize` is
        sacreBLEU's tokenizer for the target language.

        Returns:
          `metric`, `score`, `signature`, `sentences`; `chrf` and other
          `metrics` with signatures; `score_lowercase` and
          `signature_lowercase`; `exact_match`. With a target language also
          `tokenized_bleu` (None if the tokenizer has no rules for it) and
          `tokenized_bleu_procedure`; with tags also `by_tag`. Scores are 0-100.

        Raises:
          T2TLiteError: the numbers of sentences differ or are 0, or a package
            of the tokenizer is not installed.
        """
        language = self.languages[1]
        tokenize = tokenize or bleu.tokenizer_of(language)
        lists = bleu.list_references(references)
        cased = bleu.bleu(outputs, lists, tokenize, metrics=("chrf", *metrics))
        lower = bleu.bleu(outputs, lists, tokenize, lowercase=True)
        exact = sum(map(operator.contains, zip(*lists, strict=True), outputs))
        return {
            "metric": self.metric,
            **cased,
            "score_lowercase": lower["score"],
            "signature_lowercase": lower["signature"],
            "exact_match": 100.0 * exact / len(outputs),
            **_tokenized_bleu(outputs, lists, language),
            **_bleu_by_tag(self.source_tags, sources, outputs, lists, tokenize),
        }

    def check_metric(self, tokenize: str | None = None) -> None:
        bleu.bleu([""], [""], tokenize or bleu.tokenizer_of(self.languages[1]))


def read_some(pairs: Iterable[tuple[str, str]]) -> None:
    """Read up to 10,000 pairs and raise errors in them early."""
    collections.deque(itertools.islice(pairs, 10_000), maxlen=0)


def validate_pairs(
    pairs: Iterable[tuple[str, str]], label: str
) -> Iterator[tuple[str, str]]:
    """Yield the pairs; raise T2TLiteError if one is not a pair of texts."""
    for number, pair in enumerate(pairs, 1):
        match pair:
            case [str(), str()]:
                yield pair
            case _:
                raise T2TLiteError(
                    "samples must yield (source, target) texts; got "
                    f"{reprlib.repr(pair)} as pair {number} of {label}."
                )


def _undefined(problem: Problem, method: str) -> T2TLiteError:
    return T2TLiteError(
        f"{type(problem).__name__} must define {method}. A subclass of "
        "Text2TextProblem needs only samples."
    )


def _bleu_by_tag(tags, sources, outputs, lists, tokenize):
    """Return the entry `by_tag` of a report; {} without tags."""
    if not tags:
        return {}
    groups = collections.defaultdict(list)
    for source, *texts in zip(sources, outputs, *lists, strict=True):
        groups[split_tag(source, tags)[0] or "no tag"].append(texts)
    by_tag = {}
    for tag, rows in sorted(groups.items()):
        hypotheses, *correct = zip(*rows, strict=True)
        scores = bleu.bleu(hypotheses, correct, tokenize)
        by_tag[tag] = {key: scores[key] for key in ("score", "sentences")}
    return {"by_tag": by_tag}


def _tokenized_bleu(hypotheses, lists, language):
    """Return entries of a report; the score of an unknown language is None."""
    if not language:
        return {}
    from t2t_lite.evaluation import tokenized_bleu

    score, procedure = None, f"none: sacremoses has no rules for {language!r}"
    if language in tokenized_bleu.languages():
        report = tokenized_bleu.tokenized_bleu(hypotheses, lists, language)
        score, procedure = report["score"], report["procedure"]
    return {"tokenized_bleu": score, "tokenized_bleu_procedure": procedure}
