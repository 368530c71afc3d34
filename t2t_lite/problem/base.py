"""`Problem`: what a declaration says about a task."""

import copy
import hashlib
import itertools
import json
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

from t2t_lite.corpus import filters
from t2t_lite.corpus.raw_files import RawFiles, RemoteFile
from t2t_lite.errors import T2TLiteError, UsageError, nearest
from t2t_lite.problem import sources
from t2t_lite.problem.fingerprint import attributes_of
from t2t_lite.problem.option import Option
from t2t_lite.problem.pairs import checked_pairs

if TYPE_CHECKING:
    from t2t_lite.text.encoder import TextEncoder
    from t2t_lite.text.form import TextForm

T = TypeVar("T")
_OR_TEXT = "or be a Text2TextProblem, which has a SentencePiece vocabulary"


class Problem:
    """A task: where its text pairs come from, how they are cut and scored.

    A problem is declared by subclassing; most declare a few class attributes
    and write `samples`. A plain subclass of this class also says what its
    encoders are; `Text2TextProblem` does so already.

    Attributes:
      name: set by `register_problem`; a reversed copy has `NAME_rev`.
      base_name: what its files are called, the same in both directions.
      reversed: the pipeline swaps `inputs` and `targets`.
      known_options: what `with_options` takes; most problems take nothing.
      options: what it was given, fit for JSON.
      version: raise it when a change of code changes the data.
      vocab_size: pieces of a vocabulary, special pieces and bytes included.
      filters: which pairs of train are left out, see the module `filters`.
      metric: the key of reports, as in `dev_bleu`.
      files: what can be downloaded when there is no `--raw_dir`.
      splits: the splits that `samples` knows.
      tfds_name: dataset and configuration, where `samples` reads TensorFlow
        Datasets; else empty.
      tfds_bytes: to download from there, about.
    """

    name: str = ""
    base_name: str = ""
    reversed: bool = False
    known_options: tuple[Option, ...] = ()
    options: Mapping[str, Any] = {}
    version: int = 1
    vocab_size: int = 8000
    filters: Mapping[str, Any] = {}
    metric: str = "bleu"
    files: tuple[RemoteFile, ...] = ()
    splits: tuple[str, ...] = ("train", "dev", "test")
    tfds_name: str = ""
    tfds_bytes: int = 0

    def samples(self, split: str, raw: RawFiles) -> Iterator[tuple[str, str]]:
        """Yields the (source, target) texts of a split, in a fixed order.

        Always in the direction of the name without `_rev`.

        Args:
          split: one of `splits`.
          raw: finds the files of the corpus: `raw.path("train.en")`.
        """
        raise _undefined(self, "samples(self, split, raw)")

    def parts(self, split: str, raw: RawFiles) -> Sequence[Any]:
        """What to give `part_samples`, for a corpus read on several machines.

        Together, in order, the parts give what `samples` gives. By default
        there is one part, so one machine reads and the others do the rest.
        """
        return (None,)

    def part_samples(
        self, split: str, raw: RawFiles, part: Any
    ) -> Iterator[tuple[str, str]]:
        """Yields the pairs of one of `parts`, in another process or machine."""
        return self.samples(split, raw)

    def tell_sources(self, raw: RawFiles) -> list[str]:
        """What is found, missing or still to be downloaded: a line for each."""
        return [raw.tell(file) for file in self.files]

    def require_sources(self, raw: RawFiles) -> None:
        """Raises an error that names all that is missing; see `sources`."""
        sources.require(self.splits, self.samples, raw)

    @property
    def source_tags(self) -> tuple[str, ...]:
        """What may stand before a source text, see the module `text.tags`.

        Each is one piece of the vocabulary.
        """
        return ()

    def corpus_counts(self, raw: RawFiles) -> list[dict[str, Any]]:
        """What of train is from which corpus, where there are several.

        See `Manifest.corpora`.
        """
        return []

    def vocabulary_lines(self, raw: RawFiles) -> Iterator[str]:
        """What a vocabulary is learned from: both sides of train, filtered."""
        reason = filters.find_reason(self.filters, self.source_tags)
        place = f"{self.base_name} train"
        for pair in checked_pairs(self.samples("train", raw), place):
            if not reason(*pair):
                yield from pair

    def vocabulary_files(self) -> dict[str, str]:
        """The file name of the vocabulary of `inputs` and of `targets`.

        Equal names mean one shared vocabulary. The sides are those of
        `samples`, also in a reversed copy.
        """
        raise _undefined(self, f"vocabulary_files(self), {_OR_TEXT}")

    def expected_vocab_sizes(self) -> tuple[int, int]:
        """Pieces of the vocabularies of `samples`' sides, before they exist.

        For a dry run; also of a reversed copy in the order of `samples`.
        """
        return self.vocab_size, self.vocab_size

    def train_encoders(
        self, raw: RawFiles, data_dir: str | os.PathLike, seed: int
    ) -> dict[str, Any] | None:
        """Makes the vocabulary files in `data_dir`.

        Returns: what each learned vocabulary was learned from, by file; it is
          printed, and kept in the manifest. See `SentencePieceEncoder.train`.
        """
        raise _undefined(
            self, f"train_encoders(self, raw, data_dir, seed), {_OR_TEXT}"
        )

    def load_encoders(
        self, directory: str | os.PathLike
    ) -> dict[str, "TextEncoder"]:
        """The encoders of `inputs` and `targets`, one object if shared.

        The files may be of any kind that `open_vocabulary` knows. A reversed
        copy gives the vocabulary of `samples`' targets as `inputs`.

        Raises:
          T2TLiteError: a file is missing or damaged.
        """
        from t2t_lite.text.vocabulary import open_vocabulary

        files = self.vocabulary_files()
        encoders = {
            name: open_vocabulary(pathlib.Path(directory) / name)
            for name in set(files.values())
        }
        inputs, targets = self.directed(files["inputs"], files["targets"])
        return {"inputs": encoders[inputs], "targets": encoders[targets]}

    def evaluate(
        self,
        sources: Sequence[str],
        references: Sequence[str],
        outputs: Sequence[str],
    ) -> dict[str, Any]:
        """A report with at least `metric`, `score` (0-100) and `sentences`.

        Args:
          sources: the source texts, as they are in the shards.
          references: the target texts, likewise.
          outputs: what the model wrote, without `complete`.
        """
        raise _undefined(self, "evaluate(self, sources, references, outputs)")

    def tokenize(self, text: str) -> str:
        """A raw source text as the corpus has it, for `--tokenize`.

        By default the corpus has raw text, and this is a UsageError.
        """
        raise UsageError(
            f"{self.registered_name} reads text as it is: leave --tokenize out."
        )

    def complete(self, source: str, output: str) -> tuple[str, dict[str, Any]]:
        """The answer to `source` that an output stands for, and facts on it.

        By default that is the output as it is, and no facts. The facts, fit for
        JSON, are reported beside the answer.
        """
        return output, {}

    def text_form(self, encoders: Mapping[str, Any]) -> "TextForm | None":
        """What graphs must know about the form of the texts, see `TextForm`.

        Takes what `load_encoders` gives. None, the default: any text will do.
        """
        return None

    def with_options(self, options: Mapping[str, Any]) -> Self:
        """A copy that is configured; a subclass says what its options do.

        Args:
          options: fit for JSON, by name, or as text; None leaves one out. They
            are kept in the manifest of the data and in the config of a run,
            but for those that have their default.

        Raises:
          UsageError: the problem has no such option, which names the nearest
            ones; or a value is not of the option's kind.
        """
        known = {option.name: option for option in self.known_options}
        for name in options:
            if name not in known:
                raise UsageError(
                    f"{self.registered_name} has no option {name!r}."
                    f"{nearest(name, known)} Its options: "
                    f"{', '.join(known) or 'none'}."
                )
        other = copy.copy(self)
        other.options = {
            name: value
            for name, option in known.items()
            if options.get(name) is not None
            and (value := option.read(options[name])) != option.default
        }
        return other

    def option_flags(self) -> list[str]:
        """The words of a command line that give its options."""
        if not self.options:
            return []
        told = ",".join(f"{key}={value}" for key, value in self.options.items())
        return [f"--problem_options={told}"]

    @property
    def registered_name(self) -> str:
        """The name it is looked up by; an option may choose another `name`."""
        name = type(self).name or self.base_name
        return f"{name}_rev" if self.reversed else name

    def reverse(self) -> Self:
        """A copy in the other direction, with the same data and vocabulary."""
        other = copy.copy(self)
        other.reversed = not self.reversed
        other.name = self.base_name + ("_rev" if other.reversed else "")
        return other

    def directed(self, source_side: T, target_side: T) -> tuple[T, T]:
        """What belongs to `inputs` and to `targets`: the sides of `samples`.

        They are swapped where this is the `_rev` direction.
        """
        if self.reversed:
            return target_side, source_side
        return source_side, target_side

    def definition(self) -> dict[str, Any]:
        """Return all that shapes the data, fit for JSON.

        These are the class attributes, among them `version`, and the options if
        there are some. Both directions have equal definitions.
        """
        definition: dict[str, Any] = {"attributes": attributes_of(type(self))}
        if self.options:
            definition["options"] = dict(self.options)
        return definition

    def fingerprint(self) -> str:
        """The sha256 of the definition, in hex."""
        text = json.dumps(self.definition(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


class Text2TextProblem(Problem):
    """A problem with one shared vocabulary that is learned, and BLEU.

    A subclass whose `vocabulary_files` are two has a vocabulary for each side.

    Attributes:
      source_language, target_language: such as "en" and "de", in the direction
        of the name without `_rev`, as in `samples`.
    """

    source_language: str = ""
    target_language: str = ""

    @property
    def languages(self) -> tuple[str, str]:
        """The (source, target) languages of this direction, for reports."""
        return self.directed(self.source_language, self.target_language)

    def vocabulary_files(self) -> dict[str, str]:
        file = f"{self.base_name}.vocab.{self.vocab_size}.model"
        return {"inputs": file, "targets": file}

    def train_encoders(
        self, raw: RawFiles, data_dir: str | os.PathLike, seed: int
    ) -> dict[str, Any]:
        from t2t_lite.text.sentencepiece_encoder import SentencePieceEncoder

        learned = {}
        names = dict.fromkeys(self.vocabulary_files().values())
        for side, name in enumerate(names):
            lines = self.vocabulary_lines(raw)
            learned[name] = SentencePieceEncoder.train(
                itertools.islice(lines, side, None, len(names)),
                self.vocab_size,
                pathlib.Path(data_dir) / name,
                seed,
                self.source_tags,
            ).learned_from
        return learned

    def evaluate(
        self,
        sources: Sequence[str],
        references: Sequence[str],
        outputs: Sequence[str],
    ) -> dict[str, Any]:
        """Corpus BLEU, cased, lower-cased, tokenized, and exact matches.

        Returns: `metric`, `score`, `signature`, `sentences`; `score_lowercase`
          and `signature_lowercase`; `exact_match`. Where the target language is
          named also `tokenized_bleu`, None if it cannot be computed for that
          language, and `tokenized_bleu_procedure`. Scores are 0-100.

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


def _undefined(problem: Problem, rule: str) -> T2TLiteError:
    """The error for a declaration that lacks what the work needs."""
    return T2TLiteError(f"{type(problem).__name__} must define {rule}.")


def _tokenized_bleu(hypotheses, references, language):
    """The entries of a report; no error for a language without rules."""
    if not language:
        return {}
    from t2t_lite.evaluation import tokenized_bleu

    score, procedure = None, f"none: sacremoses has no rules for {language!r}"
    if language in tokenized_bleu.languages():
        report = tokenized_bleu.tokenized_bleu(hypotheses, references, language)
        score, procedure = report["score"], report["procedure"]
    return {"tokenized_bleu": score, "tokenized_bleu_procedure": procedure}
