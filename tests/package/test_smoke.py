"""``make smoke``: every notebook at toy size on made-up data, and nothing of the repository is touched."""

import hashlib
import os
import subprocess
import sys

import nbformat
import pytest

from experiments.runner import paths

FILES = sorted(paths.notebooks().glob("[0-9][0-9]_*.ipynb"))


def tree():
    """The hash of each file that a run could overwrite."""
    folders = (paths.root() / name for name in ("results", "figures", "notebooks"))
    files = [f for folder in folders for f in folder.rglob("*") if f.is_file() and ".ipynb_checkpoints" not in f.parts]
    return {file: hashlib.sha256(file.read_bytes()).hexdigest() for file in [*files, paths.root() / "README.md"]}


@pytest.mark.slow
def test_every_notebook_runs_at_toy_size_without_data_and_without_network(tmp_path):
    before = tree()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("BIF_")} | {
        "BIF_OUTPUT": str(tmp_path / "out"), "BIF_DATA": str(tmp_path / "none"), "BIF_OFFLINE": "1",
        "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-m", "experiments.runner.notebooks", "--profile", "smoke"], text=True,
                          cwd=paths.root(), env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Toy size: these numbers only show that the path works." in done.stdout
    executed = sorted((tmp_path / "out" / "build" / "notebooks").glob("*.ipynb"))
    assert [file.name for file in executed] == [file.name for file in FILES]
    for file in executed:
        code = [c for c in nbformat.read(file, 4).cells if c.cell_type == "code" and c.source.strip()]
        assert [c.execution_count for c in code] == list(range(1, len(code) + 1))
        said = "\n".join(out.get("text", "") for c in code for out in c.outputs)
        assert "is not available" not in said and "not run: " not in said, f"{file.name} was without its data set"
        spot = [line for line in said.splitlines() if line.startswith("spot check")]
        assert all("skipped: " in line and "agrees" not in line for line in spot)  # nothing was trained twice
    assert not (tmp_path / "none").exists() and tree() == before
