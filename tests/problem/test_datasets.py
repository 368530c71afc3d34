"""Hugging Face datasets as own text, in an environment with `datasets`."""

import json
import os
import subprocess
import sys

import pytest

from support.params import slow
from support.places import ROOT
from t2t_lite.corpus.download import RawFiles
from t2t_lite.errors import T2TLiteError
from t2t_lite.problem import TextFiles

PYTHON = ROOT / ".huggingface/bin/python"
# Prints the splits and sources of problems, or their errors, as JSON.
SCRIPT = """
import json, sys, time
from t2t_lite.corpus.download import RawFiles
from t2t_lite.errors import T2TLiteError
from t2t_lite.problem import TextFiles
results = []
for download_dir, options in json.loads(sys.argv[1]):
    problem = TextFiles().with_options(options)
    raw = RawFiles(download_dir=download_dir)
    try:
        result = {s: list(problem.samples(s, raw)) for s in problem.splits}
        result["sources"] = sorted(raw.sources)
    except T2TLiteError as error:
        result = str(error)
    results.append(result)
print(json.dumps(results))
time.sleep(1)  # pyarrow's threads abort an exit in between (apache/arrow#45214)
"""
ROWS = {
    "nested": {"translation": {"de": "eins", "en": "one"}, "id": 1},
    "columns": {"de": "eins", "en": "one", "score": 0.5},
    "keys": {"source": "eins", "target": "one"},
}


@pytest.fixture
def read(tmp_path):
    """Return a function that reads problems, streamed or not."""
    if not PYTHON.exists():
        pytest.skip("needs `make huggingfacetest`")

    def read(*options, streamed=False):
        folder = None if streamed else str(tmp_path / "downloads")
        done = subprocess.run(
            [PYTHON, "-c", SCRIPT, json.dumps([(folder, o) for o in options])],
            env=os.environ
            | {
                "HF_HOME": str(tmp_path / "cache"),
                "HF_HUB_OFFLINE": "1",
                "PYTHONPATH": str(ROOT),
            },
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return read


def write(folder, split, rows):
    folder.mkdir(exist_ok=True, parents=True)
    path = folder / f"{split}.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


@pytest.mark.parametrize("streamed", [False, slow(True)])
def test_the_splits_of_a_dataset_are_read(read, tmp_path, streamed):
    files, options = [], []
    counts = {"train": 3, "validation": 2, "test": 1}
    for name, row in ROWS.items():
        folder = tmp_path / name / "de-en"
        paths = [write(folder, x, [row] * n) for x, n in counts.items()]
        files.append(sorted(paths))
        options.append({"pairs": f"hf:{folder}"})
    pair = ["eins", "one"]
    splits = {"train": [pair] * 3, "dev": [pair] * 2, "test": [pair]}
    results = read(*options, streamed=streamed)
    assert results == [splits | {"sources": paths} for paths in files]


def test_a_configuration_has_two_directions(read, tmp_path):
    folder = tmp_path / "opus"
    for pair in ("de-en", "de-fr"):
        for split in ("train", "validation", "test"):
            source, target = pair.split("-")
            text = {source: f"{pair} {split}", target: "x"}
            write(folder / pair, split, [{"translation": text}])
    configs = "".join(
        f"- config_name: {pair}\n  data_dir: {pair}\n"
        for pair in ("de-en", "de-fr")
    )
    (folder / "README.md").write_text(f"---\nconfigs:\n{configs}---\n")
    found = read(
        {"pairs": f"hf:{folder}/de-fr:2fr"},
        {"pairs": f"hf:{folder}/fr-de"},
        {"pairs": f"hf:{folder}/de-en", "target_language": "de"},
        {"pairs": f"hf:{folder}/nl-en"},
        {"pairs": f"hf:{folder}/de-en", "source_key": "other"},
        {"pairs": f"hf:{tmp_path}/none"},
    )
    assert [result["dev"] for result in found[:3]] == [
        [["<2fr> de-fr validation", "x"]],
        [["x", "de-fr validation"]],
        [["x", "de-en validation"]],
    ]
    assert "de-fr" in found[3] and "nl" in found[3]
    assert "row 1" in found[4] and "'other'" in found[4]
    assert f"{tmp_path}/none" in found[5]


@pytest.mark.slow
def test_without_validation_and_test_splits_pairs_are_held_out(read, tmp_path):
    rows = [{"source": f"a {i}", "target": f"b {i}"} for i in range(10)]
    write(tmp_path / "own", "train", rows)
    (found,) = read({"pairs": f"hf:{tmp_path}/own"})
    assert [len(found[split]) for split in ("train", "dev", "test")] == [
        *(8, 1, 1)
    ]
    (found,) = read(
        {"pairs": f"hf:{tmp_path}/own", "dev_pairs": f"hf:{tmp_path}/own"}
    )
    assert "'validation'" in found and "train" in found


def test_a_missing_library_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    problem = TextFiles().with_options({"pairs": "hf:owner/name/de-en"})
    with pytest.raises(T2TLiteError, match=r"t2t-lite\[huggingface\]"):
        problem.samples("train", RawFiles())
