"""GlobalBIF and LocalBIF: fit, explain, save, load.

    posterior = GlobalBIF(model).fit(X, y).explain()       # one Dirichlet for the data set (Algorithm 1)
    posterior = LocalBIF(model).fit(X, y).explain(X_new)   # one per row, through an importance network (Algorithm 2)

Both maximise the ELBO of :mod:`bifkit.elbo` by the loop of :mod:`bifkit.training`; they differ only in where alpha
comes from. The model g is left exactly as it was: weights, BatchNorm statistics, mode, ``requires_grad``.
"""

import contextlib
import copy
import dataclasses
import logging
import time

import numpy as np
import torch

from bifkit import inputs, storage
from bifkit.dirichlet import FLOOR
from bifkit.elbo import of_classes
from bifkit.evaluation import Diagnostics, diagnose
from bifkit.fitted import Fitted
from bifkit.networks import GlobalAlpha, ImportanceNetwork
from bifkit.posterior import Posterior
from bifkit.presets import HYPERPARAMETERS, Settings, preset
from bifkit.training import adamw, derive_seed, learning_copy, maximise, seeded, verbosity

log = logging.getLogger(__name__)
FOLLOWED = 10**6  # importances that a fit follows: those of a thousand rows, of fewer where a row has many

PARAMETERS = f"""
    Hyper-parameters left at None are the preset's; those of "rank" are given below (:mod:`bifkit.presets`). An unknown
    value is refused by ``fit``.

    Parameters
    ----------
    model : torch.nn.Module
        The trained, differentiable g; it returns logits (rows, classes), one logit, or predictions.
    preset : str, default "rank"
        "rank" (which features matter?), "few" (which few are enough?), "paper" or "released".
{HYPERPARAMETERS}    groups : dict, list of lists or integer mask, optional
        Features that share one importance, such as {{"address": ["street", "city"]}}. A mask has a group number for
        each feature; it may have a row's own shape, or that of its last axes: superpixels (H, W) of rows (C, H, W),
        captum's feature_mask, :func:`bifkit.windows` of a series. Of several inputs, a dict may name whole ones,
        {{"text": ["tokens"]}}, and hold a label map of one under its name.
    group_names : dict, optional
        Names of a mask's groups by their numbers, such as {{0: "sky"}}; "group 0", ... by default.
    feature_names : list of str, optional
        Where X has no columns of its own; of several inputs also a dict, {{"numeric": ["age", "pay"]}}.
    output : str, int or function, optional
        Which part of what g returns to explain, where that is not one tensor: a key or attribute such as "logits", a
        position in a tuple, or a function of it.
    embedding : str, module or a list of them, optional
        The layer of g that embeds ids, such as "encoder.embed" (of a ModuleList: all in it): then each token's place,
        or each column of ids, has one importance. The fill "marginal" puts another row's vector in its place.
    surrogate : bool, default False
        Explain a stand-in for g that has learned from randomly masked rows what a blank is
        (:func:`bifkit.masked_surrogate`, with its defaults): for ``preset="few"``, where the place of what is kept must
        not give the answer away. ``surrogate_`` says how far the two agree, and so do the posterior's settings.
    likelihood : str, optional
        "categorical" (classes), "binary" (one logit), "multilabel" (a logit for each of several labels; y is (N, C) of
        0 and 1) or "regression" (one value or several; y is (N,) or (N, C)); by default read off g's outputs and y.
        Without y, several outputs are taken for logits of classes if they rise against each other, as those of a
        trained classifier do, and are asked for if not: if all are in [0, 1] and do not sum to one, or if the variance
        of their sum is above 3/4 of the sum of their variances (quantiles, several values, logits of labels that do
        not exclude each other; an untrained g). Two values that rise against each other look like two classes.
    image : (int, int) or (int, int, int), optional
        Height and width of an image, or channels, height and width: the importance network gets convolutions.
    classes : "each", int or list of int, optional
        Explain these classes one by one, each against the rest (of several labels or values: alone), by one network
        with a head for each. ``explain`` then gives {{class: posterior}}, and of a single number the posterior itself.
    device : str, optional
        Where g is expected to be; it is not moved.
    seed : int, default 0
        Fixes the fit.
    progress : bool, optional
        A bar; by default in a terminal. In JupyterLab say True.
    verbose : int, default 0
        1 logs what is done, 2 every twentieth of a fit.

    Attributes
    ----------
    score_ : float or None
        How well g (or its surrogate) predicts y from the whole input: accuracy, or R^2 of a regression; of several
        labels or values their mean.
    feature_importances_ : array (D,)
        The global share of each feature, a group's in equal parts (classes: their mean), as scikit-learn's
        ``SelectFromModel`` takes it. A LocalBIF that was loaded from a file has none: it is of the rows of fit.
    surrogate_ : MaskedSurrogate
        The stand-in that was explained; only with ``surrogate=True``, and not of an explainer loaded from a file.
    diagnostics_ : Diagnostics
        Has the fit converged, and does it say anything?
    history_ : list of list of float
        The objective, a mean over each twentieth of each fit; ``elbo_`` is the mean of the last ones.
    """


class _BIF(Fitted):
    """What the two explainers share: parameters, the fit, their file."""

    _lr_field = "lr"  # of the Settings, that ``lr=`` replaces

    def __init__(self, model, preset="rank", *, gate=None, fill=None, target=None, draws=None, point_estimate=None,
                 fidelity=None, prior=None, kl_weight=None, epochs=None, min_steps=None, batch_size=None, lr=None,
                 restarts=None, hidden=None, groups=None, group_names=None, feature_names=None, output=None,
                 embedding=None, surrogate=False, likelihood=None, image=None, classes=None, device=None, seed=0,
                 progress=None, verbose=0):
        self.model, self.preset, self.seed, self.device = model, preset, seed, device
        self.gate, self.fill, self.target, self.draws, self.lr = gate, fill, target, draws, lr
        self.point_estimate, self.prior, self.kl_weight, self.hidden = point_estimate, prior, kl_weight, hidden
        self.fidelity = fidelity
        self.epochs, self.min_steps, self.batch_size, self.restarts = epochs, min_steps, batch_size, restarts
        self.groups, self.feature_names, self.likelihood, self.image = groups, feature_names, likelihood, image
        self.group_names, self.output, self.embedding, self.classes = group_names, output, embedding, classes
        self.surrogate = surrogate
        self.progress, self.verbose = progress, verbose

    def _settings(self) -> Settings:
        names = ("gate", "fill", "target", "draws", "point_estimate", "fidelity", "prior", "kl_weight",
                 "epochs", "min_steps", "batch_size", "restarts", "hidden")
        return preset(self.preset, **{n: getattr(self, n) for n in names}, **{self._lr_field: self.lr})

    def fit(self, X, y=None):
        """Learn the Dirichlet; returns the explainer.

        Parameters
        ----------
        X : DataFrame, array, tensor, a tuple or dict of them, or DataLoader
            One row per instance. Several inputs, g(a, b) or g(a=..., b=...), are a tuple or a dict: floats have an
            importance each, ids one where ``embedding`` names their layer; g gets masks as they are. A DataLoader
            yields x or (x, y), or a dict, with its labels under "y", "label" or "labels".
        y : array, optional
            Labels; they give ``score_``. Under the target "soft" they have no other effect, and without them
            every preset explains g's own prediction.
        """
        for name in [n for n in vars(self) if n.endswith("_")]:
            delattr(self, name)  # a fit that fails leaves no mixture of old and new
        s, started, X = self._settings(), time.perf_counter(), inputs.numbers(self.model, X)
        device = inputs.check_model(self.model, self.device)
        if self.surrogate:
            self._stand_in(X, y, s)
        model, output = self._explained()
        with verbosity(self.verbose), seeded(type(self).__name__, self.seed), inputs.frozen(model):
            known = self.likelihood or getattr(model, "likelihood_", None)  # a stand-in knows what it stands for
            rows = inputs.source(X, y, model, output=output, embedding=self.embedding, device=device,
                                 likelihood=known, groups=self.groups, feature_names=self.feature_names,
                                 batch_size=s.batch_size)
            if isinstance(model, inputs.MaskedSurrogate):
                self.surrogate_report_ = model.report()
            self._learn_names(X, rows)
            s = s.for_data(len(self.group_names_), rows.gain)
            if rows.score is None:
                s = s.changed(target="soft")
            self.settings_, self.likelihood_, self.score_, self.n_rows_ = s, rows.likelihood, rows.score, rows.n
            self.classes_ = inputs.check_classes(self.classes, rows.outputs)
            log.info("%s: %d rows, %d features%s, preset %s, likelihood %s", type(self).__name__, rows.n, rows.width,
                     "" if self.groups is None else f" in {len(self.group_names_)} groups", self.preset,
                     self.likelihood_)
            probe = rows.some(min(max(FOLLOWED // len(self.group_names_), 50), 1000))  # the rows a fit is judged by
            fits = [self._fit_once(rows, s, probe, r) for r in range(s.restarts)]
            self.history_ = [[float(part.mean()) for part in np.array_split(c, min(20, len(c)))] for _, c, _ in fits]
            self.elbo_ = float(np.mean([h[-1] for h in self.history_]))
            self.diagnostics_ = diagnose(fits, probe, len(self.group_names_), null=s.prior + FLOOR)
            self.networks_ = [network for network, *_ in fits]
            self.feature_importances_ = self._importances(probe)
            log.info("%s: done in %.1f s, ELBO %.4f, %.1f effective features", type(self).__name__,
                     time.perf_counter() - started, self.elbo_, self.diagnostics_.effective_features)
        return self

    def _fit_once(self, rows, s, probe, restart):
        """One fit: (network, ELBO of each step, importances followed). A released g learns along, as a copy."""
        model, stream_of, classes = rows.model, None, self.classes_
        if s.batch_norm == "train":
            model = learning_copy(model)
            stream_of = inputs.view(copy.deepcopy(model), rows.shape)  # soft targets: g as it was, not as it learns
            if not any(p.requires_grad for p in model.parameters()):
                inputs.warn("preset 'released' rests on g's BatchNorm layers, and this g has none")
        scale = rows.scale(s.target) if self.likelihood_ == "regression" else 1.0
        g, read, likelihood, scale = of_classes(inputs.view(model, rows.shape), classes, self.likelihood_,
                                                target=s.target, scale=scale,
                                                draws=1 if s.point_estimate else s.draws)
        torch.manual_seed(derive_seed(type(self).__name__, self.seed, restart))
        network = self._new_network(rows.width, s, len(self._each_class()), rows)
        network = network.to(rows.mean.device, torch.float32).train()
        steps = self._steps(s, rows)
        learned = [*network.parameters(), *(p for p in model.parameters() if p.requires_grad)]
        optimiser, schedule = self._optimiser(learned, s, steps)
        try:
            curve, followed = maximise(
                network, g, rows.batches(read, stream_of), s, steps=steps, optimiser=optimiser, schedule=schedule,
                average=getattr(network, "theta", None), probe=probe, progress=self.progress,
                name=type(self).__name__ + self._which_class(),
                kl_weight=self._kl_weight(s, rows), likelihood=likelihood, mean=rows.mean, scale=scale,
                groups=None if len(self.group_names_) == rows.width and self.groups is None
                else self._group_of_column(rows.mean.device))
        except FloatingPointError as error:
            raise FloatingPointError(f"{error}: {inputs.why_not_finite(model, rows)}") from None
        return network.eval(), curve, followed

    def _steps(self, s, rows):
        return max(s.epochs * rows.per_epoch, s.min_steps)

    def _kl_weight(self, s, rows):
        if s.kl_weight == "elbo":
            return self._kl_of_the_paper(rows)
        return 1.0 / rows.size if s.kl_weight == "1/batch" else s.kl_weight

    def save(self, path):
        """Write everything but g (and a function ``output=``) to one file without pickle; g stays yours.

        Parameters
        ----------
        path : str or Path
            Such as "mine.bif".
        """
        self._check_fitted()
        arrays = {"groups": np.asarray(self.groups_, dtype=np.int64)}
        for r, network in enumerate(self.networks_):
            arrays |= {f"{r}.{k}": v.cpu().numpy() for k, v in network.state_dict().items()}
        groups = None if self.groups is None else \
            {n: np.flatnonzero(self.groups_ == i).tolist() for i, n in enumerate(self.group_names_)}
        storage.write(path, type(self).__name__, arrays, {
            "settings": dataclasses.asdict(self.settings_), "preset": self.preset, "score": self.score_,
            "feature_names": self.feature_names_, "columns": self.columns_, "group_names": self.group_names_,
            "from_frame": hasattr(self, "feature_names_in_"), "shape": list(self.shape_),
            "likelihood": self.likelihood_, "classes": self.classes_, "groups": groups,
            "output": None if callable(self.output) else self.output,
            "surrogate": getattr(self, "surrogate_report_", None),
            "diagnostics": self.diagnostics_ and dataclasses.asdict(self.diagnostics_), "history": self.history_,
            "elbo": self.elbo_, "seed": self.seed, "restarts": len(self.networks_),
            "image": list(self.image) if self.image else None}
            | ({} if self.layout_ is None else {"inputs": self.layout_.to_file()}))

    @classmethod
    def load(cls, path, model=None):
        """The fitted explainer of a file.

        Parameters
        ----------
        path : str or Path
            Written by ``save``.
        model : torch.nn.Module, optional
            g; only needed to fit again, or to refine.
        """
        arrays, meta = storage.read(path, cls.__name__)
        try:
            inputs.check_explainer(arrays, meta)
            self = cls(model, meta["preset"], seed=meta["seed"], image=meta["image"] and tuple(meta["image"]))
            settings = {"fidelity": "absolute"} | meta["settings"]  # what a file without it was fitted with
            self.settings_ = preset(meta["preset"], **settings)
            again = {k: v for k, v in settings.items() if k in self.get_params()}  # fit again as it was fitted
            self.set_params(**again | {"lr": meta["settings"][self._lr_field], "groups": meta["groups"],
                                       "likelihood": meta["likelihood"], "output": meta.get("output")})
            self.feature_names_, self.group_names_ = meta["feature_names"], meta["group_names"]
            self.shape_, self.likelihood_ = tuple(meta["shape"]), meta["likelihood"]
            self.history_, self.elbo_, self.groups_ = meta["history"], meta["elbo"], arrays["groups"]
            self.score_, self.classes_ = meta.get("score"), meta.get("classes")
            self.columns_ = meta.get("columns", self.feature_names_ if meta.get("named", True) else None)
            if meta.get("from_frame"):  # older files lack all that is read by get()
                self.feature_names_in_ = np.array(self.columns_, dtype=object)
            self.classes = self.classes_
            if meta.get("surrogate"):
                self.surrogate_report_ = meta["surrogate"]
                self.surrogate = not isinstance(model, inputs.MaskedSurrogate)
            self.diagnostics_ = Diagnostics(**meta["diagnostics"]) if meta.get("diagnostics") else None
            self.n_features_in_ = width = len(self.feature_names_)
            self.layout_ = None
            if "inputs" in meta:
                self.layout_ = inputs.Layout.from_file(meta["inputs"])
                self.embedding, width = list(self.layout_.layers), self.layout_.width
            several = meta["restarts"] == self.settings_.restarts  # classes as heads; older files: a network for each
            heads = len(self._each_class()) if several else 1
            self.networks_ = inputs.stored_networks(
                lambda: self._new_network(width, self.settings_, heads), arrays, meta["restarts"])
            if isinstance(self, GlobalBIF):
                self.feature_importances_ = self._importances(None)
        except Exception as error:  # whatever a stranger's file provokes
            raise storage.bad(f"the file lacks something a {cls.__name__} needs", error) from None
        return self



class GlobalBIF(_BIF):
    __doc__ = """One importance distribution for the whole data set (section 4.1, Algorithm 1).
""" + PARAMETERS + """
    >>> from torch import nn
    >>> X = np.random.default_rng(0).normal(size=(300, 3)).astype("float32")
    >>> g = nn.Linear(3, 2, bias=False); _ = g.weight.data.copy_(torch.tensor([[-3.0, 0, 0], [3, 0, 0]]))
    >>> GlobalBIF(g, min_steps=200, epochs=1).fit(X).explain().top(1)
    ['x0']
    """

    _lr_field = "global_lr"

    def _new_network(self, width, s, heads, rows=None):
        return GlobalAlpha(len(self.group_names_), heads)

    def _steps(self, s, rows):
        steps = super()._steps(s, rows)  # one alpha needs no pass over all of many rows
        return steps if s.global_steps is None else min(steps, max(s.global_steps, s.min_steps))

    def _optimiser(self, parameters, s, steps):
        return adamw(parameters, lr=s.global_lr), None

    def _kl_of_the_paper(self, rows):
        return 1.0 / rows.n  # Eq. 4: one KL for N rows, while the likelihood is averaged over rows

    def explain(self, X=None) -> Posterior:
        """The posterior of the data set; ``X`` is not needed."""
        self._check_fitted()
        return self._answer(self._alpha(None)[:, 0])


class LocalBIF(_BIF):
    __doc__ = """One importance distribution per row, through an importance network (section 4.2, Algorithm 2).
""" + PARAMETERS + """
    >>> from torch import nn
    >>> X = np.random.default_rng(0).normal(size=(300, 3)).astype("float32")
    >>> g = nn.Linear(3, 2, bias=False); _ = g.weight.data.copy_(torch.tensor([[-3.0, 0, 0], [3, 0, 0]]))
    >>> LocalBIF(g, min_steps=100, epochs=1).fit(X).explain(X[:5]).mean.shape
    (5, 3)
    """

    def _new_network(self, width, s, heads, rows=None):
        network = ImportanceNetwork(width, len(self.group_names_), heads=heads, hidden=s.hidden, image=self.image)
        return network if rows is None else network.standardise(rows.mean, rows.sd)

    def _optimiser(self, parameters, s, steps):
        optimiser = adamw(parameters, lr=s.lr, weight_decay=s.weight_decay)
        return optimiser, torch.optim.lr_scheduler.OneCycleLR(optimiser, s.lr, total_steps=steps)

    def _kl_of_the_paper(self, rows):
        return 1.0  # Eq. 7: one KL per row

    def explain(self, X, *, batch_size=8192) -> Posterior:
        """The posteriors of the rows of ``X``, in their order and with their index.

        Parameters
        ----------
        X : DataFrame, array, tensor, DataLoader, or a tuple or dict of inputs as in fit
            A frame must have the columns of fit, in any order; where fit had no names, those of the frame are
            taken. A DataLoader is gone through once: memory holds one batch and the answer.
        batch_size : int, default 8192
            Rows at a time.
        """
        self._check_fitted()
        device, index, new = next(self.networks_[0].parameters()).device, None, None
        with contextlib.ExitStack() as stack:
            if self.layout_ is not None and self.layout_.calls and self.model is not None:  # ids ask g's own layer
                stack.enter_context(seeded("explain"))
                stack.enter_context(inputs.frozen(self.model))
            if inputs.is_loader(X):
                blocks = inputs.rows_of(X, lambda x: self._rows(x, device)[0])
            else:
                x, names, index = self._rows(X, "cpu")
                new = names if index is not None and self.columns_ is None else None
                blocks = (part.to(device) for part in x.split(batch_size))
            return self._answer(np.concatenate([self._alpha(part) for part in blocks], axis=1), index, new)

    def attribute(self, inputs, target=None) -> torch.Tensor:
        """captum's verb: the mean importances of ``inputs``, in their shape; a group's stands at each of its inputs.

        Parameters
        ----------
        inputs : Tensor or array, or a tuple or dict of them
            Rows, as ``explain`` takes them; the answer is a tuple or dict as they are.
        target : int, optional
            One of the ``classes`` that were fitted.
        """
        answer = self.explain(inputs)
        by_class = answer if isinstance(answer, dict) else {self.classes_: answer}
        if target not in by_class:
            raise ValueError(f"target must be one of the classes that were fitted, {list(by_class)}; got {target!r}: "
                             "fit with classes= to explain single classes")
        mean = torch.as_tensor(by_class[target].mean[:, self.groups_], dtype=torch.float32)
        if self.layout_ is not None:
            return self.layout_.like_inputs(mean)
        return mean.reshape(inputs.shape).to(getattr(inputs, "device", "cpu"))
