"""`t2t-lite COMMAND ...` is `t2t-lite-COMMAND ...`."""

import subprocess
import sys

import pytest

import t2t_lite
from t2t_lite.bin.main import commands


def test_help_lists_each_command_with_its_line(run_command):
    code, out, err = run_command("main")
    assert (code, err) == (0, "")
    for name, script in commands().items():
        (line,) = [x for x in out.splitlines() if x.split()[:1] == [name]]
        told = script.load().__globals__["__doc__"].split("\n")[0]
        assert line.split(maxsplit=1)[1] == told


def test_a_command_gets_its_flags_and_speaks_in_its_own_name(run_command):
    for flags in (["transformer_toy"], ["transformer_tyo"]):
        expected = run_command("registry", *flags)
        assert run_command("main", "registry", *flags) == expected
    assert expected[0] == 2
    assert expected[2].startswith("t2t-lite-registry: Unknown problem or")


def test_an_unknown_command_names_the_nearest(run_command):
    assert run_command("main", "trianer", "--problem=x") == (
        2,
        "",
        "t2t-lite: Unknown command 'trianer'. Did you mean trainer? "
        "t2t-lite --help lists them all.\n",
    )


def test_flags_of_a_command_come_after_it(run_command):
    code, out, err = run_command("main", "--verbose", "bleu", "--json")
    assert (code, out) == (2, "")
    assert err.endswith(
        "t2t-lite: A command comes before its flags: t2t-lite bleu ...\n"
    )


def test_version(run_process):
    done = run_process("main", "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"t2t-lite {t2t_lite.__version__}\n"


@pytest.mark.parametrize("words", [["--help"], ["bleu", "--help"]])
def test_no_other_command_is_imported(words):
    code = (
        "import runpy, sys\n"
        f"sys.argv = ['t2t-lite', *{words!r}]\n"
        "try:\n"
        "    runpy.run_module('t2t_lite.bin.main', run_name='__main__')\n"
        "except SystemExit as end:\n"
        "    assert not end.code\n"
        "loaded = {m.split('.')[2] for m in sys.modules\n"
        "          if m.startswith('t2t_lite.bin.')}\n"
        f"assert loaded - {{'cli'}} == set({words[:-1]!r}), loaded\n"
    )
    subprocess.run(
        [sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL
    )
