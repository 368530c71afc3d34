"""Choice of the problem from data and runs, and when user code is run.

The tests of the choice use only JSON files of data and runs.
"""

import json
import sys

import pytest

import t2t_lite
from support.params import slow
from support.registries import keep_apart
from support.words import HPARAMS, create_run
from t2t_lite import plugins, registry
from t2t_lite.data.manifest import Manifest, SplitRecord
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.plugins import load_plugins
from t2t_lite.training import checkpoints
from t2t_lite.training.config import find_config
from t2t_lite.training.options import TrainingOptions
from t2t_lite.training.problem_choice import choose_job, choose_problem
from t2t_lite.training.run import Run


@pytest.fixture(autouse=True, scope="module")
def _registered():
    load_plugins()


@pytest.fixture
def data(tmp_path):
    """Return a function that writes a manifest with options."""

    def data(folder="data", problem="text", **options):
        problem = registry.problem(problem, options)
        (tmp_path / folder).mkdir(exist_ok=True)
        Manifest(
            problem=problem.base_name,
            fingerprint=problem.fingerprint(),
            definition=problem.definition(),
            vocabulary={},
            splits={"train": SplitRecord(1, 2, 2, {2: 1}, {}, ())},
            seed=0,
            versions={},
        ).save(tmp_path / folder)
        return tmp_path / folder

    return data


def test_a_missing_run_to_start_from_is_named_as_it_was_given(tmp_path):
    options = {"problem": "spellout_ende", "output_dir": tmp_path / "new"}
    with pytest.raises(T2TLiteError, match=str(tmp_path / "typo")):
        t2t_lite.train(**options, init_from=tmp_path / "typo")


@pytest.fixture
def run(tmp_path):
    """Return a function that writes a run's config; its data is in `far`."""

    def run(problem="text", **options):
        (tmp_path / "run").mkdir()
        config = {
            "format": 1,
            "problem": problem,
            "problem_options": options,
            "problem_fingerprint": "0",
            "hparams": {},
            "seed": 1,
            "data": {"dir": str(tmp_path / "far"), "fingerprint": "0"},
            "vocabulary": {"vocab": "0"},
            "usr_dir": None,
        }
        (tmp_path / "run" / "config.json").write_text(json.dumps(config))
        return tmp_path / "run"

    return run


def choose(data_dir, given=None, output_dir=None, name="text"):
    config = output_dir and find_config(output_dir)
    problem, data_dir = choose_problem(
        name, given or {}, data_dir, output_dir, config
    )
    return problem.name, dict(problem.options), data_dir


def test_given_files_override_those_of_data_and_run(data, run):
    folder = data(pairs="/kept.tsv", vocab_size=300)
    output_dir = run(pairs="/run.tsv")
    given = {"pairs": "/given.tsv", "holdout": 2}
    assert choose(folder, given, output_dir) == ("text", given, folder)


def test_only_data_is_chosen_in_both_directions(data):
    options = {"pairs": "/a.tsv", "name": "mine", "vocab_size": 300}
    folder = data(**options)
    assert choose(folder) == ("mine", options, folder)
    assert choose(folder, name="text_rev") == ("mine_rev", options, folder)


def test_choice_among_several_needs_a_name_or_the_default(data):
    folder = data(pairs="/a.tsv", name="one")
    data(pairs="/b.tsv", name="two")
    with pytest.raises(UsageError, match="the data of one, two: "):
        choose(folder)
    two = {"pairs": "/b.tsv", "name": "two"}
    assert choose(folder, {"name": "two"}) == ("two", two, folder)
    data(pairs="/c.tsv")
    assert choose(folder) == ("text", {"pairs": "/c.tsv"}, folder)


def test_unknown_name_suggests_the_nearest(data):
    folder = data(pairs="/a.tsv", name="two")
    with pytest.raises(UsageError, match=r"no data of tow: .* mean two\?"):
        choose(folder, {"name": "tow"})


def test_run_determines_its_options_and_its_data(data, run, tmp_path):
    folder = data(pairs="/kept.tsv")
    data("far", pairs="/run.tsv")
    output_dir = run(pairs="/run.tsv")
    ours = "text", {"pairs": "/run.tsv"}
    assert choose(None, None, output_dir) == (*ours, tmp_path / "far")
    assert choose(folder, None, output_dir) == (*ours, folder)
    assert choose(tmp_path / "new", None, output_dir)[:2] == ours


def test_data_of_a_folder_is_chosen_before_an_older_run(
    data, run, tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    old = tmp_path / "t2t-lite/runs/text/transformer_toy"
    old.parent.mkdir(parents=True)
    run(pairs="/old.tsv").rename(old)
    options = TrainingOptions(data_dir=data(pairs="/a.tsv", name="mine"))
    job = choose_job("text", "transformer_toy", None, options)
    assert job.problem.name == job.output_dir.parent.name == "mine"


def test_missing_data_of_a_run_is_not_created_elsewhere(
    data, run, tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    default = tmp_path / "t2t-lite" / "data"
    request = None, run("wmt_ende"), "wmt_ende"
    with pytest.raises(T2TLiteError, match=f"`data_dir={tmp_path / 'far'}"):
        choose(None, *request)
    assert choose(default, *request) == ("wmt_ende", {}, default)
    default.mkdir(parents=True)
    data("t2t-lite/data", "wmt_ende")
    assert choose(None, *request)[-1] == default
    data("far", "wmt_ende")
    assert choose(None, *request)[-1] == tmp_path / "far"


@pytest.mark.parametrize(
    ("problem", "options", "given"),
    [
        ("wmt_ende", {}, {}),
        ("text", {"pairs": "/a.tsv", "name": "one"}, {"name": "two"}),
    ],
)
def test_run_of_another_problem_is_not_chosen(
    run, tmp_path, monkeypatch, problem, options, given
):
    monkeypatch.setenv("HOME", str(tmp_path))
    output_dir = run(problem, **options)
    with pytest.raises(UsageError, match="no data of t[ew][xo]"):
        choose(None, given, output_dir)


CODE = """
from t2t_lite import Text2TextProblem
from t2t_lite.registry import register_problem

open(__file__ + ".ran", "a").write("x")


@register_problem("usr_bits")
class Bits(Text2TextProblem):
    vocab_size = 275

    def samples(self, split, raw):
        for number in range(40):
            yield f"{number:b}", f"{number:o} and {number:b}"
"""
COMPLETE = """
    def postprocess(self, source, output):
        return output.upper(), {}
"""


class _UserRun:
    """A run of a problem in user code, which records its import."""

    def __init__(self, tmp_path, monkeypatch):
        self._patch = monkeypatch
        self.code = tmp_path / "code"
        self.folder = tmp_path / "run"

    def train(self, code=CODE, name="usr_bits", hparams=HPARAMS, usr_dir=None):
        self.code.mkdir()
        (self.code / "usr_bits.py").write_text(code)
        with self._patch.context() as patch:
            keep_apart(patch)
            usr_dir = usr_dir or str(self.code)
            plugins.load_plugins(usr_dir)
            run = create_run(
                self.folder,
                registry.problem(name),
                self.folder.with_name("data"),
                hparams=hparams,
                usr_dir=usr_dir,
            )
            tensors = checkpoints.model_tensors(run.model())
            for step in (1, 2):
                checkpoints.save(run.checkpoints_dir, tensors, {"step": step})
        # Unload the code, as in a new process.
        sys.modules.pop("usr_bits", None)
        (self.code / "usr_bits.py.ran").unlink(missing_ok=True)
        return self

    @property
    def ran(self):
        return (self.code / "usr_bits.py.ran").exists()


@pytest.fixture
def run_of_user(tmp_path, monkeypatch, forget_plugins):
    return _UserRun(tmp_path, monkeypatch)


@pytest.mark.parametrize("name", [slow("usr_bits"), "usr_bits_rev"])
def test_decoding_with_a_plain_problem_runs_no_user_code(run_of_user, name):
    folder = run_of_user.train(name=name).folder
    run = Run.open(folder, to_decode=True)
    assert run.problem.name == run.problem.registered_name == name
    assert isinstance(t2t_lite.load(folder)("101"), str)
    assert not run_of_user.ran
    shared = Run.open(folder, str(run_of_user.code))
    assert run_of_user.ran
    assert run.vocab_sizes == shared.vocab_sizes
    assert run.problem.vocabulary_files() == shared.problem.vocabulary_files()


@pytest.mark.parametrize("code", [slow(CODE), CODE + COMPLETE])
def test_code_named_by_a_run_is_never_run(run_of_user, run_command, code):
    """Each command runs without the code or requires --usr_dir."""
    run = run_of_user.train(code)
    where = f"--output_dir={run.folder}"
    lines = run.folder.with_name("lines")
    lines.write_text("101\n")
    needed = 0 if code == CODE else 2
    for expected, command, *more in (
        [0, "average_checkpoints"],
        [needed, "decoder", f"--decode_from_file={lines}"],
        [needed, "exporter"],
        [2, "evaluator"],
        [2, "trainer"],
    ):
        exit_code, _, err = run_command(command, where, *more)
        assert exit_code == expected, err
        if expected:
            assert "--usr_dir" in err and err.count("\n") == 1
    with pytest.raises(UsageError, match=f"`usr_dir={run.code}"):
        Run.open(run.folder)
    assert not run.ran
    assert run_command("evaluator", where, f"--usr_dir={run.code}")[0] == 0
    assert run.ran


def test_two_vocabularies_keep_their_sides_without_user_code(run_of_user):
    two = """
    def vocabulary_files(self):
        return {"inputs": "source.model", "targets": "target.model"}

    def train_encoders(self, raw, data_dir, seed):
        from t2t_lite.tokenizers.sentencepiece import SentencePieceTokenizer

        sides = zip(*self.samples("train", raw))
        for side, size, name in zip(sides, (265, 275), ("source", "target")):
            path = f"{data_dir}/{name}.model"
            SentencePieceTokenizer.train(iter(side), size, path, seed)
"""
    untied = HPARAMS.replace(shared_embedding=False)
    folder = run_of_user.train(CODE + two, "usr_bits_rev", untied).folder
    assert Run.open(folder, to_decode=True).vocab_sizes == (275, 265)


def test_config_has_the_absolute_usr_dir(run_of_user, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = run_of_user.train(usr_dir="code")
    config = json.loads((run.folder / "config.json").read_text())
    assert config["usr_dir"] == str(run.code)


def test_problem_missing_in_the_code_names_the_config(run_of_user):
    run = run_of_user.train()
    code = run.code / "usr_bits.py"
    code.write_text(code.read_text().replace('"usr_bits"', '"usr_bytes"'))
    with pytest.raises(T2TLiteError, match="config.json: problem: Unknown"):
        Run.open(run.folder, str(run.code))
