"""The files that a stranger looks for on a repository's page say what is true of the repository."""

import json
import os
import re
import shutil
import tomllib

import pytest
import yaml

from experiments.runner import paths

ROOT = paths.root()
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z]+):", MAKEFILE, flags=re.M))
PINS = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "requirements.txt").read_text(), flags=re.M))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
STEPS = [(job, step) for job, body in WORKFLOW["jobs"].items() for step in body["steps"]]
COMMANDS = [(job, line.strip()) for job, step in STEPS for line in step.get("run", "").splitlines() if line.strip()]


def test_the_workflow_has_its_systems_versions_and_jobs():
    assert set(WORKFLOW) == {"name", True, "permissions", "concurrency", "env", "jobs"}  # yaml reads `on` as true
    assert {"push", "pull_request"} <= set(WORKFLOW[True]) and WORKFLOW["permissions"] == {"contents": "read"}
    check, test = WORKFLOW["jobs"]["check"], WORKFLOW["jobs"]["test"]
    matrix = check["strategy"]["matrix"]
    assert [name.split("-")[0] for name in matrix["os"]] == ["ubuntu", "macos", "windows"]
    assert matrix["python"] == ["3.11", "3.12", "3.13"], "quoted: 3.10 would be the number 3.1"
    assert PROJECT["requires-python"] == f">={matrix['python'][0]}"
    assert check["runs-on"] == "${{ matrix.os }}" and test["runs-on"].startswith("ubuntu")
    assert all(job["timeout-minutes"] <= 120 for job in WORKFLOW["jobs"].values())


def test_its_actions_are_released_major_versions_with_a_cache_of_what_exists():
    used = [step["uses"] for _, step in STEPS if "uses" in step]
    assert used and all(re.fullmatch(r"actions/[a-z-]+@v[1-9]\d*", name) for name in used)
    for _, step in STEPS:
        if "setup-python" in step.get("uses", ""):
            assert step["with"]["cache"] == "pip" and (ROOT / step["with"]["cache-dependency-path"]).exists()
    assert all(("uses" in step) != ("run" in step) for _, step in STEPS)


@pytest.mark.parametrize(("job", "command"), COMMANDS)
def test_its_commands_exist(job, command):
    words = command.split()
    if words[0] == "make":
        assert words[1] in TARGETS
    elif words[:2] == ["python", "-m"]:
        assert words[2] in {*map(str.lower, PINS), "pip"}
    else:
        assert shutil.which(words[0], path=str(ROOT / ".venv" / "bin")) or shutil.which(words[0]), command


def test_it_runs_what_make_check_runs():
    recipe = MAKEFILE[MAKEFILE.index("\ncheck: "):MAKEFILE.index("\nunit: ")]
    lines = [line.strip() for line in recipe.splitlines() if line.startswith("\t")]
    for short, long in (("$(ONE_THREAD) ", ""), ("$(PY)", "python"), (".venv/bin/", ""), ("$(JOBS)", "2")):
        lines = [line.replace(short, long) for line in lines]
    ours = [command for job, command in COMMANDS if job == "check" and " pip " not in command]
    assert sorted(ours) == sorted(lines)
    assert WORKFLOW["env"]["OMP_NUM_THREADS"] == "1" and any(c.startswith("make test") for _, c in COMMANDS)


def test_what_was_not_run_is_said():
    for name in (".github/workflows/ci.yml", "CONTRIBUTING.md"):
        text = (ROOT / name).read_text()
        assert "untested" in text and "macOS" in text and "Windows" in text and "has not run" in text


def test_ruff_is_the_pinned_one_before_a_commit_too():
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert hook["rev"] == f"v{PINS['ruff']}" and [h["id"] for h in hook["hooks"]] == ["ruff-check"]


def test_binder_and_the_container_open_on_the_pins_and_notebook_00():
    folder = ROOT / ".binder"
    nested = (folder / "requirements.txt").read_text().split()
    assert nested[0] == "-r" and (folder / nested[1]).resolve() == ROOT / "requirements.txt"
    assert (folder / "runtime.txt").read_text().strip() == "python-3.11"
    assert os.name != "posix" or os.access(folder / "postBuild", os.X_OK)
    config = json.loads((folder / "jupyter_server_config.json").read_text())
    for app in ("ServerApp", "LabApp"):
        prefix, name = config[app]["default_url"].split("/lab/tree/")
        assert not prefix and (ROOT / name).is_file()
    assert ".binder/jupyter_server_config.json" in (folder / "postBuild").read_text()
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    assert container["image"].startswith("python:3.11") and container["postCreateCommand"] == "make setup"


def test_the_changelog_has_this_version_and_what_is_unreleased():
    text = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## (.+)$", text, flags=re.M)
    assert headings[0] == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d", heading) for heading in headings[1:])
    assert headings[1].split()[0] == PROJECT["version"]
    kinds = set(re.findall(r"^### (.+)$", text, flags=re.M))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_citation_names_the_papers_authors_for_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0" and citation["license"] == PROJECT["license"]["text"]
    assert citation["authors"] == [{"name": PROJECT["authors"][0]["name"]}]
    assert citation["version"] == PROJECT["version"]
    paper = citation["preferred-citation"]
    assert paper["title"] == "Bayesian Importance of Features (BIF)" and paper["type"] == "article"
    names = [(a["given-names"], a["family-names"]) for a in paper["authors"]]
    assert names == [("Kamil", "Adamczewski"), ("Frederik", "Harder"), ("Mijung", "Park")]
    assert {"message", "title", "type"} <= set(citation)


@pytest.mark.parametrize("file", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")), ids=lambda f: f.stem)
def test_the_forms_for_issues_are_whole(file):
    form = yaml.safe_load(file.read_text())
    if file.stem == "config":
        assert form == {"blank_issues_enabled": True}
        return
    assert set(form) == {"name", "description", "labels", "body"}
    assert all(part["type"] in ("input", "textarea") and part["attributes"]["label"] for part in form["body"])
    assert len({part["id"] for part in form["body"]}) == len(form["body"])
    assert any(part.get("validations", {}).get("required") for part in form["body"])


def test_the_recipes_name_files_and_names_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    made_up = {"data_prep/cancer.py", "notebooks/10_name.ipynb"}  # what the reader is to write
    for name in re.findall(r"`((?:[\w.-]+/)*[\w.-]+\.(?:py|md|yml|ipynb))`", text):
        assert name in made_up or (ROOT / name).exists(), name
    for file, names in {"experiments/synthetic.py": ("RIVALS = ", "others = ", "def explain("),
                        "experiments/tabular.py": ("RIVALS = ", "DATASETS = ", "FEATURES = "),
                        "data_prep/prepare.py": ("def stream(", "def split(", "def standardise("),
                        "bifkit/presets.py": ("PRESETS = ",)}.items():
        source = (ROOT / file).read_text()
        assert all(name in source for name in names), file
