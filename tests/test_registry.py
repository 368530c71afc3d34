"""Registries: checks of registrations, and errors for unknown names."""

import dataclasses
import subprocess
import sys
from typing import Annotated

import pytest

from t2t_lite import plugins, registry
from t2t_lite.errors import T2TLiteError
from t2t_lite.hparam import HParams
from t2t_lite.problem import Problem, ProblemOptions
from t2t_lite.validators import integer, setting


@pytest.fixture
def _empty(monkeypatch):
    plugins.load_plugins()  # a lookup would add the names to the empty dicts
    for name in ("PROBLEMS", "HPARAMS"):
        monkeypatch.setattr(registry, name, {})


empty = pytest.mark.usefixtures("_empty")


@dataclasses.dataclass(frozen=True)
class DigitsOptions(ProblemOptions):
    folds: Annotated[int, integer(1)] | None = setting(None, "how many")


class Digits(Problem):
    """A problem that takes an option."""

    options_type = DigitsOptions


def test_lookups_know_all_names_in_a_new_process():
    code = (
        "import sys, t2t_lite\n"
        "hparams = t2t_lite.registry.hparams('transformer_base')\n"
        "assert hparams.hidden_size == 512\n"
        "assert 'wmt_ende' in t2t_lite.registry.problem_names()\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@empty
def test_problem_is_found_in_both_directions_with_options():
    registry.register_problem("some_digits")(Digits)
    for name in ("some_digits", "some_digits_rev"):
        problem = registry.problem(name, {"folds": 3})
        assert isinstance(problem, Digits)
        assert (problem.name, problem.base_name) == (name, "some_digits")
        assert problem.reversed == name.endswith("_rev")
        assert problem.options == {"folds": 3}
    assert registry.problem("some_digits").options == {}


@empty
def test_name_defaults_to_the_snake_cased_declaration():
    @registry.register_hparams
    def transformer_mine():
        return HParams(hidden_size=8, num_heads=2)

    class ManyDigits(Problem):
        """Many."""

    registry.register_problem(ManyDigits)
    assert registry.hparams("transformer_mine").hidden_size == 8
    assert registry.problem_names() == ["many_digits"]
    assert registry.describe("many_digits") == "Many."


@empty
def test_duplicate_is_refused_and_named():
    registry.register_problem("some_digits")(Digits)
    with pytest.raises(T2TLiteError, match="'some_digits'.*twice.*Digits"):
        registry.register_problem("some_digits")(Digits)


@empty
@pytest.mark.parametrize("name", ["Digits", "a-b", "1digit", "digits_rev", ""])
def test_bad_name_is_refused(name):
    with pytest.raises(T2TLiteError, match=f"got '{name}'"):
        registry.register_problem(name)(Digits)
    assert registry.problem_names() == []


@empty
def test_wrong_types_are_refused():
    with pytest.raises(T2TLiteError, match="subclass of Problem"):
        registry.register_problem("x")(object)
    with pytest.raises(T2TLiteError, match="returns HParams"):
        registry.register_hparams("x")(HParams)
    registry.register_hparams("broken")(lambda: {"hidden_size": 8})
    with pytest.raises(T2TLiteError, match="got dict"):
        registry.hparams("broken")


def test_big_differs_from_base_where_the_paper_says():
    plugins.load_plugins()
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


def test_every_built_in_set_is_valid_and_described():
    plugins.load_plugins()
    for name in registry.hparams_names():
        assert registry.hparams(name)
        assert registry.describe(name), name
