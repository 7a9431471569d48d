"""Tables for readers: the same numbers give the same page, names are escaped, a verdict never rests on colour alone."""

import re
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from experiments.runner import report

ROWS = pd.Index(["bifkit (local)", "BIF (inst, samp)", "oracle"], name="method")
TABLE = pd.DataFrame({"Syn4": ["95.8 ± 0.4 [84.0]", "11.2 ± 1.3 [81.9]", "99.0"],
                      "Syn5": ["94.0 ± 1.1 [86.0]", "-", "99.0"]}, index=ROWS)
WORDS = pd.DataFrame({"Syn4": {"bifkit (local)": "better", "BIF (inst, samp)": "short"},
                      "Syn5": {"bifkit (local)": "within", "BIF (inst, samp)": "short"}})


class Reader(HTMLParser):
    """Cells of a page as a browser has them: rows of (element, style, text), and what was left open."""

    def __init__(self, page):
        super().__init__()
        self.rows, self.open = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if tag != "br":
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append([tag, dict(attrs).get("style", ""), ""])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1][2] += data


def body(page):
    """The cells that hold values, row by row."""
    found = Reader(page)
    assert not found.open
    return [[cell for cell in row if cell[0] == "td"] for row in found.rows if any(c[0] == "td" for c in row)]


def test_the_same_numbers_give_the_same_page_and_nothing_is_made_up():
    pages = {report.html_table(TABLE.copy(), "a", best="highest", verdict=WORDS.copy()) for _ in range(3)}
    assert len(pages) == 1 and not re.search(r"\bid=|<style|<script", pages.pop())


def test_names_titles_and_cells_are_escaped():
    bad = '<script>alert("1")</script>'
    frame = pd.DataFrame({bad: [bad, "1.0 [<b>]"]}, index=[bad, "a & b"])
    for fold in (True, False):
        page = report.html_table(frame, bad, note=bad, fold=fold)
        assert "<script>" not in page and page.count("&lt;script&gt;") == 5 and "a &amp; b" in page
        assert [[cell[2] for cell in row] for row in body(page)] == [[bad], ["1.0 [<b>]"]]


def test_no_text_of_a_cell_is_lost_or_cut():
    long = pd.DataFrame({"claim": ["word " * 40 + "end"], "mean": ["1.5 ± 0.2 [3.0]"]})
    assert [cell[2] for cell in body(report.html_table(long))[0]] == ["word " * 40 + "end", "1.5 ± 0.2 [3.0]"]
    numbers = pd.DataFrame({"a": [1.5, np.nan], "n": [1, 20]})
    assert [[c[2] for c in row] for row in body(report.html_table(numbers))] == [["1.5", "1"], ["", "20"]]


def test_a_verdict_has_a_sign_and_a_colour_and_the_key_names_them():
    page = report.html_table(TABLE, verdict=WORDS)
    first, second, third = body(page)
    assert first[0][2].startswith("95.8 ▲") and first[1][2].startswith("94.0 =") and second[0][2].startswith("11.2 ▼")
    assert second[1][2] == "-" and not second[1][1]  # nothing was measured: nothing to judge
    assert "rgba" in first[0][1] and "rgba" in second[0][1] and first[0][1] != second[0][1]
    assert not any("▲" in cell[2] or cell[1] for cell in third)
    assert "▲ better, ▼ short, = within" in page


@pytest.mark.parametrize("word", [w for w in report.SIGNS if report.SIGNS[w][1]])
def test_no_verdict_is_told_by_colour_alone(word):
    """Words of another colour have another sign, in the cell and in the key."""
    cell = body(report.html_table(pd.DataFrame({"verdict": [word]})))[0][0]
    assert cell[2] == f"{report.SIGNS[word][0]} {word}" and "rgba" in cell[1]
    verdicts = {w: s for w, s in report.SIGNS.items() if w not in ("True", "False")}  # which are none
    others = {sign for sign, tint in verdicts.values() if tint != report.SIGNS[word][1]}
    assert report.SIGNS[word][0] not in others


def test_a_tint_leaves_the_text_readable_on_white_and_on_black():
    """The theme's own text on the tint over the theme's ground: WCAG's contrast of 4.5 at least."""
    def luminance(rgb):
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in np.array(rgb) / 255]
        return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))

    strength = float(re.search(r"rgba\([^)]*, ([\d.]+)\)", report.html_table(TABLE, verdict=WORDS))[1])
    for ground, text in ((255, 33), (17, 224)):  # JupyterLab's light and dark page, about
        for tint in (report.GOOD, report.BAD):
            seen = strength * np.array([int(c) for c in tint.split(",")]) + (1 - strength) * ground
            dark, light = sorted([luminance(seen), luminance([text] * 3)])
            assert (light + 0.05) / (dark + 0.05) > 4.5
            assert np.abs(seen - ground).max() > 20  # and the tint shows


def test_the_best_of_those_that_compete_is_bold_with_its_equals():
    frame = pd.DataFrame({"a": ["90.0 ± 1.0", "90.0", "1.0", "99.9"], "b": [1.0, 2.0, 3.0, 4.0]},
                         index=["x", "y", "z", "oracle"])
    page = report.html_table(frame, best="highest", among=["x", "y", "z"])
    assert re.findall(r"<b>(.*?)</b>", page) == ["90.0", "90.0", "3.0"]
    assert re.findall(r"<b>(.*?)</b>", report.html_table(frame, best="lowest")) == ["1.0", "1.0"]
    assert "<b>" not in report.html_table(frame)
    with pytest.raises(ValueError, match="best must be one of highest, lowest; got 'max'"):
        report.html_table(frame, best="max")


def test_the_spread_is_small_and_goes_below_where_the_table_would_be_wide():
    assert "95.8 <small>± 0.4 [84.0]</small>" in report.html_table(TABLE)
    wide = pd.concat([TABLE.iloc[:, :1].set_axis([f"Syn{i}"], axis=1) for i in range(9)], axis=1)
    assert "95.8<br><small>± 0.4 [84.0]</small>" in report.html_table(wide)


def test_a_fold_needs_a_title_and_holds_the_whole_table():
    page = report.html_table(TABLE, "More rows", fold=True)
    assert page.startswith("<details>\n<summary>More rows</summary>") and page.endswith("</details>")
    assert len(body(page)) == 3
    with pytest.raises(ValueError, match="needs a title"):
        report.html_table(TABLE, fold=True)


def test_a_wrong_verdict_is_refused():
    with pytest.raises(ValueError, match=r"the verdict on oracle, Syn4 must be one of better.*got 'great'"):
        report.html_table(TABLE, verdict=pd.DataFrame({"Syn4": {"oracle": "great"}}))


def test_two_lines_of_column_names_keep_their_groups_apart():
    frame = pd.DataFrame([[1.0, 2.0, 3.0]], columns=pd.MultiIndex.from_product([["Adult"], ["k=1", "k=3"]]).append(
        pd.MultiIndex.from_tuples([("Credit", "k=1")])))
    words = pd.DataFrame({("Credit", "k=1"): {0: "better"}})
    (cells,) = body(report.html_table(frame, verdict=words))
    assert ["border-left" in cell[1] for cell in cells] == [False, False, True] and cells[2][2] == "3.0 ▲"


def test_an_empty_table_is_a_table():
    assert "<table" in report.html_table(TABLE.iloc[:0], "nothing", best="highest", verdict=WORDS)
    assert "<table" in report.html_table(pd.DataFrame({"not run": []}))


def test_outside_a_notebook_the_text_says_the_same(capsys):
    report.show(TABLE, "A title", best="highest", verdict=WORDS, note="a note")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "A title" and lines[-2:] == ["▲ better, ▼ short, = within", "a note"]
    assert "95.8 ± 0.4 [84.0] ▲" in lines[3] and "▼" in lines[4] and "▲" not in lines[5]


def test_in_a_notebook_page_and_text_are_one_output(monkeypatch):
    shown = []
    monkeypatch.setattr(report, "get_ipython", lambda: SimpleNamespace())
    monkeypatch.setattr(report, "display", lambda data, raw: shown.append(data))
    report.show(TABLE, "A title", fold=True)
    assert list(shown[0]) == ["text/plain", "text/html"] and "95.8 ± 0.4 [84.0]" in shown[0]["text/plain"]
    assert shown[0]["text/html"] == report.html_table(TABLE, "A title", fold=True)


def test_our_rows_stand_beside_the_papers_best_bif():
    mean = pd.DataFrame({"Syn4": [95.0, 10.0, 60.0, 1.0]}, index=["bifkit (local)", "BIF (inst, samp)", "L2X", "mine"])
    assert report.beside(mean, None, "table1")["Syn4"].tolist() == ["95.0 [84.0]", "10.0 [81.9]", "60.0 [66.0]", "1.0"]


def test_ours_the_literal_and_the_paper_stand_in_one_line(monkeypatch):
    board = report.scoreboard().assign(ours=90.0, std=1.0, literal=50.0, same_g="better", released=70.0,
                                         verdict="within")
    monkeypatch.setattr(report, "scoreboard", lambda: board)
    table = report.against("table1")
    assert table.loc[("bifkit (local)", "Syn4")].tolist() == ["90.0 ± 1.0", "50.0", "better", "70.0", "84.0 ± 1.5",
                                                                   "within"]
    fourth = report.against("mnist").loc[("bifkit", "k=4")]  # printed as 0.98: as many decimals as its neighbours
    assert fourth["ours"] == "90.000 ± 1.000" and fourth["the paper"] == "0.980 ± 0.005"
    assert len(table) == 9 and report.verdicts("mnist").loc["bifkit", "k=1"] == "within"
