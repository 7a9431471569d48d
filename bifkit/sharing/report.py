"""A posterior as one HTML file to send or keep: tables, figures, settings, versions. It loads nothing."""

import base64
import io
import os
import platform
from html import escape
from importlib import metadata
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

import bifkit
from bifkit import plots, storage
from bifkit.sharing.display import digits, one_line, short

MOST = 100  # rows of a table
PACKAGES = ("torch", "numpy", "scipy", "pandas", "scikit-learn", "matplotlib")
CSS = """
:root { color-scheme: light dark; --ink: #1b1b1b; --soft: #5c5c5c; --paper: #ffffff; --line: #dddddd; --warn: #a33c00 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --soft: #a8a8a8; --paper: #161616; --line: #3a3a3a; --warn: #ff9d5c } }
body { color: var(--ink); background: var(--paper); font: 16px/1.5 system-ui, sans-serif; max-width: 60rem;
       margin: 0 auto; padding: 1rem }
h1 { font-size: 1.6rem; overflow-wrap: anywhere } h2 { font-size: 1.2rem; margin-top: 2rem }
p { overflow-wrap: anywhere } .soft { color: var(--soft) } .warn { color: var(--warn); font-weight: 600 }
.wide { overflow-x: auto } table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .75rem; text-align: right; white-space: nowrap }
th:first-child, td:first-child, .left, .text td { text-align: left }
.text td { white-space: normal; overflow-wrap: anywhere }
figure { margin: 1rem 0 } img { max-width: min(100%, 44rem); height: auto; background: #ffffff; border-radius: 6px }
figcaption { color: var(--soft) }
@media (max-width: 40rem) {
  th, td { padding: .25rem .35rem; font-size: .8rem }
  td:first-child, td.left { white-space: normal; overflow-wrap: anywhere } }
"""


def write(posterior, path, *, explainer=None, title=None, prob=0.95) -> None:
    """Write the page; the parameters are those of :meth:`bifkit.Posterior.report`."""
    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"a report is an HTML file: give it a name that ends in .html; got {os.fspath(path)!r}")
    if explainer is not None and not hasattr(explainer, "diagnostics_"):
        raise TypeError(f"explainer must be a fitted GlobalBIF or LocalBIF; got {type(explainer).__name__}")
    data = page(posterior, explainer, title, prob).encode("utf-8", errors="replace")
    Path(os.path.realpath(path)).parent.mkdir(parents=True, exist_ok=True)
    storage.write_bytes(data, path)


def page(posterior, explainer=None, title=None, prob=0.95) -> str:
    """The whole page as text."""
    D, N, local = len(posterior.feature_names), len(posterior), posterior.is_local
    what = f"{N} row{'s' * (N != 1)}, each with its own importances" if local else "one importance per feature"
    title = escape(one_line(title or "Which features matter"))
    frame = posterior.to_global().to_frame(prob).sort_values("mean", ascending=False, kind="stable")
    found = posterior.relevant()
    body = [f"<h1>{title}</h1><p class='soft'>{D} features, {what}{_explained(posterior, explainer)}</p>"
            f"<p>{_sentence(found)}</p>",
            _figure(plots.importances(posterior, prob=prob), "Means and intervals; far to the right is important")]
    if local:
        body.append(_figure(plots.heatmap(posterior), "Rows and features; bright is important in that row"))
    else:
        body.append(_figure(plots.probability_top(posterior), "How sure it is which features come first"))
    mean = "average over all rows; " if local else ""
    body += [f"<h2>Features</h2><p class='soft'>{mean}share is net of the prior; lower and upper hold "
             f"{100 * prob:g} % of the distribution. Importances sum to one; 1/D is {1 / D:.3g}.</p>", _table(frame)]
    if local:
        rows = pd.DataFrame({"matter": found.number, "doubt": posterior.doubt,
                             "first features": [", ".join(short(names, 30)) for names in posterior.top(min(3, D))]},
                            index=[str(label) for label in posterior.index])
        body += ["<h2>Rows</h2><p class='soft'>how many features matter in a row, how open it is which, and the first "
                 "ones</p>", _table(rows, "row")]
    if explainer is not None and explainer.diagnostics_ is not None:
        d = explainer.diagnostics_
        notes = "".join(f"<p class='warn'>{escape(note)}</p>" for note in d.advice())
        values = {"steps": d.steps, "converged": d.converged, "objective": f"{d.elbo:.4g}",
                  "its last rise": f"{d.rise:.2g}", "effective features": f"{d.effective_features:.1f} of {d.features}",
                  "score of g": explainer.score_}
        body += ["<h2>The fit</h2>", notes, _pairs(values),
                 _figure(plots.elbo_curve(explainer), "The objective over the fit: it should level off")]
    if posterior.settings:
        body += ["<h2>Settings</h2>", _pairs(posterior.settings)]
    versions = {"bifkit": bifkit.__version__, "Python": platform.python_version()}
    body += ["<h2>Versions</h2>", _pairs(versions | {name: metadata.version(name) for name in PACKAGES})]
    return (f"<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><meta name='viewport' "
            f"content='width=device-width, initial-scale=1'><title>{title}</title><style>{CSS}</style></head>\n<body>"
            + "\n".join(body) + "</body></html>\n")


def _sentence(found):
    """What ``relevant()`` found, in words."""
    if found.probability.ndim == 2:
        return (f"On average {found.number.mean():.1f} features matter in a row; {found.false_discovery_rate:.0%} of "
                "those found are expected to be false.")
    names = [f"<b>{escape(name)}</b>" for name in short(found.names, 60)]
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    matter = "1 feature matters" if len(names) == 1 else f"{len(names)} features matter"
    return (f"{matter}, {found.expected_false:.1f} of them expected to be false: {', '.join(names[:20])}{more}."
            if names else "No feature stands out.")


def _explained(posterior, explainer):
    """What was explained, and by what, as far as it is known."""
    how, model = posterior.settings, getattr(explainer, "model", None)
    name, rows = getattr(model, "name_", ""), getattr(explainer, "n_rows_", None)
    parts = [model is not None and f"of {type(model).__name__}" + (f", a stand-in for {name}" if name else ""),
             "class" in how and f"class {how['class']}", rows and f"fitted on {rows} rows",
             "explainer" in how and f"by {how['explainer']}" + (f", preset {how['preset']}" if "preset" in how else "")]
    return escape(one_line("".join(f"; {part}" for part in parts if part)))


def _figure(ax, caption):
    """A figure as a picture inside the page; it is closed, so that a notebook does not show it too."""
    stream = io.BytesIO()
    with plt.rc_context(plots.STYLE):
        ax.figure.savefig(stream, format="png", dpi=160, facecolor="white")
    plt.close(ax.figure)
    picture = base64.b64encode(stream.getvalue()).decode()
    return (f"<figure><img alt='{escape(caption)}' src='data:image/png;base64,{picture}'>"
            f"<figcaption>{escape(caption)}</figcaption></figure>")


def _table(frame, first="feature"):
    """A frame as a table, its first rows if it is long."""
    shown = frame.head(MOST)
    left = ["" if pd.api.types.is_numeric_dtype(kind) else " class='left'" for kind in frame.dtypes]
    decimals = digits(frame) if "mean" in frame else 3  # as in a notebook
    lines = [f"<th>{first}</th>" + "".join(f"<th{w}>{c}</th>" for w, c in zip(left, frame, strict=True))]
    for name, values in zip(short(shown.index, 60), shown.itertuples(index=False), strict=True):
        cells = [f"{v:.{decimals}f}" if isinstance(v, float) else escape(str(v)) for v in values]
        lines.append(f"<td>{escape(name)}</td>" + "".join(f"<td{w}>{c}</td>" for w, c in zip(left, cells, strict=True)))
    more = f"<p class='soft'>and {len(frame) - MOST} more</p>" if len(frame) > MOST else ""
    return "<div class='wide'><table>" + "".join(f"<tr>{line}</tr>" for line in lines) + f"</table></div>{more}"


def _pairs(values):
    """A dict as a table of two columns."""
    lines = (f"<tr><td>{escape(one_line(k))}</td><td>{escape(one_line(v))}</td></tr>" for k, v in values.items()
             if v is not None)
    return f"<div class='wide'><table class='text'>{''.join(lines)}</table></div>"
