"""The true rules of the synthetic sets as models g: what an explainer finds when g leaves nothing to be learned."""

import torch
from torch import nn

PARTS = {"Syn4": ("Syn1", "Syn2"), "Syn5": ("Syn1", "Syn3"), "Syn6": ("Syn2", "Syn3")}
COLUMNS = {"Syn1": [0, 1], "Syn2": [2, 3, 4, 5], "Syn3": [6, 7, 8, 9]}  # inside Syn4-6, as printed; alone as run: first
SWITCH = 0.1  # width of the switch X11


class TrueRule(nn.Module):
    """Logits (B, 2) whose first is log r of the set (``data_prep.synthetic``, as run or as printed), the second 0.

    Where X11 chooses between two rules, a sigmoid of width ``switch`` passes from one to the other; 0 is a step, for
    which there is no gradient.

    >>> TrueRule("Syn1")(torch.tensor([[2.0, 3.0, 0.0]])).tolist()
    [[6.0, 0.0]]
    """

    def __init__(self, name, switch=SWITCH, *, variant="as_run"):
        super().__init__()
        self.name, self.switch, self.printed = name, switch, variant == "as_printed"

    def forward(self, x):
        """Logits (B, 2) of rows (B, D)."""
        if self.name in PARTS:
            first, second = (_log_ratio(part, x[:, COLUMNS[part]], 10.0, self.printed) for part in PARTS[self.name])
            value = torch.lerp(first, second, torch.sigmoid(x[:, 10] / self.switch)) if self.switch else \
                torch.where(x[:, 10] < 0, first, second)
        else:
            own = COLUMNS[self.name] if self.printed else range(len(COLUMNS[self.name]))
            value = _log_ratio(self.name, x[:, list(own)], 100.0, self.printed)
        return torch.stack([value, torch.zeros_like(value)], 1)


def _log_ratio(name, x, amplitude, printed=False):
    if name == "Syn1":
        return x[:, 0] * x[:, 1]
    if name == "Syn2":
        return x.square().sum(1) - 4
    if printed:
        return -100 * torch.sin(2 * x[:, 0]) + 2 * x[:, 1].abs() + x[:, 2] + torch.exp(-x[:, 3])
    return -amplitude * torch.sin(0.2 * x[:, 0]) + x[:, 1].abs() + x[:, 2] + torch.exp(-x[:, 3]) - 2.4


class Sum(nn.Module):
    """A regression: Syn3's sum with amplitude 100, (B, 1). Its weakest feature makes a thousandth of the variance."""

    def forward(self, x):
        """Values (B, 1) of rows (B, D)."""
        return _log_ratio("Syn3", x[:, :4], 100.0).unsqueeze(1)


class Ten(nn.Module):
    """Two classes from the first ten columns: five enter as they are, with either sign, five by their square."""

    def forward(self, x):
        """Logits (B, 2) of rows (B, D)."""
        sign = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0], device=x.device)
        value = x[:, :5] @ sign + 0.7 * (x[:, 5:10].square() - 1).sum(1)
        return torch.stack([torch.zeros_like(value), value], 1)
