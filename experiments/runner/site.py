"""The site: README, docs, executed notebooks and a reference made from the docstrings, by Sphinx (``make site``).

Nothing is executed: a notebook shows what it stored. Every page of ``docs/`` and every notebook is taken by itself;
pages are copied into ``build/site/source`` with the layout of the repository, so that their relative links hold, the
README as ``index``. What they link to comes with them. A warning of Sphinx (a link that leads nowhere) is a failure.
"""

import argparse
import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from experiments.runner import paths

LINK = re.compile(r"\]\(<?([^)>\s#]+)[^)\s]*\)|(?:src|href)=\\?[\"']([^\"'\\#]+)")
PROJECT = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
# Title, words, and what the page shows: names, or all public ones of modules and rooms.
REFERENCE = {
    "explainers": ("Explainers", "``GlobalBIF`` for a data set, ``LocalBIF`` for its rows.",
                   ["bifkit.GlobalBIF", "bifkit.LocalBIF"]),
    "posterior": ("Posterior", "What ``explain`` returns.", ["bifkit.Posterior"]),
    "functions": ("Functions", "Compare and refit; stand-ins for models without gradients; windows of a series.",
                  ["bifkit"]),
    "evaluation": ("Evaluation", "Is an explanation right, and are two different?", ["bifkit.evaluation"]),
    "plots": ("Plots", "Every figure by one name; each takes ``ax=None`` and returns the Axes.", ["bifkit.plots"]),
    "method": ("The method", "The files that a reader of the paper knows by name.",
               ["bifkit.dirichlet", "bifkit.gates", "bifkit.presets", "bifkit.elbo", "bifkit.networks",
                "bifkit.training"]),
    "storage": ("Saved files", "One file format; what it refuses.", ["bifkit.storage"]),
}


def pages() -> list[Path]:
    """Every page of the repository that the site shows, the README first."""
    root = paths.root()
    named = (root / "README.md").read_text(encoding="utf-8")

    def place(file):
        return named.rfind(file.name) % 10**9, file.name  # in the README's order, what it does not name last

    return [root / "README.md", *sorted((root / "docs").glob("*.md"), key=place),
            *sorted((root / "notebooks").glob("*.ipynb")), *sorted((root / "examples").glob("*/card.md")),
            *(root / name for name in PROJECT)]


def staged(text) -> str:
    """A page's text with the README called index, and without the marks in a notebook that are for the tests.

    >>> staged("[readme](../README.md#cite) and [b](docs/README.md), `README.md`")
    '[readme](../index.md#cite) and [b](docs/README.md), `README.md`'
    """
    text = re.sub(r'"# NBVAL_CHECK_OUTPUT\\n",\s*', "", text)
    return re.sub(r"\]\(((?:\.\./)*)README\.md", r"](\1index.md", text)


def linked(page, text) -> list[Path]:
    """Files of the repository that a page links to or shows.

    >>> [f.name for f in linked(paths.root() / "README.md", "[a](LICENSE) [b](gone.md) [c](https://example.org)")]
    ['LICENSE']
    """
    found = ((page.parent / "".join(target)).resolve() for target in LINK.findall(text)
             if not re.match("[a-z]+:", "".join(target)))
    return [file for file in found if file.is_file() and paths.root() in file.parents]


def public(module) -> list[str]:
    """Names of the functions and classes that a module or room offers, classes first.

    >>> public("bifkit.refine"), public("bifkit.storage")
    (['refine'], ['BadFile', 'bad', 'read', 'write', 'write_bytes'])
    """
    loaded = importlib.import_module(module)
    names = getattr(loaded, "__all__", None) or [n for n, v in vars(loaded).items()
                                                 if getattr(v, "__module__", None) == module and not n.startswith("_")]
    shown = [n for n in names if inspect.isclass(getattr(loaded, n)) or inspect.isfunction(getattr(loaded, n))]
    return sorted(shown, key=lambda name: (not inspect.isclass(getattr(loaded, name)), name.lower()))


def reference(page) -> str:
    """One page of the reference as reStructuredText: a table of names, then each with its docstring."""
    title, words, shown = REFERENCE[page]
    elsewhere = {name for other, (_, _, names) in REFERENCE.items() if other != page for name in names}
    lines = [title, "=" * len(title), "", words, ""]
    names = {}  # by module
    for whole in shown:
        module, _, name = whole.rpartition(".")
        if hasattr(importlib.import_module(module or whole), name) and inspect.isclass(
                getattr(importlib.import_module(module or whole), name)):
            names.setdefault(module, []).append(name)
        else:
            names[whole] = [n for n in public(whole) if f"{whole}.{n}" not in elsewhere]
    for module, members in names.items():
        if len(names) > 1:
            lines += [module, "-" * len(module), ""]
        lines += [f".. currentmodule:: {module}", "", ".. autosummary::", "   :nosignatures:", "",
                  *(f"   {n}" for n in members), ""]
        for name in members:
            if inspect.isclass(getattr(importlib.import_module(module), name)):
                lines += [f".. autoclass:: {name}", "   :members:",
                          "   :inherited-members: BaseEstimator, Module, tuple",
                          "   :exclude-members: get_metadata_routing", ""]
            else:
                lines += [f".. autofunction:: {name}", ""]
    return "\n".join(lines)


def contents() -> str:
    """The hidden tables of contents at the end of the front page."""
    root = paths.root()
    names = [file.relative_to(root).with_suffix("").as_posix() for file in pages()[1:]]
    parts = {"Using bifkit": [n for n in names if n.startswith("docs/")],
             "Notebooks": [n for n in names if n.startswith("notebooks/")],
             "Reference": ["api/index"], "The project": [n for n in names if "/" not in n or n.startswith("examples/")]}
    return "".join(f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(entries) + "\n```\n"
                   for caption, entries in parts.items() if entries)


def stage(folder) -> None:
    """Write what Sphinx reads into ``folder``, anew."""
    root, folder = paths.root(), Path(folder)
    shutil.rmtree(folder, ignore_errors=True)
    texts = {page: page.read_text(encoding="utf-8") for page in pages()}
    for page, text in texts.items():
        name = "index.md" if page.name == "README.md" else page.relative_to(root)
        more = contents() if name == "index.md" else ""
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(staged(text) + more, encoding="utf-8")
    for file in {file for page, text in texts.items() for file in linked(page, text)} - set(texts):
        (folder / file.relative_to(root)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder / file.relative_to(root))
    shutil.copy(root / "docs" / "site" / "conf.py", folder / "conf.py")
    (folder / "_static").mkdir()
    shutil.copy(root / "docs" / "site" / "site.css", folder / "_static")
    (folder / "api").mkdir()
    for name in REFERENCE:
        (folder / "api" / f"{name}.rst").write_text(reference(name), encoding="utf-8")
    (folder / "api" / "index.rst").write_text("\n".join(
        ["API reference", "=============", "", "Made from the docstrings; ``help(bifkit.LocalBIF)`` says the same.", "",
         ".. toctree::", "   :maxdepth: 2", "", *(f"   {name}" for name in REFERENCE)]), encoding="utf-8")


def build(folder) -> int:
    """Stage and build the site in ``folder``; the code with which Sphinx ended."""
    folder = Path(folder)
    stage(folder / "source")
    shutil.rmtree(folder / "html", ignore_errors=True)
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-q", "-E", "-W", "--keep-going",
               "-d", str(folder / "doctrees"), str(folder / "source"), str(folder / "html")]
    return subprocess.run(command, cwd=paths.root(), env=os.environ | {"MPLBACKEND": "Agg"}).returncode


def main(argv=None) -> int:
    """The command line; 0 when the site was built."""
    parser = argparse.ArgumentParser(prog="python -m experiments.runner.site", description="build the site")
    parser.add_argument("--folder", default=str(paths.root() / "build" / "site"), help="where; build/site by default")
    folder = Path(parser.parse_args(argv).folder)
    if code := build(folder):
        return code
    print(f"The site is built: open {os.path.relpath(folder / 'html' / 'index.html')} in a browser.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
