"""Layers of imports, light modules, limits of size and files of the wheel."""

import ast
import functools
import graphlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata

import pytest

import t2t_lite
from support.places import ROOT

FOLDERS = ("t2t_lite", "problems", "hparams", "bin")
# Layers from top to bottom: a module may import from its row and the rows
# below. A module that is not listed is in the row of its folder.
ROWS = (
    ("bin",),
    ("problems", "hparams"),
    ("api",),
    ("serving.server",),
    ("serving.client", "serving.page"),
    ("serving",),
    ("interop", "keras_hub"),
    ("training",),
    ("datagen",),
    ("parsing",),
    ("decoding",),
    ("decoding.search",),
    ("data",),
    ("model",),
    ("ops",),
    ("registry",),
    ("problem",),
    ("evaluation",),
    ("corpus",),
    ("tokenizers",),
    ("plugins",),
    ("hparam", "files", "progress", "validators", "tf_setup"),
    ("errors",),
)
HEAVY = (
    *("tensorflow", "tensorflow_text", "tensorflow_serving", "keras"),
    *("keras_hub", "numpy", "sentencepiece", "sacrebleu", "sacremoses"),
    *("nltk", "num2words", "rich", "apache_beam", "ctranslate2", "aiohttp"),
    *("grpc", "prometheus_client"),
)
SCRIPTS = metadata.distribution("t2t-lite").entry_points.select(
    group="console_scripts"
)


def files_of(*names):
    files = [file for folder in names for file in (ROOT / folder).rglob("*.py")]
    assert files
    return files


@functools.cache
def imports_of(file):
    """Return all modules that a file imports, also inside functions."""
    found = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file}: relative import"
            found.append(node.module)
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def modules():
    """Return the files of the package by module, without `t2t_lite.`."""
    found = {}
    for folder in FOLDERS:
        for file in files_of(folder):
            path = file.relative_to(ROOT).with_suffix("").parts
            name = ".".join(path[folder == "t2t_lite" :])
            found[name.removesuffix(".__init__")] = file
    del found["__init__"]  # the public API, which imports lazily
    return found


def row_of(module):
    rows = {name: row for row, names in enumerate(ROWS) for name in names}
    while module not in rows:
        module = module.rpartition(".")[0]
        assert module, "a module is in no row"
    return rows[module]


def test_imports_point_down_without_cycles():
    all_modules, below = modules(), {}
    for module, file in all_modules.items():
        names = {name.removeprefix("t2t_lite.") for name in imports_of(file)}
        for name in names & all_modules.keys():
            assert row_of(module) <= row_of(name), f"{module} imports {name}"
            if not f"{name}.".startswith(f"{module}."):  # not a submodule
                below.setdefault(module, set()).add(name)
    graphlib.TopologicalSorter(below).prepare()  # raises CycleError


def offenders(files, forbidden):
    return [
        f"{file.relative_to(ROOT)} imports {name}"
        for file in files
        for name in imports_of(file)
        if name.split(".")[0] in forbidden
    ]


def test_modules_have_one_name_and_the_model_uses_only_keras():
    # The folder problems is imported as t2t_lite.problems, and so on.
    assert not offenders(files_of(*FOLDERS), ("tests", *FOLDERS[1:]))
    assert not offenders(files_of("tests"), FOLDERS[1:])
    model = files_of("t2t_lite/model", "t2t_lite/decoding/search")
    assert not offenders(model, ("tensorflow", "tensorflow_text", "numpy"))


def test_engine_names_no_language_or_corpus():
    for file in files_of("t2t_lite"):
        text = file.read_text(encoding="utf-8").lower()
        for name in ("multi30k", "spellout", "german", "french"):
            assert name not in text, file


def test_engine_names_options_and_no_flags():
    # The card shows a command line, and apache_beam uses Beam's flags.
    allowed = ("model_card", "apache_beam")
    for file in files_of("t2t_lite"):
        if file.stem not in allowed:
            text = file.read_text("utf-8")
            found = re.findall(r"(?<!py )--[a-z]{2}\w*", text)
            assert not found, f"{file}: write `option`, not {found}"


def count_lines(files):
    return sum(len(file.read_text("utf-8").splitlines()) for file in files)


def test_the_code_stays_within_its_budget():
    package = files_of(*FOLDERS)
    assert len(package) <= 170
    assert count_lines(package) <= 27_000
    assert count_lines(files_of("tests")) <= 25_000
    assert count_lines(files_of("benchmarks")) <= 1_800


def test_plain_install_requires_few_packages():
    requirements = metadata.requires("t2t-lite")
    plain = [name for name in requirements if "extra ==" not in name]
    assert 0 < len(plain) <= 18, plain


def run_python(code):
    return subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "80"},
    ).stdout


def test_light_modules_load_nothing_heavy():
    light = ["api", "plugins", "problem", "problems", "hparams"]
    light += ["corpus.download", "training.schedules", "training.comparison"]
    light += ["evaluation.bleu", "decoding.search.settings", "serving.page"]
    light += ["parsing.bracket_f1", "parsing.linearize"]
    run_python(
        "import importlib, sys, t2t_lite\n"
        "t2t_lite.Problem, t2t_lite.HParams, t2t_lite.load, t2t_lite.train\n"
        f"for name in {light!r}:\n"
        "    importlib.import_module(f't2t_lite.{name}')\n"
        f"    assert not set({HEAVY!r}) & set(sys.modules), name\n"
        "import t2t_lite.data.bucketing\n"  # loads numpy
        "assert 'numpy' in sys.modules\n"
    )


def test_help_shows_the_flags_and_loads_nothing_heavy():
    shown = run_python(
        "import importlib, sys\n"
        f"for module in {[script.module for script in SCRIPTS]!r}:\n"
        "    try:\n"
        "        importlib.import_module(module).main(['--help'])\n"
        "    except SystemExit as end:\n"
        "        assert not end.code, module\n"
        f"    assert not set({HEAVY!r}) & set(sys.modules), module\n"
        "    print(end='\\f')\n"
    )
    assert all("--verbose" in each for each in shown.split("\f")[:-1])
    assert max(map(len, shown.splitlines())) <= 80


def test_every_command_is_a_console_script():
    commands = {f"t2t_lite.bin.{f.stem}" for f in ROOT.glob("bin/[!_]*.py")}
    assert {script.module for script in SCRIPTS} == commands


def test_public_names_are_listed_and_unknown_ones_refused():
    assert {"HParams", "Problem", "Transformer"} <= set(dir(t2t_lite))
    with pytest.raises(AttributeError, match="Nothing"):
        t2t_lite.Nothing  # noqa: B018 (the access is the test)


@pytest.mark.slow
def test_wheel_contains_all_files_in_one_package(tmp_path):
    copy = tmp_path / "checkout"  # a build leaves nothing in the checkout
    ignored = shutil.ignore_patterns("__pycache__")
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, copy / folder, ignore=ignored)
    for file in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, copy)
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet"]
        + ["--wheel-dir", tmp_path, copy],
        check=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert "t2t_lite/py.typed" in names
    assert tops == {"t2t_lite", f"t2t_lite-{t2t_lite.__version__}.dist-info"}
    shown = ROOT.glob("t2t_lite/serving/page/static/*.[hcjs]*")
    for file in (*files_of(*FOLDERS), *shown):
        path = str(file.relative_to(ROOT))
        inside = path if path.startswith("t2t_lite/") else f"t2t_lite/{path}"
        assert inside in names
