"""Fixtures of all tests; importing this file does not load TensorFlow."""

import functools
import importlib.util
import os
import random
import shutil
import signal
import subprocess
import sys

import pytest

from support.lines import command_line, last_of_each

# Set before any test imports TensorFlow.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as the commands do
os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

# A shell starts background processes with SIGINT ignored, and the processes
# that tests start would inherit this.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# `make fuzz` selects the longer profile.
if importlib.util.find_spec("hypothesis"):  # not in Beam's environment
    from hypothesis import HealthCheck, settings

    settings.register_profile(
        "quick",
        derandomize=True,
        deadline=None,
        max_examples=60,
        suppress_health_check=list(HealthCheck),
    )
    quick = settings.get_profile("quick")
    settings.register_profile(
        "fuzz", quick, derandomize=False, max_examples=1000
    )
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.fixture(autouse=True)
def _seed():
    random.seed(0)


@pytest.fixture
def run_command(capfd):
    """Run a command in this process: `(exit code, stdout, stderr)`.

    `run_command("trainer", "--problem=...")` calls `t2t_lite.bin.trainer.main`.
    """

    def run(module, *argv):
        capfd.readouterr()
        main = importlib.import_module(f"t2t_lite.bin.{module}").main
        code = main(last_of_each(argv))
        out, err = capfd.readouterr()
        return code, out, err

    return run


@pytest.fixture
def run_process():
    """Run a command in a new process; return a CompletedProcess of text."""

    def run(module, *argv, **options):
        return subprocess.run(
            [*command_line(module), *last_of_each(argv)],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            **options,
        )

    return run


@pytest.fixture(scope="session")
def _chromium():
    from support import browser

    with browser.started() as driver:
        yield driver


@pytest.fixture
def browser(_chromium):
    """Return Chromium, 1280 pixels wide, without the state of other tests."""
    from support import browser

    _chromium.get("about:blank")
    browser.set_screen(_chromium, 1280)
    browser.severe(_chromium)  # discards errors of other tests
    return _chromium


TINY_PROBLEM = '''
from t2t_lite import HParams, Text2TextProblem
from t2t_lite.registry import register_hparams, register_problem

WORDS = "zero one two three four five six seven eight nine".split()


@register_problem
class TinyDigits(Text2TextProblem):
    """Digits to their names: 1 2 is one two."""

    vocab_size = 290

    def samples(self, split, raw):
        start = {"train": 0, "dev": 40, "test": 44}[split]
        count = {"train": 40, "dev": 4, "test": 4}[split]
        for number in range(start, start + count):
            digits = str(number * 37 + 1)
            yield " ".join(digits), " ".join(WORDS[int(d)] for d in digits)


@register_hparams
def tiny_digits_set():
    """So small that nothing takes long."""
    return HParams(
        hidden_size=8,
        filter_size=16,
        num_heads=2,
        num_hidden_layers=1,
        max_length=64,
        batch_tokens=512,
        gradient_accumulation_steps=2,
        warmup_steps=4,
        train_steps=4,
        average_checkpoints=2,
        extra_decode_length=5,
    )
'''


@pytest.fixture(scope="session")
def tiny_usr_dir(tmp_path_factory):
    """Return a folder with a problem and a set that train in seconds."""
    folder = tmp_path_factory.mktemp("tiny") / "usr"
    folder.mkdir()
    (folder / "tiny_digits.py").write_text(TINY_PROBLEM, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def tiny_flags(tiny_usr_dir):
    """Return the trainer's flags for a tiny run, without --output_dir."""
    return [
        "--problem=tiny_digits",
        "--hparams=tiny_digits_set",
        f"--usr_dir={tiny_usr_dir}",
        f"--data_dir={tiny_usr_dir.parent / 'data'}",
    ]


@pytest.fixture(scope="session")
def tiny_run(tiny_flags, tmp_path_factory):
    """Return the folder of a run of four updates, saved at 2 and 4."""
    from t2t_lite.bin import trainer

    folder = tmp_path_factory.mktemp("run")
    flags = [*tiny_flags, f"--output_dir={folder}", "--save_steps=2"]
    assert trainer.main(flags) == 0
    return folder


@pytest.fixture
def run_copy(tiny_run, tmp_path):
    """Return a copy of `tiny_run`, without evaluations by other tests."""
    copy = shutil.copytree(tiny_run, tmp_path / "run")
    (copy / "evaluations.jsonl").unlink(missing_ok=True)
    return copy


@pytest.fixture(scope="session")
def tiny_export(tiny_run, tmp_path_factory):
    """Return the folder of an export of `tiny_run`, moved after writing.

    It also holds folders that only look like versions.
    """
    from t2t_lite.bin import exporter

    made = tmp_path_factory.mktemp("export") / "made"
    for name in ("1", "9.bak", "notes"):
        (made / name).mkdir(parents=True)
    flags = [f"--output_dir={tiny_run}", f"--export_dir={made}"]
    assert exporter.main(flags) == 0
    return made.rename(made.with_name("moved"))


@pytest.fixture
def decode(run_command, tiny_run, tmp_path):
    """Decode lines with the tiny run: `(exit code, lines of stdout, stderr)`.

    Flags may name another run.
    """

    def decode(lines, *flags):
        path = tmp_path / "source"
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        given = f"--output_dir={tiny_run}", f"--decode_from_file={path}"
        code, out, err = run_command("decoder", *given, *flags)
        return code, out.split("\n")[:-1], err

    return decode


@pytest.fixture
def without_mecab(monkeypatch):
    """Make the packages for Japanese and Korean fail to import."""
    for name in ("MeCab", "mecab_ko"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("ja", "ko"):
        module = f"sacrebleu.tokenizers.tokenizer_{name}_mecab"
        monkeypatch.delitem(sys.modules, module, raising=False)


@pytest.fixture
def forget_plugins(monkeypatch):
    """Undo registrations and imports of a test."""
    from support.registries import keep_apart

    keep_apart(monkeypatch)
    monkeypatch.setattr(sys, "path", list(sys.path))
    loaded = set(sys.modules)
    yield
    for name in set(sys.modules) - loaded:
        if name.startswith("usr_"):
            del sys.modules[name]


_OWN_PROCESS = "T2T_LITE_OWN_PROCESS"


def pytest_pyfunc_call(pyfuncitem):
    """Run the tests of a file marked `own_process` in a new pytest process.

    Their signals do not reach other tests, or callbacks that other libraries
    have installed in this process. Tests share a process if their marks have
    the same reason.
    """
    mark = pyfuncitem.get_closest_marker("own_process")
    if not mark or os.environ.get(_OWN_PROCESS):
        return None
    done = _run_tests(
        pyfuncitem.config.rootpath,
        *(
            item.nodeid
            for item in pyfuncitem.session.items
            if item.path == pyfuncitem.path
            and item.get_closest_marker("own_process") == mark
        ),
    )
    passed = f"PASSED {pyfuncitem.nodeid}" in done.stdout.splitlines()
    assert passed, done.stdout + done.stderr
    return True


@functools.cache
def _run_tests(folder, *tests):
    flags = ("xdist", "hypothesispytest", "cacheprovider")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", *tests]
        + [f"-pno:{name}" for name in flags],
        cwd=folder,
        env=os.environ | {_OWN_PROCESS: "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def pytest_addoption(parser):
    """Add flags for the rounds and the seed of `system/test_chaos.py`."""
    parser.addoption("--rounds", type=int, default=40)
    parser.addoption("--chaos_seed", type=int, default=1)
