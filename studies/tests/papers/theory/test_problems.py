import numpy as np
import pytest

from offbeat_studies.papers.theory.double_well import DoubleWell
from offbeat_studies.papers.theory.least_squares import least_squares
from offbeat_studies.papers.theory.problems import Quadratics, logistic_regression, mean_gradient_square, quadratics
from studies.tests.papers.theory.test_unequal_quadratics import UNEQUAL


@pytest.mark.parametrize(
    "problem",
    [
        quadratics("q", 4, [0.5, 2.0], variance=0.7),
        logistic_regression("l", 4),
        least_squares("s", 4, examples=10, dimensions=3, noise=2.0),
        UNEQUAL,
        DoubleWell("d", 2, np.array([3.0]), variance=0.7),
    ],
)
def test_the_constants_of_a_problem_hold(problem, rng):
    dimensions = len(problem.start)
    everyone = np.arange(problem.clients)
    for _ in range(100):
        one, other = 3 * rng.standard_normal((2, problem.clients, dimensions))
        change = problem.exact_gradients(everyone, one) - problem.exact_gradients(everyone, other)
        lengths = np.linalg.norm(one - other, axis=-1)
        assert (np.linalg.norm(change, axis=-1) <= problem.smoothness * lengths * (1 + 1e-12)).all()
        gradients = problem.exact_gradients(everyone, np.broadcast_to(one[0], one.shape))
        assert ((gradients - gradients.mean(0)) ** 2).sum(-1).mean() <= problem.diversity * (1 + 1e-12)

    clients = np.repeat(everyone[:, None], 20_000, axis=1)
    points = np.broadcast_to(problem.start, (*clients.shape, dimensions))
    drawn, mean = problem.gradients(clients, points, rng), problem.exact_gradients(clients, points)
    assert drawn.mean(1) == pytest.approx(mean[:, 0], abs=0.1)
    assert (((drawn - mean) ** 2).sum(-1).mean(1) <= problem.variance * 1.03).all()
    assert (drawn**2).sum(-1).mean(1).max() <= problem.second_moment(clients, points) * 1.03


def test_quadratics_have_exactly_their_constants(exact):
    assert exact.smoothness == 1
    assert exact.strong_convexity == 0.5
    # centres less their mean: (2, −1), (1, 1), (−3, 0); times A: (1, −1), (½, 1), (−1½, 0)
    assert exact.diversity == pytest.approx((2 + 1.25 + 2.25) / 3)
    assert exact.largest_heterogeneity == pytest.approx(2.25)
    assert exact.initial_error == pytest.approx(0.5 * (0.5 * 16 + 4))  # from (−1, 1) to (3, −1)
    noisy = Quadratics("noisy", np.ones(2), np.zeros((1, 2)), np.array([3.0, 4.0]), variance=2)
    assert noisy.second_moment(np.array([0]), noisy.start[None]) == 27


def test_logistic_regression_knows_its_minimum():
    problem = logistic_regression("l", 3)
    rows = problem.features.reshape(-1, 3)
    point = np.zeros(3)
    for _ in range(5000):
        point = point + rows.T @ (1 / (1 + np.exp(rows @ point))) / len(rows)
    values = [np.log1p(np.exp(-rows @ x)).mean() for x in (problem.start, point)]
    assert problem.initial_error == pytest.approx(values[0] - values[1], rel=1e-6)
    assert values[1] > 0.1  # not separable


def test_logistic_gradients_are_those_of_the_loss():
    problem = logistic_regression("l", 3)
    point, small = np.array([0.3, -0.2, 0.5]), 1e-6

    def loss(x):
        return np.log1p(np.exp(-problem.features[1] @ x)).mean()

    slope = [(loss(point + small * e) - loss(point - small * e)) / (2 * small) for e in np.eye(3)]
    assert problem.exact_gradients(np.array([1]), point[None])[0] == pytest.approx(slope, abs=1e-8)


def test_mean_gradient_square_is_taken_over_the_rounds(exact):
    path = np.arange(2 * 450.0).reshape(450, 1, 2).repeat(2, axis=1) / 100
    path[:, 1] += 1
    wanted = [
        np.mean([((exact.curvature * (x - exact.centres.mean(0))) ** 2).sum() for x in path[:, s]]) for s in (0, 1)
    ]
    assert mean_gradient_square(exact, path) == pytest.approx(wanted)


def test_a_double_well_knows_its_error_and_its_minimum():
    problem = DoubleWell("d", 3, np.array([3.0]))
    losses = [np.mean([0.5 * np.log1p((x - c) ** 2) for c in (1.5, -1.5)]) for x in np.linspace(-4, 4, 80_001)]
    assert problem.initial_error == pytest.approx(losses[70_000] - min(losses), abs=1e-8)  # the 70,000th is x = 3
    assert np.argmin(losses) / 1e4 - 4 == pytest.approx(-(1.25**0.5), abs=1e-3)
    mean = problem.exact_gradients(np.arange(6), np.full((6, 1), 3.0)).mean()
    assert mean == pytest.approx((losses[70_010] - losses[69_990]) / 2e-3, rel=1e-5)
