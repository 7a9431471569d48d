"""Every path in one place.

Notebooks run in their own folder (nbval), in the root (papermill) or anywhere (JupyterLab): all of them ask here.
``BIF_OUTPUT`` moves the generated folders (the smoke run must not overwrite the committed results).

A study that was not recomputed whole is ``set_aside``: as long as there is one in this process, its results and all
figures and scores go to ``build/partial``, so that no notebook puts less in the place of what was there.
"""

import os
from pathlib import Path


def root() -> Path:
    """The repository's root: the folder that holds ``bifkit``."""
    return Path(__file__).resolve().parents[2]


def _made(path: Path) -> Path:
    """A folder that is there."""
    path.mkdir(parents=True, exist_ok=True)
    return path


def output() -> Path:
    """Where ``results`` and ``figures`` live: the root, or ``BIF_OUTPUT``."""
    return Path(os.environ.get("BIF_OUTPUT") or root()).resolve()


_aside: set[str] = set()


def set_aside(study: str, aside: bool) -> None:
    """Note whether the rows that this process has of a study are less than the stored ones."""
    (_aside.add if aside else _aside.discard)(study)


def partial() -> Path:
    """Where results and figures go that are not of a complete recomputation; never committed."""
    return build() / "partial"


def results(study: str | None = None) -> Path:
    """Generated and committed: one tidy csv per study. With ``study``: the folder of that one's csv."""
    aside = study in _aside if study else bool(_aside)
    return _made((partial() if aside else output()) / "results")


def figures() -> Path:
    """Generated: one png and pdf per figure, one csv and md per table."""
    return _made((partial() if _aside else output()) / "figures")


def build() -> Path:
    """Scratch: caches and executed notebooks; never committed."""
    return _made(output() / "build")


def notebooks() -> Path:
    """The folder of the numbered notebooks."""
    return root() / "notebooks"
