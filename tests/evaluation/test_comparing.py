"""Are two explanations different? Against scipy's permutation test, brute force, and made-up refits."""

import itertools
import math
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.spatial.distance import jensenshannon

import bifkit
from bifkit import Posterior, compare, plots
from bifkit.evaluation import comparing

NAMES = ["age", "pay", "sex", "city"]
ALPHA = np.array([40.0, 25.0, 20.0, 15.0])


def fits(n, seed=0, alpha=ALPHA, rows=None):
    """Refits whose means scatter as draws of a Dirichlet do; local ones with ``rows``."""
    rng = np.random.default_rng(seed)
    return [Posterior(50 * rng.dirichlet(alpha, rows), NAMES) for _ in range(n)]


def tv(a, b):
    """The statistic, written out: per row the total variation of the averaged means, then the mean over rows."""
    p, q = (np.mean([x.mean for x in side], axis=0) for side in (a, b))
    return (np.abs(p - q).sum(-1) / 2).mean()


def by_scipy(a, b, statistic, kind):
    """scipy's exact p-value of a statistic of two lists of posteriors."""
    pool = [*a, *b]
    chosen = np.arange(len(a)), np.arange(len(a), len(pool))
    found = stats.permutation_test(chosen, lambda x, y: statistic([pool[int(i)] for i in x], [pool[int(i)] for i in y]),
                                   permutation_type=kind, alternative="greater", n_resamples=np.inf, vectorized=False)
    return found.pvalue


# distances

def test_distances_are_scipys_and_the_papers():
    a, b = Posterior([8.0, 1.0, 0.5, 3.0], NAMES), Posterior([1.0, 2.0, 4.0, 3.0], NAMES)
    found = compare(a, b)
    assert found.jensen_shannon == pytest.approx(jensenshannon(a.mean, b.mean, base=2))
    assert found.total_variation == pytest.approx(np.abs(a.mean - b.mean).sum() / 2)
    assert found.kl == pytest.approx((a.kl_to(b), b.kl_to(a)))
    assert found.p_value is None and found.interval is None and found.rows is None and found.top_changed is None
    assert "chance cannot be judged without refits" in repr(found)
    frame = found.to_frame()
    assert list(frame) == ["a", "b", "difference"] and frame["difference"].abs().is_monotonic_decreasing
    assert np.allclose(frame.loc[NAMES, "difference"], b.mean - a.mean)


def test_distances_lie_between_0_and_1():
    far = compare(Posterior([1e6, 1e-6]), Posterior([1e-6, 1e6]))
    assert far.total_variation == pytest.approx(1) and far.jensen_shannon == pytest.approx(1)
    p = Posterior([0.1, 0.2, 0.7])
    same = compare(p, Posterior(p.alpha))
    assert same.total_variation == same.jensen_shannon == 0 and same.kl == pytest.approx((0, 0), abs=1e-12)


def test_lists_are_averaged_before_they_are_compared():
    a, b = fits(4, 1), fits(6, 2)
    found = compare(a, b)
    p, q = (np.mean([x.mean for x in side], axis=0) for side in (a, b))
    assert found.total_variation == pytest.approx(np.abs(p - q).sum() / 2)
    assert found.jensen_shannon == pytest.approx(jensenshannon(p, q, base=2))
    x, y = (Posterior(np.mean([x.alpha for x in side], axis=0)) for side in (a, b))
    assert found.kl == pytest.approx((x.kl_to(y), y.kl_to(x)))


# p-values

@pytest.mark.parametrize("n", [(4, 4), (3, 5)])
def test_the_exact_p_value_is_scipys(n):
    a, b = fits(n[0], 3), fits(n[1], 4, ALPHA[[0, 2, 1, 3]])
    found = compare(a, b)
    assert found.exact and found.p_value == pytest.approx(by_scipy(a, b, tv, "independent"))
    for i, name in enumerate(NAMES):
        def apart(x, y, i=i):
            return abs(np.mean([p.mean[i] for p in x]) - np.mean([p.mean[i] for p in y]))
        assert found.features.loc[name, "p_value"] == pytest.approx(by_scipy(a, b, apart, "independent"))


@pytest.mark.parametrize("n", [(4, 4), (2, 6)])
def test_the_exact_p_value_is_that_of_brute_force_also_with_ties(n):
    """Refits that take one of two values: most splits tie, and a tie counts as being as far apart."""
    kinds = [Posterior([3.0, 2.0, 2.0, 1.0], NAMES), Posterior([2.0, 3.0, 1.0, 2.0], NAMES)]
    pool = [kinds[i] for i in (0, 1, 0, 0, 1, 0, 1, 1)]
    with pytest.warns(UserWarning, match="more than once"):
        found = compare(pool[:n[0]], pool[n[0]:])
    first = [sum(pool[i] is kinds[1] for i in chosen) for chosen in itertools.combinations(range(8), n[0])]
    apart = [abs(k / n[0] - (4 - k) / n[1]) for k in first]  # shares of the second kind, which decide the distance
    assert found.exact and found.splits == math.comb(8, n[0])
    assert found.p_value == pytest.approx(np.mean([d >= apart[0] - 1e-12 for d in apart]))
    assert np.allclose(found.features["p_value"], found.p_value)  # here every feature moves with the kind


def test_ten_against_ten_agrees_with_all_184756_splits():
    a, b = fits(10, 21), fits(10, 22, ALPHA + [0, 0, 6, 0])
    means = np.array([p.mean for p in [*a, *b]])
    chosen = np.fromiter(itertools.chain.from_iterable(itertools.combinations(range(20), 10)), int).reshape(-1, 10)
    assert len(chosen) == math.comb(20, 10) == 184_756
    first = means[chosen].mean(1)
    second = (means.sum(0) - 10 * first) / 10
    apart = np.abs(first - second).sum(1) / 2
    exact = (apart >= tv(a, b) - 1e-12).mean()
    found = compare(a, b, draws=4000)
    assert 0.001 < exact < 0.5 and found.p_value == pytest.approx(exact, abs=5 * math.sqrt(exact / 4000) + 1 / 4000)


def test_the_paired_p_value_is_scipys_and_brute_force():
    a, b = fits(6, 5), fits(6, 6, ALPHA[[0, 2, 1, 3]])
    found = compare(a, b, paired=True)
    swapped = [tv([y if s else x for x, y, s in zip(a, b, swap, strict=True)],
                  [x if s else y for x, y, s in zip(a, b, swap, strict=True)])
               for swap in itertools.product([False, True], repeat=6)]
    assert found.exact and found.splits == 64
    assert found.p_value == pytest.approx(np.mean(np.array(swapped) >= tv(a, b) - 1e-12))
    assert found.p_value == pytest.approx(by_scipy(a, b, tv, "samples"))


def test_pairs_see_through_what_they_have_in_common():
    rng = np.random.default_rng(0)
    common = [rng.dirichlet(ALPHA / 5) + 0.02 for _ in range(8)]
    a, b = ([Posterior(40 * c + shift * np.array([1, -1, 0, 0]), NAMES) for c in common] for shift in (0, 0.5))
    pairs, mixed = compare(a, b, paired=True), compare(a, b)
    assert pairs.p_value == pytest.approx(2 / 2**8) and mixed.p_value > 0.2
    wide = [(found.features["upper"] - found.features["lower"]).max() for found in (pairs, mixed)]
    assert wide[0] < 0.2 * wide[1] and pairs.total_variation == pytest.approx(mixed.total_variation)


def test_sampled_splits_agree_with_all_of_them(monkeypatch):
    a, b = fits(6, 7), fits(6, 8)
    exact = compare(a, b)
    monkeypatch.setattr(comparing, "EXACT", 10)
    for paired in (False, True):
        sampled = compare(a, b, draws=4000, paired=paired)
        assert not sampled.exact and sampled.splits == 4000
        assert sampled.p_value * 4001 == pytest.approx(round(sampled.p_value * 4001))  # (1 + hits) / (1 + draws)
    sampled = compare(a, b, draws=4000)
    assert sampled.p_value == pytest.approx(exact.p_value, abs=0.04)  # five standard errors
    assert np.allclose(sampled.features["p_value"], exact.features["p_value"], atol=0.04)
    again, other = compare(a, b, draws=400), compare(a, b, draws=400, seed=1)
    assert again.p_value == compare(a, b, draws=400).p_value and not again.features.equals(other.features)


def test_false_alarms_are_as_rare_as_promised():
    """200 comparisons of sides that are alike: the p-values are uniform."""
    p = np.array([compare(fits(5, (1, i)), fits(5, (2, i)), resamples=1).p_value for i in range(200)])
    for level in (0.05, 0.2, 0.5):
        low, high = stats.binom.interval(0.9999, 200, level)
        assert low - 1 <= (p <= level).sum() <= high, level


def test_a_clear_difference_is_found_and_named():
    a, b = fits(10, 1), fits(10, 2, ALPHA + [0, 0, 60, 0])
    found = compare(a, b)
    # 2 of all 184,756 splits lie as far apart, so a sample of 9,999 meets them 0.1 times on average, and seldom twice
    assert not found.exact and found.p_value < 0.002 and found.to_frame().index[0] == "sex"
    sex = found.to_frame().loc["sex"]
    assert sex["p_adjusted"] < 0.01 and 0 < sex["lower"] < sex["difference"] < sex["upper"]
    low, high = found.interval
    assert 0 < low < found.total_variation < high < 1


def test_the_correction_is_that_of_benjamini_and_hochberg():
    frame = compare(fits(5, 1), fits(5, 2, ALPHA[[0, 2, 1, 3]])).features
    p = np.sort(frame["p_value"])
    by_hand = np.minimum.accumulate((p * len(p) / np.arange(1, len(p) + 1))[::-1])[::-1]
    assert np.allclose(np.sort(frame["p_adjusted"]), by_hand)
    assert np.allclose(frame["p_adjusted"], stats.false_discovery_control(frame["p_value"]))


def test_intervals_are_those_of_scipys_bootstrap():
    a, b = fits(12, 1), fits(9, 2)
    found = compare(a, b, resamples=20_000, draws=1).features
    for i, name in enumerate(NAMES):
        scipys = stats.bootstrap(([p.mean[i] for p in a], [p.mean[i] for p in b]), method="percentile", vectorized=True,
                                 statistic=lambda x, y, axis: y.mean(axis) - x.mean(axis), n_resamples=20_000,
                                 rng=np.random.default_rng(0)).confidence_interval
        width = scipys.high - scipys.low
        assert np.allclose(found.loc[name, ["lower", "upper"]].astype(float), scipys, atol=0.05 * width)


# rows

def test_local_explanations_are_compared_row_by_row():
    a = Posterior([[3.0, 2.0, 1.0], [1.0, 5.0, 2.0]], index=["Ann", "Bob"])
    b = Posterior([[1.0, 2.0, 3.0], [1.0, 6.0, 4.0]], index=["Ann", "Bob"])
    found = compare(a, b)
    frame = found.to_frame()
    assert frame.index.tolist() == ["Ann", "Bob"] and frame["top_changed"].tolist() == [True, False]
    assert found.top_changed == 0.5 and compare(a, b, k=3).top_changed == 0
    assert frame["jensen_shannon"].tolist() == pytest.approx(jensenshannon(a.mean, b.mean, base=2, axis=1))
    assert frame["total_variation"].tolist() == pytest.approx(np.abs(a.mean - b.mean).sum(1) / 2)
    assert frame["kl_ab"].tolist() == pytest.approx(a.kl_to(b)) and frame["kl_ba"].tolist() == pytest.approx(b.kl_to(a))
    assert found.total_variation == pytest.approx(frame["total_variation"].mean())
    assert "2 rows averaged" in repr(found) and "top 1 changed in 50% of the rows" in repr(found)


def test_local_refits_are_averaged_row_by_row(monkeypatch):
    a, b = fits(4, 1, rows=5), fits(4, 2, ALPHA[[0, 2, 1, 3]], rows=5)
    found = compare(a, b)
    assert found.total_variation == pytest.approx(tv(a, b))
    assert found.p_value == pytest.approx(by_scipy(a, b, tv, "independent"))
    monkeypatch.setattr(comparing, "CHUNK", 50)  # a few splits at a time
    assert compare(a, b).features.equals(found.features) or np.allclose(compare(a, b).features, found.features)


# what it is given

def test_equal_lists_are_not_different():
    a = fits(5)
    with pytest.warns(UserWarning, match="a and b have 5 posteriors in common"):
        found = compare(a, list(a))
    assert found.total_variation == found.jensen_shannon == 0 and found.p_value == 1
    assert (found.features[["p_value", "p_adjusted"]] == 1).all(axis=None)
    assert compare(a, a, paired=True).p_value == 1


def test_features_in_another_order_are_put_in_order():
    a, b = fits(5, 1), fits(5, 2)
    order = [2, 0, 3, 1]
    turned = [Posterior(p.alpha[order], [NAMES[i] for i in order]) for p in b]
    assert compare(a, turned).features.equals(compare(a, b).features)


ONE, TWO = fits(2)
ROWS = Posterior(np.ones((3, 4)), NAMES)
BROKEN = Posterior(np.ones(4), NAMES)
BROKEN.alpha = np.array([1.0, np.nan, 1.0, 1.0])


@pytest.mark.parametrize("a, b, error, words", [
    (ONE, Posterior(np.ones(4), ["age", "pay", "sex", "town"]), ValueError, "city, town in one only"),
    (ONE, Posterior(np.ones(3), NAMES[:3]), ValueError, "city in one only"),
    (ONE, ROWS, ValueError, "local explanation"),
    (ROWS, Posterior(np.ones((2, 4)), NAMES), ValueError, "has 2 rows, the first 3"),
    (Posterior(np.ones((2, 4)), index=["p", "q"]), Posterior(np.ones((2, 4)), index=["q", "p"]), ValueError, "labels"),
    (ONE, BROKEN, ValueError, "a posterior of b holds NaN"),
    ([], [ONE, TWO], ValueError, "a is a list of 0"),
    ([ONE, TWO], [ONE], ValueError, "b is a list of 1"),
    (ONE, [ONE, TWO], ValueError, "one side is a single posterior"),
    (ONE, 3.0, TypeError, "b must be a Posterior or a list of them; got a float"),
    ("ab", ONE, TypeError, "a must be a Posterior"),
    ({0: ONE}, ONE, TypeError, "got a dict"),
    ([ONE, TWO], np.ones((2, 4)), TypeError, "b must hold posteriors.*ndarray"),
])
def test_what_cannot_be_compared_is_refused(a, b, error, words):
    with pytest.raises(error, match=words):
        compare(a, b)


@pytest.mark.parametrize("option, words", [
    ({"k": 0}, "k must"), ({"k": 5}, "k must"), ({"prob": 1}, "prob must"), ({"draws": 0}, "draws must"),
    ({"resamples": 0.5}, "resamples must"), ({"paired": True}, "lists of equal length")])
def test_options_are_checked(option, words):
    with pytest.raises(ValueError, match=words):
        compare(fits(2), fits(3), **option)


def test_one_posterior_many_times_is_no_list_of_refits():
    with pytest.warns(UserWarning, match="a holds the same posterior more than once"):
        compare([ONE] * 5, fits(5, 9))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compare(fits(3, 1), fits(3, 2))


def test_sides_that_share_refits_are_warned_about():
    a = fits(5, 1)
    with pytest.warns(UserWarning, match="a and b have 2 posteriors in common.*another seed="):
        compare(a, [*a[:2], *fits(3, 2)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compare(a, [*a[:2], *fits(3, 2)], paired=True)  # pairs that training anew left alike are an answer
        compare(a[0], a[0])


def test_rows_that_were_only_numbered_fit_any_labels():
    named = Posterior(np.ones((2, 4)), index=pd.Index(["p", "q"]))
    assert compare(named, Posterior(np.ones((2, 4)))).rows.index.tolist() == ["p", "q"]


def test_a_calibrated_side_has_distances_but_no_kl():
    a = [p.calibrated(temperature=[0.1, 0.2, 0.3, 0.4]) for p in fits(3, 1)]
    found = compare(a, fits(3, 2))
    assert np.isnan(found.kl).all() and found.total_variation > 0 and "KL" not in repr(found)


# how it shows itself

def test_the_repr_says_it_all():
    found = compare(fits(3, 1), fits(3, 2))
    text = repr(found)
    assert text.startswith("Comparison of 3 and 3 refits, 4 features\ntotal variation")
    assert f"p = {found.p_value:.2g} (all 20 splits; so few refits never give less than .05)" in text
    assert "never give" not in repr(compare(fits(4, 1), fits(4, 2))) + repr(compare(fits(2, 1), fits(5, 2)))
    assert all(name in text for name in NAMES) and "p_adjusted" in text


def test_few_refits_of_many_features_say_that_a_single_one_cannot_be_told():
    rng = np.random.default_rng(0)
    for features, n, said in ((13, 4, True), (13, 6, False), (3, 5, False)):
        sides = [[Posterior(rng.gamma(5.0, size=features) + 0.1) for _ in range(n)] for _ in range(2)]
        found = compare(*sides)
        least = 2 / math.comb(2 * n, n)  # no feature's p is below; of one that differs alone, D times it
        assert ("cannot tell a single feature" in repr(found)) == said == (least * features >= 0.05)


def test_the_html_is_a_table_with_safe_names():
    names = ["<b>", "a & b", *(f"x{i}" for i in range(10))]
    a, b = (Posterior(np.random.default_rng(i).gamma(2, size=12) + 0.1, names) for i in (0, 5))
    page = compare(a, b)._repr_html_()
    assert page.startswith("<table><caption>Comparison of two posteriors") and page.endswith("</table>")
    assert "<b>" not in page and "and 2 more" in page and page.count("<tr>") == 12


def test_the_plot_shows_the_differences():
    found = compare(fits(8, 1), fits(8, 2, ALPHA + [0, 0, 60, 0]))
    ax = found.plot()
    sure = found.features["p_adjusted"] < 0.05
    assert 0 < sure.sum() and [t.get_text() for t in ax.get_yticklabels()] == found.features.index.tolist()
    assert np.allclose(ax.lines[0].get_xdata(), found.features["difference"][sure])
    assert np.allclose(np.array(ax.collections[0].get_segments())[:, :, 0], found.features[sure][["lower", "upper"]])
    assert "b - a (mean and 95% interval)" in ax.get_xlabel()
    assert plots.differences(found, ax=ax, top=2) is ax and "largest 2 of 4 differences" in ax.get_xlabel()
    local = compare(ROWS, Posterior(np.ones((3, 4)) + np.eye(3, 4), NAMES)).plot()
    assert "3 rows averaged" in local.get_xlabel() and "interval" not in local.get_xlabel()


def test_it_is_a_public_name():
    assert {"compare", "refits"} <= set(bifkit.__all__) and bifkit.compare is compare
