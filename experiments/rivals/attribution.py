"""Attribution through its own packages: captum, shap and lime, behind one shape.

Every function returns |attribution| as a float array (N, D): non-negative, one row per instance, for the class the
model predicts there; ``signed=True`` gives the attribution itself, negative where a feature speaks against it. A
torch ``model`` gives class logits (N, C) or one logit (N, 1); gradients and SHAP values are those of the logit,
LIME's weights those of the probability. ``shap_tree`` and ``lime_forest`` bring the kind of model the BIF paper
explained: boosted trees (100 rounds, learning rate .01) and a forest of 500 trees, with every feature in the
explanation. ``sum_groups`` adds features up to patches.
"""

import copy
import warnings
from contextlib import contextmanager

import captum.attr
import numpy as np
import shap
import torch
from lime.lime_image import LimeImageExplainer
from lime.lime_tabular import LimeTabularExplainer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

from data_prep.seeding import derive
from experiments.models.classifiers import predict_proba
from experiments.rivals.nets import check_data, check_groups


@contextmanager
def _quiet():
    """Silence what shap, lime and captum say about their own insides."""
    with warnings.catch_warnings():
        for kind in (UserWarning, FutureWarning, DeprecationWarning):
            warnings.simplefilter("ignore", kind)
        yield


@contextmanager
def _numpy_seed(*keys):
    """Seed numpy's global generator, which shap draws from, and put its state back afterwards."""
    state = np.random.get_state()
    np.random.seed(derive(*keys) % 2**32)
    try:
        yield
    finally:
        np.random.set_state(state)


def _private(model):
    """A copy in eval mode: shap and captum hang hooks on a model, and in-place activations break them."""
    model = copy.deepcopy(model).eval().requires_grad_(False)
    for layer in model.modules():
        if getattr(layer, "inplace", False):
            layer.inplace = False
    return model


@torch.no_grad()
def _targets(model, X, target):
    """The output column of each row to explain (N,), or None for a model with one output."""
    out = model(X)
    if out.ndim != 2:
        raise ValueError(f"the model must return logits (N, C) or (N, 1); got shape {tuple(out.shape)}")
    if out.shape[1] == 1:
        return None
    if isinstance(target, str):
        if target != "predicted":
            raise ValueError(f"target must be 'predicted' or class numbers; got {target!r}")
        return out.argmax(1)
    target = torch.as_tensor(np.asarray(target)).long().expand(len(X))
    if target.min() < 0 or target.max() >= out.shape[1]:
        raise ValueError(f"target must lie between 0 and {out.shape[1] - 1}, the model's classes")
    return target


def _pick(values, columns, signed=False):
    """|values| (N, D) of the given column from shap's (N, D, C), (N, D, 1) or (N, D); ``signed``: as they are."""
    values = np.asarray(values, dtype=float)
    if values.ndim == 3:
        columns = np.zeros(len(values), int) if columns is None else np.asarray(columns)
        values = values[np.arange(len(values)), :, columns]
    return values if signed else np.abs(values)


def integrated_gradients(model, X, *, baseline=0.0, target="predicted", steps=50, signed=False) -> np.ndarray:
    """Integrated gradients (captum) from ``baseline``, a number or a row, to each row of X.

    >>> model = torch.nn.Linear(2, 1); _ = model.load_state_dict({"weight": torch.tensor([[2.0, -1.0]]),
    ...                                                           "bias": torch.zeros(1)})
    >>> integrated_gradients(model, [[1.0, 3.0]]).round(3).tolist()
    [[2.0, 3.0]]
    """
    X, model = check_data(X), _private(model)
    start = torch.as_tensor(np.asarray(baseline, dtype=np.float32)).expand_as(X).contiguous()
    with _quiet():
        values = captum.attr.IntegratedGradients(model).attribute(
            X, start, target=_targets(model, X, target), n_steps=steps, internal_batch_size=max(8192, len(X)))
    return (values if signed else values.abs()).double().numpy()


def saliency(model, X, *, target="predicted") -> np.ndarray:
    """The size of the gradient (captum Saliency)."""
    X, model = check_data(X), _private(model)
    with _quiet():
        values = captum.attr.Saliency(model).attribute(X, target=_targets(model, X, target), abs=True)
    return values.double().numpy()


def shap_deep(model, X, background, *, target="predicted", signed=False) -> np.ndarray:
    """DeepExplainer: DeepLIFT averaged over the rows of ``background`` (100 or so will do)."""
    X, background, model = check_data(X), check_data(background), _private(model)
    # a lone linear layer is no container, and shap hangs its hooks on the children
    model = model if len(list(model.children())) else torch.nn.Sequential(model)
    with _quiet():
        values = shap.DeepExplainer(model, background).shap_values(X, check_additivity=False)
    return _pick(values, _targets(model, X, target), signed)


def shap_gradient(model, X, background, *, nsamples=200, seed=0, target="predicted", signed=False) -> np.ndarray:
    """GradientExplainer: expected gradients over random rows of ``background``."""
    X, background, model = check_data(X), check_data(background), _private(model)
    with _quiet(), _numpy_seed("shap_gradient", seed):
        values = shap.GradientExplainer(model, background).shap_values(
            X, nsamples=nsamples, rseed=derive("shap_gradient", seed) % 2**32)
    return _pick(values, _targets(model, X, target), signed)


def gradient_shap(model, X, background, *, nsamples=50, seed=0, target="predicted", signed=False) -> np.ndarray:
    """Captum's GradientShap: gradients at random points between a row and random rows of ``background``, no noise."""
    X, background, model = check_data(X), check_data(background), _private(model)
    with _quiet(), _numpy_seed("gradient_shap", seed), torch.random.fork_rng([]):
        torch.manual_seed(derive("gradient_shap", seed))
        values = captum.attr.GradientShap(model).attribute(
            X, background, n_samples=nsamples, stdevs=0.0, target=_targets(model, X, target)).detach()
    return (values if signed else values.abs()).double().numpy()


def feature_ablation(model, X, *, groups=None, baseline=0.0, target="predicted", signed=False) -> np.ndarray:
    """Captum's FeatureAblation: what the logit loses when a feature, or a group, takes the ``baseline``; (N, G).

    >>> model = torch.nn.Linear(2, 1); _ = model.load_state_dict({"weight": torch.tensor([[2.0, -1.0]]),
    ...                                                           "bias": torch.zeros(1)})
    >>> feature_ablation(model, [[1.0, 3.0]], signed=True).round(3).tolist()
    [[2.0, -3.0]]
    """
    X, model = check_data(X), _private(model)
    groups, n = check_groups(np.arange(X.shape[1]) if groups is None else groups, X.shape[1])
    with _quiet(), torch.no_grad():
        values = captum.attr.FeatureAblation(model).attribute(
            X, baseline, target=_targets(model, X, target), feature_mask=groups[None])
    first = np.unique(groups.numpy(), return_index=True)[1]  # every input of a group has the group's value
    values = values[:, first]
    return (values if signed else values.abs()).double().numpy()


def shap_kernel(model, X, background, *, groups=None, nsamples="auto", seed=0, target="predicted",
                signed=False) -> np.ndarray:
    """KernelExplainer on the logits: model-agnostic and slow, so give it a small ``background`` and few rows.

    With ``groups`` (D,) it explains groups (N, G), row by row: one that is left out takes the mean of ``background``.
    """
    X, background, model = check_data(X), check_data(background), _private(model)

    @torch.no_grad()
    def logits(rows):
        return model(torch.as_tensor(np.asarray(rows, dtype=np.float32))).double().numpy()

    with _quiet(), _numpy_seed("shap_kernel", seed):
        if groups is None:
            explainer = shap.KernelExplainer(logits, background.numpy())
            values = explainer.shap_values(X.numpy(), nsamples=nsamples, silent=True)
        else:
            index, n = check_groups(groups, X.shape[1])
            mean = background.numpy().mean(0)
            values = np.concatenate([
                shap.KernelExplainer(lambda z, row=row: logits(mean + z[:, index.numpy()] * (row - mean)),
                                     np.zeros((1, n))).shap_values(np.ones((1, n)), nsamples=nsamples, silent=True)
                for row in X.numpy()])
    return _pick(values, _targets(model, X, target), signed)


def boosted_trees(X, y, *, seed=0):
    """The paper's boosted trees: 100 rounds, learning rate .01, depth 6.

    Histogram boosting, because shap's TreeExplainer takes scikit-learn's older boosting for two classes only.
    """
    X, y = check_data(X, y)
    return HistGradientBoostingClassifier(
        max_iter=100, learning_rate=0.01, max_depth=6, max_leaf_nodes=64, min_samples_leaf=5,
        l2_regularization=1.0, early_stopping=False, random_state=derive("boosted_trees", seed) % 2**32,
    ).fit(X.numpy(), y.numpy())


def shap_tree(X_train, y_train, X, *, seed=0) -> np.ndarray:
    """TreeExplainer on boosted trees trained here, as in the paper's SHAP rows.

    >>> X = np.random.default_rng(0).normal(size=(200, 3)); y = (X[:, 1] > 0).astype(int)
    >>> shap_tree(X, y, X[:5]).mean(0).argmax()
    np.int64(1)
    """
    return tree_values(boosted_trees(X_train, y_train, seed=seed), X)


def tree_values(model, X) -> np.ndarray:
    """TreeExplainer's values for a tree model that is there already."""
    X = check_data(X).numpy()
    with _quiet():
        values = shap.TreeExplainer(model).shap_values(X)
    return _pick(values, model.predict_proba(X).argmax(1))


def _lime(predict, X_train, X, num_samples, seed, target="predicted", signed=False, **options):
    """LIME's weight of every feature for the class to explain, row by row."""
    X_train, X = check_data(X_train).numpy(), check_data(X).numpy()
    if X.shape[1] != X_train.shape[1]:
        raise ValueError(f"X has {X.shape[1]} features, X_train {X_train.shape[1]}")
    state = derive("lime", seed) % 2**32
    explainer = LimeTabularExplainer(X_train, mode="classification", random_state=state, **options)
    classes = predict(X).argmax(1) if isinstance(target, str) else np.broadcast_to(target, len(X)).astype(int)
    out = np.zeros(X.shape)
    with _quiet():
        for i, (row, label) in enumerate(zip(X, classes, strict=True)):
            found = explainer.explain_instance(row, predict, labels=(label,), num_features=X.shape[1],
                                               num_samples=num_samples).as_map()[label]
            for feature, weight in found:
                out[i, feature] = weight
    return out if signed else np.abs(out)


def lime_model(model, X_train, X, *, seed=0, num_samples=1000, **options) -> np.ndarray:
    """LIME on a torch model's probabilities, all features; ``target``, ``signed``; the rest goes to its explainer."""
    return _lime(lambda rows: predict_proba(model, rows), X_train, X, num_samples, seed, **options)


def forest_proba(forest):
    """``forest.predict_proba`` without its dispatch of one job per tree, which costs more than the trees do.

    >>> X = np.arange(20.0)[:, None]; forest = RandomForestClassifier(5, random_state=0).fit(X, X[:, 0] > 9)
    >>> bool(np.allclose(forest_proba(forest)(X), forest.predict_proba(X)))
    True
    """
    trees = [tree.tree_ for tree in forest.estimators_]

    def predict(X):
        X = np.ascontiguousarray(X, dtype=np.float32)
        total = sum(tree.predict(X) for tree in trees).reshape(len(X), -1)  # (N, C)
        return total / total.sum(1, keepdims=True)

    return predict


def lime_forest(X_train, y_train, X, *, seed=0, trees=500, num_samples=1000, **options) -> np.ndarray:
    """LIME on a random forest trained here, as in the paper's LIME rows.

    >>> X = np.random.default_rng(0).normal(size=(200, 3)); y = (X[:, 1] > 0).astype(int)
    >>> lime_forest(X, y, X[:3], trees=20).mean(0).argmax()
    np.int64(1)
    """
    X_train, y_train = (a.numpy() for a in check_data(X_train, y_train))
    forest = RandomForestClassifier(trees, random_state=derive("forest", seed) % 2**32).fit(X_train, y_train)
    return _lime(forest_proba(forest), X_train, X, num_samples, seed, **options)


class _FastImages(LimeImageExplainer):
    """LIME for images with its loop over the masked copies replaced by one indexing; same draws, same answer."""

    def data_labels(self, image, fudged_image, segments, classifier_fn, num_samples, batch_size=10, **_):
        names, index = np.unique(segments, return_inverse=True)
        data = self.random_state.randint(0, 2, num_samples * len(names)).reshape(num_samples, len(names))
        data[0, :] = 1
        keep = data[:, index.reshape(segments.shape)].astype(bool)[..., None]  # (S, H, W, 1)
        return data, classifier_fn(np.where(keep, image, fudged_image))


def lime_image(model, image, *, segments=None, num_samples=1000, hide=0.0, seed=0, target="predicted", signed=False):
    """LIME on one grey image (H, W): |weight| of each segment (S,) and the segments (H, W), numbered from 0.

    ``segments`` is the caller's, such as patches; None lets LIME find its own (quickshift). Segments left out are set
    to ``hide``. The model takes flat images (N, H * W).
    """
    image = np.asarray(image, dtype=np.float64)
    if image.ndim != 2 or not np.isfinite(image).all():
        raise ValueError(f"image must be a finite grey image (H, W); got shape {image.shape}")
    if segments is not None:
        segments = np.asarray(segments)
        if segments.shape != image.shape:
            raise ValueError(f"segments must have the image's shape {image.shape}; got {segments.shape}")
        check_groups(segments.ravel(), segments.size)
    explainer = _FastImages(random_state=derive("lime_image", seed) % 2**32)
    with _quiet():
        result = explainer.explain_instance(
            image, lambda images: predict_proba(model, images[..., 0].reshape(len(images), -1)),
            hide_color=hide, num_samples=num_samples,
            segmentation_fn=None if segments is None else lambda _: segments,
            **({"top_labels": 1} if isinstance(target, str) else {"labels": (int(target),), "top_labels": None}))
    weights = np.zeros(int(result.segments.max()) + 1)
    for segment, weight in result.local_exp[result.top_labels[0] if isinstance(target, str) else int(target)]:
        weights[segment] = weight
    return weights if signed else np.abs(weights), result.segments


def lime_patches(model, X, groups, *, num_samples=1000, hide=0.0, seed=0, target="predicted",
                 signed=False) -> np.ndarray:
    """LIME on flat square images X (N, D) with our patches as segments: |weight| (N, G)."""
    X = check_data(X).numpy()
    side = int(round(X.shape[1] ** 0.5))
    if side * side != X.shape[1]:
        raise ValueError(f"X must hold flat square images; {X.shape[1]} inputs are no square")
    segments = check_groups(groups, X.shape[1])[0].numpy().reshape(side, side)
    targets = [target] * len(X) if isinstance(target, str) else np.broadcast_to(target, len(X))
    return np.stack([lime_image(model, row.reshape(side, side), segments=segments, num_samples=num_samples, hide=hide,
                                seed=seed, target=t, signed=signed)[0] for row, t in zip(X, targets, strict=True)])


def sum_groups(scores, groups) -> np.ndarray:
    """Scores of features (N, D) added up to scores of groups (N, G).

    >>> sum_groups([[1.0, 2.0, 4.0]], [0, 1, 0]).tolist()
    [[5.0, 2.0]]
    """
    scores = np.atleast_2d(np.asarray(scores, dtype=float))
    groups, n = check_groups(groups, scores.shape[1])
    return scores @ np.eye(n)[groups.numpy()]
