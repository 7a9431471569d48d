"""GlobalBIF and LocalBIF: fit, explain, save, load.

    posterior = GlobalBIF(model).fit(X, y).explain()       # one Dirichlet for the data set (Algorithm 1)
    posterior = LocalBIF(model).fit(X, y).explain(X_new)   # one Dirichlet a row, through an importance network (Alg. 2)

Both maximise the ELBO of :mod:`bifkit.elbo` by stochastic gradients; they differ only in where alpha comes from. The
model g is left exactly as it was: weights, BatchNorm statistics, mode, ``requires_grad``. Hyper-parameters left at
None are the preset's.
"""

import dataclasses
import logging
import time
import warnings

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from bifkit import batches, diagnostics, door, storage
from bifkit.elbo import one_against_rest, reader
from bifkit.fitting import learning_copy, maximise
from bifkit.gate import Settings, preset
from bifkit.network import GlobalAlpha, ImportanceNetwork, resolve_groups
from bifkit.posterior import Posterior
from bifkit.progress import verbosity
from bifkit.seeding import derive

log = logging.getLogger(__name__)


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
        self.__dict__.pop("networks_", None)  # a fit that fails leaves no mixture of old and new
        s, started = self._settings(), time.perf_counter()
        device = door.check_model(self.model, self.device)
        gpus = range(torch.cuda.device_count())
        with verbosity(self.verbose), door.frozen(self.model), torch.random.fork_rng(gpus), torch.enable_grad():
            rows = batches.source(X, y, self.model, device=device, likelihood=self.likelihood, groups=self.groups,
                                  feature_names=self.feature_names, batch_size=s.batch_size)
            self.groups_, self.group_names_ = resolve_groups(self.groups, rows.names)
            if len(self.group_names_) < 2:
                raise ValueError("all features stand in one group: importance is relative, so at least two are needed")
            if rows.score is None:
                s = s.changed(target="soft")
            self.settings_, self.likelihood_, self.score_ = s, rows.likelihood, rows.score
            self.feature_names_, self.shape_, self.named_ = rows.names, rows.shape, rows.named
            self.n_features_in_ = rows.width
            self.classes_ = door.check_classes(self.classes, rows.outputs)
            log.info("%s: %d rows, %d features%s, preset %s, likelihood %s", type(self).__name__, rows.n, rows.width,
                     "" if self.groups is None else f" in {len(self.group_names_)} groups", self.preset,
                     self.likelihood_)
            fits = [self._fit_once(rows, s, r, c) for c in self.classes_ or [None] for r in range(s.restarts)]
        curves = [curve for _, curve in fits]
        self.history_ = [[float(part.mean()) for part in np.array_split(c, min(20, len(c)))] for c in curves]
        self.elbo_ = float(np.mean([h[-1] for h in self.history_]))  # a history is a mean over each twentieth
        if not np.isfinite(self.elbo_):
            raise FloatingPointError("the fit diverged: try a smaller lr, or check the scale of g's outputs")
        self.networks_ = [net for net, _ in fits]
        self._diagnose(curves, rows.some())
        log.info("%s: done in %.1f s, ELBO %.4f, %.1f effective features", type(self).__name__,
                 time.perf_counter() - started, self.elbo_, self.diagnostics_.effective_features)
        return self

    def _diagnose(self, curves, x):
        """Judge the fit, and warn with advice; the worst curve speaks for all."""
        effective = diagnostics.effective_features(self.networks_, x)
        found = [diagnostics.judge(c, effective, len(self.group_names_)) for c in curves]
        self.diagnostics_ = next((d for d in found if d.converged is False), found[0])
        if notes := self.diagnostics_.advice():
            warnings.warn("; ".join(notes), diagnostics.FitWarning, stacklevel=3)

    def _fit_once(self, rows, s, restart, class_number=None):
        """One fit: (network, ELBO of each step). A released g learns along: each restart takes its own copy."""
        model = learning_copy(self.model) if s.batch_norm == "train" else self.model
        g, likelihood = batches.view(model, rows.shape), self.likelihood_
        read = reader(s.target, likelihood, class_number)
        torch.manual_seed(derive(type(self).__name__, self.seed, restart))
        net = self._new_network(rows.width, s, rows).to(rows.mean.device).train()
        stream = rows.batches(read, None if model is self.model else g)
        if class_number is not None:
            whole, likelihood = g, "binary"
            g = lambda x: one_against_rest(whole(x), class_number)  # noqa: E731
        groups = None if len(self.group_names_) == rows.width and self.groups is None else \
            torch.as_tensor(self.groups_, device=rows.mean.device)
        name = type(self).__name__ + ("" if class_number is None else f" class {class_number}")
        curve = maximise(
            net, g, stream, s, steps=max(s.epochs * rows.per_epoch, s.min_steps), name=name, show=self.progress,
            optimiser=lambda vectors, steps: self._optimiser(vectors, s, steps), average=self._averaged(net),
            learned=[p for p in model.parameters() if p.requires_grad], groups=groups, mean=rows.mean,
            likelihood=likelihood, kl_weight=self._kl_weight(s, rows.n, rows.size),
            scale=_scale(*rows.spread(read)) if likelihood == "regression" else 1.0)
        return net.eval(), curve

    def _kl_weight(self, s, N, B):
        return 1.0 / B if s.kl_weight == "1/batch" else s.kl_weight

    def _averaged(self, net):
        return None

    def _meta(self):
        return {"settings": dataclasses.asdict(self.settings_), "preset": self.preset, "score": self.score_,
                "feature_names": self.feature_names_, "named": self.named_, "group_names": self.group_names_,
                "shape": list(self.shape_), "likelihood": self.likelihood_, "classes": self.classes_,
                "diagnostics": self.diagnostics_ and dataclasses.asdict(self.diagnostics_),
                "history": self.history_, "elbo": self.elbo_, "seed": self.seed, "restarts": len(self.networks_),
                "image": list(self.image) if self.image else None, "groups": None if self.groups is None else
                {n: np.flatnonzero(self.groups_ == i).tolist() for i, n in enumerate(self.group_names_)}}

    def save(self, path):
        """Everything but g, in one file without pickle; g stays yours.

        >>> from bifkit import paths
        >>> fitted = GlobalBIF(nn.Identity(), min_steps=9, epochs=1).fit([[1.0, 2.0], [4.0, 3.0]])
        >>> fitted.save(paths.build() / "doctest.bif")
        >>> bool((GlobalBIF.load(paths.build() / "doctest.bif").explain().alpha == fitted.explain().alpha).all())
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
            self.score_, self.named_ = meta.get("score"), meta.get("named", True)  # older files lack these
            self.classes = self.classes_ = meta.get("classes")
            self.diagnostics_ = diagnostics.Diagnostics(**meta["diagnostics"]) if meta.get("diagnostics") else None
            self.n_features_in_ = len(self.feature_names_)
            if len(self.groups_) != len(self.feature_names_):
                raise ValueError("features and groups do not fit together")
            self.networks_ = []
            for r in range(meta["restarts"]):
                net = self._new_network(self.n_features_in_, self.settings_)
                state = {k.split(".", 1)[1]: torch.from_numpy(v) for k, v in arrays.items() if k.startswith(f"{r}.")}
                net.load_state_dict(state)
                self.networks_.append(net.eval())
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise storage.BadFile(f"the file lacks something a {cls.__name__} needs ({error})") from None
        return self

    def _check_fitted(self):
        if not hasattr(self, "networks_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted: call fit(X, y) first")

    def _answer(self, alpha_of, index=None, names=None):
        """The posterior, or {class: posterior}; ``alpha_of(net)`` is averaged over the restarts."""
        restarts = len(self.networks_) // len(self.classes_ or [None])
        with torch.no_grad():
            alphas = [alpha_of(net) for net in self.networks_]
        found = [self._posterior(np.mean(alphas[i:i + restarts], axis=0), index, names)
                 for i in range(0, len(alphas), restarts)]
        return found[0] if self.classes_ is None else dict(zip(self.classes_, found, strict=True))

    def _posterior(self, alpha, index=None, names=None):
        groups = list(self.group_names_)
        for i, new in enumerate(names or []):  # a feature that stands alone goes by its new name
            g = self.groups_[i]
            if self.group_names_[g] == self.feature_names_[i] and (self.groups_ == g).sum() == 1:
                groups[g] = new
        meta = {"explainer": type(self).__name__, "preset": self.preset, **dataclasses.asdict(self.settings_),
                "seed": self.seed, "elbo": self.elbo_}
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
        return torch.optim.Adam(vectors, lr=s.global_lr, fused=True), None

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
        return self._answer(lambda net: net(None)[0].double().cpu().numpy())


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
        optimiser = torch.optim.AdamW(vectors, lr=s.lr, weight_decay=s.weight_decay, fused=True)
        return optimiser, torch.optim.lr_scheduler.OneCycleLR(optimiser, s.lr, total_steps=steps)

    def _kl_weight(self, s, N, B):
        # Eq. 7: one KL a row
        return 1.0 if s.kl_weight == "elbo" else super()._kl_weight(s, N, B)

    def explain(self, X, *, batch_size=8192) -> Posterior:
        """The posteriors of the rows of ``X``, in their order and with their index.

        A frame must have the columns of fit, in their order; where fit had no names, those of the frame are taken.

        >>> X = np.random.default_rng(0).normal(size=(50, 2)).astype("float32")
        >>> LocalBIF(nn.Identity(), min_steps=9, epochs=1, hidden=8).fit(X).explain(X[:3]).to_frame().shape
        (3, 2)
        """
        self._check_fitted()
        device = next(self.networks_[0].parameters()).device
        if batches.is_loader(X):
            X = [door.check_X(batches.parts(b)[0], width=self.n_features_in_)[0] for b in X]
            return self._answer(lambda net: np.concatenate([net(x.to(device)).double().cpu().numpy() for x in X]))
        X, _, names, index = door.check_X(X, width=self.n_features_in_)
        if index is not None and self.named_ and names != self.feature_names_:
            raise ValueError(f"X's columns are not those of fit, in their order: expected {self.feature_names_[:5]}...")

        def alpha(net):
            parts = [net(X[i:i + batch_size].to(device)) for i in range(0, len(X), batch_size)]
            return torch.cat(parts).double().cpu().numpy()

        return self._answer(alpha, index, None if index is None else names)


def _scale(sd, mean):
    """The target's own sd (its unit must not matter), or one where it does not vary."""
    return sd if sd > 1e-6 * abs(mean) else 1.0
