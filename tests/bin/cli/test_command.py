"""What all commands share: flags, errors, exit codes."""

import errno
import os
import signal
import subprocess
import sys

import pytest

from t2t_lite.bin.cli import command, flags
from t2t_lite.errors import Interrupted, T2TLiteError, UsageError


@pytest.fixture
def parser():
    parser = flags.Parser("t2t-lite-test", "Does something.")
    parser.add_argument("--train_steps", type=flags.at_least(1), default=7)
    parser.add_argument("--alpha", type=flags.number(0))
    parser.add_argument("--data_dir")
    parser.add_argument("--format", choices=["text", "json"])
    parser.add_argument("--dry_run", action="store_true", help="try it")
    return parser


def outcome(parser, argv, capsys, body=lambda args: None):
    code = command.run(parser, body, argv)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("argv", [["--train_steps=3"], ["--train_steps", "3"]])
def test_both_ways_to_give_a_flag_work(parser, argv):
    assert parser.parse_args(argv).train_steps == 3


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--train_step=3"], "Unknown flag --train_step. Did you mean "),
        (["--t2t_data_dir", "x"], "Unknown flag --t2t_data_dir. Did you mean"),
        (["--train_steps=0"], "--train_steps: must be a whole number, at "),
        (["--train_steps=many"], "at least 1; got 'many'."),
        (["--alpha=nan"], "--alpha: must be a number, at least 0; got 'nan'."),
        (["--format=xml"], "--format: invalid choice: 'xml'"),
        (["--data_dir"], "--data_dir: expected one argument."),
        (["corpus.txt"], "Unexpected argument 'corpus.txt'"),
    ],
)
def test_wrong_flag_is_one_line_and_exit_code_2(parser, argv, message, capsys):
    code, out, err = outcome(parser, argv, capsys)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert "usage" not in err


def test_prefix_of_a_flag_is_not_the_flag(parser):
    with pytest.raises(UsageError, match="Unknown flag --data. Did you mean"):
        parser.parse_args(["--data=x"])


def test_an_unknown_flag_is_named_before_what_it_may_have_left_out(capsys):
    parser = flags.Parser("t2t-lite-x", "Works.")
    parser.add_argument("run", metavar="RUN")
    code, _, err = outcome(parser, ["--ruun", "a"], capsys)
    assert code == 2 and "Unknown flag --ruun." in err
    _, _, err = outcome(parser, [], capsys)
    assert "required: RUN." in err
    _, _, err = outcome(parser, ["--", "--a", "b"], capsys)
    assert "Unexpected argument 'b'" in err


def test_help_names_defaults_but_no_none(parser):
    text = parser.format_help()
    assert "(default: 7)" not in text  # without help text nothing is said
    parser.add_argument("--seed", default=1, help="of all that is drawn")
    parser.add_argument("--other", help="nothing by default")
    assert "(default: 1)" in parser.format_help()
    assert "None" not in parser.format_help()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (T2TLiteError("It failed."), 1),
        (UsageError("It failed."), 2),
        (Interrupted("It failed."), 75),
        (ValueError("It failed.\nat length"), 1),
    ],
)
def test_errors_become_one_line_and_an_exit_code(parser, error, code, capsys):
    def body(args):
        raise error

    got, out, err = outcome(parser, [], capsys, body)
    assert (got, out, err.count("\n")) == (code, "", 1)
    assert "It failed" in err
    assert "Traceback" not in err


def test_verbose_adds_the_traceback(parser, capsys):
    def body(args):
        raise T2TLiteError("It failed.")

    code, _, err = outcome(parser, ["--verbose"], capsys, body)
    assert code == 1
    assert err.startswith("Traceback")
    assert err.endswith("\nt2t-lite-test: It failed.\n")


def test_full_disk_names_the_file_and_what_to_do(parser, capsys):
    def body(args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/x")

    code, _, err = outcome(parser, [], capsys, body)
    assert code == 1
    assert "/data/x: No space left on device; free some space" in err


def test_ctrl_c_is_one_line(parser, capsys):
    def body(args):
        raise KeyboardInterrupt

    code, _, err = outcome(parser, [], capsys, body)
    assert (code, err) == (130, "t2t-lite-test: stopped by Ctrl-C.\n")


def python(code, **how):
    """Runs code as a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        **how,
    )


def test_ctrl_c_while_a_command_is_imported_is_one_line():
    ran = python(
        "import sys\n"
        "sys.argv = ['/bin/t2t-lite-test']\n"
        "import t2t_lite.bin\n"
        "raise KeyboardInterrupt\n"
    )
    assert ran.returncode == 130
    assert ran.stderr == "t2t-lite-test: stopped by Ctrl-C.\n"
    ran = python(
        "import sys\n"
        "sys.argv = ['/bin/t2t-lite-test']\n"
        "import t2t_lite.bin\n"
        "1 / 0\n"
    )
    assert ran.returncode == 1
    assert "ZeroDivisionError" in ran.stderr


def test_a_program_that_imports_commands_keeps_its_hook():
    ran = python(
        "import sys, t2t_lite.bin\n"
        "assert sys.excepthook is sys.__excepthook__\n"
    )
    assert ran.returncode == 0, ran.stderr


def test_ctrl_c_does_not_wait_for_other_threads():
    ran = python(
        "import sys, threading, time\n"
        "from t2t_lite.bin.cli import command, flags\n"
        "def body(args):\n"
        "    threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "    print('so far')\n"
        "    raise KeyboardInterrupt\n"
        "parser = flags.Parser('t2t-lite-test', 'Tests.')\n"
        "sys.exit(command.run(parser, body))\n"
    )
    assert ran.returncode == 130
    assert ran.stdout == "so far\n"
    assert ran.stderr == "t2t-lite-test: stopped by Ctrl-C.\n"


@pytest.mark.parametrize(
    ("number", "name"),
    [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")],
)
@pytest.mark.parametrize(
    "work", ["hashlib.pbkdf2_hmac('sha256', b'', b'', 2**30)", "time.sleep(60)"]
)
def test_a_signal_ends_work_in_python_and_in_other_code(number, name, work):
    ran = python(
        "import hashlib, os, signal, sys, threading, time\n"
        "from t2t_lite.bin.cli import command, flags\n"
        "def body(args):\n"
        f"    kill = lambda: os.kill(os.getpid(), {number.value})\n"
        "    threading.Timer(0.5, kill).start()\n"
        "    ended = command.ended_at_once_by(\n"
        "        't2t-lite-test', signal.SIGINT, signal.SIGTERM)\n"
        "    with ended:\n"
        f"        {work}\n"
        "parser = flags.Parser('t2t-lite-test', 'Tests.')\n"
        "sys.exit(command.run(parser, body))\n"
    )
    assert ran.returncode == 130
    assert ran.stderr == f"t2t-lite-test: stopped by {name}.\n"


def test_signals_are_as_they_were_behind_the_work():
    def state():
        woken = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(woken)
        files = len(os.listdir("/dev/fd"))
        return signal.getsignal(signal.SIGINT), woken, files

    before = state()
    with command.ended_at_once_by("t2t-lite-test", signal.SIGINT):
        assert state() != before
    assert state() == before


def test_reader_that_leaves_early_is_no_error():
    code = (
        "from t2t_lite.bin.cli import command, flags\n"
        "def body(args):\n"
        "    for _ in range(100000): print('line')\n"
        "raise SystemExit(command.run(flags.Parser('p', 'd'), body, []))\n"
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


def test_output_dir_is_named_by_problem_and_set(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    parser = flags.Parser("p", "d")
    flags.add_run_flags(parser)
    args = parser.parse_args(["--problem=wmt_ende", "--hparams=big"])
    assert flags.output_dir(args) == tmp_path / "t2t-lite/runs/wmt_ende/big"
    args = parser.parse_args(["--output_dir=~/mine", "--problem=wmt_ende"])
    assert flags.output_dir(args) == tmp_path / "mine"
    with pytest.raises(UsageError, match="Give --output_dir, or"):
        flags.output_dir(parser.parse_args(["--problem=wmt_ende"]))


@pytest.mark.parametrize("word", ["0", "", "3", "'done'"])
def test_code_that_exits_is_an_error_with_its_line(
    parser, tmp_path, capsys, word
):
    """As a script does at its end; the work is not done then."""
    file = tmp_path / "usr_script.py"
    code = compile(f"import sys\nsys.exit({word})\n", str(file), "exec")
    outcome_ = outcome(parser, [], capsys, lambda args: exec(code, {}))
    assert outcome_[:2] == (1, "")
    assert f"{file}:2: sys.exit({word.strip(chr(39))})" in outcome_[2]
    assert outcome_[2].count("\n") == 1


def test_help_is_no_such_error(parser, capsys):
    with pytest.raises(SystemExit) as caught:
        command.run(parser, lambda args: None, ["--help"])
    assert caught.value.code == 0


@pytest.mark.parametrize(
    ("closed", "said"),
    [
        (">&-", "stdout is closed"),
        pytest.param("<&-", "stdin is closed", marks=pytest.mark.slow),
        ("2>&-", ""),
    ],
)
def test_a_closed_stream_is_one_line(closed, said, tiny_run):
    done = subprocess.run(
        f"{sys.executable} -m t2t_lite.bin.decoder --output_dir={tiny_run} "
        f"{closed}",
        shell=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in done.stderr
    assert said in done.stderr
    assert done.returncode == (1 if said else 0)
