"""Which choices own text goes by; data and runs are but their JSON files."""

import json

import pytest

from t2t_lite import registry
from t2t_lite.data.manifest import Manifest
from t2t_lite.errors import UsageError
from t2t_lite.plugins import load_plugins
from t2t_lite.training.option_choice import choose_options


@pytest.fixture(autouse=True, scope="module")
def _registered():
    load_plugins()


@pytest.fixture
def data(tmp_path):
    """Puts the manifest of data of these options into a folder."""

    def data(folder="data", **options):
        problem = registry.problem("text", options)
        (tmp_path / folder).mkdir(exist_ok=True)
        Manifest(
            problem=problem.base_name,
            fingerprint=problem.fingerprint(),
            definition=problem.definition(),
            vocabulary={},
            splits={},
            seed=0,
            versions={},
        ).save(tmp_path / folder)
        return tmp_path / folder

    return data


@pytest.fixture
def run(tmp_path):
    """Puts the config of a run into a folder; its data is in `far`."""

    def run(problem="text", **options):
        (tmp_path / "run").mkdir()
        config = {
            "format": 1,
            "problem": problem,
            "problem_options": options,
            "hparams": {},
            "seed": 1,
            "data": {"dir": str(tmp_path / "far")},
            "vocabulary": {},
            "usr_dir": None,
        }
        (tmp_path / "run" / "config.json").write_text(json.dumps(config))
        return tmp_path / "run"

    return run


def choose(data_dir, given=None, output_dir=None, name="text", **more):
    problem = registry.problem(name)
    problem, data_dir = choose_options(
        problem, given or {}, data_dir, output_dir, **more
    )
    return problem.name, dict(problem.options), data_dir


def test_given_files_win_over_kept_ones(data, run):
    folder = data(pairs="/kept.tsv", vocab_size=300)
    output_dir = run(pairs="/run.tsv")
    given = {"pairs": "/given.tsv", "holdout": 2}
    assert choose(folder, given, output_dir) == ("text", given, folder)


def test_the_only_data_is_meant_in_both_directions(data):
    options = {"pairs": "/a.tsv", "name": "mine", "vocab_size": 300}
    folder = data(**options)
    assert choose(folder) == ("mine", options, folder)
    assert choose(folder, name="text_rev") == ("mine_rev", options, folder)


def test_among_several_the_default_name_is_meant_or_one_is_named(data):
    folder = data(pairs="/a.tsv", name="one")
    data(pairs="/b.tsv", name="two")
    with pytest.raises(UsageError, match="holds the data of one, two: name"):
        choose(folder)
    two = {"pairs": "/b.tsv", "name": "two"}
    assert choose(folder, {"name": "two"}) == ("two", two, folder)
    data(pairs="/c.tsv")
    assert choose(folder) == ("text", {"pairs": "/c.tsv"}, folder)


def test_a_name_that_no_data_has_is_answered_with_the_nearest(data):
    folder = data(pairs="/a.tsv", name="two")
    with pytest.raises(UsageError, match=r"no data of tow: .* mean two\?"):
        choose(folder, {"name": "tow"})


def test_the_name_of_another_problem_is_refused(tmp_path):
    message = "must not be that of another problem; got 'wmt_ende'"
    with pytest.raises(UsageError, match=message):
        choose(tmp_path, {"name": "wmt_ende"})


def test_a_run_brings_its_data_where_no_folder_was_given(data, run, tmp_path):
    folder = data(pairs="/kept.tsv")
    output_dir = run(pairs="/run.tsv")
    ours = "text", {"pairs": "/run.tsv"}, tmp_path / "far"
    assert choose(folder, None, output_dir, data_dir_given=False) == ours
    kept = "text", {"pairs": "/kept.tsv"}, folder
    assert choose(folder, None, output_dir) == kept


def test_a_given_folder_without_data_gets_the_options_of_the_run(run, tmp_path):
    output_dir = run(pairs="/run.tsv")
    expected = "text", {"pairs": "/run.tsv"}, tmp_path / "new"
    assert choose(tmp_path / "new", None, output_dir) == expected


@pytest.mark.parametrize(
    ("problem", "options", "given"),
    [
        ("wmt_ende", {}, {}),
        ("text", {"pairs": "/a.tsv", "name": "one"}, {"name": "two"}),
    ],
)
def test_a_run_of_something_else_is_no_choice(
    run, tmp_path, problem, options, given
):
    output_dir = run(problem, **options)
    with pytest.raises(UsageError, match="holds no data of t[ew][xo]"):
        choose(tmp_path / "new", given, output_dir, data_dir_given=False)
