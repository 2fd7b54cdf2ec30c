"""Tests of ``offbeat.flower``, which run in an environment with Flower: ``make test-flower``."""

import importlib.util
from pathlib import Path

import pytest

HAS_FLOWER = importlib.util.find_spec("flwr") is not None
collect_ignore_glob = [] if HAS_FLOWER else ["*.py"]


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the example, whose app can be imported."""
    folder = Path(__file__).parents[2] / "examples" / "flower"
    monkeypatch.syspath_prepend(folder)
    return folder
