"""The one-file report: well-formed, nothing from elsewhere, names as text, numbers those of the posterior."""

import re
from html.parser import HTMLParser
from unittest import mock

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from bifkit import GlobalBIF, Posterior
from bifkit.sharing import report

HOSTILE = ["<script>alert(1)</script>", "a\"b'c", "&amp;", "温度 $x^2$", "line\nbreak",
           "lone \ud800 half", "</td></table>"]
VOID = {"meta", "img"}


class Page(HTMLParser):
    """What a browser would make of the page: tags that close in order, texts, addresses."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.words, self.addresses = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def made(posterior, folder, **options):
    posterior.report(folder / "report.html", **options)
    return (folder / "report.html").read_text(encoding="utf-8")


def both():
    rng = np.random.default_rng(0)
    settings = {"preset": "<b>rank</b>", "epochs": 25}
    yield Posterior(rng.uniform(0.5, 9, len(HOSTILE)), HOSTILE, settings=settings)
    yield Posterior(rng.uniform(0.5, 9, (4, len(HOSTILE))), HOSTILE, settings=settings, index=["a", "<i>", "c", "'d"])


@pytest.mark.parametrize("posterior", list(both()), ids=["global", "local"])
def test_hostile_names_are_text_and_nothing_is_loaded(posterior, tmp_path):
    text = made(posterior, tmp_path, title="<script>'&")
    page = Page(text)
    assert not {"script", "i", "link", "iframe", "object"} & set(page.tags)
    assert "http" not in re.sub("base64,[^']*", "", text)
    assert len(page.addresses) == 2 and all(a.startswith("data:image/png;base64,") for a in page.addresses)
    assert not re.search(r"url\(|@import", text)
    for name in ("<script>alert(1)</script>", "a\"b'c", "&amp;", "温度 $x^2$", "line break", "</td></table>",
                 "<b>rank</b>", "<script>'&"):
        assert name in page.words, name
    assert "prefers-color-scheme: dark" in text and "width=device-width" in text
    assert not plt.get_fignums(), "figures are closed"


def test_the_numbers_are_those_of_the_table(tmp_path):
    p = Posterior([6.0, 3.0, 1.0], ["age", "sex", "pay"])
    words = Page(made(p, tmp_path)).words
    start = words.index("age", words.index("feature"))
    assert words[start + 1:start + 6] == [f"{v:.3f}" for v in p.to_frame().loc["age"]]


def test_how_the_fit_went_and_long_tables(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 120)).astype("float32")
    with pytest.warns(UserWarning):
        explainer = GlobalBIF(torch.nn.Linear(120, 2), likelihood="categorical", min_steps=101, epochs=1,
                              kl_weight=100.0).fit(X)
    text = made(explainer.explain(), tmp_path, explainer=explainer)
    page = Page(text)
    assert page.words[page.words.index("Which features matter", 2) + 1].endswith(
        "; of Linear; fitted on 60 rows; by GlobalBIF, preset rank")
    assert "The fit" in page.words and "101" in page.words and len(page.addresses) == 3
    assert "and 20 more" in page.words and explainer.diagnostics_.advice()[0] in page.words


def test_an_old_report_stays_when_a_new_one_cannot_be_made(tmp_path):
    p = Posterior([6.0, 3.0])
    text = made(p, tmp_path)
    with mock.patch("os.replace", side_effect=OSError("disk")), pytest.raises(OSError, match="disk"):
        p.report(tmp_path / "report.html", title="another")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == text and len(list(tmp_path.iterdir())) == 1


def test_wrong_names_and_explainers_are_refused(tmp_path):
    p = Posterior([6.0, 3.0])
    with pytest.raises(ValueError, match="ends in .html"):
        p.report(tmp_path / "report.pdf")
    with pytest.raises(TypeError, match="fitted GlobalBIF"):
        p.report(tmp_path / "report.html", explainer=object())
    assert list(tmp_path.iterdir()) == [] and report.page(p).startswith("<!doctype html>")
