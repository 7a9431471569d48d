"""What the page on settings and the README promise is what the code has."""

import ast
import inspect
import re

import pytest

from bifkit import LocalBIF, plots
from bifkit import gates as gate
from experiments.runner import paths

PAGE = (paths.root() / "docs" / "choosing_settings.md").read_text()
README = (paths.root() / "README.md").read_text()
NOT_A_KNOB = {"model", "preset", "groups", "feature_names", "likelihood", "image", "classes", "device", "self"}


def _knobs():
    """{setting: default as text} of the page's last table."""
    rows = re.findall(r"^\| (`[^|]+) \| ([^|]+) \|", PAGE[PAGE.index("## The knobs"):], flags=re.M)
    found = {}
    for names, values in rows:
        names, values = re.findall(r"`(\w+)`", names), values.strip().strip("`")
        found |= dict(zip(names, values.split(", ") if len(names) > 1 else [values], strict=True))
    return found


def test_every_knob_is_on_the_page_with_its_default():
    found, signature = _knobs(), inspect.signature(LocalBIF).parameters
    assert set(found) == set(signature) - NOT_A_KNOB
    settings = gate.PRESETS["rank"]
    for name, text in found.items():
        default = getattr(settings, name, signature[name].default)
        assert ast.literal_eval(text.split(" (")[0]) == default, name
    assert f"global {settings.global_lr}" in found["lr"]


@pytest.mark.parametrize("name", sorted(NOT_A_KNOB - {"self", "device", "feature_names", "model"}))
def test_the_other_arguments_are_on_the_page_too(name):
    assert f"{name}=" in PAGE


def test_gates_fills_targets_and_presets_are_named():
    for word in (*gate.GATES, *gate.FILLS, *gate.TARGETS, *gate.PRESETS):
        assert f"`{word}`" in PAGE or f'"{word}"' in PAGE, word


def test_links_and_plots_exist():
    for text, folder in ((PAGE, paths.root() / "docs"), (README, paths.root())):
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            assert target.startswith("http") or (folder / target).exists(), target
    line = README[README.index("- `bifkit.plots`"):]
    for name in re.findall(r"`(\w+)`", line[:line.index(";")]):
        assert hasattr(plots, name), name
