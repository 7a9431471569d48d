"""Notebook 00 as a reader meets it: a real JupyterLab, a real browser, "restart and run all".

Skipped where there is no Chromium with its driver; ``BIF_BROWSER=required`` makes that a failure.
"""

import os
import re
import sys
from pathlib import Path

import nbformat
import pytest
from sklearn.datasets import load_breast_cancer

sys.path.insert(0, str(Path(__file__).parent))
import lab_browser  # noqa: E402

from experiments.runner import paths  # noqa: E402

START = paths.notebooks() / "00_start_here.ipynb"
PICTURES = paths.root() / "build" / "lab"  # not paths.build(), which is a scratch folder here: one may want to look
DRAWS = re.compile(r"\.plot\(|\bplots\.(?!style\(|save\()\w+\(")
TINY = ["""import sys
from IPython.display import HTML, display
display(HTML("<img src='data:image/png;base64,AAAA'>"))
print("100%|####| 3/3", file=sys.stderr)""", "raise ValueError('on purpose')", "print('never reached')"]


@pytest.fixture(scope="module")
def run():
    try:
        with lab_browser.reader() as run:
            yield run
    except lab_browser.Absent as reason:
        if os.environ.get("BIF_BROWSER") == "required":
            pytest.fail(f"BIF_BROWSER=required, but {reason}")
        pytest.skip(f"not opened in JupyterLab: {reason}")


def test_start_here_runs_in_jupyterlab_without_an_error(run):
    before, cells = START.read_bytes(), lab_browser.code_cells(START)
    # By what the cells call, not by what was stored: a fault that loses figures loses the stored ones too.
    images = sum(DRAWS.search(cell.source) is not None for cell in cells)
    tables = sum("<table" in o.get("data", {}).get("text/html", "") for cell in cells for o in cell.outputs)
    assert images >= 4 and tables > 0, "the notebook says what to look for"

    look = run(START, PICTURES / "00_start_here.png")

    found = lab_browser.complaints(look, len(cells), images, tables)
    assert not found, "\n".join(found)
    posterior = [text for text in look["tables"] if "Posterior" in text]
    assert posterior and sum(name in posterior[0] for name in load_breast_cancer().feature_names) >= 5
    assert START.read_bytes() == before, "JupyterLab saves by itself: it must have had a copy"


def test_an_error_and_a_broken_picture_are_seen_and_a_progress_bar_is_not_one(run, tmp_path):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in TINY],
                                        metadata=nbformat.read(START, as_version=4).metadata)
    nbformat.write(notebook, tmp_path / "tiny.ipynb")
    look = run(tmp_path / "tiny.ipynb", PICTURES / "error_on_purpose.png", seconds=60)
    assert any("3/3" in text for text in look["stderr"])
    found = lab_browser.complaints(look, cells=3, images=1, tables=1)
    expected = ["error output: ValueError: on purpose", "shown in red: ", "executed code cells: 2, not 3",
                "figures: 0, fewer than 1", "tables: 0, not 1"]
    assert len(found) == len(expected) and all(a.startswith(b) for a, b in zip(found, expected, strict=True)), found
