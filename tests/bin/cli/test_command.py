"""Features of all commands: flags, errors, exit codes, signals, streams."""

import errno
import os
import signal
import subprocess
import sys

import pytest

from support.params import slow
from t2t_lite import validators
from t2t_lite.bin.cli import flags
from t2t_lite.bin.cli.command import Command
from t2t_lite.errors import Interrupted, T2TLiteError, UsageError


def add_flags(parser):
    flags.add(parser, {"--train_steps=N": "all"}, validators.integer(1), 7)
    flags.add(parser, {"--alpha=X": "of all"}, validators.real(at_least=0))
    flags.add(parser, {"--data_dir=DIR": "", "--dry_run": "try it"})
    flags.add(parser, {"--format=text|json": ""})


@pytest.fixture
def run(capsys):
    """Return a function that runs a command: (exit code, stderr)."""

    def run(body, *argv, add_flags=add_flags):
        code = Command("t2t-lite-test", "Tests.", add_flags, body)(argv)
        out, err = capsys.readouterr()
        assert out == ""
        return code, err

    return run


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--train_step=3"], ["--train_step.", "--train_steps"]),
        (["--data=x"], ["--data.", "--data_dir"]),  # a prefix is not enough
        (["--train_steps=0"], ["--train_steps", "'0'"]),
        (["--train_steps=many"], ["--train_steps", "'many'"]),
        (["--alpha=nan"], ["--alpha", "'nan'"]),
        (["--format=xml"], ["--format", "'xml'"]),
    ],
)
def test_wrong_flag_is_one_line_and_exit_code_2(run, argv, words):
    code, err = run(lambda args: None, *argv)
    assert (code, err.count("\n")) == (2, 1)
    assert all(word in err for word in words)


def test_an_unknown_flag_is_reported_before_a_missing_argument(run):
    def add_run(parser):
        parser.add_argument("run", metavar="RUN")

    code, err = run(print, "--ruun", "a", add_flags=add_run)
    assert code == 2 and "--ruun" in err
    assert "RUN" in run(print, add_flags=add_run)[1]
    assert "'b'" in run(print, "--", "--a", "b", add_flags=add_run)[1]


def test_help_shows_defaults_except_none():
    parser = Command("t2t-lite-test", "Tests.", add_flags, print).make_parser()
    with pytest.raises(SystemExit) as caught:
        parser.parse_args(["--help"])
    assert caught.value.code == 0
    assert "all (default: 7)" in parser.format_help()
    assert "None" not in parser.format_help()


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (T2TLiteError("It failed."), 1, "It failed"),
        (UsageError("It failed."), 2, "It failed"),
        (Interrupted("It failed."), 75, "It failed"),
        (ValueError("It failed.\nat length"), 1, "ValueError: It failed"),
        (OSError(errno.ENOSPC, "full", "/data/x"), 1, "/data/x: "),
        (KeyboardInterrupt(), 130, "Ctrl-C"),
    ],
)
def test_errors_become_one_line_and_an_exit_code(run, error, code, words):
    def body(args):
        raise error

    got, err = run(body)
    assert (got, err.count("\n")) == (code, 1)
    assert err.startswith("t2t-lite-test: ") and words in err
    if code < 100:
        _, err = run(body, "--verbose")
        assert err.startswith("Traceback") and words in err.splitlines()[-1]


@pytest.mark.parametrize("word", ["0", "", "'done'"])
def test_sys_exit_in_user_code_is_an_error_with_its_line(run, tmp_path, word):
    """Raise an error even for status 0, because the command is incomplete."""
    file = tmp_path / "usr_script.py"
    code = compile(f"import sys\nsys.exit({word})\n", str(file), "exec")
    got, err = run(lambda args: exec(code, {}))
    assert (got, err.count("\n")) == (1, 1)
    assert f"{file}:2: " in err


IMPORT = (
    "import hashlib, os, signal, sys, threading, time\n"
    "sys.argv = ['/bin/t2t-lite-test']\n"
)
COMMAND = (
    IMPORT + "from t2t_lite.bin.cli import command\n"
    "def run(body, *argv):\n"
    "    made = command.Command('t2t-lite-test', '', lambda _: None, body)\n"
    "    sys.exit(made(*argv))\n"
)


def python(code):
    """Run code in a separate process."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        ("raise KeyboardInterrupt", 130, "t2t-lite-test: stopped by Ctrl-C."),
        ("1 / 0", 1, "ZeroDivisionError"),
    ],
)
def test_ctrl_c_while_a_command_is_imported_is_one_line(error, code, words):
    ran = python(f"{IMPORT}import t2t_lite.bin\n{error}\n")
    assert ran.returncode == code
    assert words in ran.stderr.splitlines()[-1]
    assert ("Traceback" in ran.stderr) == (code == 1)


def test_a_program_that_imports_commands_keeps_its_excepthook():
    ran = python(
        "import sys, t2t_lite.bin\n"
        "assert sys.excepthook is sys.__excepthook__\n"
    )
    assert ran.returncode == 0, ran.stderr


def test_ctrl_c_does_not_wait_for_other_threads():
    ran = python(
        f"{COMMAND}"
        "def body(args):\n"
        "    threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "    print('so far')\n"
        "    raise KeyboardInterrupt\n"
        "run(body)\n"
    )
    assert (ran.returncode, ran.stdout) == (130, "so far\n")
    assert len(ran.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("number", "name", "work"),
    [
        (signal.SIGINT, "Ctrl-C", "time.sleep(60)"),
        (
            signal.SIGTERM,
            "SIGTERM",
            "hashlib.pbkdf2_hmac('md5', b'', b'', 2**30)",
        ),
    ],
)
def test_a_signal_ends_a_sleep_and_native_code(number, name, work):
    ran = python(
        f"{COMMAND}"
        "def body(args):\n"
        f"    kill = lambda: os.kill(os.getpid(), {number.value})\n"
        "    threading.Timer(0.5, kill).start()\n"
        f"    work = lambda: {work}\n"
        "    command.interruptible(work, signal.SIGINT, signal.SIGTERM)\n"
        "run(body)\n"
    )
    assert ran.returncode == 130
    (line,) = ran.stderr.splitlines()
    assert name in line


def test_a_closed_output_pipe_is_not_an_error():
    code = (
        f"{COMMAND}"
        "def body(args):\n"
        "    for _ in range(100000): print('line')\n"
        "run(body, [])\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout.readline() == b"line\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_is_one_line():
    done = subprocess.run(
        f"{sys.executable} -m t2t_lite.bin.main registry > /dev/full",
        shell=True,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("closed", "word"),
    [
        (">&-", "stdout"),
        slow("<&-", "stdin"),
        ("2>&-", ""),
    ],
)
def test_a_closed_stream_causes_no_traceback(closed, word, tiny_run):
    done = subprocess.run(
        f"{sys.executable} -m t2t_lite.bin.main decoder "
        f"--output_dir={tiny_run} {closed}",
        shell=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in done.stderr
    assert word in done.stderr
    assert done.returncode == (1 if word else 0)


def test_problem_and_hparams_set_name_the_folder_of_a_run(
    run_command, monkeypatch, tmp_path
):
    monkeypatch.setenv("HOME", str(tmp_path))
    names = ["--problem=wmt_ende", "--hparams=transformer_big"]
    for given, code, word in (
        (names, 1, f"{tmp_path}/t2t-lite/runs/wmt_ende/transformer_big"),
        (["--output_dir=~/mine", *names], 1, f"{tmp_path}/mine"),
        (names[:1], 2, "--output_dir"),
        (["--problem=wmt_endee", names[1]], 2, "wmt_ende"),
    ):
        got, _, err = run_command("decoder", *given)
        assert got == code and word in err


def test_flags_are_completed(tmp_path):
    line = "t2t-lite-trainer --hparams_ov"
    output = tmp_path / "answer"
    subprocess.run(
        [sys.executable, "-m", "t2t_lite.bin.main", "trainer"],
        env=os.environ
        | {
            "_ARGCOMPLETE": "1",
            "_ARGCOMPLETE_COMP_WORDBREAKS": " \t\n\"'><=;|&(:",  # bash's
            "_ARGCOMPLETE_STDOUT_FILENAME": str(output),
            "_ARGCOMPLETE_IFS": "\n",
            "COMP_LINE": line,
            "COMP_POINT": str(len(line)),
        },
        check=True,
    )
    words = output.read_text().split("\n")
    assert "--hparams_override" in [word.strip() for word in words]
