"""Frames become the numbers a stand-in learns from: each column one number, the same ones for new rows."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

from bifkit import GlobalBIF, LocalBIF, distill
from bifkit.evaluation import deletion_score
from bifkit.inputs.tables import Column, Table, dense, in_order, needs_table
from bifkit.refine import refine

N = 240
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({
    "city": pd.Categorical(RNG.choice(["Oslo", "Rome", "Bonn", None], N)),
    "size": pd.Categorical(RNG.choice(["S", "M", "L"], N), categories=["S", "M", "L"], ordered=True),
    "word": RNG.choice(["yes", "no"], N), "member": RNG.random(N) < 0.5,
    "since": pd.Timestamp("2020-03-01") + pd.to_timedelta(RNG.integers(0, 900, N), "D"),
    "age": np.where(RNG.random(N) < 0.2, np.nan, RNG.normal(40, 9, N)),
    "kids": pd.array(RNG.choice([0, 1, 2, None], N), dtype="Int64")}, index=[f"p{i}" for i in range(N)])
EFFECT = {"Oslo": 2.0, "Rome": -1.0, "Bonn": 0.5}
FAST = {"steps": 200, "hidden": 32, "queries": 1500, "min_fidelity": None}


def model(rows):
    """Knows the raw columns, gaps included, and refuses anything else."""
    assert isinstance(rows["city"].dtype, pd.CategoricalDtype) and rows["since"].dtype.kind == "M"
    known = rows["age"].notna()
    return (rows["city"].map(EFFECT).astype(float).fillna(-3.0) + (~known) * 1.5
            + (rows["since"] > "2021-06-01") * 2.0).to_numpy()


def made(frame=FRAME):
    rows = np.repeat(np.arange(len(frame))[:, None], frame.shape[1], 1)
    return Table(frame, rows, model(frame)[:, None])


def test_each_column_becomes_one_number():
    table = made()
    kinds = {name: column.kind for name, column in table.columns.items()}
    assert kinds == {"city": "category", "size": "category", "word": "category", "member": "number", "since": "date",
                     "age": "number", "kids": "number"}
    numbers = table.encode(FRAME)
    assert numbers.index.equals(FRAME.index) and numbers.dtypes.eq(np.float32).all()
    assert np.isfinite(numbers.to_numpy()).all()
    assert np.array_equal(numbers["size"], FRAME["size"].cat.codes)  # in their own order
    assert np.array_equal(numbers["since"], (FRAME["since"] - FRAME["since"].min()).dt.days)
    assert np.array_equal(numbers["member"], FRAME["member"])
    gap = FRAME["age"].isna().to_numpy()
    assert np.allclose(numbers["age"][~gap], FRAME["age"][~gap]) and numbers["age"][gap].nunique() == 1
    assert numbers["age"][gap].max() < FRAME["age"].min() and numbers["kids"].min() < 0
    means = pd.Series(model(FRAME)).groupby(FRAME["city"].astype(object).fillna("gap").to_numpy()).mean()
    codes = {("gap" if k is None else k): v for k, v in table.columns["city"].codes.items()}
    assert sorted(codes, key=codes.get) == means.sort_values().index.tolist()  # in the order of the model's answers


def test_new_rows_get_the_same_numbers_whatever_the_order_of_columns():
    table = made()
    some = FRAME.iloc[[3, 7, 11], ::-1].astype({"word": "category", "city": object})
    assert table.encode(some).equals(table.encode(FRAME).iloc[[3, 7, 11]])
    text = np.array([["a", 1.0], ["b", None], ["a", 3.0]], dtype=object)
    assert needs_table(text) and not needs_table(np.zeros((3, 2))) and needs_table([[1.0, np.nan], [2.0, 3.0]])
    asked = np.repeat(np.arange(3)[:, None], 2, 1)
    found = Table(text, asked, np.array([[1.0], [0.0], [1.0]])).encode(text)
    assert isinstance(found, np.ndarray) and found[:, 0].tolist() == [1, 0, 1]


def test_what_was_never_seen_is_said_and_taken_for_what_is_usual():
    new = FRAME.iloc[:2].assign(word=["maybe", "no"], member=pd.array([True, None], dtype="boolean"))
    with pytest.warns(UserWarning, match="'maybe' in column word, a missing value in column member"):
        found = made().encode(new)
    usual = FRAME["word"].mode()[0]
    assert found["word"].iloc[0] == made().columns["word"].codes[usual]
    assert found["member"].iloc[1] == FRAME["member"].median()


@pytest.mark.parametrize("change, message", [
    (lambda f: f.drop(columns="age"), "not those of fit: it lacks age$"),
    (lambda f: f.rename(columns={"age": "Age"}), "it lacks age; it has besides Age"),
    (lambda f: f.assign(age=np.inf), "column age holds infinite values"),
    (lambda f: f.assign(age="old"), "column age held a number .* and now"),
    (lambda f: pd.concat([f, f[["age"]]], axis=1), "must differ from each other"),
])
def test_errors_name_the_column(change, message):
    with pytest.raises((ValueError, TypeError), match=message):
        made().encode(change(FRAME))


def test_few_categories_and_gaps_have_ranges_of_their_own():
    table = made()
    numbers = table.encode(FRAME).to_numpy()
    plain = np.quantile(numbers, np.linspace(0, 1, 17), axis=0).T
    edges = table.edges(numbers, plain)
    assert np.unique(edges[0]).tolist() == [0, 1, 2, 3] and (np.diff(edges, axis=1) >= 0).all()
    assert edges[5, 0] == numbers[:, 5].min() and edges[5, 1] == np.float32(FRAME["age"].min())
    assert np.array_equal(edges[4], plain[4])  # dates as before


@pytest.mark.slow
def test_a_model_of_raw_frames_is_explained():
    g = distill(model, FRAME, **FAST)
    assert g.fidelity_["r2"] > 0.8 and g.likelihood_ == "regression"
    explainer = LocalBIF(g, min_steps=60, epochs=1, hidden=16).fit(FRAME)
    rows = explainer.explain(FRAME.iloc[:9, ::-1])
    assert rows.feature_names == FRAME.columns.tolist() and rows.index.equals(FRAME.index[:9])
    assert np.array_equal(rows.mean, explainer.explain(FRAME.iloc[:9]).mean)
    assert explainer.score(FRAME, model(FRAME)) > 0.8
    assert refine(explainer, FRAME.iloc[:2], FRAME, steps=2).mean.shape == (2, 7)
    assert np.isfinite(deletion_score(g, FRAME.iloc[:9], rows, likelihood="regression"))
    found = GlobalBIF(g, min_steps=150, epochs=1).fit(FRAME)
    assert set(found.explain().top(3)) == {"city", "since", "age"}
    way = found.explain().direction(found, FRAME)
    assert np.isnan(way.mean[[0, 2]]).all() and way.sign[4] == 1  # no direction of unordered categories; dates rise


def test_columns_of_a_plain_frame_are_put_in_order_or_named():
    X = pd.DataFrame(RNG.normal(size=(60, 3)), columns=list("abc"))
    explainer = LocalBIF(torch.nn.Linear(3, 2), likelihood="categorical", min_steps=5, epochs=1, hidden=8).fit(X)
    assert np.array_equal(explainer.explain(X[list("cab")]).mean, explainer.explain(X).mean)
    with pytest.raises(ValueError, match="it lacks c; it has besides d"):
        explainer.explain(X.rename(columns={"c": "d"}))
    assert in_order(X, list("abc")) is X


def test_sparse_rows_work_and_the_model_sees_them_sparse():
    X = sparse.random(120, 6, density=0.4, format="csr", random_state=0)

    def predict(rows):
        assert sparse.issparse(rows) and rows.format == "csr"
        return np.asarray(rows[:, [0]].todense())[:, 0] * 3

    g = distill(predict, X, **FAST)
    assert g.fidelity_["r2"] > 0.8
    with pytest.warns(UserWarning, match="all-zero row"):
        explainer = LocalBIF(g, min_steps=20, epochs=1, hidden=8).fit(X)
    assert np.array_equal(explainer.explain(X[:5]).mean, explainer.explain(X[:5].toarray()).mean)
    with pytest.raises(ValueError, match="sparse matrix of 200000 x 100000, .* GB"):
        dense(sparse.csr_matrix((200_000, 100_000)))


def test_an_empty_column_and_a_table_of_two_rows_do_not_break_it():
    frame = pd.DataFrame({"gone": [np.nan, np.nan], "x": [1.0, 2.0]})
    table = Table(frame, np.array([[0, 0], [1, 1]]), np.array([[0.0], [1.0]]))
    assert table.encode(frame)["gone"].tolist() == [0, 0] and isinstance(table.columns["x"], Column)
    assert np.isfinite(table.edges(table.encode(frame).to_numpy(), np.zeros((2, 17)))).all()
