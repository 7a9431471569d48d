"""The set-up: three lists of versions that agree, and one clear sentence when it can't be made."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from experiments.runner import bootstrap, paths

ROOT = paths.root()
MODULES = {"sklearn": "scikit-learn", "yaml": "pyyaml", "PIL": "pillow", "jupyter_client": "jupyter-client"}


def pins():
    lines = [x for x in (ROOT / "requirements.txt").read_text().splitlines() if x and not x.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][A-Za-z0-9.]*", line) for line in lines), "exact pins only"
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_pyproject_agrees_with_the_pins():
    have = pins()
    wanted = [*project()["dependencies"], *(r for extra in project()["optional-dependencies"].values() for r in extra)]
    for requirement in map(Requirement, wanted):
        version = have.get(canonicalize_name(requirement.name))
        assert version, f"{requirement.name} is not pinned"
        assert requirement.specifier.contains(version), f"{requirement} but the pin is {version}"


def test_environment_yml_agrees_with_the_pins():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    python = next(d for d in environment["dependencies"] if str(d).startswith("python="))
    section = next(d["pip"] for d in environment["dependencies"] if isinstance(d, dict))
    assert {canonicalize_name(n): v for n, v in (x.split("==") for x in section)} == pins()
    assert Requirement("python" + project()["requires-python"]).specifier.contains(python.split("=")[1])
    assert tuple(map(int, python.split("=")[1].split("."))) == bootstrap.WANTED


def test_what_is_installed_is_what_is_pinned():
    from importlib.metadata import version
    wrong = {n: version(n) for n, v in pins().items() if Version(version(n)).public != Version(v).public}
    if wrong and os.environ.get("CONDA_DEFAULT_ENV"):
        pytest.skip("a conda environment may hold newer builds")
    assert not wrong


def test_the_parts_that_were_checked_together_are_pinned():
    have = pins()
    for name, version in {"torch": "2.13.0", "opacus": "1.6.0", "autodp": "0.2.3.1", "numpy": "2.4.6",
                          "pandas": "3.1.1", "scikit-learn": "1.9.1", "papermill": "2.7.0", "nbval": "0.11.0"}.items():
        assert have[name] == version


def test_every_import_is_a_declared_dependency():
    """A package of the extra ``cluster`` may be absent: it is imported where it is used, inside a function."""
    def named(requirements):
        return {canonicalize_name(Requirement(r).name) for r in requirements}

    declared, extra = named(project()["dependencies"]), named(project()["optional-dependencies"]["cluster"])
    ours, found = {"bifkit", "data_prep", "experiments"}, {}
    for folder in ours:
        for file in (ROOT / folder).rglob("*.py"):
            tree = ast.parse(file.read_text())
            inside = {n for f in ast.walk(tree) if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef)
                      for n in ast.walk(f)}
            for node in ast.walk(tree):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                names += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
                for name in {n.split(".")[0] for n in names} - set(sys.stdlib_module_names) - ours:
                    name = canonicalize_name(MODULES.get(name, name))
                    if name not in (declared | extra if node in inside else declared):
                        found[name] = str(file.relative_to(ROOT))
    assert found == {}


def test_files_that_every_clone_has():
    assert "MIT License" in (ROOT / "LICENSE").read_text() and "bifkit authors" in (ROOT / "LICENSE").read_text()
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    authors = [a["family-names"] for a in citation["preferred-citation"]["authors"]]
    assert citation["type"] == "software" and authors == ["Adamczewski", "Harder", "Park"]
    assert citation["version"] == project()["version"]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def make(*arguments, folder=ROOT, **environment):
    return subprocess.run(["make", *arguments], cwd=folder, text=True, capture_output=True,
                          env={k: v for k, v in os.environ.items() if k != "MAKEFLAGS"} | environment)


@pytest.mark.skipif(not shutil.which("make"), reason="make is absent")
def test_make_help_is_the_default_and_lists_every_target():
    done = make()
    assert done.returncode == 0
    for target in "reproduce test smoke lab figures data scoreboard bench clean help notebooks".split():
        assert f"make {target} " in done.stdout


@pytest.fixture
def clone(tmp_path):
    """The few files that a set-up needs, with one pin."""
    if not shutil.which("make"):
        pytest.skip("make is absent")
    (tmp_path / "experiments" / "runner").mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml", "experiments/runner/bootstrap.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "requirements.txt").write_text("nosuchpackageanywhere==1.0\n")
    return tmp_path


def stub(folder, version):
    """A python that says it is another version."""
    file = folder / "otherpython"
    file.write_text(f"#!/bin/sh\nexec {sys.executable} -c \"import sys; sys.version_info = {version}; sys.path[:0] = ['"
                    f"{folder}/experiments/runner']; import bootstrap; sys.exit(bootstrap.main())\"\n")
    file.chmod(0o755)
    return file


def one_sentence(done):
    lines = [x for x in done.stderr.splitlines() if x.strip() and not x.startswith("make")]
    assert done.returncode != 0 and len(lines) == 1, done.stderr
    return lines[0]


def test_wrong_python_is_one_sentence(clone):
    words = one_sentence(make("setup", f"PYTHON={stub(clone, (3, 12, 1))}", folder=clone))
    assert "needs Python 3.11" in words and "is 3.12.1" in words and "PYTHON=" in words
    assert "not a program" in one_sentence(make("setup", "PYTHON=/nosuch/python", folder=clone))
    assert not (clone / ".venv").exists()


def test_no_network_is_one_sentence_and_no_ready_environment(clone):
    unreachable = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_TIMEOUT": "1",
                   "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": ""}
    words = one_sentence(make("setup", f"PYTHON={sys.executable}", folder=clone, **unreachable))
    assert words.startswith("No network") and "build/setup.log" in words
    assert (clone / "build" / "setup.log").exists()
    assert not (clone / ".venv" / ".ready").exists() and (clone / ".venv" / ".unfinished").exists()


def test_an_interrupted_environment_is_made_anew(clone, monkeypatch):
    venv = clone / ".venv"
    venv.mkdir()
    (venv / ".unfinished").touch()
    (venv / "half").touch()
    calls = []
    monkeypatch.setattr(bootstrap, "ROOT", str(clone))
    monkeypatch.setattr(bootstrap.subprocess, "call", lambda step, **_: calls.append(step) or 0)
    assert bootstrap.main() == 0
    assert not (venv / "half").exists() and (venv / ".ready").exists() and not (venv / ".unfinished").exists()
    assert [step[2] for step in calls] == ["venv", "pip", "pip"] and "nosuchpackageanywhere==1.0" in calls[1]


def test_a_second_make_waits_for_the_first(clone):
    import fcntl
    (clone / "build").mkdir()
    code = "import sys; sys.path[:0] = ['experiments/runner']; import bootstrap; bootstrap.wait_for_others('build/lock')"
    with open(clone / "build" / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = subprocess.Popen([sys.executable, "-c", code], cwd=clone, stdout=subprocess.PIPE, text=True)
        assert second.stdout.readline() == "Another make is setting up: waiting for it.\n"
        assert second.poll() is None
    assert second.wait(20) == 0


def test_a_full_disk_is_one_sentence(clone, monkeypatch, capsys):
    monkeypatch.setattr(bootstrap, "ROOT", str(clone))
    monkeypatch.setattr(bootstrap.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**10, 10**10, 10**8))
    assert bootstrap.main() == 1
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and "about 3 GB" in said.err and "0.1 GB" in said.err
    assert not (clone / ".venv").exists()


def test_torch_can_be_replaced(clone, monkeypatch):
    (clone / "requirements.txt").write_text("numpy==2.4.6\ntorch==2.13.0\n")
    calls = []
    monkeypatch.setattr(bootstrap, "ROOT", str(clone))
    monkeypatch.setenv("TORCH", "torch==2.13.0+cpu --no-index")
    monkeypatch.setattr(bootstrap.subprocess, "call", lambda step, **_: calls.append(step) or 0)
    assert bootstrap.main() == 0
    assert calls[1][-3:] == ["numpy==2.4.6", "torch==2.13.0+cpu", "--no-index"]
    assert (clone / ".venv" / ".ready").read_text() == "torch==2.13.0+cpu --no-index"
