"""Problem: what a declaration says, and when two say the same."""

import importlib.util
import itertools
import subprocess
import sys
import textwrap

import pytest

from t2t_lite.corpus.raw_files import RawFiles
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.problem import Option, Problem, Text2TextProblem
from t2t_lite.values import whole_number

_SOURCE = '''
import string
from t2t_lite.problem import Text2TextProblem
from t2t_lite.corpus.raw_files import RemoteFile

LETTERS = string.ascii_lowercase
UNUSED = 1

def double(letter):
    """Twice the letter."""
    return letter * 2

def unused():
    return UNUSED

class Letters(Text2TextProblem):
    """Letters and their doubles."""

    base_name = "letters"
    vocab_size = 300
    files = (RemoteFile("a.txt", "http://one/a.txt", "00"),)

    def samples(self, split, raw):
        for letter in LETTERS:  # in order
            yield letter, double(letter)

    def evaluate(self, sources, references, outputs):
        return {"score": 1}
'''
_MODULES = itertools.count()


def declared(folder, *changes):
    """The problem of _SOURCE, some of its text replaced, from a file."""
    source = _SOURCE
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    name = f"usr_letters_{next(_MODULES)}"
    path = folder / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module.Letters()


@pytest.mark.parametrize(
    "change",
    [
        ("letter * 2", "(letter  *\n        2)"),
        ("UNUSED = 1", "UNUSED = 2"),
        ('"score": 1', '"score": 2'),
        ("vocab_size = 300", 'vocab_size = 300\n    metric = "f1"'),
        ("http://one/", "http://two/"),
    ],
)
def test_what_does_not_shape_the_data_leaves_the_fingerprint(tmp_path, change):
    before = declared(tmp_path).fingerprint()
    assert declared(tmp_path, change).fingerprint() == before


@pytest.mark.parametrize(
    "change",
    [
        ("vocab_size = 300", "vocab_size = 301"),
        ("vocab_size = 300", "vocab_size = 300\n    version = 2"),
        ('"00"', '"01"'),
        ('base_name = "letters"', 'base_name = "other"'),
    ],
)
def test_attributes_and_the_version_shape_the_data(tmp_path, change):
    before = declared(tmp_path).fingerprint()
    assert declared(tmp_path, change).fingerprint() != before


class Words(Text2TextProblem):
    base_name = "words"
    vocab_size = 280
    source_language = "en"
    target_language = "de"

    def samples(self, split, raw):
        for index in range(30):
            yield "one two three"[: index % 13], "eins zwei drei"[: index % 14]


class Separate(Words):
    """Two vocabularies, one a side."""

    def vocabulary_files(self):
        return {"inputs": "words.source.model", "targets": "words.target.model"}

    def train_encoders(self, raw, data_dir, seed):
        from t2t_lite.text.sentencepiece_encoder import SentencePieceEncoder

        sides = zip(*self.samples("train", raw), strict=True)
        for file, lines, size in zip(
            self.vocabulary_files().values(), sides, (270, 272), strict=True
        ):
            SentencePieceEncoder.train(lines, size, data_dir / file, seed)


def test_reversed_copy_shares_data_and_vocabulary():
    problem = Words()
    problem.name = "words"
    other = problem.reverse()
    assert (other.name, other.base_name) == ("words_rev", "words")
    assert (problem.reversed, other.reversed) == (False, True)
    assert (other.reverse().name, other.reverse().reversed) == ("words", False)
    assert other.fingerprint() == problem.fingerprint()
    assert other.vocabulary_files() == problem.vocabulary_files()
    assert list(other.samples("train", None)) == list(
        problem.samples("train", None)
    )
    assert problem.directed("of source", "of target")[0] == "of source"
    assert other.directed("of source", "of target")[0] == "of target"
    assert problem.languages == ("en", "de")
    assert other.languages == ("de", "en")


class Folded(Words):
    name = base_name = "folded"
    known_options = (Option("folds", "N", "how many", whole_number(1)),)


def test_only_options_that_are_given_are_part_of_the_definition():
    for problem in (Words(), Folded(), Folded().with_options({})):
        definition = problem.definition()
        assert definition.keys() == {"attributes"}
        assert (
            not {"options", "known_options"} & definition["attributes"].keys()
        )
    plain, one = Folded(), Folded().with_options({"folds": 1})
    assert one.definition() == plain.definition() | {"options": {"folds": 1}}
    assert len({p.fingerprint() for p in (plain, one)}) == 2
    assert one.reverse().options == {"folds": 1}
    assert one.reverse().fingerprint() == one.fingerprint()
    assert plain.options == {}  # the copy alone is configured


def test_a_problem_without_options_takes_none():
    with pytest.raises(UsageError, match="no option 'folds'. Its options: non"):
        Words().with_options({"folds": 1})


def test_shared_vocabulary_is_one_file_and_one_object(tmp_path):
    problem = Words()
    problem.train_encoders(RawFiles(), tmp_path, seed=0)
    assert [file.name for file in tmp_path.iterdir()] == [
        "words.vocab.280.model"
    ]
    encoders = problem.load_encoders(tmp_path)
    assert encoders["inputs"] is encoders["targets"]
    assert encoders["inputs"].vocab_size == 280
    assert list(problem.reverse().load_encoders(tmp_path)) == [
        "inputs",
        "targets",
    ]


def test_reversed_copy_swaps_separate_vocabularies(tmp_path):
    problem = Separate()
    problem.train_encoders(RawFiles(), tmp_path, seed=0)
    forward = problem.load_encoders(tmp_path)
    backward = problem.reverse().load_encoders(tmp_path)
    assert [forward[side].vocab_size for side in forward] == [270, 272]
    assert [backward[side].vocab_size for side in forward] == [272, 270]


def test_missing_vocabulary_is_named(tmp_path):
    with pytest.raises(T2TLiteError, match="words.vocab.280.model"):
        Words().load_encoders(tmp_path)


def test_report_has_both_ways_of_counting_and_exact_matches():
    report = Words().evaluate(
        ["a", "b"],
        ["A dog runs here.", "Two cats sit."],
        ["A dog runs here.", "two cats"],
    )
    assert report["metric"] == "bleu"
    assert report["sentences"] == 2
    assert report["exact_match"] == 50
    assert 0 < report["score"] < report["score_lowercase"] < 100
    assert "case:mixed" in report["signature"]
    assert "case:lc" in report["signature_lowercase"]


def test_report_of_nothing_is_refused():
    with pytest.raises(T2TLiteError, match="at least one sentence"):
        Words().evaluate([], [], [])


def test_samples_must_be_written():
    with pytest.raises(T2TLiteError, match="Bare must define samples"):

        class Bare(Problem):
            pass

        Bare().samples("train", RawFiles())


def test_a_vocabulary_must_be_declared(tmp_path):
    class Bare(Problem):
        pass

    with pytest.raises(T2TLiteError, match="Bare must define vocabulary_files"):
        Bare().load_encoders(tmp_path)
    with pytest.raises(T2TLiteError, match="which has a SentencePiece vocab"):
        Bare().train_encoders(RawFiles(), tmp_path, 0)


def test_declaring_a_problem_imports_nothing_heavy():
    code = """
        import sys
        import t2t_lite.problem, t2t_lite.problems, t2t_lite.evaluation.bleu
        heavy = {"tensorflow", "keras", "numpy", "sentencepiece", "sacrebleu",
                 "num2words", "rich"}
        print(sorted(heavy & set(sys.modules)))
    """
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout.strip() == "[]"
