import importlib.metadata
import os
import re
import sys

import pytest

from t2t_lite import plugins, registry
from t2t_lite.errors import T2TLiteError, UsageError

pytestmark = pytest.mark.usefixtures("forget_plugins")

HPARAMS = """
from t2t_lite import HParams
from t2t_lite.registry import register_hparams

@register_hparams
def {name}():
    return HParams()
"""


def write(folder, **files):
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def test_built_in_rooms_come_through_the_entry_points():
    plugins.load_plugins()
    assert "transformer_base" in registry.hparams_names()
    assert "spellout_ende" in registry.problem_names()


def test_folder_without_init_has_its_modules_imported(tmp_path):
    write(tmp_path / "mine", usr_sets=HPARAMS.format(name="usr_set"))
    plugins.load_plugins(tmp_path / "mine")
    assert "usr_set" in registry.hparams_names()


def test_modules_of_a_bare_folder_import_each_other_once(tmp_path):
    write(
        tmp_path / "mine",
        usr_a="import usr_b\n" + HPARAMS.format(name="usr_set_a"),
        usr_b=HPARAMS.format(name="usr_set_b"),
    )
    plugins.load_plugins(tmp_path / "mine")
    assert {"usr_set_a", "usr_set_b"} <= set(registry.hparams_names())


def test_tests_and_private_files_of_a_bare_folder_are_left_alone(tmp_path):
    write(
        tmp_path / "mine",
        usr_sets=HPARAMS.format(name="usr_set"),
        test_sets="1 / 0",
        _draft="1 / 0",
    )
    plugins.load_plugins(tmp_path / "mine")
    assert "usr_set" in registry.hparams_names()


def test_package_folder_is_imported_by_its_init(tmp_path):
    write(
        tmp_path / "usr_package",
        __init__="from . import sets",
        sets="from usr_package import names\n"
        + HPARAMS.format(name="usr_packaged"),
        names="",
    )
    plugins.load_plugins(tmp_path / "usr_package")
    assert "usr_packaged" in registry.hparams_names()
    assert "usr_package.sets" in sys.modules


def test_importable_package_name_will_do(tmp_path, monkeypatch):
    write(tmp_path / "usr_named", __init__=HPARAMS.format(name="usr_by_name"))
    monkeypatch.syspath_prepend(tmp_path)
    plugins.load_plugins("usr_named")
    assert "usr_by_name" in registry.hparams_names()


def test_loading_twice_registers_once(tmp_path):
    folder = write(tmp_path / "mine", usr_s=HPARAMS.format(name="usr_once"))
    plugins.load_plugins(folder)
    plugins.load_plugins(folder)
    plugins.load_plugins()
    assert registry.hparams_names().count("usr_once") == 1


def test_missing_folder_is_wrong_usage():
    with pytest.raises(UsageError, match="neither a folder nor an importable"):
        plugins.load_plugins("no/such/folder")


def test_failing_import_names_file_and_line(tmp_path):
    folder = write(tmp_path / "mine", usr_bad="import os\n\nos.no_such_thing\n")
    with pytest.raises(T2TLiteError) as caught:
        plugins.load_plugins(folder)
    assert f"{folder}/usr_bad.py:3: AttributeError" in str(caught.value)


def test_failure_inside_the_library_names_the_users_line(tmp_path):
    folder = write(
        tmp_path / "usr_twice",
        __init__=HPARAMS.format(name="transformer_base"),
    )
    with pytest.raises(T2TLiteError) as caught:
        plugins.load_plugins(folder)
    assert f"{folder}/__init__.py:5: " in str(caught.value)
    assert "registered twice" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_syntax_error_names_file_and_line(tmp_path):
    folder = write(tmp_path / "mine", usr_typo="x = 1\ndef broken(:\n")
    with pytest.raises(T2TLiteError) as caught:
        plugins.load_plugins(folder)
    assert f"{folder}/usr_typo.py:2: SyntaxError: " in str(caught.value)


def test_registering_nothing_is_said(tmp_path):
    folder = write(tmp_path / "mine", usr_empty="VALUE = 1\n")
    with pytest.raises(T2TLiteError, match="registers nothing"):
        plugins.load_plugins(folder)


def test_name_of_another_module_is_refused(tmp_path):
    folder = write(tmp_path / "mine", json=HPARAMS.format(name="usr_json"))
    with pytest.raises(T2TLiteError, match="name of another module"):
        plugins.load_plugins(folder)


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs modules as plugins: `install(usr_name="code")`."""
    entries = list(importlib.metadata.entry_points(group=plugins.GROUP))

    def write_and_enter(**files):
        write(tmp_path, **files)
        entries[:0] = [
            importlib.metadata.EntryPoint(f"the_{name}", name, plugins.GROUP)
            for name in files
        ]

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(plugins.metadata, "entry_points", lambda group: entries)
    return write_and_enter


def test_a_broken_installed_plugin_is_a_warning_and_the_others_load(
    install, tmp_path, capsys
):
    install(usr_a="1 / 0\n", usr_b=HPARAMS.format(name="usr_works"))
    plugins.load_plugins()
    plugins.load_plugins()  # warns once
    assert capsys.readouterr().err == (
        "Warning: plugin 'the_usr_a' (usr_a) failed to import: "
        f"{tmp_path}/usr_a.py:1: ZeroDivisionError: division by zero\n"
    )
    names = registry.hparams_names()
    assert {"usr_works", "transformer_base"} <= set(names)


def test_an_installed_plugin_that_exits_is_a_broken_one(install, capsys):
    install(usr_a="import sys\nsys.exit(3)\n")
    plugins.load_plugins()
    assert "usr_a.py:2: SystemExit: 3\n" in capsys.readouterr().err


def test_an_unknown_name_may_be_of_the_plugin_that_is_broken(
    install, run_command
):
    install(usr_a="1 / 0\n")
    told = r"plugin 'the_usr_a' \(usr_a\) failed to import: .*usr_a.py:1: Zero"
    for command, *flags in (
        ("registry", "usr_problem"),
        ("datagen", "--problem=usr_problem"),
        ("trainer", "--problem=spellout_ende", "--hparams=usr_set"),
    ):
        code, out, err = run_command(command, *flags)
        assert (code, out) == (2, "")
        assert re.search(rf"Unknown .*It may be of a .*: {told}", err)


def test_a_plugin_cannot_take_a_built_in_name(run_process, tmp_path):
    write(tmp_path, usr_a=HPARAMS.format(name="transformer_base"))
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
    assert line.startswith("Warning: plugin 'the_usr_a' (usr_a) failed")
    assert "registered twice" in line


def test_a_built_in_room_that_is_broken_is_an_error(monkeypatch):
    entry = importlib.metadata.EntryPoint(
        "problems", "t2t_lite.no_such_room", plugins.GROUP
    )
    monkeypatch.setattr(plugins.metadata, "entry_points", lambda group: [entry])
    with pytest.raises(T2TLiteError, match="'problems'.*failed to import"):
        plugins.load_plugins()


def test_a_usr_dir_that_exits_is_an_error(tmp_path):
    folder = write(tmp_path / "mine", usr_exit="raise SystemExit(3)\n")
    with pytest.raises(T2TLiteError, match="usr_exit.py:1: SystemExit: 3"):
        plugins.load_plugins(folder)
