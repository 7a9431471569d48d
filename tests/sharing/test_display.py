"""The table a Posterior shows: its numbers, its bars, and names that may hold anything."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from bifkit import Posterior
from bifkit.sharing import html, short, text

GLOBAL = Posterior([8.0, 1.0, 3.0], ["age", "sex", "pay"], null=0.5)


class _Table(HTMLParser):
    """Cells, tags and inline styles, as a browser would read them; fails on a tag left open."""

    def __init__(self, source):
        super().__init__()
        self.open, self.tags, self.cells, self.styles, self.links = [], [], [], [], []
        self.feed(source)
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.append(tag)
        self.links += [k for k, _ in attrs if k in ("src", "href", "class", "id") or k.startswith("on")]
        self.styles += [v for k, v in attrs if k == "style"]
        if tag in ("td", "th", "caption"):
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.cells[-1] += data


def _bars(source):
    """(left, width) of the interval's band, left of the mean's tick, for each feature, in percent of the track."""
    band = re.findall(r"left:([\d.]+)%;width:([\d.]+)%;top:3px", source)
    tick = re.findall(r"left:([\d.]+)%;width:3px", source)
    return [(float(left), float(width), float(mean)) for (left, width), mean in zip(band, tick, strict=True)]


def test_html_holds_the_numbers_and_bars_to_scale():
    source = html(GLOBAL)
    table, frame = _Table(source), GLOBAL.to_frame().loc[["age", "pay", "sex"]]
    assert table.cells[:6] == ["Posterior, 3 features", "feature", "share", "mean", "sd", "95 % interval"]
    assert table.cells[6] == f"0{frame.upper.max():.3f}"  # the two ends of the bars' scale
    interval = f"{frame.lower.iloc[0]:.3f} to {frame.upper.iloc[0]:.3f}"
    assert table.cells[7:13] == ["age", f"{7.5 / 10.5:.3f}", "0.667", "0.131", interval, ""]
    for (left, width, mean), (_, r) in zip(_bars(source), frame.iterrows(), strict=True):
        scale = 100 / frame["upper"].max()
        assert np.allclose([left, left + width, mean], scale * r[["lower", "upper", "mean"]], atol=0.2)
    assert source == html(Posterior(GLOBAL.alpha, GLOBAL.feature_names, null=0.5)) == GLOBAL._repr_html_()


def test_html_stands_on_its_own():
    table = _Table(html(GLOBAL))
    assert set(table.tags) <= {"table", "caption", "tr", "th", "td", "div"} and not table.links
    properties = {part.split(":")[0] for style in table.styles for part in style.split(";")}
    # what JupyterLab lets through from a notebook it does not trust; no colour of text or ground: both themes
    assert properties <= {"position", "left", "width", "top", "height", "background-color", "opacity", "text-align",
                          "float"}


@pytest.mark.parametrize("name", [
    "<script>alert(1)</script>", "a & b", "'quoted' \"twice\"", "</td></table>", "年齢 größe"])
def test_names_are_escaped(name):
    table = _Table(html(Posterior([3.0, 1.0], [name, "b"])))
    assert table.cells[7] == name and "script" not in table.tags and len(table.cells) == 19


def test_text_is_aligned_and_to_scale():
    lines = text(GLOBAL).splitlines()
    assert lines[0] == "Posterior, 3 features"
    assert lines[1].split() == ["share", "mean", "sd", "lower", "upper", "0", "0.891"]
    assert len({len(line) for line in (lines[1], *lines[3:])}) == 1
    assert text(GLOBAL).isascii() and text(GLOBAL) == repr(GLOBAL)
    frame = GLOBAL.to_frame().loc[["age", "pay", "sex"]]
    for line, (name, r) in zip(lines[3:], frame.iterrows(), strict=True):
        head, bar, _ = line.split("|")
        assert head.split() == [name, *(f"{v:.3f}" for v in r)]
        cell = r[["lower", "mean", "upper"]] / frame["upper"].max() * (len(bar) - 1)
        drawn = [bar.index(bar.strip()[0]), bar.index("o"), len(bar.rstrip()) - 1]
        assert np.allclose(drawn, cell, atol=0.51)


def test_the_order_is_that_of_the_means():
    wide = Posterior([4.0, 3.5, 1.0], ["a", "b", "c"], null=[3.9, 0.0, 0.0])
    assert [line.split()[:3] for line in text(wide).splitlines()[3:]] == [
        ["a", "0.022", "0.471"], ["b", "0.761", "0.412"], ["c", "0.217", "0.118"]]
    assert _Table(html(wide)).cells[7::6] == ["a", "b", "c"]


def test_small_importances_keep_two_digits():
    many = Posterior(np.ones(5000))
    assert "0.00020" in text(many) and "0.00020" in html(many) and "... and 4990 more" in text(many)


def test_rows_are_named():
    assert text(Posterior([[1.0, 2.0]])).startswith("Posterior of one row, 2 features")
    assert text(Posterior([[1.0, 2.0]] * 3)).startswith("Posterior of 3 rows, averaged, 2 features")


def test_names_that_would_break_a_table_do_not():
    names = ["a\nb", "tab\there", "", "c" * 90, "年齢", "\x1b[31mred"]
    lines = text(Posterior(np.arange(6.0, 0, -1), names)).splitlines()
    assert len(lines) == 9 and "\x1b" not in "".join(lines)
    assert lines[3].startswith("a b ") and lines[5].startswith("(no name) ") and max(map(len, lines)) < 130
    # East Asian letters are two columns wide: two letters fewer stand in their line
    assert lines[7].index("|") == lines[3].index("|") - 2


@pytest.mark.parametrize("alpha", [[1e-3, 1e3], [1e-3, 1e-3], [1e8, 1.0], [0.3, 0.2, 1e-3]])
def test_extreme_posteriors_still_fit_their_track(alpha):
    source = html(Posterior(alpha))
    assert all(0 <= left and left + width <= 100.6 and 0 <= mean <= 98 for left, width, mean in _bars(source))
    bars = [line.split("|")[1] for line in text(Posterior(alpha)).splitlines()[3:]]
    assert all(len(bar) == 25 and bar.count("o") == 1 for bar in bars)


def test_short_names_differ_whatever_is_left_out():
    long = ["mean_of_" + "x" * 60 + "_in_may", "mean_of_" + "x" * 60 + "_in_june", "age"]
    cut = short(long, 20)
    assert [len(n) for n in cut] == [20, 20, 3] and cut[0].endswith("_in_may") and cut[0].startswith("mean_of_")
    middle = ["a" * 20 + i + "b" * 20 for i in "12"]
    assert len(set(short(middle, 10))) == 2  # wider than asked rather than alike
    assert short(["a b", "a  b", "a\nb"]) == ["a b"] * 3  # nothing can tell these apart: no endless search
