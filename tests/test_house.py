"""Dependencies point down, light modules stay light, a wheel is complete."""

import ast
import graphlib
import json
import os
import subprocess
import sys
import zipfile
from importlib import metadata

import pytest

import t2t_lite
from support.places import ROOT

ENGINE = ROOT / "t2t_lite"
ROOMS = ("t2t_lite", "problems", "hparams", "bin")
COMMANDS = {
    "": "main",
    "trainer": "trainer",
    "decoder": "decoder",
    "datagen": "datagen",
    "evaluator": "evaluator",
    "average": "average_checkpoints",
    "exporter": "exporter",
    "bleu": "bleu",
    "doctor": "doctor",
    "import": "import_t2t",
    "registry": "registry",
    "report": "report",
    "attention": "attention",
    "query": "query",
    "server": "server",
    "bracket-f1": "bracket_f1",
}
LIGHT = (
    "t2t_lite",
    "t2t_lite.errors",
    "t2t_lite.registry",
    "t2t_lite.hparam",
    "t2t_lite.loading",
    "t2t_lite.plugins",
    "t2t_lite.problem",
    "t2t_lite.corpus.raw_files",
    "t2t_lite.training.schedules",
    "t2t_lite.evaluation.bleu",
    "t2t_lite.interop.tensor2tensor.hparams",
    "t2t_lite.evaluation.tokenized_bleu",
    "t2t_lite.decoding.search.settings",
    "t2t_lite.parsing.bracket_f1",
    "t2t_lite.parsing.linearization",
    "t2t_lite.training.comparison",
    "t2t_lite.serving.page",
    "t2t_lite.problems",
    "t2t_lite.hparams",
    *(f"t2t_lite.bin.{module}" for module in COMMANDS.values()),
)
HEAVY = (
    "tensorflow",
    "tensorflow_text",
    "keras",
    "keras_hub",
    "numpy",
    "sentencepiece",
    "sacrebleu",
    "sacremoses",
    "nltk",
    "num2words",
    "rich",
    "apache_beam",
    "ctranslate2",
    "aiohttp",
    "grpc",
    "prometheus_client",
    "tensorflow_serving",
)


def imports_of(file):
    """Every module that a file imports, at any depth of its code."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file}: relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room_files(*rooms):
    files = [file for room in rooms for file in (ROOT / room).rglob("*.py")]
    assert files
    return files


def offenders(files, forbidden):
    return [
        f"{file.relative_to(ROOT)} imports {name}"
        for file in files
        for name in imports_of(file)
        if any(name == f or name.startswith(f"{f}.") for f in forbidden)
    ]


# The rooms of the engine from the top down: a module imports from its own row
# and from rows below it. A root file stands where it is named.
ROWS = (
    ("loading", "recipe"),
    ("serving.server",),
    ("serving.client", "serving.page"),
    ("serving",),
    ("interop",),
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
    ("text",),
    ("hparam", "files", "progress", "validators", "runtime"),
    ("errors",),
)


def engine_modules():
    """The engine's modules by dotted name without the package's."""
    modules = {}
    for file in ENGINE.rglob("*.py"):
        name = ".".join(file.relative_to(ENGINE).with_suffix("").parts)
        modules[name.removesuffix(".__init__")] = file
    del modules["__init__"]  # the front door, which loads by name
    return modules


def row_of(module):
    """The row of a module: its room's, or its own if it is a root file."""
    rows = {name: row for row, names in enumerate(ROWS) for name in names}
    while module not in rows:
        module = module.rpartition(".")[0]
        assert module, "a module of the engine stands in no row"
    return rows[module]


def engine_imports():
    """Pairs of engine modules: one and what it imports, at any depth."""
    modules = engine_modules()
    for module, file in modules.items():
        imported = {
            name.removeprefix("t2t_lite.")
            for name in imports_of(file)
            if name.startswith("t2t_lite.")
        }
        yield from ((module, name) for name in imported & modules.keys())


def test_imports_point_down_the_rows():
    upward = [
        f"{module} imports {imported}"
        for module, imported in engine_imports()
        if row_of(module) > row_of(imported)
    ]
    assert not upward


def test_no_module_imports_itself_by_way_of_others():
    below = {}
    for module, imported in engine_imports():
        if not imported.startswith(f"{module}."):  # a package's own files
            below.setdefault(module, set()).add(imported)
    graphlib.TopologicalSorter(below).prepare()  # raises CycleError


def public_functions(file):
    """The functions and methods of a file that others may call."""
    pending = [ast.parse(file.read_text("utf-8"))]
    while pending:
        for node in pending.pop().body:
            public = (
                not node.name.startswith("_") if hasattr(node, "name") else 0
            )
            if isinstance(node, ast.ClassDef) and public:
                pending.append(node)
            elif isinstance(node, ast.FunctionDef) and (
                public or node.name == "__init__"
            ):
                yield node


def is_annotated(function):
    arguments = function.args
    named = arguments.posonlyargs + arguments.args + arguments.kwonlyargs
    starred = [a for a in (arguments.vararg, arguments.kwarg) if a]
    return (function.returns or function.name == "__init__") and all(
        argument.annotation or argument.arg in ("self", "cls")
        for argument in named + starred
    )


def test_public_functions_say_what_they_take_and_return():
    bare = [
        f"{file.relative_to(ROOT)}:{function.lineno} {function.name}"
        for file in room_files(*ROOMS)
        for function in public_functions(file)
        if not is_annotated(function)
    ]
    assert not bare


@pytest.mark.parametrize(
    ("room", "forbidden"),
    [
        ("t2t_lite", ["t2t_lite.problems", "t2t_lite.hparams", "t2t_lite.bin"]),
        ("problems", ["t2t_lite.hparams", "t2t_lite.bin"]),
        ("hparams", ["t2t_lite.problems", "t2t_lite.bin"]),
        *((room, ["tests"]) for room in ROOMS),
        # Each package has one name: the one inside t2t_lite.
        *((room, ["problems", "hparams", "bin"]) for room in (*ROOMS, "tests")),
    ],
)
def test_no_package_imports_one_above_it(room, forbidden):
    assert not offenders(room_files(room), forbidden)


def count_lines(files):
    return sum(len(file.read_text("utf-8").splitlines()) for file in files)


def test_the_code_stays_within_its_budget():
    package = room_files(*ROOMS)
    assert len(package) <= 170
    assert count_lines(package) <= 31_050
    assert count_lines(room_files("tests")) <= 26_000
    benchmarks = [
        file
        for file in room_files("benchmarks")
        if file.stem not in ("pcfg", "parsing_baselines")
    ]
    assert count_lines(benchmarks) <= 1_800


def test_a_plain_install_needs_few_packages():
    requirements = metadata.requires("t2t-lite")
    plain = [name for name in requirements if "extra ==" not in name]
    assert 0 < len(plain) <= 18, plain


def test_the_model_is_written_in_keras_ops_only():
    model = room_files("t2t_lite/model", "t2t_lite/decoding/search")
    assert not offenders(model, ["tensorflow", "tensorflow_text", "numpy"])


def test_engine_names_no_language_or_corpus():
    names = ("multi30k", "spellout", "german", "french")
    found = [
        f"{file.name}: {name}"
        for file in room_files("t2t_lite")
        for name in names
        if name in file.read_text(encoding="utf-8").lower()
    ]
    assert not found


def test_light_modules_load_nothing_heavy():
    # The last one computes, which shows that what is loaded is noticed.
    modules = [*LIGHT, "t2t_lite.data.bucketing"]
    code = (
        "import importlib, json, sys\n"
        "import t2t_lite\n"
        "t2t_lite.Problem, t2t_lite.HParams, t2t_lite.load\n"
        "loaded = {}\n"
        f"for name in {modules!r}:\n"
        "    importlib.import_module(name)\n"
        f"    loaded[name] = sorted(set({HEAVY!r}) & set(sys.modules))\n"
        "print(json.dumps(loaded))\n"
    )
    out = subprocess.check_output([sys.executable, "-c", code], text=True)
    expected = dict.fromkeys(LIGHT, [])
    assert json.loads(out) == {**expected, "t2t_lite.data.bucketing": ["numpy"]}


def test_public_names_are_listed_and_unknown_ones_refused():
    assert {"HParams", "Problem", "Transformer"} <= set(dir(t2t_lite))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        t2t_lite.Nothing  # noqa: B018 (the access is the test)


@pytest.mark.parametrize("module", COMMANDS.values())
def test_help_shows_the_flags_and_loads_nothing_heavy(module):
    code = (
        "import runpy, sys\n"
        f"sys.argv = [{module!r}, '--help']\n"
        "try:\n"
        f"    runpy.run_module('t2t_lite.bin.{module}', run_name='__main__')\n"
        "except SystemExit as end:\n"
        "    assert not end.code, end.code\n"
        f"assert not set({HEAVY!r}) & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "80"},
    )
    assert "--verbose" in done.stdout
    assert not done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_every_command_is_a_console_script():
    scripts = {
        entry.name: entry.value
        for entry in metadata.distribution("t2t-lite").entry_points
        if entry.group == "console_scripts"
    }
    assert {path.stem for path in (ROOT / "bin").glob("[!_]*.py")} == set(
        COMMANDS.values()
    )
    assert scripts == {
        f"t2t-lite-{command}".rstrip("-"): f"t2t_lite.bin.{module}:main"
        for command, module in COMMANDS.items()
    }


@pytest.mark.slow
def test_wheel_holds_every_room_and_no_generic_name(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet"]
        + ["--wheel-dir", tmp_path, _copy_of_checkout(tmp_path)],
        check=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == {"t2t_lite", f"t2t_lite-{t2t_lite.__version__}.dist-info"}
    for room in ("problems", "hparams", "bin"):
        for file in (ROOT / room).rglob("*.py"):
            assert f"t2t_lite/{file.relative_to(ROOT)}" in names
    shown = (ENGINE / "serving" / "page" / "static").glob("*.[hcjs]*")
    for file in (*ENGINE.rglob("*.py"), *shown):
        assert str(file.relative_to(ROOT)) in names


def _copy_of_checkout(folder):
    """Only what a build reads, so that it leaves nothing in the checkout."""
    import shutil

    copy = folder / "checkout"
    for room in ("t2t_lite", "problems", "hparams", "bin"):
        shutil.copytree(
            ROOT / room,
            copy / room,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    for file in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, copy)
    return copy
