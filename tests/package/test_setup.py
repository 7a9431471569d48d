"""The set-up: three lists of versions that agree, and one clear sentence when it can't be made."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
import zipfile

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from experiments.runner import paths

ROOT = paths.root()
DISTRIBUTIONS = {"sklearn": "scikit-learn", "yaml": "pyyaml", "PIL": "pillow"}  # where the import has another name
OURS = {"bifkit", "data_prep", "experiments"}


def pins(here=False):
    """The exact version of each package; ``here``: of those that this system is given."""
    lines = [x for x in (ROOT / "requirements.txt").read_text().splitlines() if x and not x.startswith("#")]
    exact = r'[A-Za-z0-9_.-]+==[0-9][A-Za-z0-9.]*(; sys_platform [!=]= "darwin")?'
    assert all(re.fullmatch(exact, line) for line in lines), "exact pins only"
    return read_pins(lines, here)


def read_pins(lines, here=False):
    """{package: version} of lines such as ``name==1.0; sys_platform == "darwin"``."""
    found = [Requirement(x) for x in lines]
    return {canonicalize_name(r.name): str(r.specifier).removeprefix("==") for r in found
            if not here or r.marker is None or r.marker.evaluate()}


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
    assert read_pins(section) == pins() and read_pins(section, here=True) == pins(here=True)
    assert Requirement("python" + project()["requires-python"]).specifier.contains(python.split("=")[1])


def test_what_is_installed_is_what_is_pinned():
    from importlib.metadata import version
    wrong = {n: version(n) for n, v in pins(here=True).items() if Version(version(n)).public != Version(v).public}
    if wrong and os.environ.get("CONDA_DEFAULT_ENV"):
        pytest.skip("a conda environment may hold newer builds")
    assert not wrong


def test_the_parts_that_were_checked_together_are_pinned():
    have = pins()
    for name, version in {"torch": "2.13.0", "opacus": "1.6.0", "autodp": "0.2.3.1", "numpy": "2.4.6",
                          "pandas": "3.1.1", "scikit-learn": "1.9.1", "papermill": "2.7.0", "nbval": "0.11.0"}.items():
        assert have[name] == version


def declared(*extras):
    """Names of the core requirements and of these extras."""
    wanted = [*project()["dependencies"], *(r for extra in extras for r in project()["optional-dependencies"][extra])]
    return {canonicalize_name(Requirement(r).name) for r in wanted}


def imports(source):
    """(distribution, whether it is imported inside a function) for what is neither ours nor the standard library's."""
    tree = ast.parse(source)
    inside = {n for f in ast.walk(tree) if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef) for n in ast.walk(f)}
    for node in ast.walk(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
        for name in {n.split(".")[0] for n in names} - set(sys.stdlib_module_names) - OURS:
            yield canonicalize_name(DISTRIBUTIONS.get(name, name)), node in inside


OTHERS = {"shap"}  # imported by bifkit/sharing/interop.py when somebody asks for it


@pytest.mark.parametrize(("folder", "extras"), [("bifkit", []), ("data_prep", ["paper"]), ("experiments", ["paper"])])
def test_every_import_is_a_declared_dependency(folder, extras):
    """What the extra ``cluster`` brings, and the tools that bifkit hands over to, may be absent: inside a function."""
    always, within = declared(*extras), declared(*extras, *(["cluster"] if extras else [])) | OTHERS
    undeclared = {name: str(file.relative_to(ROOT)) for file in (ROOT / folder).rglob("*.py")
                  for name, inside in imports(file.read_text()) if name not in (within if inside else always)}
    assert undeclared == {}


def test_notebooks_import_what_is_declared():
    undeclared = {}
    for file in paths.notebooks().glob("*.ipynb"):
        code = ["".join(c["source"]) for c in json.loads(file.read_text())["cells"] if c["cell_type"] == "code"]
        source = re.sub(r"^\s*[%!].*$", "", "\n".join(code), flags=re.M)
        undeclared |= {name: file.name for name, _ in imports(source) if name not in declared("paper")}
    assert undeclared == {}


def test_the_core_is_what_bifkit_imports():
    found = {pair for file in (ROOT / "bifkit").rglob("*.py") for pair in imports(file.read_text())}
    assert declared() == {name for name, _ in found} - OTHERS
    assert all(inside for name, inside in found if name in OTHERS)
    heavy = {"jupyterlab", "papermill", "opacus", "autodp", "shap", "lime", "captum", "dask"}
    assert not declared() & heavy and heavy <= declared("paper", "cluster")


def test_no_upper_bounds():
    wanted = [*project()["dependencies"], *(r for extra in project()["optional-dependencies"].values() for r in extra)]
    assert not [r for r in wanted if {s.operator for s in Requirement(r).specifier} != {">="}]


@pytest.mark.slow
def test_the_wheel_holds_bifkit_alone(tmp_path):
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in OURS:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    code = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", code, "out"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    files = zipfile.ZipFile(tmp_path / "out" / done.stdout.split()[-1]).namelist()
    assert {f.split("/")[0] for f in files} == {"bifkit", f"bifkit-{project()['version']}.dist-info"}
    expected = {str(f.relative_to(ROOT)) for f in (ROOT / "bifkit").rglob("*.py")} | {"bifkit/py.typed"}
    assert {f for f in files if f.startswith("bifkit/")} == expected


def test_files_that_every_clone_has():
    assert "MIT License" in (ROOT / "LICENSE").read_text() and "bifkit authors" in (ROOT / "LICENSE").read_text()
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    authors = [a["family-names"] for a in citation["preferred-citation"]["authors"]]
    assert citation["type"] == "software" and authors == ["Adamczewski", "Harder", "Park"]
    assert citation["version"] == project()["version"]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def outside_make():
    """The environment without what ``make test`` adds to it."""
    return {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}


def make(*arguments, folder=ROOT, **environment):
    return subprocess.run(["make", *arguments], cwd=folder, text=True, capture_output=True,
                          env=outside_make() | environment)


@pytest.mark.skipif(not shutil.which("make"), reason="make is absent")
def test_make_help_is_the_default_and_lists_every_target():
    done = make()
    assert done.returncode == 0
    for target in ("reproduce test check setup smoke lab figures data scoreboard bench clean help notebooks site "
                   "models").split():
        assert f"make {target} " in done.stdout


@pytest.fixture
def clone(tmp_path):
    """The few files that a set-up needs, with one pin."""
    if not shutil.which("make"):
        pytest.skip("make is absent")
    for name in ("Makefile", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "requirements.txt").write_text("nosuchpackageanywhere==1.0\n")
    return tmp_path


def stub(folder, version="3.12.1", pip=0):
    """A program that stands in for Python: it says which version it is, and its pip only writes down what it is asked.

    ``venv`` makes an environment whose python is the same program; ``pip install`` ends with the code ``pip``.
    """
    file = folder / "otherpython"
    newer = tuple(map(int, version.split("."))) >= (3, 11)
    file.write_text(f"""#!/bin/sh
case "$*" in
*sys.exit*) exit {0 if newer else 1};;
*python_version*) echo {version};;
--version) echo Python {version};;
*venv*) rm -rf .venv && mkdir -p .venv/bin && cp "$0" .venv/bin/python && echo venv >>calls;;
*"pip --version"*) ;;
*"pip install"*) echo "$*" >>calls; cat build/pins.txt >>calls; exit {pip};;
esac
""")
    file.chmod(0o755)
    return f"PYTHON={file}"


def one_sentence(done):
    lines = [x for x in done.stderr.splitlines() if x.strip() and not x.startswith("make")]
    assert done.returncode != 0 and len(lines) == 1, done.stderr
    return lines[0]


def test_wrong_python_is_one_sentence(clone):
    words = one_sentence(make("setup", stub(clone, "3.10.13"), folder=clone))
    assert "needs Python 3.11 or newer" in words and "is 3.10.13" in words and "PYTHON=" in words
    assert "not a program" in one_sentence(make("setup", "PYTHON=/nosuch/python", folder=clone))
    assert "No Python" in one_sentence(make("setup", "PYTHON=", folder=clone))
    assert not (clone / ".venv").exists()


@pytest.mark.slow
def test_no_network_is_one_sentence_and_no_ready_environment(clone):
    unreachable = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "1", "PIP_TIMEOUT": "1",
                   "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": ""}
    words = one_sentence(make("setup", f"PYTHON={sys.executable}", folder=clone, **unreachable))
    assert words.startswith("No network") and "build/setup.log" in words
    assert (clone / "build" / "setup.log").exists()
    assert not (clone / ".venv" / ".ready").exists() and (clone / ".venv" / ".unfinished").exists()


def test_pins_that_do_not_install_are_one_sentence(clone):
    words = one_sentence(make("setup", stub(clone, "3.14.0", pip=1), folder=clone))
    assert "do not install on Python 3.14.0" in words and "PYTHON=" in words and "build/setup.log" in words
    assert not (clone / ".venv" / ".ready").exists() and (clone / ".venv" / ".unfinished").exists()


def test_a_newer_python_sets_up_and_an_interrupted_environment_is_made_anew(clone):
    venv = clone / ".venv"
    venv.mkdir()
    (venv / ".unfinished").touch()
    (venv / "half").touch()
    assert make("setup", stub(clone, "3.13.0"), folder=clone).returncode == 0
    assert not (venv / "half").exists() and (venv / ".ready").exists() and not (venv / ".unfinished").exists()
    calls = (clone / "calls").read_text()
    assert calls.startswith("venv\n") and "nosuchpackageanywhere==1.0" in calls and "-e ." in calls
    assert make("setup", stub(clone, "3.13.0"), folder=clone).returncode == 0
    assert (clone / "calls").read_text() == calls, "what is ready stays"


def test_a_finished_environment_is_mended_not_made_anew(clone):
    assert make("setup", stub(clone), folder=clone).returncode == 0
    (clone / ".venv" / "kept").touch()
    (clone / "requirements.txt").write_text("another==2.0\n")
    os.utime(clone / "requirements.txt", (time.time() + 5,) * 2)
    assert make("setup", stub(clone), folder=clone).returncode == 0
    assert (clone / ".venv" / "kept").exists() and "another==2.0" in (clone / "calls").read_text()


@pytest.mark.skipif(not shutil.which("flock"), reason="flock is absent")
def test_a_second_make_waits_for_the_first(clone):
    import fcntl
    (clone / "build").mkdir()
    with open(clone / "build" / "setup.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = subprocess.Popen(["make", "--no-print-directory", "setup", stub(clone)], cwd=clone, text=True,
                                  stdout=subprocess.PIPE, env=outside_make())
        assert second.stdout.readline() == "Another make is setting up: waiting for it.\n"
        assert second.poll() is None
        (clone / ".venv").mkdir()
        (clone / ".venv" / ".ready").touch()  # the first one ends
    assert second.wait(20) == 0
    assert not (clone / "calls").exists(), "nothing is left to do"


def test_torch_can_be_replaced(clone):
    (clone / "requirements.txt").write_text("numpy==2.4.6\ntorch==2.13.0\n")
    torch = "torch==2.13.0+cpu --no-index"
    assert make("setup", stub(clone), f"TORCH={torch}", folder=clone).returncode == 0
    calls = (clone / "calls").read_text()
    assert calls.splitlines()[1].endswith(torch) and "torch==2.13.0\n" not in calls and "numpy==2.4.6\n" in calls
    assert (clone / ".venv" / ".ready").read_text() == torch
