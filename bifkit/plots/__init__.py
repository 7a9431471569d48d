"""Every figure by one name, ``plots.X``; each takes ``ax=None`` and returns the Axes (the Figure, if it has several).

    one posterior     importances, probability_top, ridge, bars, groups (bifkit.plots.posterior)
    its rows          heatmap, row, dependence                         (bifkit.plots.rows)
    several models    compare = side_by_side + kl_matrix               (bifkit.plots.comparison)
    two, with refits  differences                                      (bifkit.plots.comparison)
    images            overlay                                          (bifkit.plots.images)
    a fit             elbo_curve                                       (bifkit.plots.comparison)

One style, colour-blind safe, light, with names rather than numbers on the axes (bifkit.plots.canvas). Nothing here
shows a figure or changes the caller's settings but ``style()``.
"""

from bifkit.plots.canvas import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PALETTE,
    PURPLE,
    RED,
    SKY,
    STYLE,
    YELLOW,
    axes,
    panels,
    style,
)
from bifkit.plots.comparison import compare, differences, elbo_curve, kl_matrix, side_by_side
from bifkit.plots.images import overlay
from bifkit.plots.posterior import bars, groups, importances, probability_top, ridge
from bifkit.plots.rows import dependence, heatmap, row

__all__ = ["BLUE", "GREEN", "GREY", "ORANGE", "PALETTE", "PURPLE", "RED", "SKY", "STYLE", "YELLOW",
           "axes", "bars", "compare", "dependence", "differences", "elbo_curve", "groups", "heatmap", "importances",
           "kl_matrix", "overlay", "panels", "probability_top", "ridge", "row", "side_by_side", "style"]
