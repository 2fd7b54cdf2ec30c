import numpy as np
import pytest

from offbeat_studies.papers.theory.unequal_quadratics import UnequalQuadratics

UNEQUAL = UnequalQuadratics(
    "u", np.array([[0.5, 1.0], [2.0, 1.5]]), np.array([[1.0, 0.0], [-1.0, 2.0]]), np.array([3.0, 1.0])
)


def test_unequal_quadratics_have_exactly_their_constants():
    assert (UNEQUAL.smoothness, UNEQUAL.strong_convexity, UNEQUAL.variance) == (2, 0.5, 0)
    # Least at (0.5·1 − 2·1, 1·0 + 1.5·2) / (2.5, 2.5) = (−0.6, 1.2), where the mean curvature is (1.25, 1.25).
    assert UNEQUAL.initial_error == pytest.approx(0.5 * 1.25 * (3.6**2 + 0.2**2))
    points = np.tile([-0.6, 1.2], (2, 1))
    assert UNEQUAL.exact_gradients(np.arange(2), points).mean(0) == pytest.approx([0, 0], abs=1e-12)
