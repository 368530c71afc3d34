"""The shell's Tab: commands, flags, and names from the registry."""

import os
import shutil
import subprocess
import sys

import pytest

from t2t_lite.bin.main import commands


@pytest.fixture
def complete(tmp_path):
    """What a command offers for a line with the cursor at its end."""
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


def test_a_flag_is_completed(complete):
    assert complete("trainer", "t2t-lite-trainer --hparams_ov") == [
        "--hparams_override"
    ]
    assert "--problem" in complete("evaluator", "t2t-lite-evaluator ")
    line = "t2t-lite-decoder --constrained="
    assert complete("decoder", line) == ["true", "false"]


@pytest.mark.parametrize("gap", [" ", "="])
def test_names_of_problems_and_sets_are_completed(complete, gap):
    for flag, start, name in (
        ("problem", "multi30k_end", "multi30k_ende"),
        ("hparams", "transformer_quick", "transformer_quickstart"),
    ):
        line = f"t2t-lite-trainer --{flag}{gap}{start}"
        assert complete("trainer", line) == [name]


def test_names_of_the_folder_of_the_user_are_completed(complete, tiny_usr_dir):
    line = f"t2t-lite-datagen --usr_dir={tiny_usr_dir} --problem=tiny_"
    assert complete("datagen", line) == ["tiny_digits"]


def test_the_registry_completes_both_kinds_of_names(complete):
    assert complete("registry", "t2t-lite-registry wmt_enf") == ["wmt_enfr"]
    line = "t2t-lite-registry transformer_big"
    assert "transformer_big" in complete("registry", line)


def test_the_front_command_completes_commands_and_their_words(complete):
    assert complete("main", "t2t-lite tra") == ["trainer"]
    assert complete("main", "t2t-lite trainer") == ["trainer"]
    assert complete("main", "t2t-lite --vers") == ["--version"]
    offered = complete("main", "t2t-lite ")
    flags = ["--help", "--verbose", "--version", "--completion"]
    assert set(offered) == {*flags, *commands()}
    line = "t2t-lite trainer --problem=multi30k_end"
    assert complete("main", line) == ["multi30k_ende"]
    assert complete("main", "t2t-lite registry wmt_enf") == ["wmt_enfr"]


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
