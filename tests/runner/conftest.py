"""The runner's tests are of a source that nobody edits while they run, and begin with nothing set aside."""

import pytest

from experiments.runner import paths, provenance


@pytest.fixture(autouse=True)
def _pinned(monkeypatch):
    """The same hash here as in the workers and kernels (``study_runs``)."""
    monkeypatch.setattr(provenance, "LOADED", "pinned")
    monkeypatch.setattr(provenance, "fingerprint", lambda: "pinned")
    monkeypatch.setattr(paths, "_aside", set())
    for name in ("BIF_WHOLE", "BIF_WRITING", "BIF_STANDINS"):
        monkeypatch.delenv(name, raising=False)
