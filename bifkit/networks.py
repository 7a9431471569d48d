"""Where alpha comes from: one vector for a data set (section 4.1), or a network that gives each row its own (4.2).

``alpha = softplus(output) + 1e-3``: the floor keeps the sampler in its safe range.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

from bifkit.dirichlet import FLOOR


class GlobalAlpha(nn.Module):
    """One alpha for every row: a parameter vector behind a softplus.

    Parameters
    ----------
    n_groups : int
        Length of the importance vector.
    heads : int, default 1
        How many alphas there are: one for each of several classes.

    >>> GlobalAlpha(3)(torch.zeros(5, 7)).detach().round(decimals=1).tolist()  # uniform on the simplex, to begin with
    [[1.0, 1.0, 1.0]]
    """

    def __init__(self, n_groups, heads=1):
        super().__init__()
        shape = (n_groups,) if heads == 1 else (heads, n_groups)
        self.theta = nn.Parameter(torch.full(shape, 0.54))  # softplus(0.54) = 1

    def forward(self, x):
        """alpha (1, G), whatever the rows; (heads, 1, G) of several."""
        return (F.softplus(self.theta) + FLOOR).unsqueeze(-2)


class ImportanceNetwork(nn.Module):
    """alpha of each row: D-hidden-hidden-G with BatchNorm and ReLU; for images with convolutions in front.

    Parameters
    ----------
    n_features, n_groups : int
        Inputs D (the first ones of a row, if that has more), and length G of the importance vector.
    heads : int, default 1
        How many alphas a row has: one for each of several classes.
    hidden : int, default 200
        Width of the two hidden layers.
    image : (int, int) or (int, int, int), optional
        Height and width, or channels, height and width, where a row is a flat image.
    """

    def __init__(self, n_features, n_groups, *, heads=1, hidden=200, image=None):
        super().__init__()
        self.heads = heads
        self.image = image if image is None or len(image) == 3 else (1, *image)  # channels first
        self.register_buffer("centre", torch.zeros(n_features))
        self.register_buffer("scale", torch.ones(n_features))
        width, front = n_features, []
        if image is not None:
            if math.prod(image) != n_features:
                raise ValueError(f"image={image} has {math.prod(image)} pixels, the data {n_features} features")
            front = [nn.Conv2d(self.image[0], 16, 3, stride=2, padding=1), nn.ReLU(inplace=True),
                     nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(inplace=True), nn.Flatten()]
            width = 32 * -(-image[-2] // 4) * -(-image[-1] // 4)
        self.front = nn.Sequential(*front)
        self.body = nn.Sequential(nn.Linear(width, hidden), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True),
                                  nn.Linear(hidden, hidden), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True),
                                  nn.Linear(hidden, heads * n_groups))

    def standardise(self, mean, sd):
        """Remember the training rows' mean and sd, (D,) each; constant columns keep scale one. Returns the network."""
        self.centre.copy_(mean)
        self.scale.copy_(torch.where(sd > 0, sd, torch.ones_like(sd)))
        return self

    def forward(self, x):
        """alpha (B, G) of rows x (B, D), which are standardised first: a user's units do not matter.

        Of several heads (heads, B, G).
        """
        x = ((x[:, :len(self.centre)] - self.centre) / self.scale).clamp(-5.0, 5.0)
        if self.image is not None:
            x = x.view(len(x), *self.image)
        alpha = F.softplus(self.body(self.front(x))) + FLOOR
        return alpha if self.heads == 1 else alpha.view(len(x), self.heads, -1).transpose(0, 1)
