import importlib.metadata
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
    # Python 3.10 gives the line of the function, not of its decorator.
    assert re.search(rf"{folder}/__init__.py:[56]: ", str(caught.value))
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


def test_failing_installed_plugin_is_named(tmp_path, monkeypatch):
    write(tmp_path, usr_installed="1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    entry = importlib.metadata.EntryPoint(
        "broken", "usr_installed", plugins.GROUP
    )
    monkeypatch.setattr(plugins.metadata, "entry_points", lambda group: [entry])
    with pytest.raises(T2TLiteError) as caught:
        plugins.load_plugins()
    assert "plugin 'broken' (usr_installed)" in str(caught.value)
    assert f"{tmp_path}/usr_installed.py:1: ZeroDivision" in str(caught.value)
