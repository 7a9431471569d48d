"""What an importance vector does to an input.

Two choices that the paper leaves implicit decide what BIF finds: the **gate** turns an importance vector f into how
much of each input passes, m in [0, 1]; the **fill** says what stands where an input fades.

    gate        m                       reading
    simplex     f                       the paper's f o x: even equal importances shrink every input to 1/D of itself
    max         f / max f               the most important feature passes whole
    top         f^2 / (f^2 + t^2)       about j features pass and the others fade: t lies between the j-th and the next
                                        largest f, and j is drawn for each row with probability falling as 1/j
    saturating  min(1, D f)             equal importances leave x as it is; only what falls below 1/D fades

    fill        g sees                  reading
    zero        m x                     the paper: a faded input becomes zero
    mean        m x + (1 - m) mean      zero for standardised data, and right for data that are not
    marginal    m x + (1 - m) x'        a faded input becomes that of another random row x'
"""

import torch

GATES = ("simplex", "max", "top", "saturating")
FILLS = ("zero", "mean", "marginal")


def gate(f, kind):
    """How much of each input passes.

    Parameters
    ----------
    f : Tensor (..., G)
        Importance vectors.
    kind : str
        One of ``GATES``.

    >>> gate(torch.tensor([0.5, 0.25, 0.25]), "max").tolist()
    [1.0, 0.5, 0.5]
    """
    G = f.shape[-1]
    if kind == "simplex":
        return f
    if kind == "max":
        return f / f.amax(-1, keepdim=True)
    if kind == "saturating":
        return (f * G).clamp(max=1.0)
    if kind == "top":
        j = (G ** torch.rand(*f.shape[:-1], 1, device=f.device)).long().clamp(1, G - 1)  # log-uniform on 1 .. G-1
        log_f = f.clamp_min(1e-37).log()
        ordered = log_f.sort(-1, descending=True).values
        log_t = (ordered.gather(-1, j - 1) + ordered.gather(-1, j)) / 2
        return torch.sigmoid(2 * (log_f - log_t))  # f^2 / (f^2 + t^2)
    raise ValueError(f"gate must be one of {', '.join(GATES)}; got {kind!r}")


def gated(x, m, fill, *, mean=None, pool=None):
    """What g sees.

    Parameters
    ----------
    x : Tensor (B, D)
        Rows.
    m : Tensor (J, B, D)
        How much of each input passes, for each of J draws.
    fill : str
        One of ``FILLS``: what stands where an input fades.
    mean : Tensor (D,), optional
        The data's mean, for the fill "mean".
    pool : Tensor (P, D), optional
        Rows that lend their values under the fill "marginal"; by default those of the batch.

    >>> gated(torch.ones(1, 2), torch.tensor([[[1.0, 0.5]]]), "zero").tolist()
    [[[1.0, 0.5]]]
    """
    if fill == "zero":
        return m * x
    if fill == "mean":
        stand_in = mean.expand_as(m)
    else:
        pool, (J, B, D) = x if pool is None else pool, m.shape
        stand_in = pool[torch.randint(len(pool), (J * B,), device=x.device)].view(J, B, D)
    return torch.lerp(stand_in, x.expand_as(m), m)  # stand_in + m (x - stand_in)
