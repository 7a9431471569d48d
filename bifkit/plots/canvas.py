"""What every figure is drawn on: one style, Axes in and Axes out, names written as they are, png and pdf.

The palette is Okabe and Ito's, which colour-blind readers tell apart. A figure of ours takes the style with it and
leaves the caller's settings alone; ``style()`` is for those who want it for their own figures too. Files carry no date,
so that the same figure is the same file.
"""

import functools
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib import font_manager

from bifkit.sharing import WIDTH, short

BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW, GREY = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#777777")
PALETTE = [BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW, GREY]
STYLE: Any = {
    "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 11, "axes.labelsize": 10,
    "xtick.labelsize": 9, "ytick.labelsize": 9, "legend.fontsize": 9, "legend.frameon": False,
    "figure.dpi": 110, "savefig.dpi": 200, "savefig.bbox": "tight", "pdf.fonttype": 42, "svg.hashsalt": "bifkit"}
LAST_RESORT = "Last Resort High-Efficiency"  # ships with matplotlib: one sign per script, where no font has the letter


def style():
    """Apply the one style to everything that is drawn from now on."""
    plt.rcParams.update(STYLE)


def axes(ax=None, size=(6, 3.2)):
    """The given Axes, or a new one in our style and of this ``size`` in inches."""
    return panels(1, 1, size)[1][0, 0] if ax is None else ax


def panels(n_rows, n_columns, size, **kw):
    """A new Figure in our style with a grid of Axes.

    Parameters
    ----------
    n_rows, n_columns : int
    size : (float, float)
        Width and height in inches.
    **kw
        Options of ``matplotlib.pyplot.subplots``.

    Returns
    -------
    Figure, array of Axes (n_rows, n_columns)
    """
    plt.draw_if_interactive()  # loads the backend: inside, leaving would undo that Jupyter made it show figures
    with plt.rc_context(STYLE):
        return plt.subplots(n_rows, n_columns, figsize=size, squeeze=False, layout="constrained", **kw)


def array(values):
    """An array of what may be a tensor."""
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)


@functools.cache
def _font_with(letter):
    """The first installed font that has a letter which the default font lacks; None where the default has it."""
    def has(path):
        return font_manager.get_font(path).get_char_index(ord(letter)) != 0

    if has(font_manager.findfont(font_manager.FontProperties())):
        return None
    upright = [f for f in font_manager.fontManager.ttflist if f.style == "normal" and f.name != LAST_RESORT]
    return next((f.name for f in upright if has(f.fname)), LAST_RESORT)


def plain(names) -> dict:
    """Keywords for text in matplotlib with which names stand as they are: no mathematics between ``$``, any script."""
    fonts = dict.fromkeys(_font_with(letter) for letter in sorted(set("".join(names)) - {"\n"}))
    extra = [font for font in fonts if font]
    return {"parse_math": False, "usetex": False} | (
        {"fontfamily": [*plt.rcParams["font.family"], *extra]} if extra else {})


def name_ticks(axis, positions, names, *, width=WIDTH, **kw):
    """Names as the ticks of ``ax.xaxis`` or ``ax.yaxis``, shortened and taken literally."""
    names = short(names, width)
    axis.set_ticks(positions, names, **plain(names), **kw)


def room(names, width=WIDTH) -> float:
    """Inches that a figure grows by for names longer than two dozen letters."""
    return 0.07 * max(0, max(map(len, short(names, width))) - 24)


def slant(names, width=26) -> tuple[float, dict]:
    """Inches that names take below an axis at 45 degrees, and the keywords for it; very short ones stay level."""
    letters = max(map(len, short(names, width)))
    if letters <= 3:
        return 0.2, {"width": width}
    return 0.2 + 0.055 * letters, {"width": width, "rotation": 45, "ha": "right", "rotation_mode": "anchor"}


def cut(shown, total, which="first") -> str:
    """What a figure says of the part it leaves out, "first 15 of 500"; nothing where all is shown."""
    return "" if shown >= total else f"{which} {shown} of {total}"
