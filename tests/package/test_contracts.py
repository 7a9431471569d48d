"""The arrows between the packages (contracts in pyproject.toml, kept by ``lint-imports``); what bifkit does not use."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "bifkit").rglob("*.py"))
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]


def test_the_contracts_are_kept():
    program = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    if not program:
        pytest.skip("import-linter is absent")
    done = subprocess.run([program, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]


def test_the_mathematics_and_the_rest_are_all_of_bifkit():
    contract = next(c for c in CONTRACTS if c["name"].startswith("the mathematics"))
    there = {path.stem for path in (ROOT / "bifkit").glob("*.py")} - {"__init__"}
    there |= {path.parent.name for path in (ROOT / "bifkit").glob("*/__init__.py")}
    named = [name for name in contract["source_modules"] + contract["forbidden_modules"] if name.startswith("bifkit.")]
    assert sorted(named) == sorted(f"bifkit.{name}" for name in there)
    rooms = {path.parent.name for path in (ROOT / "bifkit").glob("*/__init__.py")}
    assert {m for c in CONTRACTS for m in c.get("protected_modules", ())} == {f"bifkit.{room}.*" for room in rooms}


@pytest.mark.parametrize("file", SOURCES, ids=lambda f: str(f.relative_to(ROOT)))
def test_no_private_name_of_a_library_and_no_environment_variable(file):
    source = file.read_text(encoding="utf-8")
    assert not re.findall(r"torch\._|ops\.aten|_execution_engine|joblib\._|os\.environ|getenv", source)
    assert not list(_private(ast.parse(source)))


def _private(tree):
    """``library._x`` and ``from library import _x`` for what is not ours; ``__x__`` is public."""
    libraries = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            libraries |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
            parts = [part for alias in node.names for part in alias.name.split(".")]
        elif isinstance(node, ast.ImportFrom) and node.module.split(".")[0] != "bifkit":
            libraries |= {alias.asname or alias.name for alias in node.names}
            parts = node.module.split(".") + [alias.name for alias in node.names]
        else:
            continue
        yield from (part for part in parts if _is_private(part))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr):
            owner = node.value
            while isinstance(owner, ast.Attribute):
                owner = owner.value
            if isinstance(owner, ast.Name) and owner.id in libraries:
                yield ast.unparse(node)


def _is_private(name):
    return name.startswith("_") and not name.startswith("__")


def test_the_check_sees_private_names():
    source = "import torch\nfrom torch.nn import functional as F\nfrom joblib import _store\nself._x; F.__doc__\n"
    assert list(_private(ast.parse(source))) == ["_store"]
    assert set(_private(ast.parse(source + "torch._C.f(); F._g"))) == {"_store", "torch._C", "F._g"}
