"""Every public name has a docstring; what a user calls first documents every parameter, numpydoc style.

Public are the functions and classes of a module that do not start with an underscore, and the methods and properties
of its public classes.
"""

import ast
import inspect
import re
from pathlib import Path

import pytest

import bifkit

ROOT = Path(__file__).resolve().parents[2]
FILES = {str(path.relative_to(ROOT)): path
         for folder in ("bifkit", "data_prep", "experiments") for path in sorted((ROOT / folder).rglob("*.py"))}
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
DOCUMENTED = [bifkit.LocalBIF, bifkit.GlobalBIF, bifkit.Posterior, bifkit.distill, bifkit.refine, bifkit.compare,
              bifkit.masked_surrogate, bifkit.metrics.Evaluator]


def _undocumented(source):
    """Public names of a module's source that have no docstring; the module itself is called ''."""
    tree = ast.parse(source)
    nodes = [("", tree)]
    for node in tree.body:
        if isinstance(node, FUNCTIONS | ast.ClassDef) and not node.name.startswith("_"):
            nodes.append((node.name, node))
            for member in node.body if isinstance(node, ast.ClassDef) else ():
                setter = any(isinstance(d, ast.Attribute) and d.attr in ("setter", "deleter")
                             for d in getattr(member, "decorator_list", ()))
                if isinstance(member, FUNCTIONS) and not member.name.startswith("_") and not setter:
                    nodes.append((f"{node.name}.{member.name}", member))
    return [name for name, node in nodes if not ast.get_docstring(node) and not any(
        isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "__doc__" for line in node.body)]


@pytest.mark.parametrize("name", FILES)
def test_public_names_have_a_docstring(name):
    assert not _undocumented(FILES[name].read_text(encoding="utf-8"))


def test_the_check_sees_what_is_missing():
    source = '''
def bare(): pass
def _private(): pass
def shown():
    """Words."""
class Thing:
    """Words."""
    def bare(self): pass
    @property
    def size(self): return 1
    @size.setter
    def size(self, value): pass
'''
    assert _undocumented(source) == ["", "bare", "Thing.bare", "Thing.size"]


def _parameters(doc):
    """{name: (type, description)} of a numpydoc docstring's section "Parameters"; ``a, b : float`` are two."""
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\S[^\n]*\n-{3,}$|\Z)", inspect.cleandoc(doc), flags=re.M | re.S)
    found, current = {}, ()
    for line in section.group(1).splitlines() if section else ():
        if line and not line.startswith(" "):
            names, _, kind = line.partition(" : ")
            current = [name.strip() for name in names.split(",")]
            found |= {name: [kind.strip(), ""] for name in current}
        else:
            for name in current:
                found[name][1] += line.strip()
    return {name: tuple(words) for name, words in found.items()}


@pytest.mark.parametrize("thing", DOCUMENTED, ids=lambda thing: thing.__name__)
def test_every_parameter_is_documented(thing):
    documented, expected = _parameters(inspect.getdoc(thing)), inspect.signature(thing).parameters
    assert set(documented) == set(expected)
    short = {name for name, (kind, words) in documented.items() if not kind or not words}
    assert not short, "a type and one line each"


def test_parameters_are_read_as_numpydoc_writes_them():
    doc = """One line.

    Parameters
    ----------
    model : torch.nn.Module
        Words,
        and more.
    lr, beta : float, default 0.1
        Words.

    Returns
    -------
    x : int
        Not a parameter.
    """
    assert _parameters(doc) == {"model": ("torch.nn.Module", "Words,and more."), "lr": ("float, default 0.1", "Words."),
                                "beta": ("float, default 0.1", "Words.")}
