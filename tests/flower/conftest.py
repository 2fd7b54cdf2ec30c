"""Tests of ``offbeat.flower``, which run in an environment with Flower: ``make test-flower``."""

import importlib.util
import sys
from pathlib import Path

import pytest

HAS_FLOWER = importlib.util.find_spec("flwr") is not None
EXAMPLE = Path(__file__).parents[2] / "examples" / "flower"

collect_ignore_glob = [] if HAS_FLOWER else ["*.py"]
if HAS_FLOWER:
    sys.path.insert(0, str(EXAMPLE))  # for the example's app


@pytest.fixture
def examples() -> Path:
    """Return the folder of the example."""
    return EXAMPLE
