"""The notebook runs from top to bottom, and shows what it is to show."""

import json
import os
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples/first_steps.ipynb"


def test_the_cells_show_who_is_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    names = {"__name__": "__main__"}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert names["reached"].fedbuff < names["reached"].fedavg
    assert names["accuracy"].fedbuff.iloc[-1] > 0.8


@pytest.mark.long
@pytest.mark.filterwarnings("default")  # of the notebook's server, not of ours
def test_the_notebook_runs_and_shows_who_is_first(tmp_path, monkeypatch):
    import nbformat  # here, since every process collects tests, and one runs this
    from nbclient import NotebookClient

    # IPython's own files do not belong into the tester's home.
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setitem(os.environ, name, str(tmp_path / name.lower()))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "commit it without outputs"
    # What a reader sees is checked below by values that the reader does not need.
    notebook.cells.append(
        nbformat.v4.new_code_cell("print(reached.fedbuff, reached.fedavg, accuracy.fedbuff.iloc[-1])")
    )
    notebook.cells.append(nbformat.v4.new_code_cell("print(len(histories['fedavg']), list(accuracy))"))
    client = NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    *_, numbers, shape = notebook.cells
    fedbuff, fedavg, final = map(float, numbers.outputs[0].text.split())
    assert fedbuff < fedavg
    assert final > 0.8
    assert shape.outputs[0].text.strip() == "121 ['fedavg', 'fedbuff']"
    assert any("image/png" in output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", []))
