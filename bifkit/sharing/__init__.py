"""How a posterior shows itself and goes to others: in a notebook, as a page, in other packages' types."""

from bifkit.sharing.display import ROWS, WIDTH, html, short, text
from bifkit.sharing.interop import Interop

__all__ = ["Interop", "ROWS", "WIDTH", "html", "short", "text"]
