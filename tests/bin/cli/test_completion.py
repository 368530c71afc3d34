"""The shell's Tab: commands, flags, and names from the registry."""

import os
import shutil
import subprocess
import sys

import pytest

from t2t_lite.bin.main import commands


@pytest.fixture
def complete(tmp_path):
    """The words that a command offers for a line with the cursor at its end."""
    answer = tmp_path / "answer"

    def ask(module, line):
        done = subprocess.run(
            [sys.executable, "-m", f"t2t_lite.bin.{module}"],
            env=os.environ
            | {
                "_ARGCOMPLETE": "1",
                "_ARGCOMPLETE_COMP_WORDBREAKS": " \t\n\"'><=;|&(:",  # bash's
                "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
                "_ARGCOMPLETE_IFS": "\n",
                "COMP_LINE": line,
                "COMP_POINT": str(len(line)),
            },
            capture_output=True,
            text=True,
            check=True,
        )
        assert not done.stdout
        return [word.strip() for word in answer.read_text().split("\n")]

    return ask


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("t2t-lite-trainer --hparams_ov", "--hparams_override"),
        ("t2t-lite-trainer --problem multi30k_end", "multi30k_ende"),
        ("t2t-lite-trainer --problem=multi30k_end", "multi30k_ende"),
        (
            "t2t-lite-trainer --hparams=transformer_quick",
            "transformer_quickstart",
        ),
        ("t2t-lite-registry wmt_enf", "wmt_enfr"),
        ("t2t-lite-registry transformer_quick", "transformer_quickstart"),
        ("t2t-lite tra", "trainer"),
        ("t2t-lite --vers", "--version"),
        ("t2t-lite trainer --problem=multi30k_end", "multi30k_ende"),
    ],
)
def test_flags_commands_and_names_are_completed(complete, line, word):
    program = line.split()[0].removeprefix("t2t-lite").removeprefix("-")
    assert complete(program or "main", line) == [word]


def test_choices_and_names_of_the_user_are_completed(complete, tiny_usr_dir):
    line = "t2t-lite-decoder --constrained="
    assert complete("decoder", line) == ["true", "false"]
    line = f"t2t-lite-datagen --usr_dir={tiny_usr_dir} --problem=tiny_"
    assert complete("datagen", line) == ["tiny_digits"]


def test_the_front_command_offers_all_commands(complete):
    flags = ["--help", "--verbose", "--version", "--completion"]
    assert set(complete("main", "t2t-lite ")) == {*flags, *commands()}


def test_the_line_for_the_start_file_is_code_of_the_shell(run_process):
    bash = shutil.which("bash")
    code = run_process("main", "--completion=bash").stdout
    shown = subprocess.run(
        [bash, "-c", f"{code}\ncomplete -p t2t-lite t2t-lite-trainer"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.count("-F _python_argcomplete") == 2
    assert "t2t-lite-trainer" in run_process("main", "--completion=fish").stdout
