"""The notebook runner, on tiny notebooks: order, parameters, failure, kills, and what is committed."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pandas as pd
import pytest

from data_prep.catalog import CATALOG
from experiments.runner import notebooks as reproduce
from experiments.runner import paths, rows
from experiments.runner.files import BUSY, locked
from experiments.runner.resume import Resumable

PARAMETERS = 'recompute: bool = False  # train anew\nprofile: str = "paper"  # size'
LOG = "import os\nopen(os.environ['RUNS_LOG'], 'a').write({word!r} + '\\n')"
RUNS = 120  # more than a killed command's kernel can do in the second it takes it to notice
STUDY = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import study_runs
from experiments.runner import study
grid = [dict(seed=s, pause=.1) for s in range({RUNS})]
frame = study.run(study_runs.logged, grid, name="tiny", recompute=recompute, workers=2)
print(frame["score"].sum())
"""


@pytest.fixture(autouse=True)
def output(tmp_path, monkeypatch):
    monkeypatch.setenv("BIF_OUTPUT", str(tmp_path / "out"))
    monkeypatch.setenv("RUNS_LOG", str(tmp_path / "log"))
    return tmp_path / "out"


def write(folder, name, *sources, parameters=PARAMETERS):
    cells = [nbformat.v4.new_markdown_cell("# claim")]
    if parameters:
        cells.append(nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]}))
    cells += [nbformat.v4.new_code_cell(source) for source in sources]
    folder.mkdir(exist_ok=True)
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), folder / name)
    return folder / name


def log():
    file = Path(os.environ["RUNS_LOG"])
    return file.read_text().split() if file.exists() else []


def test_a_failure_leaves_no_output_and_is_resumed(tmp_path, output, capsys):
    folder = tmp_path / "nb"
    write(folder, "01_a.ipynb", LOG.format(word="01"), "print(recompute, profile)")
    broken = write(folder, "02_b.ipynb", LOG.format(word="02"), "x = 1\nraise ValueError('on purpose')")
    write(folder, "03_c.ipynb", LOG.format(word="03"))
    stale = paths.build() / "notebooks" / "02_b.ipynb"
    stale.parent.mkdir(parents=True)
    stale.write_text("an older output")
    assert reproduce.main(["--folder", str(folder)]) == 1
    said = capsys.readouterr().err
    assert "02_b.ipynb, cell [3]" in said and "ValueError: on purpose" in said and "\x1b" not in said
    assert [f.name for f in stale.parent.iterdir()] == ["01_a.ipynb"] and log() == ["01", "02"]
    assert not (paths.results() / "scoreboard.csv").exists()
    cells = nbformat.read(stale.parent / "01_a.ipynb", 4).cells
    assert cells[-1].outputs[0].text == "True paper\n"

    broken.write_text(broken.read_text().replace("raise ValueError", "str"))
    assert reproduce.main(["--folder", str(folder)]) == 0
    said = capsys.readouterr()
    assert "Resuming" in said.out and "[3/3] 03_c: done" in said.err
    assert log() == ["01", "02", "02", "03"]  # what had ended was not executed again
    assert list(pd.read_csv(paths.results() / "timings.csv")["notebook"]) == ["01_a", "02_b", "03_c"]
    assert (paths.results() / "scoreboard.csv").exists() and "Table 1" in said.out
    assert not list((paths.build() / "cache").glob("[!.]*"))  # the next one starts from nothing


def test_smoke_and_only(tmp_path, output):
    folder = tmp_path / "nb"
    write(folder, "01_a.ipynb", LOG.format(word="01"))
    write(folder, "02_b.ipynb", "print(recompute, profile)")
    stale = paths.results() / "old.csv"
    stale.write_text("x")
    assert reproduce.main(["--folder", str(folder), "--profile", "smoke", "--only", "2"]) == 0
    assert nbformat.read(paths.build() / "notebooks" / "02_b.ipynb", 4).cells[-1].outputs[0].text == "True smoke\n"
    assert log() == [] and not stale.exists() and not (paths.results() / "timings.csv").exists()


def test_unknown_parameters_are_refused_before_anything_runs(tmp_path, capsys):
    folder = tmp_path / "nb"
    write(folder, "01_a.ipynb", LOG.format(word="01"))
    write(folder, "02_b.ipynb", parameters="recompute: bool = False")
    assert reproduce.main(["--folder", str(folder)]) == 1
    assert "02_b.ipynb does not know the parameters ['profile'], only ['recompute']" in capsys.readouterr().err
    write(folder, "02_b.ipynb", parameters=None)
    assert reproduce.main(["--folder", str(folder)]) == 1
    assert reproduce.main(["--folder", str(folder), "--only", "01,07"]) == 1
    assert "there is no notebook 07: there are 01, 02" in capsys.readouterr().err
    assert log() == []


@pytest.mark.parametrize("how", [[], ["--only", "01"], ["--profile", "smoke"], ["--replay"], ["--in-place"]])
def test_two_commands_do_not_write_in_one_place(tmp_path, output, capsys, how):
    folder = tmp_path / "nb"
    write(folder, "01_a.ipynb", LOG.format(word="01"))
    with locked(paths.build() / "results", alone=True):
        assert reproduce.main(["--folder", str(folder), *how]) == 1
    assert capsys.readouterr().err.strip() == BUSY and log() == []


@pytest.mark.parametrize("damage", ["", "{", "[]", "null", '{"seconds": "x", "state": 1}', "\x00"])
def test_a_damaged_note_is_one_sentence(tmp_path, capsys, damage):
    file = tmp_path / "01_a.ipynb"
    file.write_text("x")
    command = Resumable(tmp_path / "kept")
    with command.clock(file):
        pass
    assert command.done(file)
    (tmp_path / "kept" / "01_a.json").write_text(damage)
    assert not command.done(file) and command.seconds(file) == 0
    assert capsys.readouterr().err == "The note of 01_a.ipynb is damaged: it is executed again.\n"
    with command.clock(file):
        pass
    assert command.done(file)


def test_a_notebook_edited_while_it_was_executed_is_not_done(tmp_path):
    file = tmp_path / "01_a.ipynb"
    file.write_text("x")
    command = Resumable(tmp_path / "kept")
    with command.clock(file):
        file.write_text("y")
    assert not command.done(file)
    file.write_text("x")
    assert not command.done(file)


def test_damaged_minutes_are_unknown(capsys):
    (paths.results() / "timings.csv").write_text("\x00,\n1,2,3\n")
    reproduce.record_minutes({"01_a": 2.0})
    assert (paths.results() / "timings.csv").read_text() == "notebook,minutes\n01_a,2.0\n"
    assert capsys.readouterr().err == "timings.csv is damaged: the minutes in it count as unknown.\n"


PARTIAL = """
import sys
sys.path.insert(0, {tests!r})
import study_runs
from experiments.runner import study
study.run(study_runs.mixed, [dict(kind="absent", seed=0)], name="tiny", recompute=recompute)
"""


def test_a_reproduction_without_the_data_says_what_it_left_alone(tmp_path, output, capsys):
    rows.store([{"kind": "absent", "seed": 0}], [{"score": 1.0, "error": ""}], "tiny")
    before = rows.file("tiny").read_bytes()
    folder = tmp_path / "nb"
    write(folder, "01_a.ipynb", PARTIAL.format(tests=str(Path(__file__).parent)))
    assert reproduce.main(["--folder", str(folder)]) == 0
    assert "Not complete, hence in build/partial and not in results/: tiny." in capsys.readouterr().out
    assert rows.file("tiny").read_bytes() == before and not (paths.results() / "timings.csv").exists()


def test_in_place_is_fit_for_committing(tmp_path, capsys):
    folder = tmp_path / "nb"
    file = write(folder, "01_a.ipynb", "from tqdm.auto import tqdm\nprint(recompute)", "1 + 1")
    before = nbformat.read(file, 4)
    assert reproduce.main(["--folder", str(folder), "--in-place"]) == 0
    after, text = nbformat.read(file, 4), file.read_text()
    assert [c.source for c in after.cells] == [c.source for c in before.cells]
    assert [c.id for c in after.cells] == [c.id for c in before.cells]
    assert [c.execution_count for c in after.cells[1:]] == [1, 2, 3]
    assert after.cells[2].outputs[0].text == "False\n" and after.cells[3].outputs[0].execution_count == 3
    assert after.metadata == reproduce.METADATA and after.cells[1].metadata == {"tags": ["parameters"]}
    assert "papermill" not in text and "start_time" not in text and "injected" not in text
    assert reproduce.main(["--folder", str(folder), "--in-place"]) == 0
    assert file.read_text() == text  # again: no difference


def test_clean_drops_what_only_papermill_needs(tmp_path):
    cell = nbformat.v4.new_code_cell("x", execution_count=9, metadata={
        "papermill": {"duration": 1}, "execution": {"iopub.execute_input": "2020"}, "tags": ["parameters"]})
    injected = nbformat.v4.new_code_cell("y = 2", metadata={"tags": ["injected-parameters"]})
    node = nbformat.v4.new_notebook(cells=[cell, injected], metadata={"papermill": {}, "widgets": {"x": 1}})
    nbformat.write(node, tmp_path / "a.ipynb")
    done = reproduce.clean(tmp_path / "a.ipynb")
    assert len(done.cells) == 1 and done.cells[0].metadata == {"tags": ["parameters"]}
    assert done.metadata == reproduce.METADATA


def would(*words):
    """The commands of make reproduce."""
    if not shutil.which("make"):
        pytest.skip("make is absent")
    return subprocess.run(["make", "-n", "reproduce", *words], cwd=paths.root(), text=True, capture_output=True,
                          env={k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "CLUSTER")}).stdout


LISTED = [n for n in re.findall(r"^NEEDS_(\d\d)", (paths.root() / "Makefile").read_text(), re.M)
          if list(paths.notebooks().glob(f"{n}_*.ipynb"))]


@pytest.mark.parametrize("only", [*LISTED, "02,05"])
def test_only_the_data_that_the_notebooks_read_is_fetched(only):
    """What a study imports of data_prep says what it reads."""
    text = "".join(next(paths.notebooks().glob(f"{n}_*.ipynb")).read_text() for n in only.split(","))
    modules = ", ".join(re.findall(r"from experiments import ([\w, ]+)", text)).split(", ")
    sources = "\n".join((paths.root() / "experiments" / f"{m}.py").read_text() for m in modules if m)
    imports = "\n".join(re.findall(r"^from data_prep.*", sources, re.M))
    wanted = [name for name in CATALOG if re.search(rf"\b(load_)?{name}\b", imports)]
    fetched = re.findall(r"data_prep fetch ([\w ]+?) \|\|", would(f"ONLY={only}"))
    assert sorted(wanted) == (fetched[0].split() if fetched else [])


def test_make_hands_the_cluster_on():
    assert "BIF_CLUSTER='tcp://node1:8786' " in would("CLUSTER=tcp://node1:8786") and "BIF_CLUSTER" not in would()
    assert "data_prep fetch all " in would() and "data_prep fetch all " in would("ONLY=99")


def test_the_kernel_is_this_interpreter(tmp_path):
    file = write(tmp_path, "01_a.ipynb", "import sys\nprint(sys.executable)")
    reproduce.use_own_kernel()
    reproduce.execute(file, tmp_path / "out.ipynb", {})
    assert nbformat.read(tmp_path / "out.ipynb", 4).cells[-1].outputs[0].text.strip() == sys.executable


def test_three_kills_and_the_fourth_finishes(tmp_path, output):
    """SIGKILL of the command at random moments; its kernel and workers end with it."""
    folder, dice = tmp_path / "nb", random.Random(3)
    write(folder, "01_a.ipynb", STUDY)
    command = [sys.executable, "-m", "experiments.runner.notebooks", "--folder", str(folder)]
    kept = output / "build" / "cache" / "paper" / "tiny"

    def finished():
        return {str(json.loads(json.loads(file.read_text())["key"])["params"]["seed"])
                for file in kept.glob("[!.]*.json")}

    for _ in range(3):
        before = len(log())
        process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
        while len(log()) < before + 3 and process.poll() is None:
            time.sleep(0.02)
        time.sleep(dice.random() * 0.2)
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        with locked(kept, alone=True):  # had as soon as the killed command's kernel and workers are gone
            done, begun = finished(), log()
    assert not (output / "results" / "tiny.csv").exists() and not list((output / "build" / "notebooks").glob("[!.]*"))
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    again = log()[len(begun):]
    assert done and not done & set(again) and len(again) == len(set(again))
    assert set(log()) == {str(s) for s in range(RUNS)}
    assert len(pd.read_csv(output / "results" / "tiny.csv")) == RUNS and not kept.exists()
