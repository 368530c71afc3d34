"""What all commands share: flags, errors, exit codes, signals, streams."""

import errno
import os
import signal
import subprocess
import sys

import pytest

from t2t_lite import validators
from t2t_lite.bin.cli import command, flags
from t2t_lite.errors import Interrupted, T2TLiteError, UsageError


@pytest.fixture
def parser():
    parser = flags.Parser("t2t-lite-test", "Does something.")
    flags.add(parser, {"--train_steps=N": ""}, validators.integer(1), 7)
    flags.add(parser, {"--alpha=X": ""}, validators.real(at_least=0))
    flags.add(parser, {"--data_dir=DIR": "", "--dry_run": "try it"})
    parser.add_argument("--format", choices=["text", "json"])
    return parser


@pytest.fixture
def run(parser, capsys):
    """The exit code and stderr of a command without results."""

    def run(body, *argv):
        code = command.run(parser, body, argv)
        out, err = capsys.readouterr()
        assert out == ""
        return code, err

    return run


@pytest.mark.parametrize("argv", [["--train_steps=3"], ["--train_steps", "3"]])
def test_both_ways_to_give_a_flag_work(parser, argv):
    assert parser.parse_args(argv).train_steps == 3


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--train_step=3"], ["--train_step.", "--train_steps"]),
        (["--data=x"], ["--data.", "--data_dir"]),  # a prefix is another flag
        (["--train_steps=0"], ["--train_steps", "'0'"]),
        (["--train_steps=many"], ["--train_steps", "'many'"]),
        (["--alpha=nan"], ["--alpha", "'nan'"]),
        (["--format=xml"], ["--format", "'xml'"]),
        (["--data_dir"], ["--data_dir"]),
        (["corpus.txt"], ["'corpus.txt'"]),
    ],
)
def test_wrong_flag_is_one_line_and_exit_code_2(run, argv, words):
    code, err = run(lambda args: None, *argv)
    assert (code, err.count("\n")) == (2, 1)
    assert all(word in err for word in words)


def test_an_unknown_flag_is_named_before_what_it_may_have_left_out(run, parser):
    parser.add_argument("run", metavar="RUN")
    code, err = run(lambda args: None, "--ruun", "a")
    assert code == 2 and "--ruun" in err
    assert "RUN" in run(lambda args: None)[1]
    assert "'b'" in run(lambda args: None, "--", "--a", "b")[1]


def test_help_names_defaults_but_no_none(parser):
    parser.add_argument("--seed", default=1, help="of all that is drawn")
    parser.add_argument("--other", help="nothing by default")
    assert "(default: 1)" in parser.format_help()
    assert "None" not in parser.format_help()
    with pytest.raises(SystemExit) as caught:
        command.run(parser, lambda args: None, ["--help"])
    assert caught.value.code == 0


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
def test_code_that_exits_is_an_error_with_its_line(run, tmp_path, word):
    """As a script does at its end; the work is not done then."""
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
    IMPORT + "from t2t_lite.bin.cli import command, flags\n"
    "def run(body, *argv):\n"
    "    parser = flags.Parser('t2t-lite-test', 'Tests.')\n"
    "    sys.exit(command.run(parser, body, *argv))\n"
)


def python(code):
    """Run code as a process of its own."""
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


def test_a_program_that_imports_commands_keeps_its_hook():
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
    ("number", "name"),
    [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")],
)
@pytest.mark.parametrize(
    "work", ["hashlib.pbkdf2_hmac('sha256', b'', b'', 2**30)", "time.sleep(60)"]
)
def test_a_signal_ends_work_in_python_and_in_other_code(number, name, work):
    ran = python(
        f"{COMMAND}"
        "def body(args):\n"
        f"    kill = lambda: os.kill(os.getpid(), {number.value})\n"
        "    threading.Timer(0.5, kill).start()\n"
        "    ended = command.ended_at_once_by(\n"
        "        't2t-lite-test', signal.SIGINT, signal.SIGTERM)\n"
        "    with ended:\n"
        f"        {work}\n"
        "run(body)\n"
    )
    assert ran.returncode == 130
    (line,) = ran.stderr.splitlines()
    assert name in line


def test_signals_are_as_they_were_after_the_work():
    def state():
        woken = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(woken)
        files = len(os.listdir("/dev/fd"))
        return signal.getsignal(signal.SIGINT), woken, files

    before = state()
    with command.ended_at_once_by("t2t-lite-test", signal.SIGINT):
        assert state() != before
    assert state() == before


def test_a_reader_that_leaves_early_is_not_an_error():
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


@pytest.mark.parametrize(
    ("closed", "word"),
    [
        (">&-", "stdout"),
        pytest.param("<&-", "stdin", marks=pytest.mark.slow),
        ("2>&-", ""),
    ],
)
def test_a_closed_stream_is_one_line(closed, word, tiny_run):
    done = subprocess.run(
        f"{sys.executable} -m t2t_lite.bin.decoder --output_dir={tiny_run} "
        f"{closed}",
        shell=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in done.stderr
    assert word in done.stderr
    assert done.returncode == (1 if word else 0)


def test_output_dir_is_named_by_problem_and_set(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    parser = flags.Parser("p", "d")
    flags.add_run_flags(parser)
    args = parser.parse_args(["--problem=wmt_ende", "--hparams=big"])
    assert flags.output_dir(args) == tmp_path / "t2t-lite/runs/wmt_ende/big"
    args = parser.parse_args(["--output_dir=~/mine", "--problem=wmt_ende"])
    assert flags.output_dir(args) == tmp_path / "mine"
    with pytest.raises(UsageError, match="--output_dir"):
        flags.output_dir(parser.parse_args(["--problem=wmt_ende"]))


def test_a_flag_given_twice_is_an_error_or_one_list(parser):
    flags.add(parser, {"--freeze=PART,...": ""})
    twice = ["--freeze=a", "--freeze", "b", "--", "--freeze=c"]
    parser.add_argument("rest", nargs="*")
    args = parser.parse_args(twice)
    assert (args.freeze, args.rest) == ("a,b", ["--freeze=c"])
    for words in (["--alpha=1", "--alpha", "2"], ["--dry_run", "--dry_run"]):
        with pytest.raises(UsageError, match=words[0].partition("=")[0]):
            parser.parse_args(words)
