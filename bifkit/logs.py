"""bifkit's log on stderr, for those who ask for it with ``verbose=``."""

import contextlib
import logging
import sys

from tqdm import tqdm


class _Lines(logging.Handler):
    """Lines on stderr that do not run into a bar."""

    def emit(self, record):
        tqdm.write(self.format(record), file=sys.stderr)


@contextlib.contextmanager
def verbosity(level):
    """Show bifkit's log inside: 0 nothing but warnings, 1 what is done, 2 every twentieth of a fit.

    Handlers of the user's own are left alone: then only the level changes, and never to show less than it did.
    """
    if not (isinstance(level, int) and level in (0, 1, 2)):
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
