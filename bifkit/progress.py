"""``Steps`` counts the steps of a fit, with the time left; ``verbosity`` lets the log of a fit be read.

A fit's bar shows where someone watches: in a terminal and in JupyterLab. It is silent under papermill, nbval and pipes,
where it could only spoil a stored output.
"""

import contextlib
import logging
import os
import sys

import numpy as np
from tqdm import tqdm


def watched() -> bool:
    """Whether a bar would be seen: stderr is a terminal, or the kernel is one that JupyterLab (or VS Code) started.

    A Jupyter server names the notebook in ``JPY_SESSION_NAME``; papermill and nbval start kernels without it, or, when
    they themselves run inside such a kernel, with that of their own environment.

    >>> watched()  # a test watches nothing
    False
    """
    if os.environ.get("BIF_PROGRESS"):  # within `make reproduce`, which has a bar of its own
        return False
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if type(shell).__name__ == "ZMQInteractiveShell":
        return "__vsc_ipynb_file__" in shell.user_ns or "JPY_SESSION_NAME" in os.environ and not _handed_down()
    return sys.stderr.isatty()


def _handed_down() -> bool:
    """Whether the process that started this kernel has the same name in its own environment."""
    try:
        import psutil  # comes with every Python kernel

        above = psutil.Process(int(os.environ["JPY_PARENT_PID"])).environ()
    except Exception:  # not there, not ours, or another platform's: then it is taken for a server, the common case
        return False
    return above.get("JPY_SESSION_NAME") == os.environ["JPY_SESSION_NAME"]


class Steps:
    """The steps of one fit as a bar that goes away when they are done; ``show=None`` decides by ``watched``.

    >>> with Steps(10, "LocalBIF", show=False) as bar:
    ...     bar.step(-0.5)
    """

    def __init__(self, total, name, show=None):
        self.every, self.count, self.bar = max(total // 100, 1), 0, None
        if watched() if show is None else show:
            self.bar = tqdm(total=total, desc=name, leave=False, unit="step", file=sys.stderr, mininterval=0.2,
                            ncols=_columns(), nrows=20)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.bar is not None:
            self.bar.close()

    def step(self, value):
        """One more step, which had this ELBO; the bar itself moves a hundred times in all."""
        self.count += 1
        if self.bar is not None and self.count % self.every == 0:
            self.bar.set_postfix_str(f"ELBO {float(value):.3f}", refresh=False)
            self.bar.update(self.every)


def _columns() -> int:
    """How wide a bar may be; a terminal that does not say, where tqdm would show nothing, has 80."""
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError, AttributeError):
        columns = 0
    return min(columns or 80, 100) - 1


class _Lines(logging.Handler):
    """Lines on stderr that do not run into a bar."""

    def emit(self, record):
        tqdm.write(self.format(record), file=sys.stderr)


@contextlib.contextmanager
def verbosity(level):
    """Let bifkit's log be read on stderr inside: 0 nothing but warnings, 1 what is done, 2 every twentieth of a fit.

    Handlers of the user's own are left alone: then only the level changes, and never to tell less than it did.

    >>> with verbosity(1):
    ...     logging.getLogger("bifkit").level == logging.INFO
    True
    """
    if np.ndim(level) or level not in (0, 1, 2):
        raise ValueError(f"verbose must be 0, 1 or 2; got {level!r}")
    log = logging.getLogger("bifkit")
    before, handler = log.level, None
    if level:
        wanted = logging.INFO if level == 1 else logging.DEBUG
        log.setLevel(min(before or wanted, wanted))
        if not log.hasHandlers():
            handler = _Lines()
            handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
            log.addHandler(handler)
    try:
        yield
    finally:
        log.setLevel(before)
        if handler:
            log.removeHandler(handler)


