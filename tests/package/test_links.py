"""Pages name what exists: every link and anchor, every make target, every file of the house, every command."""

import json
import re
import shlex
from urllib.parse import unquote

import pytest

from experiments.runner import paths

ROOT = paths.root()
PAGES = [page for kind in ("*.md", "docs/*.md", "examples/*/*.md", "notebooks/*.ipynb")
         for page in sorted(ROOT.glob(kind))]
MAKEFILE = (ROOT / "Makefile").read_text()
RULES = {name: (needs.split("##")[0].split(), recipe.splitlines()) for name, needs, recipe
         in re.findall(r"^([a-z]+):(.*)\n((?:\t.*\n)*)", MAKEFILE, flags=re.M)}


def text_of(page):
    """The markdown of a page, without blocks of code."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        text = "\n\n".join("".join(c["source"]) for c in json.loads(text)["cells"] if c["cell_type"] == "markdown")
    return re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)


def anchors(page):
    """The anchors of a page's headings, as the repository's page and JupyterLab make them."""
    headings = [re.sub(r"[`*]", "", h).strip() for h in re.findall(r"^#+ (.+)$", text_of(page), flags=re.M)]
    plain = [re.sub(r"[^\w\- ]", "", h.lower()) for h in headings]
    return {h.replace(" ", "-") for h in [*headings, *plain]}


def broken(page):
    """The relative links of a page that lead nowhere."""
    for target in re.findall(r"\]\(<?([^)>\s]+)>?\)|(?:src|href)=[\"']([^\"']+)", text_of(page)):
        name, _, anchor = unquote("".join(target)).partition("#")
        if not re.match(r"[a-z]+:", name):  # not a link to another site
            file = page.parent / name if name else page
            if not file.exists() or (anchor and anchor not in anchors(file)):
                yield "".join(target)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    assert list(broken(page)) == []


def test_a_broken_link_is_seen(tmp_path):
    (tmp_path / "other.md").write_text("# One `two`: three\n")
    page = tmp_path / "page.md"
    page.write_text("[a](other.md) [b](other.md#one-two-three) [c](https://example.org) [d](#here)\n\n## Here\n"
                    "```\n[e](code.md)\n```\n[f](gone.md) [g](other.md#gone) <img src='gone.png'>\n")
    assert list(broken(page)) == ["gone.md", "other.md#gone", "gone.png"]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_make_target_that_is_named_exists(page):
    text = page.read_text(encoding="utf-8") if page.suffix == ".md" else text_of(page)
    assert set(re.findall(r"(?:`|^|&& )make ([a-z]+)", text, flags=re.M)) <= set(RULES)


def test_the_page_on_architecture_names_every_file_and_no_other():
    named = re.findall(r"^\| `([^`]+)` \|", (ROOT / "docs" / "architecture.md").read_text(), flags=re.M)
    there = [str(f.relative_to(ROOT).as_posix()) for folder in ("bifkit", "experiments", "data_prep")
             for f in (ROOT / folder).rglob("*") if f.is_file() and "__pycache__" not in f.parts]
    assert sorted(named) == sorted(there)


def commands(target):
    """What a target runs, as one would type it: options and settings of make at their defaults."""
    needs, recipe = RULES[target]
    found = [command for need in needs if need in RULES for command in commands(need)]
    for line in recipe:
        for short, long in (("$(if $(DATA),$(PY)", "$(PY)"), ("$(DATA)", "all"), ("$(PROFILE)", "paper"),
                            ("$(JOBS)", "2")):
            line = line.replace(short, long)
        line = re.sub(r" ?\$\(if [^()]*(?:\$\(\w+\)[^()]*)+\)", "", line)  # options that are not given
        if again := re.search(r"\$\(MAKE\).* (\w+)$", line):
            found += commands(again.group(1))
        elif plain := re.search(r"(?:\$\(PY\)|\.venv/bin/(lint-imports)) ([^|]+)", line):
            found.append(f"{plain.group(1) or 'python'} {plain.group(2).strip()}")
    return found


TABLE = {row[0]: re.findall(r"`([^`]+)`", row[1]) for row in
         re.findall(r"^\| `make (\w+)` \| (.+) \|$", (ROOT / "docs" / "running.md").read_text(), flags=re.M)}


def test_the_table_has_what_a_user_without_make_needs():
    assert set(TABLE) == set("setup check test smoke figures reproduce lab data scoreboard models site".split())
    assert "docs/running.md" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("target", sorted(set(TABLE) - {"setup", "site"}))
def test_the_plain_form_is_what_make_runs(target):
    assert [shlex.split(c) for c in TABLE[target]] == [shlex.split(c) for c in commands(target)]


RUN_BY = {  # target: (the file that runs it, words to know it by)
    "smoke": ("tests/package/test_smoke.py", '"--profile", "smoke"'),
    "data": ("Makefile", "data_prep fetch all --quiet"),
    "lab": ("tests/runner/lab_browser.py", '"jupyter", "lab"'),
    "help": ("tests/package/test_setup.py", "done = make()")}
NOT_RUN = {"reproduce", "bench"}  # hours; and a quiet machine


def test_every_command_of_the_readme_is_run_somewhere():
    text, steps = (ROOT / "README.md").read_text(), (ROOT / ".ci" / "run").read_text()
    targets = set(re.findall(r"(?:`|^|&& )make ([a-z]+)", text, flags=re.M)) - NOT_RUN
    assert {"test", "check", "site", "models", "figures", "scoreboard", *RUN_BY} <= targets
    for target in targets:
        if target in RUN_BY:
            file, words = RUN_BY[target]
            assert words in (ROOT / file).read_text(), target
        else:
            assert re.search(rf"^(\w+=\w+ )?make {target}\b", steps, flags=re.M), target
    others = set(re.findall(r"`((?:\.venv/bin/)?(?:pip|python|conda)\b[^`\n]*)`", text))
    assert others == {"pip install .", "pip install -e '.[paper]'", ".venv/bin/python -m data_prep status"}
    assert ".venv/bin/python -m data_prep status" in steps and "pip install --quiet --dry-run" in steps
    assert "build_meta.build_wheel" in (ROOT / "tests" / "package" / "test_setup.py").read_text()  # pip install .


def test_the_plain_form_of_the_site_installs_and_builds_the_same():
    install, build = TABLE["site"]
    rule = MAKEFILE[MAKEFILE.index("$(SITE_ENV)/.ready:"):MAKEFILE.index("\nmodels:")]
    assert install.endswith("--no-deps -r requirements-site.txt") and "-r requirements-site.txt" in rule
    assert build.removeprefix("python") in rule and "--no-deps" in rule


def test_the_plain_form_of_the_set_up_installs_the_same():
    venv, pins, package = TABLE["setup"]
    assert venv == "python -m venv .venv" and "-m venv --clear .venv" in MAKEFILE
    assert pins.endswith("-r requirements.txt") and package.split("install ")[1] in MAKEFILE
