import math

import numpy as np
import pytest

from papers.theory import Row, check
from papers.theory.async_comm_sgd import largest_gap, patterns, run_async_comm_sgd
from papers.theory.fedbuff import run_fedbuff
from papers.theory.fedlaavg import random_availability, run_example, run_fedlaavg
from papers.theory.fedluck import check_fedluck, run_fedluck, top_k
from papers.theory.least_squares import LeastSquares, least_squares
from papers.theory.measured_bound import row
from papers.theory.problems import Quadratics, logistic_regression, mean_gradient_square, quadratics
from papers.theory.unequal_quadratics import UnequalQuadratics


@pytest.fixture(scope="module")
def rows():
    return check(seeds=3)


@pytest.fixture
def rng():
    return np.random.default_rng(5)


@pytest.fixture
def exact():
    """Three quadratics without noise."""
    centres = np.array([[1.0, 0.0], [0.0, 2.0], [-4.0, 1.0]])
    return Quadratics("exact", np.array([0.5, 1.0]), centres, np.array([3.0, -1.0]))


def test_every_bound_holds_and_every_counter_example_fails(rows):
    assert [line for line in rows if not line.as_expected] == []


def test_every_theorem_is_measured(rows):
    assert {line.claim for line in rows if line.should_hold} == {
        "FedBuff, Theorem 1",
        "FedLaAvg, Lemma 2",
        "FedLaAvg, Theorem 1",
        "FedLaAvg, Theorem 3",
        "AsyncCommSGD, Proposition 2.1",
        "AsyncCommSGD, Theorem 2.2",
        "AsyncCommSGD, Theorem 2.4",
        "FedLuck, mended",
    }
    assert {line.claim for line in rows if not line.should_hold} == {
        "FedBuff, Theorem 1",
        "FedAvg, FedLaAvg's Theorem 1",
        "FedLaAvg, Theorem 1 as printed",
        "FedLuck, Q_l as printed",
    }
    for name in ("full(4)", "round_robin(2, 2)", "random(1/4)", "imbalanced"):
        assert sum(name in line.setting for line in rows) == 4


def test_fedbuff_under_speed_dependent_arrivals_goes_to_the_wrong_point(rows):
    (biased,) = [line for line in rows if line.claim.startswith("FedBuff") and not line.should_hold]
    assert biased.measured == pytest.approx(0.64, abs=0.03)  # 0.9 − 0.1 = 0.8 instead of 0
    assert biased.bound == pytest.approx(16 / 100 + 640 * 2 / 10_000)


def test_lemma_2_is_reached(rows):
    assert max(line.ratio for line in rows if line.claim == "FedLaAvg, Lemma 2") == 1


def test_the_rows_are_the_same_each_time(rows):
    assert check_fedluck(3, np.random.default_rng([3, 3])) == [line for line in rows if "FedLuck" in line.claim]


def test_a_check_needs_a_seed():
    with pytest.raises(ValueError, match="seeds must be at least 1, got 0"):
        check(seeds=0)


def test_a_row_by_hand():
    line = row("whose", "where", np.array([1.0, 2.0, 3.0]), 4.0)
    assert line == Row("whose", "where", 2.0, pytest.approx(1.96 / math.sqrt(3)), 4.0)
    assert line.ratio == 0.5
    assert row("whose", "where", 5.0, 4.0) == Row("whose", "where", 5.0, 0.0, 4.0)


@pytest.mark.parametrize(
    ("measured", "half_width", "holds", "fails"),
    [(2, 1, True, False), (4, 0, True, False), (3.5, 1, False, False), (4.5, 1, False, False), (6, 1, False, True)],
)
def test_a_row_is_as_expected_only_beyond_chance(measured, half_width, holds, fails):
    assert Row("", "", measured, half_width, 4.0).as_expected is holds
    assert Row("", "", measured, half_width, 4.0, should_hold=False).as_expected is fails
    assert Row("", "", measured, half_width, 4.0).verdict == ("holds" if holds else "UNEXPECTED")
    counter = Row("", "", measured, half_width, 4.0, should_hold=False)
    assert counter.verdict == ("broken, as expected" if fails else "UNEXPECTED")


UNEQUAL = UnequalQuadratics(
    "u", np.array([[0.5, 1.0], [2.0, 1.5]]), np.array([[1.0, 0.0], [-1.0, 2.0]]), np.array([3.0, 1.0])
)


@pytest.mark.parametrize(
    "problem",
    [
        quadratics("q", 4, [0.5, 2.0], variance=0.7),
        logistic_regression("l", 4),
        least_squares("s", 4, examples=10, dimensions=3, noise=2.0),
        UNEQUAL,
    ],
)
def test_a_problems_constants_are_what_they_say(problem, rng):
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


def test_unequal_quadratics_have_exactly_their_constants():
    assert (UNEQUAL.smoothness, UNEQUAL.strong_convexity, UNEQUAL.variance) == (2, 0.5, 0)
    # Least at (0.5·1 − 2·1, 1·0 + 1.5·2) / (2.5, 2.5) = (−0.6, 1.2), where the mean curvature is (1.25, 1.25).
    assert UNEQUAL.initial_error == pytest.approx(0.5 * 1.25 * (3.6**2 + 0.2**2))
    points = np.tile([-0.6, 1.2], (2, 1))
    assert UNEQUAL.exact_gradients(np.arange(2), points).mean(0) == pytest.approx([0, 0], abs=1e-12)


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


def test_fedbuff_runs_as_the_paper_writes_it(exact, rng):
    chosen = rng.integers(3, size=(8, 1, 2))
    models = [exact.start]
    for t in range(8):
        stale = models[max(0, t - 2)]
        acc = np.zeros(2)
        for client in chosen[t, 0]:
            local = stale
            for _ in range(3):
                local = local - 0.1 * exact.curvature * (local - exact.centres[client])
            acc = acc + (stale - local)
        models.append(models[-1] - acc / 2)
    mean = exact.centres.mean(0)
    wanted = np.mean([((exact.curvature * (x - mean)) ** 2).sum() for x in models[:8]])
    measured = run_fedbuff(exact, rng, chosen, steps=3, lr=0.1, max_staleness=2)
    assert measured == pytest.approx([wanted])


def test_fedlaavg_runs_as_in_example_1(rng):
    problem = Quadratics("Example 1", np.array([2.0]), np.array([[1.0], [-1.0]]), np.array([0.5]))
    available = np.array([[[True, False]]] * 4 + [[[False, True]]] * 3)[np.arange(50) % 7]
    run = run_fedlaavg(problem, rng, available, cohort=1, lr=1 / (2 * math.sqrt(50)))
    error = run_example(latest_average=True, rounds=50, start=0.5, turns=(4, 3), centres=(1, -1))
    assert run.gradient_square == pytest.approx([4 * error])
    assert run.oldest == 4  # client 2 before its first turn


def test_fedavg_in_example_1_by_hand():
    # γ = 1/(2√4): 1 → 1 − ¼·2·(1 − 1) = 1 → 1 − ¼·2·(1 + 1) = 0 → 0 + ½ = ½
    error = run_example(latest_average=False, rounds=4, start=1, turns=(1, 1), centres=(1, -1))
    assert error == pytest.approx((1 + 1 + 0 + 0.25) / 4)


def test_fedlaavg_with_everybody_is_gradient_descent(exact, rng):
    run = run_fedlaavg(exact, rng, np.ones((20, 1, 3), dtype=bool), cohort=3, lr=0.3)
    apart, squares = exact.start - exact.centres.mean(0), []
    for _ in range(20):
        squares.append(((exact.curvature * apart) ** 2).sum())
        apart = apart * (1 - 0.3 * exact.curvature)
    assert run.gradient_square == pytest.approx([np.mean(squares)])
    assert run.oldest == 0
    farthest = max(((exact.curvature * (exact.start - c)) ** 2).sum() for c in exact.centres)
    assert run.second_moment == pytest.approx(farthest)


def test_fedlaavg_takes_the_longest_absent_first(exact, rng):
    run = run_fedlaavg(exact, rng, np.ones((9, 1, 3), dtype=bool), cohort=1, lr=0.1)
    models, latest = [exact.start], np.zeros((3, 2))
    for r in range(9):
        latest[r % 3] = exact.curvature * (models[-1] - exact.centres[r % 3])
        models.append(models[-1] - 0.1 * latest.mean(0))
    squares = [((exact.curvature * (x - exact.centres.mean(0))) ** 2).sum() for x in models[:9]]
    assert run.gradient_square == pytest.approx([np.mean(squares)])
    assert run.oldest == 2


def test_everybody_is_available_once_in_any_e_rounds(rng):
    available = random_availability(rng, rounds=300, seeds=2, clients=5, available_every=4)
    windows = np.lib.stride_tricks.sliding_window_view(available, 4, axis=0)
    assert windows.any(-1).all()
    assert not np.lib.stride_tricks.sliding_window_view(available, 3, axis=0).any(-1).all()
    assert 0.2 < available.mean() < 0.6


def test_the_four_patterns(rng):
    talks = patterns(rng, rounds=24, clients=6)
    talking = {name: [set(np.flatnonzero(now)) for now in pattern] for name, pattern in talks.items()}
    assert talking["full(4)"][:5] == [set(), set(), set(), {0, 1, 2, 3, 4, 5}, set()]
    assert talking["round_robin(2, 2)"][:8] == [set(), {0, 1}, set(), {2, 3}, set(), {4, 5}, set(), {0, 1}]
    assert talking["imbalanced"][:4] == [{0}, {0, 1}, {0, 2}, {0, 1, 3}]
    assert 0.1 < talks["random(1/4)"].mean() < 0.4
    assert [largest_gap(talks[name]) for name in ("full(4)", "round_robin(2, 2)", "imbalanced")] == [4, 6, 6]


@pytest.mark.parametrize(("rounds", "gap"), [((3,), 5), ((1, 2, 8), 6), ((8,), 8), ((), 8)])
def test_the_start_and_the_end_count_as_communications(rounds, gap):
    talks = np.zeros((8, 1), dtype=bool)
    talks[[r - 1 for r in rounds]] = True
    assert largest_gap(talks) == gap


def test_async_comm_sgd_runs_as_algorithm_1(exact, rng):
    talks = rng.random((12, 3)) < 0.4
    run = run_async_comm_sgd(exact, rng, 1, talks, lambda t: 1 / (t + 3))
    server = virtual = exact.start
    local = [exact.start] * 3
    received = [exact.start] * 3
    for t in range(12):
        assert run.models[t, 0] == pytest.approx(server)
        assert run.virtual[t, 0] == pytest.approx(virtual)
        apart = [((x - virtual) ** 2).sum() for x in (*local, server)]
        assert run.apart[t, :, 0] == pytest.approx(apart)
        gradients = [exact.curvature * (local[i] - exact.centres[i]) for i in range(3)]
        after = [local[i] - gradients[i] / (t + 3) for i in range(3)]
        virtual = virtual - sum(gradients) / 3 / (t + 3)
        server = server + sum((after[i] - received[i] for i in range(3) if talks[t, i]), np.zeros(2)) / 3
        for i in range(3):
            local[i] = server if talks[t, i] else after[i]
            received[i] = server if talks[t, i] else received[i]


def test_fedluck_runs_as_algorithm_1(exact, rng):
    periods, models, starts = (1, 2, 3), [exact.start], [exact.start] * 3
    longest = 0.0
    for t in range(10):
        longest = max(longest, *(((exact.curvature * (models[-1] - c)) ** 2).sum() for c in exact.centres))
        arrived = [i for i in range(3) if (t + 1) % periods[i] == 0]
        updates = []
        for i in arrived:
            local = starts[i]
            for _ in range(2):
                gradient = exact.curvature * (local - exact.centres[i])
                longest = max(longest, (gradient**2).sum())
                local = local - 0.4 * gradient
            update = starts[i] - local
            update[np.abs(update).argmin()] = 0
            updates.append(update)
        models.append(models[-1] - 0.5 * np.mean(updates, axis=0))
        for i in arrived:
            starts[i] = models[-1]
    wanted = np.mean([((exact.curvature * (x - exact.centres.mean(0))) ** 2).sum() for x in models[:10]])
    run = run_fedluck(exact, rng, 1, periods, lr=0.4, steps=2, compression=0.5, rounds=10, server_lr=0.5)
    assert run.gradient_square == pytest.approx([wanted])
    assert run.gradient_bound == pytest.approx(math.sqrt(longest))


def test_top_k_keeps_the_largest_and_rounds_up():
    vectors = np.array([[3.0, -4.0, 1.0, 2.0]])
    assert top_k(vectors, 0.01).tolist() == [[0, -4, 0, 0]]
    assert top_k(vectors, 0.3).tolist() == [[3, -4, 0, 0]]
    assert top_k(vectors, 0.75).tolist() == [[3, -4, 0, 2]]
    assert top_k(vectors, 1.0).tolist() == vectors.tolist()
