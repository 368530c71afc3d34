"""A repeated flag extends a list or is an error, in every command."""

import importlib
import re

import pytest

from t2t_lite.bin.main import commands

MAINS = {
    name: importlib.import_module(script.module).main
    for name, script in commands().items()
}
LISTS = "pairs dev_pairs test_pairs filters hparams_override problem_options "
LISTS += "bad_phrases suppress_tokens freeze ensemble reference metrics"


@pytest.mark.parametrize("name", MAINS)
def test_each_repeated_flag_is_a_list_or_an_error(name, capsys):
    usage = MAINS[name].make_parser().format_usage()
    for flag, metavar in re.findall(r"--(\w+)( [^\s\]]+)?\]", usage):
        words = [f"--{flag}{'=1' if metavar else ''}"] * 2
        code, error = MAINS[name](words), capsys.readouterr().err
        is_list = flag in LISTS.split() or "HOST" in metavar
        assert (f"--{flag} is given twice" in error) != is_list, flag
        assert is_list or code == 2


@pytest.mark.parametrize("words", [["--pairs"], ["--pairs", "--seed=1"]])
def test_a_list_needs_a_value(words, capsys):
    assert MAINS["datagen"]([*words, "--pairs=/a.tsv"]) == 2
    assert "--pairs: expected one argument" in capsys.readouterr().err


def test_values_of_a_list_are_joined():
    parse = MAINS["datagen"].make_parser().parse_args
    words = ["--pairs=/a.tsv", "--filters", "length=9", "--pairs", "/b.tsv:2de"]
    args = parse([*words, "--filters=identical"])
    assert args.pairs == "/a.tsv,/b.tsv:2de"
    assert args.filters == {"length": 9, "identical": True}
