"""Posterior: what it answers against Monte Carlo and scipy, rows and groups, frames, and saving without pickle."""

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

from bifkit import Posterior
from bifkit.storage import BadFile

NAMES = ["age", "sex", "income", "city"]
GLOBAL = Posterior([4.0, 0.5, 2.0, 1.0], NAMES, settings={"preset": "rank"})
LOCAL = Posterior(np.random.default_rng(0).gamma(2.0, size=(30, 4)) + 0.1, NAMES, index=[f"row {i}" for i in range(30)])


def test_what_it_answers_by_monte_carlo():
    f = np.random.default_rng(1).dirichlet(GLOBAL.alpha, 100_000)
    assert np.allclose(GLOBAL.mean, f.mean(0), atol=0.005) and np.allclose(GLOBAL.sd, f.std(0), atol=0.005)
    for bound, q in zip(GLOBAL.interval(0.9), (0.05, 0.95), strict=True):
        assert np.allclose(bound, np.quantile(f, q, axis=0), atol=0.01)
    assert np.isclose(GLOBAL.probability_greater("income", "city"), (f[:, 2] > f[:, 3]).mean(), atol=0.01)
    assert GLOBAL.probability_greater(2, -1) == GLOBAL.probability_greater("income", "city")
    top2 = (np.argsort(np.argsort(-f, axis=1), axis=1) < 2).mean(0)
    assert np.allclose(GLOBAL.probability_top(2), top2, atol=0.015)
    grouped = GLOBAL.group({"person": ["age", "sex"]})
    assert np.allclose(grouped.mean, [f[:, :2].sum(1).mean(), f[:, 2].mean(), f[:, 3].mean()], atol=0.005)
    assert np.allclose(grouped.sd[0], f[:, :2].sum(1).std(), atol=0.005)
    assert grouped.feature_names == ["person", "income", "city"] and grouped.settings == GLOBAL.settings


def test_entropy_kl_and_effective_features():
    assert np.isclose(GLOBAL.entropy, stats.dirichlet.entropy(GLOBAL.alpha)) and LOCAL.entropy.shape == (30,)
    assert np.isclose(GLOBAL.effective_features, np.exp(stats.entropy(GLOBAL.mean)))
    assert np.isclose(Posterior(np.ones(4)).effective_features, 4)
    above = np.random.default_rng(1).dirichlet(GLOBAL.alpha, 100_000) > 0.25
    # doubt: the variance of each answer, added up
    assert np.isclose(GLOBAL.doubt, above.var(0).sum(), atol=0.01) and LOCAL.doubt.shape == (30,)
    assert GLOBAL.kl_to(GLOBAL) == 0 and (LOCAL.kl_to(GLOBAL) > 0).all() and LOCAL.kl_to(LOCAL).shape == (30,)
    with pytest.raises(ValueError, match="not over the same features in the same order"):
        GLOBAL.kl_to(Posterior(GLOBAL.alpha, NAMES[::-1]))
    with pytest.raises(ValueError, match="30 and 3 rows"):
        LOCAL.kl_to(LOCAL[:3])


def test_local_answers_are_the_rows_own():
    for i in (0, 17):
        row = LOCAL[i]
        assert not row.is_local and len(row) == 1 and len(LOCAL) == 30
        assert np.array_equal(row.mean, LOCAL.mean[i]) and np.array_equal(row.sd, LOCAL.sd[i])
        assert np.array_equal(row.interval()[1], LOCAL.interval()[1][i]) and row.top(2) == LOCAL.top(2)[i]
        assert row.probability_greater(0, 1) == LOCAL.probability_greater(0, 1)[i]
        assert np.allclose(row.probability_top(2), LOCAL.probability_top(2)[i], atol=0.04)
        assert np.array_equal(row.group([0, 0, 1, 1]).alpha, LOCAL.group([0, 0, 1, 1]).alpha[i])


def test_rows_are_chosen_as_in_numpy_and_keep_their_labels():
    for rows in (slice(3, 9), [4, 2, 2], np.arange(30) % 3 == 0, np.array([-1])):
        part = LOCAL[rows]
        assert np.array_equal(part.alpha, LOCAL.alpha[rows]) and part.index.equals(LOCAL.index[rows])
    assert len(list(LOCAL)) == 30
    with pytest.raises(TypeError, match="a global posterior has no rows"):
        GLOBAL[0]
    with pytest.raises(IndexError):
        LOCAL[30]


def test_top_orders_by_the_mean():
    assert GLOBAL.top(3) == ["age", "income", "city"] and Posterior([1.0, 1.0], ["a", "b"]).top(1) == ["a"]
    for k in (0, -1, 5):
        with pytest.raises(ValueError, match="k must lie between 1 and the number of features, 4"):
            GLOBAL.top(k)


def test_to_global_has_the_mixtures_mean_and_total_variance():
    rng = np.random.default_rng(1)
    f = np.concatenate([rng.dirichlet(a, 5000) for a in LOCAL.alpha])  # the mixture of all rows
    p = LOCAL.to_global()
    assert not p.is_local and np.allclose(p.mean, f.mean(0), atol=0.005)
    assert np.isclose((p.sd**2).sum(), f.var(0).sum(), rtol=0.02)
    assert GLOBAL.to_global() is GLOBAL
    equal = Posterior(np.tile(GLOBAL.alpha, (5, 1)))
    assert np.allclose(equal.to_global().alpha, GLOBAL.alpha)  # equal rows are their own summary
    one_hot = Posterior(np.eye(3) * 1e4 + 1e-3).to_global()  # nothing in common: wide, but a distribution
    assert np.allclose(one_hot.mean, 1 / 3) and np.isfinite(one_hot.sd).all()


def test_frames():
    frame = GLOBAL.to_frame(0.8)
    assert frame.index.tolist() == NAMES and np.allclose(frame["mean"], GLOBAL.mean)
    rest = GLOBAL.alpha.sum() - GLOBAL.alpha
    assert np.allclose(special.betainc(GLOBAL.alpha, rest, frame["lower"]), 0.1)
    assert np.allclose(special.betainc(GLOBAL.alpha, rest, frame["upper"]), 0.9)
    frame = LOCAL.to_frame()
    assert frame.shape == (30, 4) and frame.index[3] == "row 3" and np.allclose(frame.sum(axis=1), 1)


def test_texts_are_safe_and_short():
    p = Posterior([3.0, 1.0], ["<script>", "b"])
    assert "<script>" not in p._repr_html_() and "&lt;script&gt;" in p._repr_html_()
    assert "30 rows" in repr(LOCAL) and "income" in repr(LOCAL)
    assert "and 40 more" in repr(Posterior(np.ones(50))) and "and 40 more" in Posterior(np.ones(50))._repr_html_()


@pytest.mark.parametrize("make, message", [
    (lambda: Posterior([1.0, 2.0], ["a"]), "1 feature names for 2 features"),
    (lambda: Posterior([1.0, 2.0], ["a", "a"]), "feature names must differ"),
    (lambda: Posterior([1.0, -2.0]), "finite and positive"), (lambda: Posterior([1.0]), "at least two features"),
    (lambda: Posterior(np.ones((3, 2)), index=[0, 1]), "index has 2 entries for 3 rows"),
    (lambda: GLOBAL.probability_greater("age", "height"), "unknown feature 'height'; features are age, sex"),
    (lambda: GLOBAL.probability_greater(0, 4), "feature number 4 is out of range: there are 4 features"),
    (lambda: GLOBAL.probability_greater(0.5, 1), "feature number 0.5"),
    (lambda: GLOBAL.group({"x": ["height"]}), "unknown feature 'height'"),
    (lambda: GLOBAL.group([0, 0, 0, 0]), "at least two features"),
    (lambda: GLOBAL.interval(95), "prob must lie strictly between 0 and 1"),
])
def test_bad_questions(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_single_temperature_gives_a_dirichlet_again():
    p = GLOBAL.calibrated(temperature=4.0)
    assert np.allclose(p.alpha, GLOBAL.alpha / 4) and np.allclose(p.mean, GLOBAL.mean) and (p.sd > GLOBAL.sd).all()
    assert np.isclose(p.entropy, stats.dirichlet.entropy(GLOBAL.alpha / 4)) and p.kl_to(GLOBAL) > 0
    assert p.settings == {"preset": "rank", "temperature": 4.0}


def test_one_temperature_per_feature_changes_the_spread_and_nothing_else(tmp_path):
    t = np.array([0.1, 1.0, 3.0, 0.5])
    for whole in (GLOBAL, LOCAL):
        p = whole.calibrated(temperature=t)
        assert np.array_equal(p.mean, whole.mean) and p.top(2) == whole.top(2)
        assert (p.sd[..., [0, 3]] < whole.sd[..., [0, 3]]).all() and (p.sd[..., 2] > whole.sd[..., 2]).all()
        assert np.allclose(p.sd[..., 1], whole.sd[..., 1])
        rest = whole.alpha.sum(-1, keepdims=True) - whole.alpha
        assert np.allclose(p.interval(0.8)[0], stats.beta.ppf(0.1, whole.alpha / t, rest / t))
        assert np.allclose(p.probability_above(0.3), stats.beta.sf(0.3, whole.alpha / t, rest / t))
        assert np.array_equal(p.to_frame().to_numpy(), p.to_frame().to_numpy()) and "age" in repr(p)
        p.save(tmp_path / "p.bif")
        back = Posterior.load(tmp_path / "p.bif")
        assert np.array_equal(back.temperature, t) and np.array_equal(back.sd, p.sd)
        for ask in (lambda p=p: p.entropy, lambda p=p: p.kl_to(GLOBAL), lambda p=p: GLOBAL.kl_to(p)):
            with pytest.raises(ValueError, match="no closed form: ask the posterior before its calibration"):
                ask()
    assert np.array_equal(LOCAL.calibrated(temperature=t)[3].sd, LOCAL.calibrated(temperature=t).sd[3])


def test_a_group_of_calibrated_features():
    """Means add up; the variance of the group's gamma variable is that of its independent parts."""
    t, rng = np.array([0.1, 1.0, 3.0, 0.5]), np.random.default_rng(1)
    p = GLOBAL.calibrated(temperature=t).group({"person": ["age", "sex"]})
    gammas = (t * rng.gamma(GLOBAL.alpha / t, size=(200_000, 4)))[:, :2].sum(1)
    assert np.isclose(p.alpha[0], gammas.mean(), rtol=0.01) and np.isclose(p.alpha[0] * p.temperature[0], gammas.var(),
                                                                           rtol=0.02)
    assert np.allclose(p.temperature[1:], t[2:]) and np.allclose(p.mean, GLOBAL.group([0, 0, 1, 2]).mean)
    alike = GLOBAL.calibrated(temperature=np.full(4, 2.0)).group([0, 0, 1, 1])
    assert np.allclose(alike.sd, GLOBAL.calibrated(temperature=2.0).group([0, 0, 1, 1]).sd)


# share: what a fit has added to the prior

NULL = 0.5
ADDED = np.array([[3.0, 0.0, 1.0, 0.0], [0.2, 0.6, 0.0, 1.2]])
SHARED = Posterior(NULL + ADDED, NAMES, null=NULL)  # two rows


def test_shares_are_of_what_is_above_null():
    assert np.allclose(SHARED.share, ADDED / ADDED.sum(1, keepdims=True)) and np.allclose(SHARED.share.sum(1), 1)
    assert (SHARED.share[ADDED == 0] == 0).all() and np.allclose(SHARED.mean[0], [3.5 / 6, 0.5 / 6, 1.5 / 6, 0.5 / 6])
    assert np.array_equal(Posterior(GLOBAL.alpha).share, GLOBAL.mean)  # without a prior that is the mean
    below = Posterior([0.1, 0.2, 4.5, 8.5], null=NULL).share
    assert below[:2].tolist() == [0, 0] and np.allclose(below[2:], [1 / 3, 2 / 3])
    nothing = Posterior([0.1, 0.3, 0.4, 0.2], null=NULL)
    assert np.array_equal(nothing.share, nothing.mean)
    each = Posterior([2.0, 3.0], null=[1.0, 0.0])
    assert np.allclose(each.share, [0.25, 0.75])
    assert np.array_equal(SHARED[1].share, SHARED.share[1]) and np.array_equal(SHARED[[1]].share[0], SHARED.share[1])
    assert SHARED.effective_features == pytest.approx([np.exp(stats.entropy(row)) for row in ADDED])


def test_frames_have_the_shares():
    assert np.allclose(SHARED.to_frame(), SHARED.share)
    frame = SHARED[0].to_frame()
    assert frame.columns.tolist() == ["share", "mean", "sd", "lower", "upper"]
    assert np.allclose(frame["share"], SHARED.share[0])


def test_shares_add_up_in_groups():
    grouped = SHARED.group({"person": ["age", "sex"]})
    share = SHARED.share
    assert np.allclose(grouped.share, np.c_[share[:, :2].sum(1), share[:, 2:]])
    unused = Posterior([2.0, 0.1, 0.1, 0.1], NAMES, null=0.1).group({"rest": NAMES[1:]})
    assert dict(zip(unused.feature_names, unused.share, strict=True)) == pytest.approx({"age": 1, "rest": 0}, abs=1e-12)
    assert np.allclose(Posterior([2.0, 1.0, 1.0]).group([0, 0, 1]).share, [0.75, 0.25])


@pytest.mark.parametrize("temperature", [4.0, 0.25, [0.1, 1.0, 3.0, 0.5]])
def test_a_temperature_leaves_the_shares(temperature):
    assert np.allclose(SHARED.calibrated(temperature=temperature).share, SHARED.share)


def test_the_shares_of_a_summary_are_what_was_added_to_the_rows():
    part = (ADDED / (NULL + ADDED).sum(1, keepdims=True)).mean(0)  # of the mean importance, net of the prior's part
    whole = SHARED.to_global()
    assert np.allclose(whole.share, part / part.sum()) and whole.share.sum() == pytest.approx(1)
    for row in (0, 1):
        equal = Posterior(np.tile(SHARED.alpha[row], (5, 1)), null=NULL).to_global()
        assert np.allclose(equal.share, SHARED.share[row], atol=1e-12)
    unused = Posterior([[2.0, 0.1, 0.5], [0.7, 0.1, 3.0]], null=0.1).to_global().share
    assert unused[1] == pytest.approx(0, abs=1e-12) and unused[0] > 0 < unused[2]


@pytest.mark.parametrize("null", [-0.1, np.inf, np.nan, [0.1, -1.0]])
def test_a_null_that_is_none(null):
    with pytest.raises(ValueError, match="null must be finite and not negative"):
        Posterior([1.0, 2.0], null=null)


@pytest.mark.parametrize("p", [SHARED, SHARED[0], SHARED.group([0, 0, 1, 1]), SHARED.calibrated(temperature=2.0)])
def test_shares_survive_a_file(p, tmp_path):
    p.save(tmp_path / "p.bif")
    back = Posterior.load(tmp_path / "p.bif")
    assert np.array_equal(back.null, p.null) and np.array_equal(back.share, p.share)


# saving

INDEXES = {
    "none": None, "range": pd.RangeIndex(5, 20, 5), "numbers": pd.Index([30, 10, 20], name="id"),
    "floats": pd.Index([0.1, 1e-17, -3.0]), "text": pd.Index(["ä", "b c", "1"], name="who"),
    "dates": pd.date_range("2021-03-04", periods=3, freq="h"), "list": [3, 1, 2],
    "dates of a zone": pd.date_range("2021", periods=3, tz="Europe/Rome"),
}


@pytest.mark.parametrize("case", INDEXES)
def test_a_saved_posterior_comes_back(case, tmp_path):
    settings = {"draws": np.int64(3), "gate": "max"}
    p = Posterior(LOCAL.alpha[:3], ["ü", "b", "c", "d"], settings=settings, index=INDEXES[case])
    p.save(tmp_path / "p.bif")
    back = Posterior.load(tmp_path / "p.bif")
    assert np.array_equal(back.alpha, p.alpha) and back.feature_names == p.feature_names
    assert back.settings == {"draws": 3, "gate": "max"} and back.index.equals(p.index)
    assert (back.index.dtype, back.index.name) == (p.index.dtype, p.index.name)
    assert np.array_equal(back[:2].mean, p[:2].mean) and back.to_frame().equals(p.to_frame())


@pytest.mark.parametrize("index", [
    pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)]), pd.Index([True, False, True]),
    pd.Index([1, 2, None], dtype="Int64"), pd.period_range("2021", periods=3, freq="M"),
])
def test_any_other_index_comes_back_as_text(index, tmp_path):
    Posterior(LOCAL.alpha[:3], index=index).save(tmp_path / "p.bif")
    assert Posterior.load(tmp_path / "p.bif").index.tolist() == [str(i) for i in index]


def test_a_global_posterior_comes_back(tmp_path):
    GLOBAL.save(tmp_path / "p.bif")
    back = Posterior.load(str(tmp_path / "p.bif"))
    assert np.array_equal(back.alpha, GLOBAL.alpha) and back.index is None and not back.is_local


def test_what_json_cannot_hold_is_refused_before_writing(tmp_path):
    with pytest.raises(TypeError, match="must be numbers, text, lists or dicts; got object"):
        Posterior([1.0, 2.0], settings={"model": object()}).save(tmp_path / "p.bif")
    assert list(tmp_path.iterdir()) == []


def test_an_explainers_file_is_not_a_posterior(tmp_path):
    from bifkit import storage

    storage.write(tmp_path / "e.bif", "GlobalBIF", {"alpha": np.ones(3)}, {})
    with pytest.raises(BadFile, match="e.bif holds a GlobalBIF, not a Posterior: load it with GlobalBIF.load"):
        Posterior.load(tmp_path / "e.bif")
