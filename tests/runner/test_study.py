"""The runner: same numbers however it is run, failures named, kills survived."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # workers take it over
import study_runs as runs  # noqa: E402

from experiments.runner import paths, provenance, rows, scoreboard, study  # noqa: E402

FINGERPRINT = provenance.fingerprint  # the tests' own is pinned


@pytest.fixture(autouse=True)
def output(tmp_path, monkeypatch):
    monkeypatch.setenv("BIF_OUTPUT", str(tmp_path))
    monkeypatch.setenv("RUNS_LOG", str(tmp_path / "log"))
    return tmp_path


SEEDS = [{"seed": seed} for seed in range(4)]


def test_same_numbers_twice_and_with_one_or_two_workers():
    frames = [study.run(runs.train, SEEDS, name=f"s{i}", recompute=True, workers=w)
              for i, w in enumerate((1, 1, 2))]
    scores = [frame[["seed", "loss", "noise", "threads"]] for frame in frames]
    pd.testing.assert_frame_equal(scores[0], scores[1], check_exact=True)
    pd.testing.assert_frame_equal(scores[0], scores[2], check_exact=True)
    assert set(scores[0]["threads"]) == {1} and scores[0]["loss"].nunique() == 4


def test_a_row_alone_gives_the_same_numbers_as_in_a_grid():
    whole = study.run(runs.train, SEEDS, name="whole", recompute=True, workers=1)
    alone = study.run(runs.train, SEEDS[2:3], name="alone", recompute=True, workers=1)
    assert alone["loss"].item() == whole["loss"][2]


def test_replay_returns_what_was_trained_in_the_grids_order():
    grid = [{"seed": 2, "width": 8}, {"seed": 0, "width": 8}, {"seed": 1}]
    trained = study.run(runs.train, grid, name="order", recompute=True, workers=1)
    assert trained["seed"].tolist() == [2, 0, 1]
    assert list(trained)[:2] == ["seed", "width"] and list(trained)[-3:] == ["seconds", "peak_mb", "error"]
    pd.testing.assert_frame_equal(study.run(runs.train, grid, name="order"), trained, check_exact=True)
    some = study.run(runs.train, [{"seed": 0, "width": 8.0}], name="order")
    assert some["loss"].item() == trained["loss"][1]


def test_values_survive_the_csv():
    frame = study.run(runs.mixed, [{"kind": "good", "seed": 1}], name="values", recompute=True, workers=1)
    row = frame.iloc[0]
    assert row["score"] == 0.5 and json.loads(row["weights"]) == [0, 1, 2] and json.loads(row["table"]) == {"a": 1}
    assert row["flag"] and pd.isna(row["none"]) and row["error"] == ""


def test_what_to_do_when_results_are_missing():
    with pytest.raises(FileNotFoundError, match="recompute=True.*make reproduce"):
        study.run(runs.logged, SEEDS, name="absent")
    study.run(runs.logged, SEEDS[:2], name="short", recompute=True, workers=1)
    with pytest.raises(KeyError, match="lacks 2 of the grid's 4 rows"):
        study.run(runs.logged, SEEDS, name="short")
    with pytest.raises(KeyError, match="no column"):
        study.run(runs.logged, [{"seed": 0, "seconds_": 1}], name="short")


@pytest.mark.parametrize("function, grid, words", [
    (lambda seed: {}, SEEDS, "can't be imported"),
    (runs.logged, [], "empty"),
    (runs.logged, [{"seed": 1}, {"seed": 1.0}], "same row twice"),
    (runs.logged, [{"seconds": 1}], "columns of the runner"),
])
def test_bad_grids(function, grid, words):
    with pytest.raises(ValueError, match=words):
        study.run(function, grid, name="bad", recompute=True)
    with pytest.raises(TypeError, match="numbers, text"):
        study.run(runs.logged, [{"seed": {1, 2}}], name="bad", recompute=True)
    with pytest.raises(ValueError, match="file's name"):
        study.run(runs.logged, SEEDS, name="../bad", recompute=True)


def test_recompute_trains_anew(output):
    for _ in range(2):
        study.run(runs.logged, SEEDS, name="anew", recompute=True, workers=1)
    assert (output / "log").read_text().split() == list("01230123")
    study.run(runs.logged, SEEDS, name="anew")
    assert len((output / "log").read_text().split()) == 8


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failing_run_is_recorded_and_stops_no_other(workers):
    kinds = ["good", "fails", "absent", "object", "good"]
    grid = [{"kind": kind, "seed": i} for i, kind in enumerate(kinds)]
    with pytest.raises(study.StudyFailed, match="2 of 5 runs.*\n  fails / seed 1: RuntimeError: on purpose"):
        study.run(runs.mixed, grid, name="fail", recompute=True, workers=workers)
    frame = study.run(runs.mixed, grid, name="fail")
    assert frame["error"][1] == "RuntimeError: on purpose" and "object" in frame["error"][3]
    assert frame["error"][2] == "not run: DataUnavailable: the data set is not here: make data"
    assert frame["score"].notna().tolist() == [True, False, False, False, True]
    only = [row for row in grid if row["kind"] in ("good", "absent")]
    assert len(study.run(runs.mixed, only, name="notrun", recompute=True, workers=workers)) == 3  # no failure


def test_a_run_that_kills_its_process_is_found(monkeypatch):
    monkeypatch.setenv("RUNS_DIE", "1")
    from joblib.externals.loky import get_reusable_executor
    get_reusable_executor().shutdown(wait=True)  # the workers of other tests lack the variable
    grid = [{"kind": kind, "seed": i} for i, kind in enumerate(["good", "dies"])]
    with pytest.raises(study.StudyFailed, match="1 of 2 runs.*\n  dies / seed 1: the process of this run died"):
        study.run(runs.mixed, grid, name="dies", recompute=True, workers=2)
    assert study.run(runs.mixed, grid, name="dies")["score"].notna().tolist() == [True, False]


def test_a_failed_study_keeps_its_finished_runs_but_edited_code_does_not(output, monkeypatch):
    monkeypatch.setenv("BIF_RESUME", str(output / "kept"))
    study.run(runs.logged, SEEDS, name="kept", recompute=True, workers=1)
    study.run(runs.logged, SEEDS, name="kept", recompute=True, workers=1)
    assert (output / "log").read_text().split() == list("0123")
    monkeypatch.setattr(provenance, "fingerprint", lambda: "other source")
    study.run(runs.logged, SEEDS, name="kept", recompute=True, workers=1)
    assert (output / "log").read_text().split() == list("01230123")


def test_fingerprint_follows_the_source(tmp_path, monkeypatch):
    (tmp_path / "bifkit").mkdir()
    file = tmp_path / "bifkit" / "a.py"
    file.write_text("x = 1\n")
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    first = provenance.on_disk()
    file.write_text("x = 2\n")
    second = provenance.on_disk()
    file.rename(tmp_path / "bifkit" / "b.py")
    third = provenance.on_disk()
    monkeypatch.setattr(provenance, "_versions", lambda: {"torch": "0"})
    assert len({first, second, third, provenance.on_disk()}) == 4


def test_source_edited_between_two_studies_of_a_process_is_refused(tmp_path, monkeypatch):
    """What runs is what was imported: its numbers must not be recorded as those of the files."""
    (tmp_path / "bifkit").mkdir()
    file = tmp_path / "bifkit" / "a.py"
    file.write_text("x = 1\n")
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    monkeypatch.setattr(provenance, "fingerprint", FINGERPRINT)
    monkeypatch.setattr(provenance, "LOADED", before := provenance.on_disk())
    study.run(runs.logged, SEEDS, name="one", recompute=True, workers=1)
    file.write_text("x = 2\n")
    with pytest.raises(RuntimeError, match="edited after this process had imported it: restart the kernel"):
        study.run(runs.logged, SEEDS, name="two", recompute=True, workers=1)
    assert not (paths.results() / "two.csv").exists() and len(study.run(runs.logged, SEEDS, name="one")) == 4
    assert provenance.provenance()["source"] == before[:12]  # also where the edit came while the runs were under way


def test_a_worker_that_imported_edited_source_does_not_run(monkeypatch, output):
    monkeypatch.setattr(provenance, "fingerprint", lambda: "what this process imported")
    with pytest.raises(study.StudyFailed, match="the source was edited before this worker imported it"):
        study.run(runs.logged, SEEDS, name="edited", recompute=True, workers=2)
    assert not (output / "log").exists()


def test_fewer_runs_do_not_replace_more(capsys):
    study.run(runs.logged, SEEDS, name="whole", recompute=True, workers=1)
    file, entry = paths.results() / "whole.csv", (paths.results() / "provenance.json").read_bytes()
    before = file.read_bytes()
    part = study.run(runs.logged, SEEDS[:2], name="whole", recompute=True, workers=1)
    said = capsys.readouterr().out
    assert file.read_bytes() == before and (file.parent / "provenance.json").read_bytes() == entry
    assert "whole.csv stays as it is" in said and "2 of its 4 runs" in said and "build/partial" in said
    assert len(part) == 2 and len(pd.read_csv(paths.partial() / "results" / "whole.csv")) == 2
    assert paths.figures() == paths.partial() / "figures"  # what is drawn from a part replaces nothing either
    assert len(study.run(runs.logged, SEEDS, name="whole")) == 4 and paths.figures() == paths.output() / "figures"
    study.run(runs.logged, SEEDS[:1], name="whole")  # a replay of a part
    assert paths.figures() == paths.partial() / "figures"
    study.run(runs.logged, [{"seed": 0, "pause": 0.0}], name="whole", recompute=True, workers=1)
    assert file.read_bytes() == before  # other parameters
    study.run(runs.logged, [*SEEDS, {"seed": 4}], name="whole", recompute=True, workers=1)
    assert len(pd.read_csv(file)) == 5 and not (paths.partial() / "results" / "whole.csv").exists()


def test_the_whole_study_may_become_smaller(monkeypatch):
    study.run(runs.logged, SEEDS, name="whole", recompute=True, workers=1)
    monkeypatch.setenv("BIF_WHOLE", "1")  # make reproduce
    study.run(runs.logged, SEEDS[:2], name="whole", recompute=True, workers=1)
    assert len(pd.read_csv(paths.results() / "whole.csv")) == 2


@pytest.mark.parametrize("whole", ["", "1"])
def test_runs_without_data_do_not_replace_runs_with(whole, monkeypatch):
    grid = [{"kind": "good", "seed": 0}, {"kind": "absent", "seed": 1}]
    rows.store(grid, [{"score": 0.5, "error": ""}] * 2, "data")
    before = rows.file("data").read_bytes()
    monkeypatch.setenv("BIF_WHOLE", whole)
    frame = study.run(runs.mixed, grid, name="data", recompute=True, workers=1)
    assert (paths.output() / "results" / "data.csv").read_bytes() == before
    assert frame["error"][1].startswith("not run") and rows.shown("data") == "build/partial/results/data.csv"


def test_made_up_data_never_get_into_the_repository(tmp_path, monkeypatch, output):
    monkeypatch.setenv("BIF_STANDINS", str(tmp_path / "toys"))
    study.run(runs.logged, SEEDS, name="toy", recompute=True, workers=1)
    assert rows.shown("toy") == "results/toy.csv"  # a folder of its own, as make smoke has
    monkeypatch.setattr(paths, "root", lambda: output)
    study.run(runs.logged, SEEDS, name="toys", recompute=True, workers=1)
    assert rows.shown("toys") == "build/partial/results/toys.csv"


def test_one_lock_for_whatever_writes_results(monkeypatch, output):
    scores = pd.DataFrame([["table1", "L2X", "Syn1", 0, 99.0]], columns=scoreboard.SUBMITTED)
    scoreboard.submit("one", scores)
    script = ("from experiments.runner import files; import time\n"
              "with files.writing():\n    print('held', flush=True)\n    time.sleep(60)")
    holder = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=paths.root())
    try:
        holder.stdout.readline()
        with pytest.raises(RuntimeError, match="another command or notebook is writing results here"):
            study.run(runs.logged, SEEDS, name="second", recompute=True, workers=1)
        scoreboard.submit("one", scores)  # says nothing new
        with pytest.raises(RuntimeError, match="another command or notebook"):
            scoreboard.submit("one", scores.assign(value=98.0))
        assert not (output / "log").exists()
    finally:
        holder.kill()
        holder.wait()
    study.run(runs.logged, SEEDS, name="second", recompute=True, workers=1)
    scoreboard.submit("one", scores.assign(value=98.0))


@pytest.mark.parametrize("damage", ["", "{", "[1]", "null", "\x00", '"', "7"])
def test_a_damaged_provenance_costs_one_sentence_and_no_run(damage):
    (paths.results() / "provenance.json").write_text(damage)
    with pytest.warns(UserWarning, match="provenance.json was damaged: it is now build/provenance.damaged.json"):
        study.run(runs.logged, SEEDS, name="one", recompute=True, workers=1)
    assert list(json.loads((paths.results() / "provenance.json").read_text())) == ["one"]
    assert (paths.build() / "provenance.damaged.json").read_text() == damage


@pytest.mark.parametrize("damage", ["", "a,b\n1,2,3\n4,5,6,7\n"])
def test_damaged_results_are_one_sentence(damage):
    rows.file("bad").write_text(damage)
    with pytest.raises(ValueError, match="results/bad.csv is damaged .* restore it with git"):
        study.run(runs.logged, SEEDS, name="bad")
    assert len(study.run(runs.logged, SEEDS, name="bad", recompute=True, workers=1)) == 4


def test_provenance_tells_no_host_and_no_path():
    study.run(runs.logged, SEEDS, name="one", recompute=True, workers=1)
    study.run(runs.logged, SEEDS[:1], name="two", recompute=True, workers=1)
    text = (paths.results() / "provenance.json").read_text()
    entries = json.loads(text)
    assert set(entries) == {"one", "two"} and entries["one"]["runs"] == 4 and entries["one"]["cores"] >= 1
    assert entries["one"]["versions"]["torch"].startswith("2.") and entries["one"]["cpu"]
    assert os.uname().nodename not in text and str(paths.root()) not in text and str(Path.home()) not in text


def test_peak_memory_is_of_the_run_alone():
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("the peak can be reset on Linux alone")
    grid = [{"megabytes": 400}, {"megabytes": 1}]
    big, small = study.run(runs.memory, grid, name="memory", recompute=True, workers=1)["peak_mb"]
    assert 380 < big - small < 480


def test_progress_goes_to_the_named_file_and_nowhere_else(output, monkeypatch, capfd):
    monkeypatch.setenv("BIF_PROGRESS", str(output / "progress"))
    study.run(runs.logged, SEEDS, name="progress", recompute=True, workers=1)
    assert (output / "progress").read_text() == "progress: 4 of 4 runs, about 0 s left\n"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"key": 1}', "null", "\x00", '"', '{"key": %s, "outcome": [1]}'])
def test_a_damaged_file_counts_as_not_there(output, monkeypatch, damage):
    monkeypatch.setenv("BIF_RESUME", str(output / "kept"))
    study.run(runs.logged, SEEDS[:2], name="damaged", recompute=True, workers=1)
    first, second = sorted((output / "kept" / "damaged").glob("[!.]*.json"))
    whole = first.read_text()
    first.write_text(damage.replace("%s", json.dumps(json.loads(whole)["key"])))
    frame = study.run(runs.logged, SEEDS[:2], name="damaged", recompute=True, workers=1)
    assert len((output / "log").read_text().split()) == 3 and frame["score"].tolist() == [0.0, 0.1]
    assert json.loads(first.read_text())["key"] == json.loads(whole)["key"]  # trained again, and kept
    second.write_text(first.read_text())  # another run's file under this name
    study.run(runs.logged, SEEDS[:2], name="damaged", recompute=True, workers=1)
    assert len((output / "log").read_text().split()) == 4


SCRIPT = """
import sys; sys.path.insert(0, {tests!r})
import study_runs
from experiments.runner import study
grid = [dict(seed=s, pause=.15) for s in range(24)]
study.run(study_runs.logged, grid, name="killed", recompute=True, workers={workers})
"""


def test_three_kills_and_the_fourth_finishes(output, monkeypatch):
    """SIGKILL of the process group at random moments: no finished run begins again, no half-written file."""
    monkeypatch.setenv("BIF_RESUME", str(output / "kept"))
    dice, log = random.Random(7), output / "log"

    def command(workers):
        return [sys.executable, "-c", SCRIPT.format(tests=str(Path(__file__).parent), workers=workers)]

    def begun():
        return log.read_text().split() if log.exists() else []

    def finished():
        return {str(json.loads(json.loads(file.read_text())["key"])["params"]["seed"])
                for file in (output / "kept" / "killed").glob("[!.]*.json")}

    for workers in (1, 2, 1):
        process, before = subprocess.Popen(command(workers), start_new_session=True), len(begun())
        while len(begun()) < before + 3 and process.poll() is None:
            time.sleep(0.02)
        time.sleep(dice.random() * 0.6)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        done, count = finished(), begun()
        assert not (paths.results() / "killed.csv").exists()
    subprocess.run(command(2), check=True)
    again = begun()[len(count):]
    assert done and not done & set(again)
    assert sorted(done | set(again), key=int) == [str(s) for s in range(24)]
    frame = rows.replay([{"seed": s, "pause": 0.15} for s in range(24)], "killed")
    assert frame["score"].tolist() == [s * 0.1 for s in range(24)]
