"""How a Posterior shows itself: a compact table with bars in JupyterLab (HTML), plain text elsewhere."""

from html import escape


def _summary(posterior, rows=10):
    frame = posterior.to_global().to_frame().sort_values("mean", ascending=False, kind="stable")
    title = f"Posterior of {len(posterior)} rows, averaged" if posterior.is_local else "Posterior"
    return f"{title}, {len(posterior.feature_names)} features", frame.head(rows), len(frame) - rows


def text(posterior) -> str:
    """The first ten features as a table of text.

    >>> from bifkit import Posterior
    >>> print(text(Posterior([3.0, 1.0], ["age", "sex"])))
    Posterior, 2 features
              mean     sd  lower  upper
    feature
    age       0.75  0.194  0.292  0.992
    sex       0.25  0.194  0.008  0.708
    """
    title, frame, more = _summary(posterior)
    return f"{title}\n{frame.round(3).to_string()}" + (f"\n... and {more} more" if more > 0 else "")


def html(posterior) -> str:
    """The same as HTML, with a bar for each mean.

    >>> from bifkit import Posterior
    >>> "<caption>Posterior, 2 features</caption>" in html(Posterior([3.0, 1.0], ["age", "sex"]))
    True
    """
    title, frame, more = _summary(posterior)
    rows = "".join(
        f"<tr><td style='text-align:left'>{escape(str(name))}</td><td>{r['mean']:.3f}</td>"
        f"<td>{r['sd']:.3f}</td><td>{r['lower']:.3f} to {r['upper']:.3f}</td>"
        f"<td style='text-align:left'><div style='background:#0072B2;height:0.8em;width:{120 * r['mean']:.0f}px'>"
        "</div></td></tr>" for name, r in frame.iterrows())
    tail = f"<tr><td colspan=5>and {more} more</td></tr>" if more > 0 else ""
    return (f"<table><caption>{escape(title)}</caption><tr><th>feature</th><th>mean</th><th>sd</th>"
            f"<th>95 % interval</th><th></th></tr>{rows}{tail}</table>")
