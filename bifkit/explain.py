"""GlobalBIF and LocalBIF: fit, explain, save, load.

    posterior = GlobalBIF(model).fit(X, y).explain()       # one Dirichlet for the data set (Algorithm 1)
    posterior = LocalBIF(model).fit(X, y).explain(X_new)   # one Dirichlet a row, through an importance network (Alg. 2)

Both maximise the ELBO of :mod:`bifkit.elbo` by stochastic gradients; they differ only in where alpha comes from. The
model g is left exactly as it was: weights, BatchNorm statistics, mode, ``requires_grad``. Hyper-parameters left at
None are the preset's.
"""

import copy
import dataclasses
import warnings

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import nn

from bifkit import door, storage
from bifkit.elbo import elbo, soft_target
from bifkit.gate import Settings, preset
from bifkit.network import GlobalAlpha, ImportanceNetwork, resolve_groups
from bifkit.posterior import Posterior
from bifkit.seeding import derive


class _BIF(BaseEstimator):
    """What the two explainers share: settings, the door, the training loop, saving."""

    def __init__(self, model, preset="rank", *, gate=None, fill=None, target=None, draws=None, point_estimate=None,
                 prior=None, kl_weight=None, epochs=None, min_steps=None, batch_size=None, lr=None,
                 restarts=None, hidden=None, groups=None, feature_names=None, likelihood=None, image=None,
                 device=None, seed=0):
        self.model, self.preset, self.seed, self.device = model, preset, seed, device
        self.gate, self.fill, self.target, self.draws, self.lr = gate, fill, target, draws, lr
        self.point_estimate, self.prior, self.kl_weight, self.hidden = point_estimate, prior, kl_weight, hidden
        self.epochs, self.min_steps, self.batch_size, self.restarts = epochs, min_steps, batch_size, restarts
        self.groups, self.feature_names, self.likelihood, self.image = groups, feature_names, likelihood, image

    _lr_field = "lr"

    def _settings(self) -> Settings:
        names = ("gate", "fill", "target", "draws", "point_estimate", "prior", "kl_weight",
                 "epochs", "min_steps", "batch_size", "restarts", "hidden")
        return preset(self.preset, **{n: getattr(self, n) for n in names}, **{self._lr_field: self.lr})

    def fit(self, X, y=None):
        """Learn the Dirichlet. ``y`` may be left out: then g's own predictions are explained.

        Under a soft target ``y`` has no effect on the fit. Where it is given, ``score_`` is how well g predicts it from
        the whole input: accuracy, or R^2 for a regression.

        >>> X = np.random.default_rng(0).normal(size=(50, 2)); g = nn.Identity()
        >>> fitted = GlobalBIF(g, min_steps=9, epochs=1).fit(X, X.argmax(1)); fitted.likelihood_, fitted.score_
        ('categorical', 1.0)
        """
        self.__dict__.pop("networks_", None)  # a fit that fails leaves no mixture of old and new
        s = self._settings()
        device = door.check_model(self.model, self.device)
        self.named_ = hasattr(X, "columns") or self.feature_names is not None
        X, shape, names, _ = door.check_X(X, feature_names=self.feature_names, at_least=2)
        X = X.to(device)
        self.groups_, self.group_names_ = resolve_groups(self.groups, names)
        if len(self.group_names_) < 2:
            raise ValueError("all features stand in one group: importance is relative, so at least two are needed")
        gpus = range(torch.cuda.device_count())
        with door.frozen(self.model), torch.random.fork_rng(gpus), torch.enable_grad():
            outputs = door.check_output(self.model, X, shape)
            self.likelihood_, labels = door.check_y(y, len(X), outputs, self.likelihood)
            door.warn_oddities(X.cpu(), names, self.groups)
            if labels is None:
                s = s.changed(target="soft")
            self.settings_, self.feature_names_, self.shape_ = s, names, shape
            whole = door.outputs(self._view_of_g(s.changed(batch_norm="frozen"), shape), X)  # (N, C)
            door.warn_probabilities(whole, self.likelihood_)
            self.score_ = None if labels is None else door.score(whole, labels, self.likelihood_)
            g = self._view_of_g(s, shape)
            if s.target == "labels":
                target = labels.to(device)
            else:
                target = soft_target(whole if s.batch_norm == "frozen" else door.outputs(g, X), self.likelihood_)
            # a released g learns along: each restart takes its own copy
            fits = [self._fit_once(self._view_of_g(s, shape) if r else g, X, target, s, r) for r in range(s.restarts)]
        self.history_ = [history for _, history in fits]  # ELBO, a mean over each twentieth of the steps
        self.elbo_ = float(np.mean([h[-1] for h in self.history_]))
        if not np.isfinite(self.elbo_):
            raise FloatingPointError("the fit diverged: try a smaller lr, or check the scale of g's outputs")
        self.networks_ = [net for net, _ in fits]
        return self

    def _view_of_g(self, s, shape):
        """g as a function of flat rows; for ``released`` a copy whose BatchNorm normalises each batch and learns."""
        g = self.model
        if s.batch_norm == "train":
            g = copy.deepcopy(g)
            norms = [m for m in g.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
            if not norms:
                warnings.warn("preset 'released' rests on g's BatchNorm layers, and this g has none", stacklevel=3)
            for m in norms:
                m.train().requires_grad_(True)
        self._released_params = [p for p in g.parameters() if p.requires_grad]
        like = door.like(g)
        return lambda x: g(x.view(len(x), *shape).to(like)).reshape(len(x), -1).float()

    def _fit_once(self, g, X, target, s, restart):
        """One fit: (network, ELBO curve)."""
        torch.manual_seed(derive(type(self).__name__, self.seed, restart))
        N, B = len(X), min(s.batch_size, len(X))
        per_epoch = max(N // B, 1)
        steps = max(s.epochs * per_epoch, s.min_steps)
        net = self._new_network(X, s).to(X.device).train()
        optimiser, schedule = self._optimiser([*net.parameters(), *self._released_params], s, steps)
        groups = None if len(self.group_names_) == X.shape[1] and self.groups is None else \
            torch.as_tensor(self.groups_, device=X.device)
        kw = {"groups": groups, "mean": X.mean(0), "likelihood": self.likelihood_,
              "kl_weight": self._kl_weight(s, N, B),
              "scale": _scale(target) if self.likelihood_ == "regression" else 1.0}
        curve, tail = np.zeros(steps), None
        for step in range(steps):
            if step % per_epoch == 0:
                order = torch.randperm(N, device=X.device)
            rows = order[(step % per_epoch) * B:(step % per_epoch + 1) * B]
            x = X[rows]
            value, _ = elbo(g, x, target[rows], net(x), s, **kw)
            optimiser.zero_grad()
            (-value).backward()
            optimiser.step()
            if schedule:
                schedule.step()
            curve[step] = value.detach()
            tail = self._after_step(net, step, steps, tail)
        return net.eval(), [float(c.mean()) for c in np.array_split(curve, min(20, steps))]

    def _kl_weight(self, s, N, B):
        return 1.0 / B if s.kl_weight == "1/batch" else s.kl_weight

    def _after_step(self, net, step, steps, tail):
        return tail

    def _meta(self):
        return {"settings": dataclasses.asdict(self.settings_), "preset": self.preset, "score": self.score_,
                "feature_names": self.feature_names_, "named": self.named_, "group_names": self.group_names_,
                "shape": list(self.shape_), "likelihood": self.likelihood_,
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
            self.score_, self.named_ = meta.get("score"), meta.get("named", True)  # older files have neither
            if len(self.groups_) != len(self.feature_names_):
                raise ValueError("features and groups do not fit together")
            self.networks_ = []
            for r in range(meta["restarts"]):
                net = self._new_network(torch.zeros(2, len(self.feature_names_)), self.settings_)
                state = {k.split(".", 1)[1]: torch.from_numpy(v) for k, v in arrays.items() if k.startswith(f"{r}.")}
                net.load_state_dict(state)
                self.networks_.append(net.eval())
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise storage.BadFile(f"the file lacks something a {cls.__name__} needs ({error})") from None
        return self

    def _check_fitted(self):
        if not hasattr(self, "networks_"):
            raise RuntimeError(f"this {type(self).__name__} is not fitted: call fit(X, y) first")

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

    def _new_network(self, X, s):
        return GlobalAlpha(len(self.group_names_))

    def _optimiser(self, params, s, steps):
        return torch.optim.Adam(params, lr=s.global_lr, foreach=True), None

    def _kl_weight(self, s, N, B):
        # Eq. 4: one KL for N rows, while the likelihood is averaged over rows
        return 1.0 / N if s.kl_weight == "elbo" else super()._kl_weight(s, N, B)

    def _after_step(self, net, step, steps, tail):
        """Average theta over the last fifth of the steps: the optimiser's jitter is not uncertainty."""
        start = steps - max(steps // 5, 1)
        if step < start:
            return None
        tail = net.theta.detach().clone() if tail is None else tail + net.theta.detach()
        if step == steps - 1:
            net.theta.data.copy_(tail / (step - start + 1))
        return tail

    def explain(self, X=None) -> Posterior:
        """The posterior of the data set; ``X`` is not needed.

        >>> p = GlobalBIF(nn.Identity(), min_steps=9, epochs=1).fit([[1.0, 2.0], [4.0, 3.0]]).explain()
        >>> p.is_local, p.feature_names
        (False, ['x0', 'x1'])
        """
        self._check_fitted()
        with torch.no_grad():
            alpha = np.mean([net(None)[0].double().cpu().numpy() for net in self.networks_], axis=0)
        return self._posterior(alpha)


class LocalBIF(_BIF):
    """One importance distribution a row, through an importance network (section 4.2, Algorithm 2).

    >>> X = np.random.default_rng(0).normal(size=(300, 3)).astype("float32"); y = (X[:, 0] > 0).astype(int)
    >>> g = nn.Linear(3, 2, bias=False); _ = g.weight.data.copy_(torch.tensor([[-3.0, 0, 0], [3, 0, 0]]))
    >>> LocalBIF(g, min_steps=100, epochs=1).fit(X, y).explain(X[:5]).mean.shape
    (5, 3)
    """

    def _new_network(self, X, s):
        net = ImportanceNetwork(X.shape[1], len(self.group_names_), hidden=s.hidden, image=self.image)
        return net.standardise(X)

    def _optimiser(self, params, s, steps):
        optimiser = torch.optim.AdamW(params, lr=s.lr, weight_decay=s.weight_decay, foreach=True)
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
        X, _, names, index = door.check_X(X, width=len(self.feature_names_))
        if index is not None and self.named_ and names != self.feature_names_:
            raise ValueError(f"X's columns are not those of fit, in their order: expected {self.feature_names_[:5]}...")
        device = next(self.networks_[0].parameters()).device
        alpha = np.zeros((len(X), len(self.group_names_)))
        with torch.no_grad():
            for net in self.networks_:
                for i in range(0, len(X), batch_size):
                    alpha[i:i + batch_size] += net(X[i:i + batch_size].to(device)).double().cpu().numpy()
        return self._posterior(alpha / len(self.networks_), index, None if index is None else names)


def _scale(target):
    """The target's own sd (its unit must not matter), or one where it does not vary."""
    sd = float(target.std())
    return sd if sd > 1e-6 * abs(float(target.mean())) else 1.0
