"""What the page on settings and the README promise is what the code has."""

import ast
import inspect
import re
from unittest import mock

import numpy as np
import pytest
import torch

from bifkit import LocalBIF, Posterior, gates, plots, presets
from data_prep import make_synthetic
from experiments.runner import paths

PAGE = (paths.root() / "docs" / "choosing_settings.md").read_text()
RUNNING = (paths.root() / "docs" / "running.md").read_text()
COMPARING = (paths.root() / "docs" / "comparing.md").read_text()
README = (paths.root() / "README.md").read_text()
USING = (paths.root() / "docs" / "using.md").read_text()
NOT_A_KNOB = {"model", "preset", "groups", "group_names", "feature_names", "output", "embedding", "likelihood",
              "image", "classes", "device", "self"}


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
    settings = presets.PRESETS["rank"]
    for name, text in found.items():
        default = getattr(settings, name, signature[name].default)
        assert ast.literal_eval(text.split(" (")[0]) == default, name
    assert f"global {settings.global_lr}" in found["lr"]


def test_the_rules_on_the_page_are_those_of_the_code():
    s = presets.PRESETS["rank"]
    assert f"stops after {s.global_steps} steps" in PAGE and f"takes {s.global_steps} steps at most" in PAGE
    prior, factor, power = map(float, re.search(r"is ([\d.]+)/G each.*weighs ([\d.]+) \(G/11\)\^([\d.]+\d)", PAGE,
                                                flags=re.S).groups())
    for G in (2, 11, 300):
        assert s.for_data(G, 1.0).prior == pytest.approx(prior / G)
        assert s.for_data(G, 1.0).kl_weight == pytest.approx(factor * (G / 11) ** power)
    prob = inspect.signature(Posterior.relevant).parameters["prob"].default
    assert f"above `prob={prob}`" in PAGE
    by_nats = ", ".join(f"`{name}`" for name, p in presets.PRESETS.items() if p.fidelity == "absolute")
    assert by_nats.replace("`paper`, ", "`paper` and ") in " ".join(PAGE.split())
    assert presets.PRESETS["few"].fill == "mean" and "`few` blanks with the mean" in PAGE


@pytest.mark.parametrize("name", sorted(NOT_A_KNOB - {"self", "device", "feature_names", "model"}))
def test_the_other_arguments_are_on_the_page_too(name):
    assert f"{name}=" in PAGE


def test_gates_fills_targets_and_presets_are_named():
    for word in (*gates.GATES, *gates.FILLS, *presets.TARGETS, *presets.FIDELITIES, *presets.PRESETS):
        assert f"`{word}`" in PAGE or f'"{word}"' in PAGE, word


def test_links_and_plots_exist():
    for text in (PAGE, USING, COMPARING, README):
        folder = paths.root() / ("" if text is README else "docs")
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            assert target.startswith("http") or (folder / target).exists(), target
    line = USING[USING.index("- `bifkit.plots`"):]
    for name in re.findall(r"`(\w+)`", line[:line.index(";")]):
        assert hasattr(plots, name), name


@pytest.mark.parametrize("page", [README, USING])
def test_a_pages_first_lines_run(page):
    X = np.random.default_rng(0).normal(size=(100, 4)).astype("float32")
    g = torch.nn.Linear(4, 2)
    with torch.no_grad():
        g.weight.copy_(torch.tensor([[0.0, -3, 0, 0], [0, 3, 0, 0]]))
    names = {"model": g, "other_model": torch.nn.Linear(4, 2), "X": X, "y": (X[:, 1] > 0).astype(int), "X_new": X[:5]}
    exec(re.search(r"```python\n(.*?)```", page, flags=re.S).group(1), names)
    assert names["posterior"].mean.argmax() == 1 and (names["rows"].mean.argmax(-1) == 1).all()


def test_what_the_readme_says_is_printed_is_what_notebook_00_printed():
    claimed = re.search(r"relevant\(\)\) +# \.\.\. (.+), \.\.\.; (.+)$", README, flags=re.M).groups()
    stored = (paths.notebooks() / "00_start_here.ipynb").read_text(encoding="utf-8")
    (line,) = re.findall(r"Relevant\(prob=0.7\): .*", stored)
    assert all(words in line for words in claimed), line


@pytest.mark.slow
def test_another_setting_in_a_study_takes_three_lines():
    lines = re.search(r"```python\n(from experiments.*?)```", RUNNING, flags=re.S).group(1).splitlines()
    names, data = {}, make_synthetic("Syn2", 100, rows=400)
    for line in lines[:-1]:
        exec(line, names)
    names["tabular"].OURS["mine"] |= {"epochs": 1, "min_steps": 50}  # the lines are tested, not the fit
    try:
        with mock.patch.dict(names["tabular"].DATASETS, Adult=lambda seed: data):
            row = eval(lines[-1], names)
    finally:
        del names["tabular"].OURS["mine"]
        names["tabular"].prepared.cache_clear()
    assert 0 < row["local_1"] <= 100 and "local_1" in lines[-1]


def test_the_example_of_comparing_runs_and_finds_the_difference():
    names = {}
    exec(re.search(r"```python\n(.*?)```", COMPARING, flags=re.S).group(1), names)
    found = names["found"]
    assert found.p_value < 0.05 and set(found.to_frame().index[:2]) == {"x1", "x2"}
    for word in ("total_variation", "jensen_shannon", "kl", "features", "top_changed"):
        assert hasattr(found, word) and f"`{word}`" in COMPARING
