"""Commands, flags, names, paths and snippets in the documents."""

import ast
import importlib
import itertools
import re
import runpy
import shlex
from importlib import metadata

import pytest

from support.places import ROOT, TESTS
from t2t_lite import plugins, registry
from t2t_lite.bin.cli import t2t_flags
from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.hparam import HParams
from t2t_lite.training.options import TrainingOptions

DOCUMENTS = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
)
# Flags of other programs: pip, tensorboard, argcomplete, Beam and TensorFlow
# Serving.
FLAGS_OF_OTHERS = {
    "--allow_version_labels_for_unavailable_models",
    "--model_config_file",
    "--model_config_file_poll_wait_seconds",
    "--monitoring_config_file",
    "--constraint",
    "--logdir",
    "--flink_master",
    "--shell",
    "--parallelism",
}
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_SPAN = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(
    r"\b(?:t2t_lite|bin|problems|hparams|examples|benchmarks|tests|docs)/[\w/.]*"
)


def prose_of(text):
    """Return a document without its fenced blocks."""
    return _FENCE.sub("", text)


def shell_lines(document):
    """Yield the lines of `sh` blocks and the code spans of the prose."""
    text = document.read_text("utf-8").replace("\\\n", " ")
    if document.name == "Makefile":
        yield from (
            line.replace("$(", "").replace(")", "")
            for line in text.splitlines()
        )
        return
    for language, block in _FENCE.findall(text):
        if language in ("sh", ""):
            yield from (line.removeprefix("$ ") for line in block.splitlines())
    yield from _SPAN.findall(prose_of(text))


def commands_in(line):
    """Yield (name, arguments) of each of our commands with flags on a line."""
    line = re.sub(r"\bt2t-lite (?=[a-z])", "t2t-lite-", line)
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.wordchars += ":,+$[]{}"
    for is_operator, words in itertools.groupby(
        lexer, lambda word: set(word) <= set("|&;<>()")
    ):
        words = [word for word in words if word != "..."]
        starts = [i for i, word in enumerate(words) if "t2t-lite-" in word]
        arguments = words[starts[0] + 1 :] if starts else []
        if not is_operator and any(a.startswith("--") for a in arguments):
            yield words[starts[0]].rpartition("t2t-lite-")[2], arguments


def documented_commands():
    """Yield (document, name, arguments) of every command line with flags."""
    for document in (*DOCUMENTS, ROOT / "Makefile"):
        for line in shell_lines(document):
            if re.search("t2t-lite[- ]", line):
                for name, arguments in commands_in(line):
                    yield document.name, name, arguments


def parser_of(command):
    scripts = metadata.distribution("t2t-lite").entry_points
    (script,) = scripts.select(name=f"t2t-lite-{command}")
    return script.load().make_parser()


def test_documents_show_only_commands_that_parse():
    commands = list(documented_commands())
    assert len(commands) > 60
    for document, name, arguments in commands:
        try:
            parser_of(name).parse_args(arguments)
        except Exception as error:
            pytest.fail(f"{document}: t2t-lite-{name} {arguments}: {error}")


def test_every_renamed_flag_of_tensor2tensor_is_documented():
    page = (ROOT / "docs" / "from-tensor2tensor.md").read_text("utf-8")
    assert not t2t_flags.FLAGS.keys() - set(re.findall(r"--\w+", page))


def test_option_tables_are_up_to_date():
    options = runpy.run_path(str(ROOT / "docs" / "option_tables.py"))
    pages = {f: f.read_text("utf-8") for f in (ROOT / "docs").glob("*.md")}
    stale = [f.name for f, t in pages.items() if options["with_tables"](t) != t]
    assert not stale, "run `make docs`"
    for owner in (HParams, SearchSettings, TrainingOptions):
        name = f"{owner.__module__}.{owner.__qualname__}"
        assert any(f"<!-- options: {name}" in t for t in pages.values()), name


def test_documents_name_only_flags_that_exist():
    scripts = metadata.distribution("t2t-lite").entry_points
    existing = {"--version"} | FLAGS_OF_OTHERS | t2t_flags.FLAGS.keys()
    for script in scripts.select(group="console_scripts"):
        if script.name != "t2t-lite":
            parser = script.load().make_parser()
            existing |= set(re.findall(r"--\w+", parser.format_help()))
    for script in (*(ROOT / "benchmarks").glob("*.py"), TESTS / "conftest.py"):
        existing |= set(re.findall(r'"(--\w+)"', script.read_text("utf-8")))
    unknown = [
        f"{document.name}: {flag}"
        for document in DOCUMENTS
        for span in _SPAN.findall(prose_of(document.read_text("utf-8")))
        if not span.startswith("t2t-")
        for flag in re.findall(r"(?<![\w-])--\w+", span)
        if flag not in existing
    ]
    assert not unknown


def test_documents_name_only_problems_sets_and_hparams_that_exist():
    plugins.load_plugins()
    problems, sets = registry.problem_names(), registry.hparams_names()
    for document, _, arguments in documented_commands():
        given = dict(a.partition("=")[::2] for a in arguments if "=" in a)
        HParams().override(given.get("--hparams_override", ""))
        if given.keys() & {"--usr_dir", "--import_shards"}:
            continue
        if name := given.get("--problem"):
            assert name.removesuffix("_rev") in problems, document
        if name := given.get("--hparams"):
            assert name in sets, document


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: file.name)
def test_paths_and_modules_in_code_spans_exist(document):
    for span in _SPAN.findall(prose_of(document.read_text("utf-8"))):
        for path in _PATH.findall(span):
            assert (ROOT / path).exists(), span
        for module, *names in (
            found.rpartition(".")[::2] if "." in found else (found,)
            for found in re.findall(r"^t2t_lite(?:\.\w+)+$", span)
            if found != plugins.GROUP
        ):
            _require_name(module, *names)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: file.name)
def test_linked_files_exist(document):
    text = prose_of(document.read_text("utf-8"))
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (document.parent / target).exists(), target


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: file.name)
def test_python_snippets_compile_and_import_names_that_exist(document):
    for language, block in _FENCE.findall(document.read_text("utf-8")):
        if language != "python":
            continue
        tree = ast.parse(block)
        compile(tree, str(document), "exec")
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    importlib.import_module(alias.name)
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    _require_name(node.module, alias.name)
            elif isinstance(node, ast.Attribute):
                if ast.unparse(node.value) == "t2t_lite":
                    _require_name("t2t_lite", node.attr)


@pytest.mark.slow
def test_code_of_the_keras_hub_page_runs(
    run_command, tiny_run, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "RUN").symlink_to(tiny_run)
    flags = "--output_dir=RUN", "--format=keras_hub"
    assert run_command("exporter", *flags)[0] == 0
    text = (ROOT / "docs" / "keras-hub.md").read_text("utf-8")
    blocks = [block for kind, block in _FENCE.findall(text) if kind == "python"]
    exec("\n".join(blocks), {})
    assert (tmp_path / "tuned" / "task.json").is_file()


def test_map_of_the_readme_names_existing_files():
    rows = re.findall(
        r"^\| `([\w/]+/)`.*\| ([^|]+) \|$",
        (ROOT / "README.md").read_text("utf-8"),
        re.MULTILINE,
    )
    starts = [
        ROOT / folder / file
        for folder, files in rows
        for file in re.findall(r"`([\w/]+\.py)`", files)
    ]
    assert len(starts) >= 10
    assert not [str(file) for file in starts if not file.exists()]


def test_maps_list_every_package_and_root_module():
    engine = ROOT / "t2t_lite"
    packages = {file.parent.name for file in engine.glob("*/__init__.py")}
    modules = {file.stem for file in engine.glob("[!_]*.py")}
    readme = (ROOT / "README.md").read_text("utf-8")
    architecture = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    assert not [p for p in packages if f"`t2t_lite/{p}/`" not in readme]
    assert not [p for p in packages if f"`{p}/`" not in architecture]
    assert not [m for m in modules if f"`{m}`" not in architecture]


def test_the_readme_is_short():
    lines = (ROOT / "README.md").read_text("utf-8").splitlines()
    assert len(lines) <= 130


def _require_name(module, name):
    if not hasattr(importlib.import_module(module), name):
        importlib.import_module(f"{module}.{name}")
