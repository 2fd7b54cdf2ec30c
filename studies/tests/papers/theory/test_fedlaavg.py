import math

import numpy as np
import pytest

from offbeat_studies.papers.theory.fedlaavg import random_availability, run_example, run_fedlaavg
from offbeat_studies.papers.theory.problems import Quadratics


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


def test_fedlaavg_with_all_clients_is_gradient_descent(exact, rng):
    run = run_fedlaavg(exact, rng, np.ones((20, 1, 3), dtype=bool), cohort=3, lr=0.3)
    apart, squares = exact.start - exact.centres.mean(0), []
    for _ in range(20):
        squares.append(((exact.curvature * apart) ** 2).sum())
        apart = apart * (1 - 0.3 * exact.curvature)
    assert run.gradient_square == pytest.approx([np.mean(squares)])
    assert run.oldest == 0
    farthest = max(((exact.curvature * (exact.start - c)) ** 2).sum() for c in exact.centres)
    assert run.second_moment == pytest.approx(farthest)


def test_several_local_steps_by_hand(rng):
    # f_1 = (x − 1)², f_2 = (x + 1)², γ = ¼: a step halves the distance to the client's minimum. Client 1, from ½: ¾
    # after one step, ⅞ after two; its steps count half: the model goes over ⅝ to 11/16. Client 2, from 11/16: −5/32
    # after one step; with client 1's first step, ¼, the model is 11/16 + ½ (¼ − 27/32) = 25/64 before the last one.
    problem = Quadratics("Example 1", np.array([2.0]), np.array([[1.0], [-1.0]]), np.array([0.5]))
    run = run_fedlaavg(problem, rng, np.array([[[True, False]], [[False, True]]]), cohort=1, lr=0.25, steps=2)
    assert run.models.ravel() == pytest.approx([1 / 2, 11 / 16])
    assert run.gradient_square == pytest.approx([4 * ((5 / 8) ** 2 + (25 / 64) ** 2) / 2])


def test_each_client_is_available_once_in_any_e_rounds(rng):
    available = random_availability(rng, rounds=300, seeds=2, clients=5, available_every=4)
    windows = np.lib.stride_tricks.sliding_window_view(available, 4, axis=0)
    assert windows.any(-1).all()
    assert not np.lib.stride_tricks.sliding_window_view(available, 3, axis=0).any(-1).all()
    assert 0.2 < available.mean() < 0.6
