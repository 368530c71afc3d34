"""Dependencies point down, light modules stay light, a wheel is complete."""

import ast
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

ROOMS = ("t2t_lite", "problems", "hparams", "bin")
# The rooms from the top down: a module imports from its own row and from rows
# below it. A module that is not named is in the row of its folder.
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
    ("plugins",),
    ("registry",),
    ("problem",),
    ("evaluation",),
    ("corpus",),
    ("tokenizers",),
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


def files_of(*rooms):
    files = [file for room in rooms for file in (ROOT / room).rglob("*.py")]
    assert files
    return files


def imports_of(file):
    """Every module that a file imports, at any depth of its code."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file}: relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules():
    """The files of the package by their dotted names inside it."""
    found = {}
    for room in ROOMS:
        for file in files_of(room):
            path = file.relative_to(ROOT).with_suffix("").parts
            name = ".".join(path[room == "t2t_lite" :])
            found[name.removesuffix(".__init__")] = file
    del found["__init__"]  # the front door, which loads by name
    return found


def row_of(module):
    rows = {name: row for row, names in enumerate(ROWS) for name in names}
    while module not in rows:
        module = module.rpartition(".")[0]
        assert module, "a module is in no row"
    return rows[module]


def test_imports_point_down_and_never_in_a_circle():
    known, below = modules(), {}
    for module, file in known.items():
        names = {name.removeprefix("t2t_lite.") for name in imports_of(file)}
        for name in names & known.keys():
            assert row_of(module) <= row_of(name), f"{module} imports {name}"
            if not f"{name}.".startswith(f"{module}."):  # its own files
                below.setdefault(module, set()).add(name)
    graphlib.TopologicalSorter(below).prepare()  # raises CycleError


def offenders(files, forbidden):
    return [
        f"{file.relative_to(ROOT)} imports {name}"
        for file in files
        for name in imports_of(file)
        if name.split(".")[0] in forbidden
    ]


def test_each_module_has_one_name_and_the_model_only_keras():
    # The package of problems is t2t_lite.problems, and so on.
    assert not offenders(files_of(*ROOMS), ("tests", *ROOMS[1:]))
    assert not offenders(files_of("tests"), ROOMS[1:])
    model = files_of("t2t_lite/model", "t2t_lite/decoding/search")
    assert not offenders(model, ("tensorflow", "tensorflow_text", "numpy"))


def test_the_engine_names_no_language_or_corpus():
    for file in files_of("t2t_lite"):
        text = file.read_text(encoding="utf-8").lower()
        for name in ("multi30k", "spellout", "german", "french"):
            assert name not in text, file


def test_the_engine_names_options_and_commands_name_flags():
    # The card shows a command line; Beam's own flags are Beam's.
    allowed = ("model_card", "apache_beam")
    for file in files_of("t2t_lite"):
        if file.stem not in allowed:
            text = file.read_text("utf-8")
            found = re.findall(r"(?<!py )--[a-z]{2}\w*", text)
            assert not found, f"{file}: write `option`, not {found}"


def count_lines(files):
    return sum(len(file.read_text("utf-8").splitlines()) for file in files)


def test_the_code_stays_within_its_budget():
    package, uncounted = files_of(*ROOMS), ("pcfg", "parsing_baselines")
    benchmarks = [f for f in files_of("benchmarks") if f.stem not in uncounted]
    assert len(package) <= 170
    assert count_lines(package) <= 27_000
    assert count_lines(files_of("tests")) <= 26_650
    assert count_lines(benchmarks) <= 1_800


def test_a_plain_install_needs_few_packages():
    requirements = metadata.requires("t2t-lite")
    plain = [name for name in requirements if "extra ==" not in name]
    assert 0 < len(plain) <= 18, plain


def run_python(code):
    return subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"REQUEST_OPTIONS": "80"},
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
        "import t2t_lite.data.bucketing\n"  # which is noticed
        "assert 'numpy' in sys.modules\n"
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_help_shows_the_flags_and_loads_nothing_heavy(script):
    shown = run_python(
        "import importlib, sys\n"
        "try:\n"
        f"    importlib.import_module({script.module!r}).main(['--help'])\n"
        "except SystemExit as end:\n"
        "    assert not end.code, end.code\n"
        f"assert not set({HEAVY!r}) & set(sys.modules)\n"
    )
    assert "--verbose" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_every_command_is_a_console_script():
    commands = {f"t2t_lite.bin.{f.stem}" for f in ROOT.glob("bin/[!_]*.py")}
    assert {script.module for script in SCRIPTS} == commands


def test_public_names_are_listed_and_unknown_ones_refused():
    assert {"HParams", "Problem", "Transformer"} <= set(dir(t2t_lite))
    with pytest.raises(AttributeError, match="Nothing"):
        t2t_lite.Nothing  # noqa: B018 (the access is the test)


@pytest.mark.slow
def test_wheel_holds_every_room_and_no_generic_name(tmp_path):
    copy = tmp_path / "checkout"  # a build leaves nothing in the checkout
    ignored = shutil.ignore_patterns("__pycache__")
    for room in ROOMS:
        shutil.copytree(ROOT / room, copy / room, ignore=ignored)
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
    assert tops == {"t2t_lite", f"t2t_lite-{t2t_lite.__version__}.dist-info"}
    shown = ROOT.glob("t2t_lite/serving/page/static/*.[hcjs]*")
    for file in (*files_of(*ROOMS), *shown):
        path = str(file.relative_to(ROOT))
        inside = path if path.startswith("t2t_lite/") else f"t2t_lite/{path}"
        assert inside in names
