"""`t2t-lite COMMAND ...` runs `t2t-lite-COMMAND ...`."""

from importlib import metadata

import pytest

import t2t_lite
from t2t_lite.bin.main import commands


def test_help_lists_each_command_with_its_description(run_command):
    code, out, err = run_command("main")
    assert (code, err) == (0, "")
    for name, script in commands().items():
        (line,) = [x for x in out.splitlines() if x.split()[:1] == [name]]
        description = script.load().description.split("\n")[0]
        assert line.split(maxsplit=1)[1] == description


@pytest.mark.parametrize("name", ["transformer_toy", "transformer_tyo"])
def test_main_gives_the_same_output_as_the_command_itself(run_command, name):
    expected = run_command("registry", name)
    assert run_command("main", "registry", name) == expected


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["trianer", "--problem=x"], "trainer"),
        (["--verbose", "bleu", "--json"], "t2t-lite bleu"),
    ],
)
def test_a_wrong_command_line_is_an_error_with_a_correction(
    run_command, words, told
):
    code, out, err = run_command("main", *words)
    assert (code, out) == (2, "")
    assert told in err.splitlines()[-1]


def test_version(run_process):
    done = run_process("main", "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"t2t-lite {t2t_lite.__version__} ")
    for name in ("tensorflow", "keras", "keras-hub"):
        assert f"{name} {metadata.version(name)}" in done.stdout
