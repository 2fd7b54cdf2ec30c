"""AsyncCommSGD's and FedLaAvg's theorems are for clients that count equally, or for the losses scaled by weight.

N clients with f̃_i = ½w², σ² = 1 and weights p_i, all heard in every round, w_0 = 0: both algorithms are SGD on ½w² with
noise of variance Σ p_i², so that what the theorems bound is known exactly.
"""

import numpy as np
import pytest

from offbeat.theory import Bound, async_comm_bound, async_comm_convex_bound, fedlaavg_bound

CLIENTS, ROUNDS, LR = 100, 10**6, 1e-5
EQUAL = np.full(CLIENTS, 1 / CLIENTS)
SKEWED = np.r_[0.9, np.full(CLIENTS - 1, 0.1 / (CLIENTS - 1))]


def measured(weights: np.ndarray) -> float:
    """(1/T) Σ_{t<T} E w_t², with E w_{t+1}² = (1 − γ)² E w_t² + γ² Σ p_i²."""
    shrink = (1 - LR) ** 2
    limit = LR**2 * (weights**2).sum() / (1 - shrink)
    return limit * (1 - (1 - shrink**ROUNDS) / (ROUNDS * (1 - shrink)))


def bound_of(name: str, scale: float = 1.0, **more: bool) -> Bound:
    """The bound where every f_i is at most ``scale`` times f̃_i."""
    constants = {
        "rounds": ROUNDS,
        "lr": LR,
        "clients": CLIENTS,
        "smoothness": scale,
        "initial_error": 0.0,
        "variance": scale**2,
        "gradient_bound": scale * 1.01,
        **more,
    }
    if name == "fedlaavg":
        return fedlaavg_bound(**constants, max_staleness=0)
    return async_comm_bound(**constants, max_gap=1)


BOTH = pytest.mark.parametrize("name", ["async_comm_sgd", "fedlaavg"])


@BOTH
def test_the_bound_holds_for_clients_that_count_equally(name: str) -> None:
    bound = bound_of(name)
    assert bound.holds
    assert measured(EQUAL) < bound.value


@BOTH
def test_the_bound_fails_for_unequal_clients_and_reports_it(name: str) -> None:
    bound = bound_of(name, equal_weights=False)
    assert measured(SKEWED) > 7 * bound.value
    assert [assumption.text for assumption in bound.broken] == [
        "clients do not count equally: some count more than 1/N"
    ]


@BOTH
def test_the_bound_holds_again_with_the_constants_of_the_scaled_losses(name: str) -> None:
    bound = bound_of(name, scale=CLIENTS * SKEWED.max())
    assert bound.holds
    assert measured(SKEWED) < bound.value


def test_the_convex_bound_assumes_the_same() -> None:
    constants = {
        "rounds": 9,
        "clients": 3,
        "max_gap": 1,
        "smoothness": 1.0,
        "strong_convexity": 1.0,
        "gradient_bound": 1.0,
        "variance": 1.0,
    }
    assert async_comm_convex_bound(**constants).holds
    (broken,) = async_comm_convex_bound(**constants, equal_weights=False).broken
    assert broken.text == "clients do not count equally: some count more than 1/N"
