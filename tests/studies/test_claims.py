"""The paper's claims: intervals against scipy, verdicts on runs whose answer is clear, and the committed page."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from experiments import claims, claims_synthetic, claims_tables, figures, mnist, released, synthetic, tabular, verdicts
from experiments.divergence import FAILS, HOLDS, OPEN
from experiments.runner import paths
from experiments.verdicts import Part, all_of, any_of, measured

SEEDS = range(5)
RIVALS = verdicts.RIVALS


def _verdict(frame, *words):
    """The one verdict on the claim whose text has all these words."""
    found = frame[[all(w in claim for w in words) for claim in frame["claim"]]]
    assert len(found) == 1, (words, frame["claim"].tolist())
    return found["verdict"].iloc[0]


# ------------------------------------------------------------------ intervals

def test_the_interval_of_a_mean_is_scipys():
    values = [93.1, 95.0, 92.2, 96.4, 94.0]
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert Part("", values).interval() == pytest.approx((np.mean(values), *expected))
    wide = stats.t.interval(0.99, 4, np.mean(values), stats.sem(values))
    assert Part("", values).interval(0.01)[1:] == pytest.approx(wide)


def test_the_interval_of_a_spread_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(0)
    ends = [Part("", row, spread=True).interval()[1:] for row in rng.normal(0, 2.0, (2000, 5))]
    assert np.mean([low < 2.0 < high for low, high in ends]) == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize("values, verdict", [
    ([12.0, 14.0, 13.0, 12.5, 13.5], HOLDS), ([2.0, 4.0, 3.0, 2.5, 3.5], FAILS), ([0.0, 30.0, 5.0, 22.0, 9.0], OPEN),
    ([13.0], OPEN), ([], OPEN), ([np.nan, 12.0, 14.0, 13.0, 12.5, 13.5], HOLDS), ([10.0] * 5, FAILS),
])
def test_a_margin_has_to_lie_below_the_whole_interval(values, verdict):
    assert Part("", values, low=10.0).verdict() == verdict


def test_a_failure_among_many_parts_needs_the_wider_interval():
    good = Part("", [1.0, 1.1, 0.9, 1.0, 1.05])
    mild = Part("", [-1.0, -0.1, -0.6, -0.3, -0.9])  # below zero at 95 %, not at 99.6 %
    assert stats.ttest_1samp(mild.values, 0.0).pvalue == pytest.approx(0.028, abs=0.01)
    assert all_of([mild]) == FAILS and all_of([good] * 11 + [mild]) == OPEN
    opposite = Part("", -np.array(mild.values))
    assert any_of([opposite]) == HOLDS and any_of([Part("", [-1.0, -1.1, -0.9])] * 11 + [opposite]) == OPEN


def test_many_parts_are_counted_and_the_worst_is_named():
    text = measured([Part(f"k={k}", np.array([1.0, 1.1, 0.9]) - 2 * (k == 3)) for k in range(8)])
    assert text.startswith("of 8 comparisons 7 hold, 1 do not; furthest from the claim: k=3 -1.0")


# ------------------------------------------------------------------ synthetic data

def _synthetic(level, *, noise=0.5, weights=None, seed=0, methods=synthetic.METHODS):
    """Runs with MCC ``level(method, data set)`` and importances ``weights(method, data set)``, both with noise."""
    rng, lines = np.random.default_rng(seed), []
    for method in methods:
        for dataset in claims_synthetic.SETS:
            if "global" in method and dataset in synthetic.LOCAL_ONLY:
                continue
            for s in SEEDS:
                n = claims_synthetic.RELEVANT.get(dataset, 4)
                share = np.where(np.arange(11) < n, 1.0, 0.01) if weights is None else weights(method, dataset)
                share = share * np.exp(rng.normal(0, 1e-3, 11))
                row = {"dataset": dataset, "method": method, "seed": s, "mcc": level(method, dataset)
                       + rng.normal(0, noise), "fit_seconds": 1.0 if "pe" in method else 3.0 + 0.1 * rng.random(),
                       "shares": json.dumps((share / share.sum()).tolist()), "error": ""}
                if "global" in method:
                    row["sum_sd"] = {"Syn3": 0.5}.get(dataset, 0.2) + 0.01 * rng.random()
                lines.append(row | ({"selection": json.dumps([0.9] * 4 + [0.1] * 7)} if method == "INVASE" else {}))
    return pd.DataFrame(lines)


def _level(lead, hard=8.0):
    """BIF ``lead`` points ahead on Syn4 to Syn6; Syn3 harder."""
    def level(method, dataset):
        base = 70.0 if dataset in claims_synthetic.MIXED else 95.0 - hard * (dataset == "Syn3")
        return base if method in RIVALS or dataset not in claims_synthetic.MIXED else base + lead
    return level


@pytest.mark.parametrize("lead, ahead, margin", [(15.0, HOLDS, HOLDS), (5.0, HOLDS, FAILS), (-5.0, FAILS, FAILS)])
def test_the_margin_of_table_1(lead, ahead, margin):
    found = claims.synthetic(_synthetic(_level(lead)))
    for who in ("BIF as printed", "bifkit"):
        assert _verdict(found, f"{who}, local: ahead") == ahead
        assert _verdict(found, f"{who}, local: 10 points") == margin
        assert _verdict(found, f"{who}: excels") == (HOLDS if lead > 0 else FAILS)


def test_a_spread_so_wide_that_nothing_can_be_decided():
    found = claims.synthetic(_synthetic(_level(5.0), noise=40.0))
    for words in ("local: ahead", "excels", "perform alike", "higher variance", "most challenging",
                  "works globally too"):
        assert _verdict(found, "BIF as printed", words) == OPEN, words


def test_what_is_planted_about_sampling_and_importances_is_found():
    def weights(method, dataset):
        n = claims_synthetic.RELEVANT.get(dataset, 4)
        share = np.where(np.arange(11) < n, 1.0, 0.0)
        if dataset == "Syn3":
            share[:4] = [4, 3, 2, 1]
        elif method in RIVALS:
            share[0] = 2.0  # wrong
        return share + 1e-4

    found = claims.synthetic(_synthetic(_level(15.0), weights=weights))
    for words in ("perform alike", "sampling takes longer", "most challenging", "are equal", "among the relevant",
                  "over all features", "different importances", "SHAP gives similar", "less certain", "sine",
                  "works globally too"):
        assert _verdict(found, "bifkit", words) == HOLDS, words
    assert _verdict(found, "INVASE: its selection") == HOLDS
    assert _verdict(found, "bifkit", "faster and better") == OPEN  # faster, and as good

    def swapped(method, dataset):
        return weights("SHAP" if method not in RIVALS else "bifkit", dataset)

    found = claims.synthetic(_synthetic(_level(15.0, hard=-3.0), weights=swapped))
    for words in ("most challenging", "are equal", "among the relevant", "over all features"):
        assert _verdict(found, "bifkit", words) == FAILS, words


def test_sampling_and_point_estimate_that_differ_or_scatter():
    def level(method, dataset):
        return _level(15.0)(method, dataset) - 30.0 * ("pe" in method)

    frame = _synthetic(level)
    assert _verdict(claims.synthetic(frame), "bifkit", "perform alike") == FAILS
    assert _verdict(claims.synthetic(frame), "bifkit", "faster and better") == FAILS
    pe = frame["method"].str.contains("pe") & ~frame["dataset"].isin(["Syn1", "Syn2"])
    one, all_ = {0: -40.0}, {0: -20.0, 1: 21.0, 2: 1.0, 3: 19.0, 4: -22.0}
    for shifts, verdict in ((one, OPEN), (all_, HOLDS)):  # one bad seed is no higher variance yet
        moved = frame["mcc"].where(~pe, frame["mcc"] + frame["seed"].map(shifts).fillna(0.0))
        assert _verdict(claims.synthetic(frame.assign(mcc=moved)), "bifkit", "higher variance") == verdict


def test_variability_of_the_global_variant():
    frame = _synthetic(_level(15.0), noise=0.0)
    assert _verdict(claims.synthetic(frame), "bifkit, global: no variability") == HOLDS
    frame.loc[(frame["method"] == "bifkit (global)") & (frame["dataset"] == "Syn3") & (frame["seed"] == 1), "mcc"] -= 20
    assert _verdict(claims.synthetic(frame), "bifkit, global: no variability") == FAILS


def test_released_rows_are_judged_where_they_are_there():
    frame, given = _synthetic(_level(15.0)), _synthetic(_level(15.0), methods=released.METHODS, seed=1)
    given = given.drop(columns="fit_seconds").assign(draws=20)
    assert not claims.synthetic(frame)["claim"].str.contains("released").any()
    found = claims.synthetic(frame, given)
    assert _verdict(found, "BIF as released, local: ahead") == HOLDS
    assert not found["claim"].str.contains("released, local: sampling takes").any()  # nothing was timed
    draws = pd.concat([given.query("method == @released.METHODS[1]").assign(draws=j, seconds=float(j) + given["seed"])
                       for j in (20, 100)])
    assert _verdict(claims.synthetic(frame, given, draws=draws), "released, local: sampling takes longer") == HOLDS
    on_text = claims.synthetic(frame, given, printed=_synthetic(_level(-15.0)))
    assert _verdict(on_text, "bifkit, on the data of the text, local: ahead") == FAILS


# ------------------------------------------------------------------ tables and digits

def _tables(level, noise=0.2, methods=("BIF", "bifkit", *RIVALS)):
    rng, lines = np.random.default_rng(0), []
    for dataset in tabular.DATASETS:
        for method in methods:
            for s in SEEDS:
                row = {"dataset": dataset, "method": method, "seed": s, "error": "", "top": '["a", "b", "c"]'}
                lines.append(row | {f"{kind}_{k}": level(method, kind, k) + rng.normal(0, noise)
                                    for kind in tabular.KINDS for k in tabular.KS})
    return pd.DataFrame(lines)


def test_the_edge_of_table_2():
    def level(method, kind, k):
        lead = {"local": 1.0, "global": 5.0}[kind] * (method not in RIVALS)
        return 80.0 + k + lead + 3.0 * (kind == "global")

    found = claims.tables(_tables(level))
    for words in ("performs well, local", "performs well, global", "over the best existing", "over the mean",
                  "local explanations reach a lower", "ranking is consistent"):
        assert _verdict(found, "bifkit", words) == HOLDS, words
    assert _verdict(found, "bifkit", "more features lower") == FAILS  # every step gains two points
    found = claims.tables(_tables(lambda m, kind, k: level(m, "local" if kind == "global" else "global", -k)))
    for words in ("over the best existing", "over the mean", "local explanations reach a lower"):
        assert _verdict(found, "bifkit", words) == FAILS, words
    assert _verdict(found, "bifkit", "more features lower") == HOLDS
    scattered, shifts = _tables(level), {0: -30.0, 1: 30.0, 2: -25.0, 3: 25.0, 4: 0.0}
    own = ~scattered["method"].isin(RIVALS)
    for k in tabular.KS:
        scattered.loc[own, f"global_{k}"] += scattered["seed"].map(shifts)
    found = claims.tables(scattered)
    for words in ("performs well, global", "over the best existing", "over the mean", "local explanations"):
        assert _verdict(found, "bifkit", words) == OPEN, words


def test_released_tables_are_judged_by_both_models():
    def level(method, kind, k):
        return 80.0 + 5.0 * (kind == "global")

    given = _tables(level, methods=["released"]).drop(columns="top")
    ours = given[[f"{kind}_{k}" for kind in tabular.KINDS for k in tabular.KS]] - 30.0  # by our g it is far behind
    given = given.join(ours.add_prefix("ours_"))
    found = claims.tables(_tables(level), given)
    assert _verdict(found, "BIF as released: performs well, local") == FAILS
    assert _verdict(found, "BIF as released: local explanations") == HOLDS
    assert not claims.tables(_tables(level))["claim"].str.contains("released").any()


def _digits(lead, patches=(1, 2, 3, 4, 5), noise=0.005):
    rng, lines = np.random.default_rng(0), []
    labels = [0] * 5 + [1] * 5 + [0, 1] * 5
    ink, where = np.zeros((20, 784)), mnist.patches()
    ink[np.array(labels) == 1] = where < 8  # an 8 has ink in the first eight patches, a 3 has none
    for method in ("BIF", "bifkit", "L2X", "INVASE", *mnist.SLOW):
        for s in SEEDS:
            row = {f"acc_{k}": 0.8 + lead * (method in ("BIF", "bifkit")) + rng.normal(0, noise) for k in mnist.KS}
            row |= {f"patches_{k}": p + rng.normal(0, 0.02) for k, p in zip(mnist.KS, patches, strict=True)}
            if s == 0:
                first = 2 if method in ("BIF", "bifkit") else 20 + rng.integers(0, 5)
                row["kept"] = figures.pack(np.tile((where >= first) & (where < first + 4), (10, 1)))
            if s == 0 and method == "bifkit":
                row |= {"images": figures.pack(ink), "labels": json.dumps(labels)}
            lines.append({"method": method, "seed": s, "error": ""} | row)
    return pd.DataFrame(lines)


def test_the_claims_about_digits():
    found = claims.digits(_digits(0.1))
    assert _verdict(found, "bifkit: outperforms") == HOLDS
    assert _verdict(found, "bifkit: includes the curves") == HOLDS
    assert _verdict(found, "INVASE: lambda =") == HOLDS and _verdict(found, "not reliable") == FAILS
    found = claims.digits(_digits(-0.1, patches=(3, 3, 3, 3, 3)))
    assert _verdict(found, "bifkit: outperforms") == FAILS and _verdict(found, "INVASE: lambda =") == FAILS
    assert _verdict(claims.digits(_digits(0.01, noise=0.2)), "bifkit: outperforms") == OPEN
    given = _digits(0.1).query("method == 'bifkit'").assign(method="released")[["method", "seed", "error",
                                                                              *(f"acc_{k}" for k in mnist.KS)]]
    assert _verdict(claims.digits(_digits(0.1), given), "BIF as released: outperforms") == HOLDS


def test_data_sets_that_are_absent_leave_what_no_run_answers():
    absent = pd.DataFrame({"dataset": ["Adult"], "method": ["bifkit"], "seed": [0], "error": ["not run: no network"]})
    for found in (claims.tables(absent), claims.digits(absent)):
        assert set(found["verdict"]) == {OPEN} and len(found) == 1


def test_the_patches_of_an_8_are_found_by_ink():
    ink = np.random.default_rng(0).random((6, 784)) * 0.1
    where = mnist.patches()
    for patch in range(10, 18):
        ink[3:, where == patch] += 0.5
    assert np.flatnonzero(claims_tables.gaps(ink, [0, 0, 0, 1, 1, 1])).tolist() == list(range(10, 18))


# ------------------------------------------------------------------ the page

def test_files_that_are_not_there_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv("BIF_OUTPUT", str(tmp_path))
    (tmp_path / "results").mkdir()
    found = claims.everything()
    assert list(found) == verdicts.COLUMNS and set(found["notebook"]) == {"07_errata_and_ablation", "00_start_here"}
    page = claims.page()
    for name in ("synthetic", "released_digits", "tabular", "mnist", "privacy", "fairness_protocol"):
        assert f"results/{name}.csv" in page
    assert "in 2 statements" in claims.counts()


def test_every_claim_says_where_what_and_one_of_three_verdicts():
    found = pd.concat([claims.synthetic(_synthetic(_level(15.0))), claims.digits(_digits(0.1)), claims.method(),
                       claims.tables(_tables(lambda m, kind, k: 80.0))])
    assert set(found["verdict"]) <= {HOLDS, FAILS, OPEN}
    assert not found["claim"].duplicated().any() and (found.map(len) > 3).all(axis=None)
    for notebook in set(found["notebook"]):
        assert (paths.root() / "notebooks" / f"{notebook}.ipynb").exists()
    assert claims.table(found).count("\n") == len(found) + 1


@pytest.mark.slow
def test_the_committed_page_is_current(monkeypatch):
    stale = "README.md or docs/claims.md is stale: python -m experiments.runner.scoreboard --pages"
    monkeypatch.setenv("BIF_OUTPUT", str(paths.root()))  # read only
    if not (paths.results() / "synthetic.csv").exists():
        pytest.skip("no results yet")
    assert claims.page() in (paths.root() / "docs" / "claims.md").read_text(), stale
    assert claims.counts() in (paths.root() / "README.md").read_text(), stale
    found = claims.everything()
    assert len(found) == len(found.drop_duplicates("claim")) and set(found["verdict"]) <= {HOLDS, FAILS, OPEN}
