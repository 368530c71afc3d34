"""Plugins: built-in ones, installed packages and folders of users."""

import importlib.metadata
import os
import re
import sys

import pytest

from t2t_lite import plugins, registry
from t2t_lite.errors import T2TLiteError

pytestmark = pytest.mark.usefixtures("forget_plugins")

HPARAMS = """
from t2t_lite import HParams
from t2t_lite.registry import register_hparams

@register_hparams
def {}():
    return HParams()
"""


def write(folder, **files):
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def test_each_module_of_a_bare_folder_is_imported_once(tmp_path):
    folder = write(
        tmp_path / "mine",
        usr_a="import usr_b\n" + HPARAMS.format("usr_set_a"),
        usr_b=HPARAMS.format("usr_set_b"),
        test_sets="1 / 0",
        _draft="1 / 0",
    )
    plugins.load_plugins(folder)
    plugins.load_plugins(folder)
    assert {"usr_set_a", "usr_set_b"} <= set(registry.hparams_names())


def test_a_package_folder_is_imported_by_its_init(tmp_path):
    write(
        tmp_path / "usr_package",
        __init__="from . import sets",
        sets="from usr_package import names\n" + HPARAMS.format("usr_packaged"),
        names="",
    )
    plugins.load_plugins(tmp_path / "usr_package")
    assert "usr_packaged" in registry.hparams_names()
    assert str(tmp_path) not in sys.path


def test_an_importable_package_is_imported_by_its_name(tmp_path, monkeypatch):
    write(tmp_path / "usr_named", __init__=HPARAMS.format("usr_by_name"))
    monkeypatch.syspath_prepend(tmp_path)
    plugins.load_plugins("usr_named")
    assert "usr_by_name" in registry.hparams_names()


@pytest.mark.parametrize(
    ("name", "code", "told"),
    [
        ("usr_bad", "import os\n\nos.no_such\n", "usr_bad.py:3: Attribute"),
        ("usr_typo", "x = 1\ndef broken(:\n", "usr_typo.py:2: SyntaxError"),
        ("usr_exit", "raise SystemExit(3)\n", "usr_exit.py:1: SystemExit: 3"),
        ("usr_a", HPARAMS.format("transformer_base"), "usr_a.py:5: .*twice"),
        ("usr_empty", "VALUE = 1\n", "registers nothing"),
        ("json", HPARAMS.format("usr_json"), "json.py has the name of another"),
    ],
)
def test_code_that_fails_is_named_with_its_line(tmp_path, name, code, told):
    folder = write(tmp_path / "mine", **{name: code})
    with pytest.raises(T2TLiteError, match=told) as caught:
        plugins.load_plugins(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install modules as plugins: `install(usr_name="code")`."""
    entries = list(importlib.metadata.entry_points(group=plugins.GROUP))

    def write_and_enter(**files):
        write(tmp_path, **files)
        entries[:0] = [
            importlib.metadata.EntryPoint(f"the_{name}", name, plugins.GROUP)
            for name in files
        ]

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(
        importlib.metadata, "entry_points", lambda group: entries
    )
    return write_and_enter


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("1 / 0\n", "usr_a.py:1: ZeroDivisionError"),
        ("import sys\nsys.exit(3)\n", "usr_a.py:2: SystemExit: 3"),
    ],
)
def test_broken_plugin_is_a_warning_and_the_others_load(
    install, capsys, code, told
):
    install(usr_a=code, usr_b=HPARAMS.format("usr_works"))
    plugins.load_plugins()
    plugins.load_plugins()
    (line,) = capsys.readouterr().err.splitlines()  # warns once
    assert "the_usr_a" in line and told in line
    assert {"usr_works", "transformer_base"} <= set(registry.hparams_names())


def test_error_for_an_unknown_name_names_the_broken_plugin(
    install, run_command
):
    install(usr_a="1 / 0\n")
    code, out, err = run_command("registry", "usr_problem")
    assert (code, out) == (2, "")
    assert re.search("the_usr_a.*usr_a.py:1.*\n.*Unknown .*usr_problem", err)


def test_a_plugin_cannot_take_a_built_in_name(run_process, tmp_path):
    write(tmp_path, usr_a=HPARAMS.format("transformer_base"))
    dist_info = write(tmp_path / "usr_a-1.dist-info")
    (dist_info / "METADATA").write_text("Name: usr-a\nVersion: 1\n")
    (dist_info / "entry_points.txt").write_text(
        f"[{plugins.GROUP}]\nthe_usr_a = usr_a\n"
    )
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = run_process("registry", "transformer_base", env=env)
    assert done.returncode == 0
    assert "The base model of arXiv:1706.03762" in done.stdout
    (line,) = done.stderr.splitlines()
    assert "the_usr_a" in line and "twice" in line


def test_broken_built_in_module_is_an_error(monkeypatch):
    entry = importlib.metadata.EntryPoint(
        "problems", "t2t_lite.no_such_module", plugins.GROUP
    )
    monkeypatch.setattr(
        importlib.metadata, "entry_points", lambda group: [entry]
    )
    with pytest.raises(T2TLiteError, match=r"t2t_lite\.no_such_module"):
        plugins.load_plugins()
