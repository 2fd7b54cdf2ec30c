import numpy as np
import pytest

from offbeat_studies.papers.theory.problems import Quadratics


@pytest.fixture
def rng():
    return np.random.default_rng(5)


@pytest.fixture
def exact():
    """Three quadratics without noise."""
    centres = np.array([[1.0, 0.0], [0.0, 2.0], [-4.0, 1.0]])
    return Quadratics("exact", np.array([0.5, 1.0]), centres, np.array([3.0, -1.0]))
