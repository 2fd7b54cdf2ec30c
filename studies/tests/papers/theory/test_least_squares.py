import numpy as np
import pytest

from offbeat_studies.papers.theory.least_squares import LeastSquares


def test_least_squares_have_exactly_their_constants(rng):
    features, answers = np.array([[2.0, 0.0], [0.0, 4.0]]), np.array([[2.0, 8.0], [6.0, 0.0]])
    problem = LeastSquares("s", features, answers, np.array([2.0, 2.0]), noise=3.0)
    assert problem.smoothness == pytest.approx(16 / 2)
    assert problem.variance == pytest.approx(9 / 4 * 20)
    assert problem.diversity == pytest.approx(4 + 64)  # Aᵀ(±2, ∓4) / 2 = (±2, ∓8)
    assert problem.initial_error == pytest.approx((4**2 * 0 + (4 * (2 - 1)) ** 2) / 4)  # from (2, 1), where it is least
    # The gradient is that of f_i: by differences.
    point, step = rng.standard_normal(2), 1e-6
    values = [((features @ (point + step * e) - answers[1]) ** 2).sum() / 4 for e in (*np.eye(2), np.zeros(2))]
    by_differences = [(value - values[2]) / step for value in values[:2]]
    assert problem.exact_gradients(np.array(1), point) == pytest.approx(by_differences, rel=1e-4)
    noise = problem.gradients(np.zeros(200_000, np.int64), np.tile(point, (200_000, 1)), rng)
    noise = noise - problem.exact_gradients(np.array(0), point)
    assert (noise**2).sum(-1).mean() == pytest.approx(problem.variance, rel=0.02)
