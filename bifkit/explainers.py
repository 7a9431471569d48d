"""GlobalBIF and LocalBIF: fit, explain, save, load.

    posterior = GlobalBIF(model).fit(X, y).explain()       # one Dirichlet for the data set (Algorithm 1)
    posterior = LocalBIF(model).fit(X, y).explain(X_new)   # one Dirichlet a row, through an importance network (Alg. 2)

Both maximise the ELBO of :mod:`bifkit.elbo` by stochastic gradients; they differ only in where alpha comes from. The
model g is left exactly as it was: weights, BatchNorm statistics, mode, ``requires_grad``. Hyper-parameters left at
None are the preset's.
"""

import copy
import dataclasses
import logging
import time
from pathlib import Path  # noqa: F401 (the examples below)

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from torch import nn  # noqa: F401 (the examples below)

from bifkit import storage
from bifkit.elbo import one_against_rest, reader
from bifkit.evaluation import diagnostics
from bifkit.gates import Settings, preset
from bifkit.inputs import checks as door
from bifkit.inputs import rows as batches
from bifkit.inputs.groups import resolve_groups
from bifkit.networks import GlobalAlpha, ImportanceNetwork
from bifkit.optim import AdamW, OneCycle
from bifkit.posterior import Posterior
from bifkit.progress import verbosity
from bifkit.seeding import derive
from bifkit.training import learning_copy, maximise

log = logging.getLogger(__name__)
PROBED = 10**6  # importances that a fit follows: those of a thousand rows, of fewer where a row has many


class _BIF(BaseEstimator):
    """What the two explainers share: settings, the door, the fit, saving."""

    def __init__(self, model, preset="rank", *, gate=None, fill=None, target=None, draws=None, point_estimate=None,
                 prior=None, kl_weight=None, epochs=None, min_steps=None, batch_size=None, lr=None,
                 restarts=None, hidden=None, groups=None, feature_names=None, likelihood=None, image=None,
                 classes=None, device=None, seed=0, progress=None, verbose=0):
        self.model, self.preset, self.seed, self.device = model, preset, seed, device
        self.gate, self.fill, self.target, self.draws, self.lr = gate, fill, target, draws, lr
        self.point_estimate, self.prior, self.kl_weight, self.hidden = point_estimate, prior, kl_weight, hidden
        self.epochs, self.min_steps, self.batch_size, self.restarts = epochs, min_steps, batch_size, restarts
        self.groups, self.feature_names, self.likelihood, self.image = groups, feature_names, likelihood, image
        self.classes, self.progress, self.verbose = classes, progress, verbose

    _lr_field = "lr"

    def _settings(self) -> Settings:
        names = ("gate", "fill", "target", "draws", "point_estimate", "prior", "kl_weight",
                 "epochs", "min_steps", "batch_size", "restarts", "hidden")
        return preset(self.preset, **{n: getattr(self, n) for n in names}, **{self._lr_field: self.lr})

    def fit(self, X, y=None):
        """Learn the Dirichlet from a DataFrame, array or tensor ``X`` and labels ``y``, or from a DataLoader alone.

        Under a soft target ``y`` has no effect on the fit. Where it is given, ``score_`` is how well g predicts it from
        the whole input: accuracy, or R^2 for a regression. ``diagnostics_`` says whether the fit has converged, and
        ``history_`` holds the ELBO.

        >>> X = np.random.default_rng(0).normal(size=(50, 2)); g = nn.Identity()
        >>> fitted = GlobalBIF(g, min_steps=9, epochs=1).fit(X, X.argmax(1)); fitted.likelihood_, fitted.score_
        ('categorical', 1.0)
        """
        for name in [n for n in vars(self) if n.endswith("_")]:
            delattr(self, name)  # a fit that fails leaves no mixture of old and new
        s, started = self._settings(), time.perf_counter()
        device = door.check_model(self.model, self.device)
        gpus = range(torch.cuda.device_count())
        with verbosity(self.verbose), door.frozen(self.model), torch.random.fork_rng(gpus), torch.enable_grad():
            torch.manual_seed(derive(type(self).__name__, self.seed))  # a loader that shuffles repeats itself
            known = self.likelihood or getattr(self.model, "likelihood_", None)  # a stand-in knows what it stands for
            rows = batches.source(X, y, self.model, device=device, likelihood=known, groups=self.groups,
                                  feature_names=self.feature_names, batch_size=s.batch_size)
            self.groups_, self.group_names_ = resolve_groups(self.groups, rows.names)
            if len(self.group_names_) < 2:
                raise ValueError("all features stand in one group: importance is relative, so at least two are needed")
            if rows.score is None:
                s = s.changed(target="soft")
            self.settings_, self.likelihood_, self.score_ = s, rows.likelihood, rows.score
            self.feature_names_, self.shape_, self.n_features_in_ = rows.names, rows.shape, rows.width
            self.columns_ = None if rows.columns is None else [str(c) for c in rows.columns]
            if hasattr(X, "columns") and all(isinstance(c, str) for c in X.columns):
                self.feature_names_in_ = np.array(self.columns_, dtype=object)  # scikit-learn's convention
            self.classes_ = door.check_classes(self.classes, rows.outputs)
            log.info("%s: %d rows, %d features%s, preset %s, likelihood %s", type(self).__name__, rows.n, rows.width,
                     "" if self.groups is None else f" in {len(self.group_names_)} groups", self.preset,
                     self.likelihood_)
            fits = [self._fit_once(rows, s, r, c) for c in self.classes_ or [None] for r in range(s.restarts)]
            self.history_ = [[float(part.mean()) for part in np.array_split(c, min(20, len(c)))] for _, c, _ in fits]
            self.elbo_ = float(np.mean([h[-1] for h in self.history_]))  # a history is a mean over each twentieth
            if not np.isfinite(self.elbo_):
                raise FloatingPointError("the fit diverged: try a smaller lr, or check the scale of g's outputs")
            self.diagnostics_ = diagnostics.of(fits, self._probe(rows), len(self.group_names_))
            self.networks_ = [net for net, *_ in fits]
            log.info("%s: done in %.1f s, ELBO %.4f, %.1f effective features", type(self).__name__,
                     time.perf_counter() - started, self.elbo_, self.diagnostics_.effective_features)
        return self

    def _fit_once(self, rows, s, restart, class_number=None):
        """One fit: (network, ELBO, drift of the end). A released g learns along: each restart takes its own copy."""
        model = learning_copy(self.model) if s.batch_norm == "train" else self.model
        g, likelihood = batches.view(model, rows.shape), self.likelihood_
        read = reader(s.target, likelihood, class_number)
        torch.manual_seed(derive(type(self).__name__, self.seed, restart))
        net = self._new_network(rows.width, s, rows).to(rows.mean.device).train()
        stream = rows.batches(read, None if model is self.model else batches.view(copy.deepcopy(model), rows.shape))
        if class_number is not None:
            whole, likelihood = g, "binary"
            g = lambda x: one_against_rest(whole(x), class_number)  # noqa: E731
        groups = None if len(self.group_names_) == rows.width and self.groups is None else \
            torch.as_tensor(self.groups_, device=rows.mean.device)
        name = type(self).__name__ + ("" if class_number is None else f" class {class_number}")
        curve, moved = maximise(
            net, g, stream, s, steps=max(s.epochs * rows.per_epoch, s.min_steps), name=name, show=self.progress,
            optimiser=lambda vectors, steps: self._optimiser(vectors, s, steps), average=self._averaged(net),
            learned=[p for p in model.parameters() if p.requires_grad], groups=groups, mean=rows.mean,
            probe=self._probe(rows), likelihood=likelihood, kl_weight=self._kl_weight(s, rows.n, rows.size),
            scale=rows.scale(s.target) if likelihood == "regression" else 1.0)
        return net.eval(), curve, moved

    def _probe(self, rows):
        """The rows that a fit is judged by."""
        return rows.some(min(max(PROBED // len(self.group_names_), 50), 1000))

    def _kl_weight(self, s, N, B):
        return 1.0 / B if s.kl_weight == "1/batch" else s.kl_weight

    def _averaged(self, net):
        return None

    def _meta(self):
        return {"settings": dataclasses.asdict(self.settings_), "preset": self.preset, "score": self.score_,
                "feature_names": self.feature_names_, "columns": self.columns_, "group_names": self.group_names_,
                "from_frame": hasattr(self, "feature_names_in_"),
                "shape": list(self.shape_), "likelihood": self.likelihood_, "classes": self.classes_,
                "diagnostics": self.diagnostics_ and dataclasses.asdict(self.diagnostics_),
                "history": self.history_, "elbo": self.elbo_, "seed": self.seed, "restarts": len(self.networks_),
                "image": list(self.image) if self.image else None, "groups": None if self.groups is None else
                {n: np.flatnonzero(self.groups_ == i).tolist() for i, n in enumerate(self.group_names_)}}

    def save(self, path):
        """Everything but g, in one file without pickle; g stays yours.

        >>> import tempfile; folder = Path(tempfile.mkdtemp())
        >>> fitted = GlobalBIF(nn.Identity(), min_steps=9, epochs=1).fit([[1.0, 2.0], [4.0, 3.0]])
        >>> fitted.save(folder / "doctest.bif")
        >>> bool((GlobalBIF.load(folder / "doctest.bif").explain().alpha == fitted.explain().alpha).all())
        True
        """
        self._check_fitted()
        arrays = {"groups": np.asarray(self.groups_, dtype=np.int64)}
        for r, net in enumerate(self.networks_):
            arrays |= {f"{r}.{k}": v.cpu().numpy() for k, v in net.state_dict().items()}
        storage.write(path, type(self).__name__, arrays, self._meta())

    @classmethod
    def load(cls, path, model=None):
        """The fitted explainer of a file; ``model`` (g) is only needed to fit again.

        >>> GlobalBIF.load("nowhere/mine.bif")
        Traceback (most recent call last):
        FileNotFoundError: there is no file 'mine.bif' in 'nowhere'
        """
        arrays, meta = storage.read(path, cls.__name__)
        try:
            self = cls(model, meta["preset"], seed=meta["seed"], image=meta["image"] and tuple(meta["image"]))
            self.settings_ = preset(meta["preset"], **meta["settings"])
            again = {k: v for k, v in meta["settings"].items() if k in self.get_params()}  # fit again as it was fitted
            self.set_params(**again | {"lr": meta["settings"][self._lr_field], "groups": meta["groups"],
                                       "likelihood": meta["likelihood"]})
            self.feature_names_, self.group_names_ = meta["feature_names"], meta["group_names"]
            self.shape_, self.likelihood_ = tuple(meta["shape"]), meta["likelihood"]
            self.history_, self.elbo_, self.groups_ = meta["history"], meta["elbo"], arrays["groups"]
            self.score_, self.classes_ = meta.get("score"), meta.get("classes") and [int(c) for c in meta["classes"]]
            self.columns_ = meta.get("columns", self.feature_names_ if meta.get("named", True) else None)
            if meta.get("from_frame"):  # older files lack these five
                self.feature_names_in_ = np.array(self.columns_, dtype=object)
            self.classes = self.classes_
            self.diagnostics_ = diagnostics.Diagnostics(**meta["diagnostics"]) if meta.get("diagnostics") else None
            self.n_features_in_ = len(self.feature_names_)
            if len(self.groups_) != len(self.feature_names_):
                raise ValueError("features and groups do not fit together")
            if meta["restarts"] != self.settings_.restarts * len(self.classes_ or [None]):
                raise ValueError("classes, restarts and networks do not fit together")
            self.networks_ = []
            for r in range(meta["restarts"]):
                net = self._new_network(self.n_features_in_, self.settings_)
                state = {k.split(".", 1)[1]: torch.from_numpy(v) for k, v in arrays.items() if k.startswith(f"{r}.")}
                net.load_state_dict(state)
                self.networks_.append(net.eval())
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise storage.BadFile(f"the file lacks something a {cls.__name__} needs ({error})") from None
        return self

    def __sklearn_is_fitted__(self):
        return hasattr(self, "networks_")

    def _check_fitted(self):
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"this {type(self).__name__} is not fitted: call fit(X, y) first")

    def _alpha(self, x):
        """alpha of some rows, (classes, B, G): averaged over the restarts."""
        with torch.no_grad():
            alphas = np.stack([net(x).double().cpu().numpy() for net in self.networks_])
        return alphas.reshape(len(self.classes_ or [None]), -1, *alphas.shape[1:]).mean(1)

    def _answer(self, alphas, index=None, names=None):
        """The posterior of ``alphas``, one a class; {class: posterior} where classes were asked for."""
        if self.classes_ is None:
            return self._posterior(alphas[0], index, names)
        return {c: self._posterior(alpha, index, names, {"class": c})
                for c, alpha in zip(self.classes_, alphas, strict=True)}

    def _posterior(self, alpha, index, names, more=None):
        groups = list(self.group_names_)
        for i, new in enumerate(names or []):  # a feature that stands alone goes by its new name
            g = self.groups_[i]
            if self.group_names_[g] == self.feature_names_[i] and (self.groups_ == g).sum() == 1:
                groups[g] = new
        meta = {"explainer": type(self).__name__, "preset": self.preset, **dataclasses.asdict(self.settings_),
                "seed": self.seed, "elbo": self.elbo_} | (more or {})
        return Posterior(alpha, groups, settings=meta, index=index)


class GlobalBIF(_BIF):
    """One importance distribution for the whole data set (section 4.1, Algorithm 1).

    >>> X = np.random.default_rng(0).normal(size=(300, 3)).astype("float32"); y = (X[:, 0] > 0).astype(int)
    >>> g = nn.Linear(3, 2, bias=False); _ = g.weight.data.copy_(torch.tensor([[-3.0, 0, 0], [3, 0, 0]]))
    >>> GlobalBIF(g, min_steps=200, epochs=1).fit(X, y).explain().top(1)
    ['x0']
    """

    _lr_field = "global_lr"

    def _new_network(self, width, s, rows=None):
        return GlobalAlpha(len(self.group_names_))

    def _optimiser(self, vectors, s, steps):
        return AdamW(vectors, lr=s.global_lr), None

    def _kl_weight(self, s, N, B):
        # Eq. 4: one KL for N rows, while the likelihood is averaged over rows
        return 1.0 / N if s.kl_weight == "elbo" else super()._kl_weight(s, N, B)

    def _averaged(self, net):
        return net.theta

    def explain(self, X=None) -> Posterior:
        """The posterior of the data set; ``X`` is not needed.

        >>> p = GlobalBIF(nn.Identity(), min_steps=9, epochs=1).fit([[1.0, 2.0], [4.0, 3.0]]).explain()
        >>> p.is_local, p.feature_names
        (False, ['x0', 'x1'])
        """
        self._check_fitted()
        return self._answer(self._alpha(None)[:, 0])


class LocalBIF(_BIF):
    """One importance distribution a row, through an importance network (section 4.2, Algorithm 2).

    >>> X = np.random.default_rng(0).normal(size=(300, 3)).astype("float32"); y = (X[:, 0] > 0).astype(int)
    >>> g = nn.Linear(3, 2, bias=False); _ = g.weight.data.copy_(torch.tensor([[-3.0, 0, 0], [3, 0, 0]]))
    >>> LocalBIF(g, min_steps=100, epochs=1).fit(X, y).explain(X[:5]).mean.shape
    (5, 3)
    """

    def _new_network(self, width, s, rows=None):
        net = ImportanceNetwork(width, len(self.group_names_), hidden=s.hidden, image=self.image)
        return net if rows is None else net.standardise(rows.mean, rows.sd)

    def _optimiser(self, vectors, s, steps):
        optimiser = AdamW(vectors, lr=s.lr, weight_decay=s.weight_decay)
        return optimiser, OneCycle(optimiser, s.lr, steps)

    def _kl_weight(self, s, N, B):
        # Eq. 7: one KL a row
        return 1.0 if s.kl_weight == "elbo" else super()._kl_weight(s, N, B)

    def explain(self, X, *, batch_size=8192) -> Posterior:
        """The posteriors of the rows of ``X``, in their order and with their index.

        A frame must have the columns of fit, in their order; where fit had no names, those of the frame are taken.
        From a DataLoader, which is gone through once, memory holds one batch and the answer.

        >>> X = np.random.default_rng(0).normal(size=(50, 2)).astype("float32")
        >>> LocalBIF(nn.Identity(), min_steps=9, epochs=1, hidden=8).fit(X).explain(X[:3]).to_frame().shape
        (3, 2)
        """
        self._check_fitted()
        device, index, new = next(self.networks_[0].parameters()).device, None, None
        if batches.is_loader(X):
            blocks = batches.rows_of(X, self.n_features_in_, device)
        else:
            X, _, names, index = door.check_X(X, width=self.n_features_in_)
            new = names if index is not None and self.columns_ is None else None
            if index is not None and self.columns_ not in (None, names):
                raise ValueError(f"X's columns are not those of fit, in their order: expected {self.columns_[:5]}...")
            blocks = (X[i:i + batch_size].to(device) for i in range(0, len(X), batch_size))
        return self._answer(np.concatenate([self._alpha(x) for x in blocks], axis=1), index, new)
