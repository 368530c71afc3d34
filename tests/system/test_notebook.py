"""The example notebook: stored without outputs, and runnable."""

import pytest

from support.places import ROOT

NOTEBOOK = ROOT / "examples" / "notebooks" / "translate.ipynb"


@pytest.fixture
def notebook():
    nbformat = pytest.importorskip("nbformat")
    return nbformat.read(NOTEBOOK, as_version=4)


def test_the_notebook_is_stored_without_outputs(notebook):
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert cells and not any(c.outputs or c.execution_count for c in cells)


@pytest.mark.slow
def test_the_notebook_trains_plots_and_saves_a_preset(notebook, tmp_path):
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(
        notebook, timeout=600, resources=resources
    ).execute()  # raises the error of a cell
    outputs = [
        output["data"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "data" in output
    ]
    assert sum("image/png" in data for data in outputs) == 2
    (table,) = (d["text/markdown"] for d in outputs if "text/markdown" in d)
    assert table.splitlines()[2].startswith("| 1989-07-14 |")
    assert outputs[-1]["text/plain"] == "True"  # the preset translates equally
    assert not list(tmp_path.iterdir())  # all files are in a temporary folder
