"""Importance networks, which map a row to its Dirichlet (section 4.2).

``alpha = softplus(network(x)) + 1e-3``: the floor keeps the sampler in its safe range. Inputs are standardised inside
(with the training rows' mean and sd, clamped to five), so that a user's units do not matter.
"""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from bifkit.dirichlet import FLOOR


class GlobalAlpha(nn.Module):
    """One alpha for every row (section 4.1): a parameter vector behind a softplus.

    >>> GlobalAlpha(3)(torch.zeros(5, 7)).shape
    torch.Size([1, 3])
    """

    def __init__(self, n_groups):
        super().__init__()
        self.theta = nn.Parameter(torch.full((n_groups,), 0.54))  # softplus(0.54) = 1: start uniform on the simplex

    def forward(self, x):
        """alpha (1, G), whatever the rows.

        >>> GlobalAlpha(2)(torch.zeros(5, 7)).detach().round(decimals=1).tolist()
        [[1.0, 1.0]]
        """
        return (F.softplus(self.theta) + FLOOR).unsqueeze(0)


class ImportanceNetwork(nn.Module):
    """D-hidden-hidden-G with BatchNorm and ReLU; for images ``image=(height, width)`` puts convolutions in front.

    >>> net = ImportanceNetwork(11, 11); net(torch.zeros(4, 11)).shape
    torch.Size([4, 11])
    """

    def __init__(self, n_features, n_groups, *, hidden=200, image=None):
        super().__init__()
        self.image = image
        self.register_buffer("centre", torch.zeros(n_features))
        self.register_buffer("scale", torch.ones(n_features))
        width, front = n_features, []
        if image is not None:
            if int(np.prod(image)) != n_features:
                raise ValueError(f"image={image} has {int(np.prod(image))} pixels, the data {n_features} features")
            front = [nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.ReLU(inplace=True),
                     nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(inplace=True), nn.Flatten()]
            width = 32 * -(-image[0] // 4) * -(-image[1] // 4)
        self.front = nn.Sequential(*front)
        self.body = nn.Sequential(nn.Linear(width, hidden), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True),
                                  nn.Linear(hidden, hidden), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True),
                                  nn.Linear(hidden, n_groups))

    def standardise(self, mean, sd):
        """Remember the training rows' mean and sd, (D,) each; constant columns keep scale one.

        >>> net = ImportanceNetwork(2, 2).standardise(torch.tensor([1.0, 7.0]), torch.tensor([3.0, 0.0]))
        >>> net.centre.tolist(), net.scale.tolist()
        ([1.0, 7.0], [3.0, 1.0])
        """
        self.centre.copy_(mean)
        self.scale.copy_(torch.where(sd > 0, sd, torch.ones_like(sd)))
        return self

    def standardised(self, x):
        """Rows as the layers see them.

        >>> ImportanceNetwork(2, 2).standardised(torch.tensor([[1.0, 70.0]])).tolist()
        [[1.0, 5.0]]
        """
        return x.sub(self.centre).div_(self.scale).clamp_(-5.0, 5.0)

    def forward(self, x):
        """alpha (B, G) of rows x (B, D).

        >>> alpha = ImportanceNetwork(4, 3, image=(2, 2))(torch.zeros(5, 4)); alpha.shape, bool((alpha >= FLOOR).all())
        (torch.Size([5, 3]), True)
        """
        x = self.standardised(x)
        if self.image is not None:
            x = x.view(len(x), 1, *self.image)
        return F.softplus(self.body(self.front(x))).add_(FLOOR)
