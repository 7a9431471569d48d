"""The study grid on a Dask cluster of two workers: the rows of one machine, whoever is killed meanwhile."""

import contextlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # workers take it over
import cluster_runs as runs  # noqa: E402

from experiments.runner import cluster, paths, provenance, study  # noqa: E402
from experiments.runner import notebooks as reproduce

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

HERE = {"host": "127.0.0.1", "dashboard_address": ":0", "silence_logs": logging.CRITICAL}
MEASURED = ["seconds", "peak_mb"]


@pytest.fixture(scope="module")
def processes():
    """One process imports torch, all workers are forked off it: a killed one is back at once."""
    settings = {"distributed.worker.multiprocessing-method": "forkserver", "distributed.scheduler.allowed-failures": 1}
    with dask.config.set(settings):
        context = distributed.utils.get_mp_context()
        context.set_forkserver_preload(["distributed", "experiments.runner.study", "experiments.runner.cluster"])
        yield context


@pytest.fixture(scope="module")
def address(processes):
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, preload="cluster_runs", **HERE) as local:
        yield local.scheduler_address


@pytest.fixture(autouse=True)
def output(tmp_path, monkeypatch):
    monkeypatch.setenv("BIF_OUTPUT", str(tmp_path))
    monkeypatch.setenv("BIF_CLUSTER_WAIT", "60")
    return tmp_path


@pytest.fixture
def on(address, monkeypatch):
    monkeypatch.setenv("BIF_CLUSTER", address)


def until(condition, seconds=60):
    """Wait for it, and say what it was if it does not come."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"waited {seconds} s in vain"
        time.sleep(0.02)
    return found


@contextlib.contextmanager
def meanwhile(act):
    """Do something beside a study that blocks; its failure is the test's."""
    failed = []

    def guarded():
        try:
            act()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    yield
    thread.join()
    assert not failed, failed


def held(folder, seeds, gate=""):
    return [{"seed": seed, "folder": str(folder), "gate": gate} for seed in seeds]


def assert_same_rows(frame, grid):
    """As trained in this very process."""
    local = study.run(runs.held, grid, name="local", recompute=True, workers=1)
    pd.testing.assert_frame_equal(frame.drop(columns=MEASURED), local.drop(columns=MEASURED), check_exact=True)
    assert local["loss"].nunique() == len(grid) and set(local["threads"]) == {1}


def test_same_rows_as_on_one_machine(address, output, monkeypatch):
    # Client.write_scheduler_file fails once workers have worked: their metrics then have tuples for keys.
    (output / "scheduler.json").write_text(json.dumps({"type": "Scheduler", "address": address}))
    monkeypatch.chdir(output)
    monkeypatch.setenv("BIF_CLUSTER", cluster.located("scheduler.json"))
    monkeypatch.setenv("BIF_PROGRESS", str(output / "progress"))
    grid = held(output, range(6))
    frame = study.run(runs.held, grid, name="there", recompute=True)
    assert (output / "progress").read_text() == "there: 6 of 6 runs, about 0 s left\n"
    pids = {pid for _, pid in runs.begun(output)}
    assert len(pids) == 2 and os.getpid() not in pids
    entry = json.loads((paths.results() / "provenance.json").read_text())["there"]
    assert entry["workers"] == 2 and entry["cpu"] == provenance.provenance()["cpu"]
    assert_same_rows(frame, grid)  # workers=1 stays here although there is a cluster
    assert {pid for _, pid in runs.begun(output)[6:]} == {os.getpid()}
    study.run(runs.held, grid, name="there", recompute=True)
    assert len(runs.begun(output)) == 18  # a new command trains anew


def test_a_killed_worker_loses_nothing(on, output):
    grid = held(output, range(6), gate="open")

    def kill():
        first = until(lambda: {pid for _, pid in runs.begun(output)} if len(runs.begun(output)) == 2 else None)
        victim = first.pop()
        seed = dict(map(reversed, runs.begun(output)))[victim]
        os.kill(victim, signal.SIGKILL)
        until(lambda: len({pid for _, pid in runs.begun(output)}) > 2)  # another worker has taken its place
        (output / "open").touch()
        until(lambda: [s for s, _ in runs.begun(output)].count(seed) == 2)

    with meanwhile(kill):
        frame = study.run(runs.held, grid, name="there", recompute=True)
    assert len(runs.begun(output)) == 7  # one run began twice
    assert_same_rows(frame, grid)


def test_a_killed_client_keeps_what_had_ended(address, output, monkeypatch, processes):
    grid = held(output, range(3)) + held(output, range(3, 7), gate="open")
    process = processes.Process(target=runs.client, args=(str(output), address, grid))
    process.start()

    def kept():
        return list((output / "kept" / "killed").glob("[!.]*.json"))

    until(lambda: len(kept()) == 3 and len(runs.begun(output)) == 5)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert not (paths.results() / "killed.csv").exists()
    (output / "open").touch()
    monkeypatch.setenv("BIF_RESUME", str(output / "kept"))
    monkeypatch.setenv("BIF_CLUSTER", address)
    frame = study.run(runs.held, grid, name="killed", recompute=True)
    again = [seed for seed, _ in runs.begun(output)[5:]]
    assert sorted(again) == [3, 4, 5, 6]  # two were under way, two had not begun
    monkeypatch.delenv("BIF_RESUME")
    assert_same_rows(frame, grid)


def test_what_fails_or_kills_is_named_and_stops_no_other(on, monkeypatch):
    kinds = ["good", "dies", "nested", "fails", "absent", "good"]
    grid = [{"kind": kind, "seed": i} for i, kind in enumerate(kinds)]
    with pytest.raises(study.StudyFailed, match="2 of 6 runs.*\n  dies / seed 1: the process of this run died"):
        study.run(runs.moody, grid, name="moody", recompute=True)
    frame = study.run(runs.moody, grid, name="moody")
    assert frame["score"].notna().tolist() == [True, False, True, False, False, True]
    assert frame["error"][3] == "RuntimeError: on purpose" and frame["error"][4].startswith("not run: DataUnavail")
    alone = study.run(runs.moody, grid[2:3], name="alone", recompute=True, workers=1)
    assert frame["score"][2] == alone["score"].item() and frame["weights"][2] == "1"  # joblib stayed in its thread


def test_one_worker_is_a_cluster_too(output, monkeypatch):
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, protocol="tcp", **HERE) as local:
        monkeypatch.setenv("BIF_CLUSTER", local.scheduler_address)
        monkeypatch.setenv("BIF_CLUSTER_WAIT", "10")
        thread = study.run(runs.where, [{"seed": 0}], name="one", recompute=True)["thread"].item()
        assert thread != threading.get_ident()

        def close():
            until(lambda: runs.begun(output))
            local.loop.add_callback(local.scheduler.close)
            until(lambda: local.scheduler.status.name.startswith("clos"))
            (output / "open").touch()  # the worker, a thread here, ends with its run

        timeouts = dask.config.get("distributed.comm.timeouts")
        monkeypatch.setitem(timeouts, "connect", "1 s")  # how long LocalCluster then looks for its scheduler
        with meanwhile(close), pytest.raises(cluster.ClusterUnavailable, match="lost.*the same command goes on"):
            study.run(runs.held, held(output, range(2), gate="open"), name="lost", recompute=True)


def test_a_worker_must_have_the_same_source(on, monkeypatch):
    monkeypatch.setattr(provenance, "fingerprint", lambda: "other source")
    with pytest.raises(cluster.ClusterUnavailable, match="^a worker has other source or packages than this command"):
        study.run(study.toy, [{"seed": 0, "size": 3}], name="other", recompute=True)
    monkeypatch.setattr(cluster, "_check", lambda *_: None)  # a worker that joins after the first check
    with pytest.raises(cluster.ClusterUnavailable, match="^a worker has other source or packages than this command"):
        study.run(study.toy, [{"seed": 0, "size": 3}], name="other", recompute=True)


def test_a_worker_must_import_the_study_and_have_one_thread(monkeypatch):
    with distributed.LocalCluster(n_workers=0, threads_per_worker=2, processes=False, protocol="tcp", **HERE) as local:
        monkeypatch.setenv("BIF_CLUSTER_WAIT", "0.3")
        with pytest.raises(cluster.ClusterUnavailable, match="has no worker after 0.3 s"):
            with cluster.connected(local.scheduler_address):
                pass
        monkeypatch.setenv("BIF_CLUSTER_WAIT", "60")
        local.scale(1)
        with pytest.raises(cluster.ClusterUnavailable, match="^a worker has 2 threads.*--nthreads 1"):
            with cluster.connected(local.scheduler_address):
                pass
    worker = type("Worker", (), {"state": type("State", (), {"nthreads": 1})})
    assert cluster._fault(runs.PINNED, "bifkit", worker) == ""
    assert "can't import no_such_study (No module" in cluster._fault(runs.PINNED, "no_such_study", worker)


def test_no_cluster_is_one_sentence(output, monkeypatch, capsys):
    def said(where):
        monkeypatch.setenv("BIF_CLUSTER", where)
        assert reproduce.main(["--only", "00"]) == 1
        lines = capsys.readouterr().err.strip().splitlines()
        assert len(lines) == 1 and not (output / "build" / "cache").exists()
        return lines[0]

    monkeypatch.setenv("BIF_CLUSTER_WAIT", "0.5")
    monkeypatch.chdir(output)
    assert "no Dask scheduler answers at tcp://127.0.0.1:9 within 0.5 s" in said("127.0.0.1:9")
    assert f"{output / 'nosuch.json'} is not there: start the scheduler with" in said("nosuch.json")
    (output / "empty.json").write_text("{}")
    assert f"{output / 'empty.json'} is no scheduler file" in said("empty.json")
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert said("127.0.0.1:9") == "running on a cluster needs Dask: pip install 'bifkit[cluster]'"


def test_the_example_for_a_batch_queue_is_a_script():
    if not shutil.which("bash"):
        pytest.skip("bash is absent")
    script = paths.root() / "examples" / "cluster_slurm.sh"
    assert subprocess.run(["bash", "-n", str(script)], capture_output=True).returncode == 0
    outside = {k: v for k, v in os.environ.items() if not k.startswith("SLURM")}
    done = subprocess.run(["bash", str(script)], env=outside, text=True, capture_output=True)
    assert done.returncode == 1 and "submit this script: sbatch examples/cluster_slurm.sh" in done.stderr


MAKE = """#!/bin/sh
echo "told: $*"
exec "{python}" - "${{2#CLUSTER=}}" <<'END'
import json, sys, time
import distributed
for _ in range(600):
    try:
        address = json.load(open(sys.argv[1]))["address"]
        break
    except (OSError, ValueError):
        time.sleep(0.1)
with distributed.Client(address, timeout=60) as client:
    client.wait_for_workers(1, timeout=60)
    print("done there:", client.submit(sum, [1, 2]).result(), address, *client.scheduler_info()["workers"])
plain = distributed.Security(require_encryption=False, tls_ca_file=None, tls_client_cert=None, tls_client_key=None)
try:
    distributed.Client(address.replace("tls:", "tcp:"), timeout=3, security=plain)
except OSError:
    print("a stranger is refused")
END
"""


def test_the_example_listens_on_one_address_and_speaks_tls(tmp_path):
    """The script itself, with an srun and a make that stand in for those of a site."""
    if not (shutil.which("bash") and shutil.which("openssl") and shutil.which("hostname")):
        pytest.skip("bash, openssl or hostname is absent")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / "bin").mkdir()
    for name, text in (("srun", '#!/bin/sh\nshift 2\nexec "$@"\n'), ("make", MAKE.format(python=sys.executable)),
                       ("hostname", "#!/bin/sh\necho 127.0.0.1 ::1\n")):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "SLURM_SUBMIT_DIR": str(tmp_path),
                                "SLURM_JOB_ID": "1"}
    script = paths.root() / "examples" / "cluster_slurm.sh"
    done = subprocess.run(["bash", str(script), "ONLY=01"], env=environment, text=True, capture_output=True,
                          timeout=240)
    said = done.stdout
    assert done.returncode == 0 and "a stranger is refused" in said, done.stderr[-2000:]
    assert "ONLY=01" in said and "done there: 3 tls://127.0.0.1:" in said and "tcp://" not in said
    assert list((tmp_path / "build").iterdir()) == []  # neither the key nor the address is left


def test_when_all_workers_have_gone_the_client_gives_up(output, monkeypatch):
    monkeypatch.setattr(cluster, "GONE", 0.5)
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, protocol="tcp", **HERE) as local:
        monkeypatch.setenv("BIF_CLUSTER", local.scheduler_address)

        def leave():
            until(lambda: runs.begun(output))
            local.scale(0)
            (output / "open").touch()  # the worker, a thread here, ends with its run

        with meanwhile(leave), pytest.raises(cluster.ClusterUnavailable, match="for 0.5 s all of its workers"):
            study.run(runs.held, held(output, range(3), gate="open"), name="left", recompute=True)
