"""Every public name has a docstring, and those a reader calls have an example that runs as a test.

Public are the functions and classes of a module that do not start with an underscore, and the methods and properties
of its public classes. Functions, classes and the members of what ``bifkit`` exports (inherited ones too) need an
example; a method of any other class, and what belongs to one study (``experiments``), needs a docstring. The sources
say which names there are, doctest's own finder which examples run: one that a decorator hides from doctest, or that is
skipped, does not count.
"""

import ast
import doctest
import importlib
from pathlib import Path

import pytest

import bifkit

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
                 for folder in ("bifkit", "data_prep", "experiments") for path in (ROOT / folder).rglob("*.py"))
EXPORTED = {f"{c.__module__}.{c.__qualname__}" for name in bifkit.__all__
            for c in getattr(getattr(bifkit, name), "__mro__", ())
            if c.__module__.startswith("bifkit.")}
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def _public(source, module, exported):
    """(name, docstring or None, whether an example is needed) of each public name of a module's source."""
    for node in ast.parse(source).body:
        if not isinstance(node, FUNCTIONS | ast.ClassDef):
            continue
        name = f"{module}.{node.name}"
        if not node.name.startswith("_"):
            yield name, ast.get_docstring(node), not module.startswith("experiments")
        if isinstance(node, ast.ClassDef) and (name in exported or not node.name.startswith("_")):
            for member in node.body:
                setter = any(isinstance(d, ast.Attribute) and d.attr in ("setter", "deleter")
                             for d in getattr(member, "decorator_list", ()))
                if isinstance(member, FUNCTIONS) and not member.name.startswith("_") and not setter:
                    yield f"{name}.{member.name}", ast.get_docstring(member), name in exported


def _runs(module):
    """Names of a module whose docstring has an example that doctest finds and runs."""
    return {test.name for test in doctest.DocTestFinder().find(module)
            if any(not e.options.get(doctest.SKIP) for e in test.examples)}


def _missing(source, module, runs, exported=frozenset()):
    """One line a fault."""
    return [f"{name}: {'no docstring' if not doc else 'no example that runs'}"
            for name, doc, example in _public(source, module, exported) if not doc or example and name not in runs]


@pytest.mark.parametrize("name", MODULES)
def test_public_names_are_explained_by_a_running_example(name):
    module = importlib.import_module(name)
    missing = _missing(Path(module.__file__).read_text(encoding="utf-8"), name, _runs(module), EXPORTED)
    assert not missing, f"{len(missing)} in {name}:\n" + "\n".join(missing)


def test_the_check_sees_what_is_missing():
    source = '''
def bare(): pass
def _private(): pass
def told():
    """Words only."""
def shown():
    """Words and an example."""
class Thing:
    """Words and an example."""
    def bare(self): pass
    def told(self):
        """Words are enough here."""
    @property
    def size(self): return 1
    @size.setter
    def size(self, value): pass
class _Base:
    def fit(self):
        """Words only."""
'''
    found = _missing(source, "m", {"m.shown", "m.Thing"}, {"m._Base"})
    assert [line.split(":")[0] for line in found] == ["m.bare", "m.told", "m.Thing.bare", "m.Thing.size", "m._Base.fit"]
    assert [line for line in found if "no docstring" in line] == [
        "m.bare: no docstring", "m.Thing.bare: no docstring", "m.Thing.size: no docstring"]


def test_skipped_examples_do_not_count():
    module = type(doctest)("m")
    exec('def skipped():\n    """>>> 1  # doctest: +SKIP\n    1\n    """\n'
         'def shown():\n    """>>> 1\n    1\n    """\n', module.__dict__)
    assert _runs(module) == {"m.shown"}


def test_all_packages_are_walked():
    assert {"bifkit", "bifkit.inputs.checks", "experiments.rivals.l2x", "data_prep.fetch"} <= set(MODULES)
    assert {"bifkit.explainers._BIF", "bifkit.explainers.LocalBIF", "bifkit.posterior.Posterior"} <= EXPORTED
