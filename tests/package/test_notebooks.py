"""Guards for the committed notebooks: executed, checked by nbval, parametrised, short, a live fit before the tables."""

import ast
import re

import nbformat
import pytest

from experiments.runner import paths

FILES = sorted(paths.notebooks().glob("*.ipynb"))
LINES, CELLS, PLOTTING = 150, 25, 15
MACHINE = re.compile(r"/(?:work|root|farm|tmp|Users|home/\w+|opt|usr|var)/")
pytestmark = pytest.mark.parametrize("file", FILES, ids=[f.stem for f in FILES])


def code_of(file):
    return [c for c in nbformat.read(file, as_version=4).cells if c.cell_type == "code"]


def test_it_is_valid_and_named_by_number(file):
    node = nbformat.read(file, as_version=4)
    nbformat.validate(node)
    assert re.fullmatch(r"\d\d_\w+\.ipynb", file.name)
    assert node.cells[0].cell_type == "markdown", "the first cell states the claim"
    assert node.metadata["kernelspec"]["name"] == "python3"
    assert set(node.metadata) == {"kernelspec", "language_info"}, "commit what `make notebooks` writes"


def test_every_cell_was_executed_without_error(file):
    # nbval passes cells without an execution count unchecked
    counts = [cell.execution_count for cell in code_of(file)]
    assert all(cell.source.strip() for cell in code_of(file)), "an empty cell"
    assert counts == list(range(1, len(counts) + 1)), "execute it from top to bottom: make notebooks"
    assert not [out for cell in code_of(file) for out in cell.outputs if out.output_type == "error"]


def test_one_parameters_cell_of_annotated_literals(file):
    cells = code_of(file)
    tagged = [cell for cell in cells if "parameters" in cell.metadata.get("tags", [])]
    assert tagged == cells[:1], "the first code cell, and it alone, is tagged parameters"
    names = {}
    for statement in ast.parse(tagged[0].source).body:
        assert isinstance(statement, ast.AnnAssign), f"line {statement.lineno}: name: type = literal"
        value = ast.literal_eval(statement.value)
        names[statement.target.id] = value
        assert "#" in tagged[0].source.splitlines()[statement.lineno - 1], f"{statement.target.id}: a comment"
    assert names["recompute"] is False and names["profile"] == "paper"


def test_nbval_checks_an_output(file):
    checked = [cell for cell in code_of(file) if "NBVAL_CHECK_OUTPUT" in cell.source]
    assert checked, "# NBVAL_CHECK_OUTPUT on the cells that print tables and verdicts"
    for cell in checked:
        assert cell.outputs, f"a checked cell without output: {cell.source[:60]}"
        for out in cell.outputs:
            kinds = {"text/plain"} if out.output_type == "stream" else set(out.data)
            assert "text/plain" in kinds <= {"text/plain", "text/html"}, "checked output is text: no pictures"
            page = "" if out.output_type == "stream" else out.data.get("text/html", "")
            assert not re.search(r"\bid=|<style|<script", page), "an id that is made up on the way changes each time"
            text = out.text if out.output_type == "stream" else out.data["text/plain"]
            assert not re.search(r"0x[0-9a-f]{6,}|it/s|<Figure size", text), "addresses, bars and figures change"


def test_it_is_short_and_holds_no_machinery(file):
    cells = code_of(file)
    lines = [line for cell in cells for line in cell.source.splitlines() if line.strip()]
    assert len(cells) <= CELLS and len(lines) <= LINES, f"{len(cells)} cells, {len(lines)} lines: move it to a module"
    for cell in cells:
        tree = ast.parse(re.sub(r"^\s*[%!].*$", "", cell.source, flags=re.M))
        assert not [n for n in ast.walk(tree) if isinstance(n, ast.ClassDef)], "a class in a cell"
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno - node.lineno < 8, f"{node.name} is long for a cell"


DRAWS = re.compile(r"\.plot\(|\bplots\.(?!style\(|save\()\w+\(|figures\.save\(|plt\.subplots\(")


def test_a_cell_that_draws_holds_its_figure_and_is_short(file):
    for cell in [c for c in code_of(file) if DRAWS.search(c.source)]:
        assert any("image/png" in out.get("data", {}) for out in cell.outputs) or skipped(cell), cell.source[:60]
        first = next(i for i, line in enumerate(cell.source.splitlines()) if DRAWS.search(line))
        drawing = [line for line in cell.source.splitlines()[first:] if line.strip()]
        assert len(drawing) <= PLOTTING, f"{len(drawing)} lines of plotting: move them to the study's module"


def skipped(cell):
    """Whether a cell says that its data set is absent."""
    return any(out.get("text", "").startswith("skipped:") for out in cell.outputs)


def test_the_first_cell_says_where_the_numbers_come_from(file):
    first = nbformat.read(file, as_version=4).cells[0].source
    assert "*Where the numbers come from.*" in first
    for name in re.findall(r"`results/(\w+)\.csv`", first):
        assert (paths.root() / "results" / f"{name}.csv").exists(), name


def test_a_live_fit_stands_before_the_stored_runs(file):
    if file.name[:2] not in ("01", "02", "03", "04", "05"):
        pytest.skip("no table of the paper")
    sources = [cell.source for cell in code_of(file)]
    fit = next(i for i, s in enumerate(sources) if re.search(r"(Local|Global)BIF\(.*\.fit\(", s))
    assert fit < next(i for i, s in enumerate(sources) if "study.run(" in s)
    assert "assert " in sources[fit] and "NBVAL_CHECK_OUTPUT" not in sources[fit]


def test_a_spot_check_is_not_output_compared(file):
    for cell in [c for c in code_of(file) if "spot_check(" in c.source]:
        assert "NBVAL_CHECK_OUTPUT" not in cell.source, "its line says whether it was skipped"


def test_no_path_of_a_machine_and_no_warnings(file):
    node = nbformat.read(file, as_version=4)
    for cell in node.cells:
        outs = "\n".join(str(o.get("text", "")) + str(o.get("data", {}).get("text/plain", "")) +
                         str(o.get("data", {}).get("text/html", "")) for o in cell.get("outputs", []))
        found = MACHINE.search(cell.source + outs)
        assert not found, f"{found.group()} in: {cell.source[:60]}"
        assert "Warning:" not in outs, f"a warning in the output of: {cell.source[:60]}"
