"""The scoreboard: every number of the paper is on it, and each verdict follows the rule."""

import io
import shutil

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from experiments.runner import paths, scoreboard


@pytest.fixture(autouse=True)
def output(tmp_path, monkeypatch):
    monkeypatch.setenv("BIF_OUTPUT", str(tmp_path))
    return tmp_path


STALE = "README.md or a page of docs/ is stale: python -m experiments.runner.scoreboard --pages"


def hand_in(item, row, column, values, study="study"):
    scoreboard.submit(study, pd.DataFrame({"item": item, "row": row, "column": column, "seed": range(len(values)),
                                      "value": values}))


def verdict(frame, item, row, column):
    return frame[(frame["item"] == item) & (frame["row"] == row) & (frame["column"] == column)].iloc[0]


def test_columns_and_rows():
    frame, theirs = scoreboard.scoreboard(), scoreboard.numbers()
    assert list(frame) == scoreboard.COLUMNS
    assert (paths.results() / "scoreboard.csv").read_text().splitlines()[0] == ",".join(frame)
    key = ["item", "row", "column"]
    assert set(map(tuple, theirs[key].to_numpy())) <= set(map(tuple, frame[key].to_numpy()))
    assert not frame.duplicated(key).any()
    ours = frame[frame["row"].str.startswith("bifkit")]
    assert ours.groupby(["item", "row"]).size().to_dict() == {
        ("table1", "bifkit (local)"): 6, ("table1", "bifkit (global)"): 3, ("table2", "bifkit (local)"): 9,
        ("table2", "bifkit (global)"): 9, ("mnist", "bifkit"): 5}
    assert set(frame["verdict"]) == {"not run"}


def test_the_rival_is_the_papers_best_bif():
    # read off the paper's tables by hand
    frame = scoreboard.scoreboard()
    best = [verdict(frame, "table1", "bifkit (local)", f"Syn{i}")["paper"] for i in range(1, 7)]
    assert best == [100, 100, 93.6, 84.0, 86.0, 85.6]
    assert verdict(frame, "table2", "bifkit (local)", "Intrusion k=3")["paper"] == 95.8
    assert verdict(frame, "table2", "bifkit (global)", "Intrusion k=3")["paper"] == 82.4
    assert verdict(frame, "mnist", "bifkit", "k=4")["paper"] == 0.98


@pytest.mark.parametrize("values, expected", [
    ([93.0, 94.0, 93.5, 93.2, 93.8], "better"),
    ([84.0, 86.0, 82.0, 85.0, 83.5], "within"),  # mean 84.1, two standard errors 1.4
    ([80.0, 80.2, 79.9, 80.1, 80.0], "short"),
    ([84.04], "within"),  # 84.0 at the printed digits
    ([84.2], "better"),  # one run has no spread to hide in
    ([float("nan")], "not run"),
    ([], "not run"),
])
def test_verdict_of_a_score(values, expected):
    hand_in("table1", "bifkit (local)", "Syn4", values)
    line = verdict(scoreboard.scoreboard(), "table1", "bifkit (local)", "Syn4")
    assert line["verdict"] == expected
    good = [v for v in values if v == v]
    assert line["runs"] == len(good)
    if len(good) > 1:
        assert line["std"] == pytest.approx(np.std(good, ddof=1))


def test_chance_is_scipys():
    """Welch's test where the paper prints a spread, else a test against its figure as it stands; the paired one."""
    got, rerun = np.array([93.0, 94.5, 92.8, 95.1, 93.3]), np.array([92.0, 94.0, 92.9, 94.1, 91.3])
    welch = stats.ttest_ind_from_stats(got.mean(), got.std(ddof=1), 5, 92.0, 1.7, 5, equal_var=False).pvalue
    assert scoreboard.chance(pd.Series(got), 92.0, 1.7) == pytest.approx(welch)
    alone = stats.ttest_1samp(got, 92.0).pvalue
    for none in (0.0, np.nan):
        assert scoreboard.chance(pd.Series(got), 92.0, none) == pytest.approx(alone)
    paired = scoreboard.chance_paired(pd.Series(got), pd.Series(rerun)[::-1])  # by seed, whatever the order
    assert paired == pytest.approx(stats.ttest_rel(got, rerun).pvalue)
    same = pd.Series([5.0] * 5)
    assert scoreboard.chance(same, 5.0, 0.0) == 1 and scoreboard.chance(same, 4.0, np.nan) == 0
    assert scoreboard.chance_paired(same, same) == 1 and scoreboard.chance_paired(same, same - 1) == 0
    for few in (same[:1], same[:0]):
        assert np.isnan(scoreboard.chance(few, 4.0, 0.0)) and np.isnan(scoreboard.chance_paired(same, few))


def test_holm_by_its_definition():
    """Rejected at a level: in order of size, each p below level / (number of those left), until one is not."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        p = pd.Series(np.append(rng.beta(0.3, 3, rng.integers(1, 9)), np.nan))
        adjusted = scoreboard.holm(p)
        assert adjusted.isna().tolist() == p.isna().tolist()
        for level in (0.01, 0.05, 0.3):
            order, rejected = p.dropna().sort_values(), []
            for left, (i, value) in zip(range(len(order), 0, -1), order.items(), strict=True):
                if value > level / left:
                    break
                rejected.append(i)
            assert sorted(adjusted.index[adjusted <= level]) == sorted(rejected)


def test_a_table_of_many_cells_needs_a_smaller_p_in_each():
    values = [66.0 + v for v in (1.0, 2.5, 0.7, 3.0, 2.8)]  # p = .018 against 66.0, which has no printed spread
    hand_in("table1", "L2X", "Syn4", values)
    assert verdict(scoreboard.scoreboard(), "table1", "L2X", "Syn4")["verdict"] == "better"
    others = pd.DataFrame([("table1", "INVASE", f"Syn{i}", seed, 57.0 + 9 * seed) for i in range(1, 7)
                           for seed in range(3)], columns=scoreboard.SUBMITTED)
    scoreboard.submit("others", others)
    line = verdict(scoreboard.scoreboard(), "table1", "L2X", "Syn4")
    assert line["verdict"] == "within" and line["p"] == pytest.approx(7 * stats.ttest_1samp(values, 66.0).pvalue)


@pytest.mark.parametrize("ours, literal, expected", [
    ([95.0, 96.0, 95.5], [11.0, 12.0, 10.0], "better"), ([95.0, 96.0, 95.5], [95.2, 95.6, 95.9], "level"),
    ([11.0, 12.0, 10.0], [95.0, 96.0, 95.5], "worse"), ([95.0, 96.0], [], ""), ([95.0], [11.0], "")])
def test_the_papers_best_variant_on_the_same_g(ours, literal, expected):
    hand_in("table1", "bifkit (local)", "Syn4", ours)
    hand_in("table1", "BIF (inst, pe)", "Syn4", literal, study="b")
    hand_in("table1", "BIF (inst, samp)", "Syn4", [v - 50 for v in literal], study="c")
    line = verdict(scoreboard.scoreboard(), "table1", "bifkit (local)", "Syn4")
    assert line["same_g"] == expected
    assert np.isnan(line["literal"]) if not literal else line["literal"] == pytest.approx(np.mean(literal))


def test_the_authors_code_is_judged_by_the_figure_of_its_variant():
    """Far above the printed 79.0 of the point estimate, far below the 86.0 of sampling: spreads 6.1 and 1.0."""
    for row, values in (("released (inst, pe)", [95.0, 95.5, 94.5]), ("released (inst, samp)", [50.0, 50.5, 49.5])):
        hand_in("table1", row, "Syn5", values, study=row.split()[-1].strip(")"))
    frame = scoreboard.scoreboard()
    found = {row: verdict(frame, "table1", row, "Syn5") for row in ("released (inst, pe)", "released (inst, samp)")}
    assert [line["verdict"] for line in found.values()] == ["better", "short"]
    assert found["released (inst, pe)"]["p"] == pytest.approx(stats.ttest_ind_from_stats(
        95.0, 0.5, 3, 79.0, 6.1, 5, equal_var=False).pvalue, rel=1e-6)  # the larger of two: Holm leaves it as it is
    assert verdict(frame, "table1", "bifkit (local)", "Syn5")["released"] == 95.0  # the best variant
    assert "1 of 2 figures that the paper prints for BIF are reached, 0 missed by no more than both spreads explain, " \
        "1 missed (Table 1: 1 of 2 missed, " in scoreboard.summary()
    assert "With the code's settings Table 1 (inst, samp) Syn5 are out of reach." in scoreboard.summary()


def test_a_perfect_score_is_not_met_by_rounding_to_whole_numbers():
    hand_in("table1", "bifkit (local)", "Syn1", [99.6])
    assert verdict(scoreboard.scoreboard(), "table1", "bifkit (local)", "Syn1")["verdict"] == "short"


@pytest.mark.parametrize("item, row, column, value, expected", [
    ("table_privacy_noise", "sigma=1.35", "epsilon", 8.0736, "within"),
    ("table_privacy_noise", "sigma=1.35", "epsilon", 8.12, "short"),
    ("table_privacy_noise", "sigma=0", "epsilon", float("inf"), "within"),
    ("table_privacy_noise", "sigma=0", "epsilon", 8.0, "short"),
    ("importance_values", "Syn1", "relevant feature 1", 0.517, "within"),
    ("importance_values", "Syn1", "relevant feature 1", 0.52, "short"),
    ("fig_fairness", "p%-rule on race", "57", 60.9, "within"),
    ("fig_fairness", "p%-rule on race", "57", 61.1, "short"),
])
def test_values_to_match(item, row, column, value, expected):
    hand_in(item, row, column, [value])
    assert verdict(scoreboard.scoreboard(), item, row, column)["verdict"] == expected


@pytest.mark.parametrize("syn2, syn3, expected", [(0.5, 0.9, "within"), (0.9, 0.5, "short"), (0.5, None, "not run")])
def test_figure_2_is_about_the_order(syn2, syn3, expected):
    hand_in("fig2", "Syn2", "sum of posterior sd", [syn2], study="a")
    if syn3 is not None:
        hand_in("fig2", "Syn3", "sum of posterior sd", [syn3], study="b")
    frame = scoreboard.scoreboard()
    assert set(frame[frame["item"] == "fig2"]["verdict"]) == {expected}


def test_bad_submissions():
    good = pd.DataFrame({"item": ["mnist"], "row": ["bifkit"], "column": ["k=1"], "seed": [0], "value": [0.8]})
    for frame, words in ((good.drop(columns="seed"), "without"), (good.assign(item="tabel1"), "tabel1"),
                         (good.assign(column="k=9"), "k=9"), (pd.concat([good, good]), "twice")):
        with pytest.raises(ValueError, match=words):
            scoreboard.submit("study", frame)
    with pytest.raises(ValueError, match="file's name"):
        scoreboard.submit("../study", good)
    scoreboard.submit("one", good)
    scoreboard.submit("two", good)
    with pytest.raises(ValueError, match="two studies"):
        scoreboard.scoreboard()


def test_colour_only_on_a_terminal(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert scoreboard.wants_colour(Terminal()) and not scoreboard.wants_colour(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not scoreboard.wants_colour(Terminal())
    hand_in("mnist", "bifkit", "k=1", [0.82])
    assert "\x1b[32m" in scoreboard.table(colour=True) and "\x1b" not in scoreboard.table()
    assert "0.820/0.788+" in scoreboard.table()


def test_pages_are_renewed_between_their_markers(output, capsys):
    page = output / "docs" / "speed.md"
    page.parent.mkdir()
    (output / "README.md").write_text("# top\n<!-- scoreboard -->\noutdated\n<!-- /scoreboard -->\n<!-- claims -->\n"
                                      "<!-- /claims -->\n<!-- summary -->\n<!-- /summary -->\n<!-- more -->\n"
                                      "<!-- /more -->\nend\n")
    (output / "docs" / "claims.md").write_text("<!-- claims -->\n<!-- /claims -->\n")
    page.write_text("<!-- timings -->\n<!-- /timings -->\n<!-- speed -->\n<!-- /speed -->\nend\n")
    (paths.figures() / "bench.md").write_text("| promise |\n|---|\n| fast |\n")
    minutes = pd.DataFrame({"notebook": ["03_mnist", "09_speed"], "minutes": [4.5, 2.0]})
    minutes.to_csv(paths.results() / "timings.csv", index=False)
    hand_in("mnist", "bifkit", "k=1", [0.82])
    assert scoreboard.main(["--pages"]) == 0
    readme, speed = (output / "README.md").read_text(), page.read_text()
    assert readme.startswith("# top\n<!-- scoreboard -->\n| paper item") and readme.endswith("/more -->\nend\n")
    assert "Ours lies below the printed figure in 0 of 32 cells (none: " in readme
    assert "outdated" not in readme and "0.820 / not run" in readme
    assert "\n| 03_mnist | 4.5 |\n| 09_speed | 2.0 |\n| **the paper's items, 00 to 05** | **4.5** |\n" \
        "| **beyond the paper, 06 to 10** | **2.0** |\n| **all** | **6.5** |\n\n| minutes of one core |" in speed
    assert speed.endswith("|\n<!-- /timings -->\n<!-- speed -->\n| promise |\n|---|\n| fast |\n<!-- /speed -->\nend\n")
    assert scoreboard.update_pages() == [] and (output / "README.md").read_text() == readme
    page.write_text("no place")
    assert scoreboard.main(["--pages"]) == 1 and "docs/speed.md has no <!-- timings -->" in capsys.readouterr().out
    assert page.read_text() == "no place"


def test_minutes_of_a_method_are_the_sums_of_its_runs():
    def runs(name, **columns):
        pd.DataFrame(columns).to_csv(paths.results() / f"{name}.csv", index=False)

    runs("synthetic", method=["A", "A", "B", "B"], seconds=[60, 30, 30, float("nan")], error=["", "", "", "boom"])
    runs("synthetic_as_printed", method=["B", "C"], seconds=[6, 6], error=["", ""])
    runs("mnist", method=["B"], seconds=[600], error=[""])
    runs("fairness", seed=[0, 1], seconds=[60, 60], error=["", ""])
    runs("no_notebook_names_this", method=["A"], seconds=[6000])
    lines = scoreboard.timings_table().split("\n\n")[1].splitlines()
    assert set(lines.pop(1)) == {"|", "-"}
    assert lines == [
        "| minutes of one core | 01 | 03 | 05 | all |", "| B | 0.6 | 10.0 |  | 10.6 |",
        "| A | 1.5 |  |  | 1.5 |", "| C | 0.1 |  |  | 0.1 |", f"| {scoreboard.UNSPLIT} |  |  | 2.0 | 2.0 |",
        "| all | 2.2 | 10.0 | 2.0 | 14.2 |"]
    assert "| 2 others | 1.6 |  |  | 1.6 |" in scoreboard.costs(scoreboard.cpu_minutes(), most=1)


def test_the_committed_scoreboard_and_readme_are_current(output):
    scores, readme = paths.root() / "results" / "scores", paths.root() / "README.md"
    speed = (paths.root() / "docs" / "speed.md").read_text()
    if not scores.exists() or not readme.exists():
        pytest.skip("no README or no results yet")
    shutil.copytree(scores, paths.results() / "scores")
    scoreboard.scoreboard()
    fresh, stored = paths.results() / "scoreboard.csv", paths.root() / "results" / "scoreboard.csv"
    assert fresh.read_text() == stored.read_text(), "results/scoreboard.csv is stale: make scoreboard"
    for file in (paths.root() / "results").glob("*.csv"):
        shutil.copy(file, paths.results())
    assert scoreboard.readme_table() in readme.read_text(), STALE
    assert scoreboard.summary() in readme.read_text(), STALE
    assert scoreboard.more() in readme.read_text(), STALE
    if (paths.root() / "results" / "timings.csv").exists():
        assert scoreboard.timings_table() in speed, STALE
    if (paths.root() / "figures" / "bench.md").exists():
        shutil.copy(paths.root() / "figures" / "bench.md", paths.figures())
        assert scoreboard.speed_table() in speed, STALE
