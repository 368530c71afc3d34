"""The registries check what they take and explain what they lack."""

import pytest

from t2t_lite import plugins, registry
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.hparam import HParams
from t2t_lite.problem import Option, Problem
from t2t_lite.values import whole_number


@pytest.fixture(autouse=True)
def _own_registries(monkeypatch):
    for name in ("_PROBLEMS", "_HPARAMS"):
        known = getattr(registry, name)
        fresh = type(known)(known.kind)
        monkeypatch.setattr(registry, name, fresh)


class Digits(Problem):
    """Digits, spelled out."""


def test_problem_is_found_under_its_name():
    registry.register_problem("some_digits")(Digits)
    problem = registry.problem("some_digits")
    assert isinstance(problem, Digits)
    assert problem.name == "some_digits"
    assert not problem.reversed


def test_rev_swaps_the_directions_of_the_same_files():
    registry.register_problem("some_digits")(Digits)
    problem = registry.problem("some_digits_rev")
    assert problem.reversed
    assert problem.name == "some_digits_rev"
    assert problem.base_name == "some_digits"


class Folded(Problem):
    """A problem that takes an option."""

    known_options = (Option("folds", "N", "how many", whole_number(1)),)


def test_options_reach_the_problem_in_both_directions():
    registry.register_problem("folded")(Folded)
    for name in ("folded", "folded_rev"):
        problem = registry.problem(name, {"folds": 3})
        assert (problem.name, problem.options) == (name, {"folds": 3})
    assert registry.problem("folded").options == {}


def test_unknown_option_lists_the_near_ones():
    registry.register_problem("folded")(Folded)
    registry.register_problem("some_digits")(Digits)
    with pytest.raises(UsageError) as error:
        registry.problem("folded", {"fold": 3})
    assert str(error.value) == (
        "folded has no option 'fold'. Did you mean folds? Its options: folds."
    )
    with pytest.raises(UsageError, match="no option 'x'. Its options: none."):
        registry.problem("some_digits_rev", {"x": 1})


def test_name_defaults_to_the_snake_cased_declaration():
    @registry.register_hparams
    def transformer_mine():
        return HParams(hidden_size=8, num_heads=2)

    class ManyDigits(Problem):
        """Many."""

    registry.register_problem(ManyDigits)
    assert registry.hparams("transformer_mine").hidden_size == 8
    assert registry.problem_names() == ["many_digits"]


def test_duplicate_is_refused_and_names_both():
    registry.register_problem("some_digits")(Digits)
    with pytest.raises(T2TLiteError) as error:
        registry.register_problem("some_digits")(Digits)
    assert "'some_digits' is registered twice" in str(error.value)
    assert "Digits" in str(error.value)


@pytest.mark.parametrize("name", ["Digits", "a-b", "1digit", "digits_rev", ""])
def test_bad_name_is_refused(name):
    with pytest.raises(T2TLiteError, match="A problem name must"):
        registry.register_problem(name)(Digits)
    assert registry.problem_names() == []


def test_wrong_type_is_refused():
    with pytest.raises(T2TLiteError, match="subclass of Problem; got"):
        registry.register_problem("x")(object)
    with pytest.raises(T2TLiteError, match="function that returns HParams"):
        registry.register_hparams("x")(HParams)


def test_set_that_returns_something_else_is_an_error():
    registry.register_hparams("broken")(lambda: {"hidden_size": 8})
    with pytest.raises(T2TLiteError, match="must return HParams; got dict"):
        registry.hparams("broken")


def test_unknown_name_lists_the_near_ones():
    registry.register_problem("some_digits")(Digits)
    with pytest.raises(UsageError) as error:
        registry.problem("some_digit")
    assert "Unknown problem 'some_digit'." in str(error.value)
    assert "Did you mean some_digits?" in str(error.value)
    with pytest.raises(UsageError, match="Unknown hparams set 'nothing'"):
        registry.hparams("nothing")


@pytest.fixture
def built_in(monkeypatch):
    """The registries as every command fills them."""
    monkeypatch.undo()
    plugins.load_plugins()


def test_big_differs_from_base_where_the_paper_says(built_in):
    base = registry.hparams("transformer_base").to_dict()
    big = registry.hparams("transformer_big").to_dict()
    assert {k: v for k, v in big.items() if base[k] != v} == {
        "hidden_size": 1024,
        "filter_size": 4096,
        "num_heads": 16,
        "residual_dropout": 0.3,
        "train_steps": 300000,
        "average_checkpoints": 20,
    }


def test_every_built_in_set_is_valid_and_described(built_in):
    for name in registry.hparams_names():
        assert registry.hparams(name)
        assert registry.describe(name), name
