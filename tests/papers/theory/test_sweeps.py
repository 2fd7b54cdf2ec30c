import math

import pytest

from papers.theory.measured_bound import Row
from papers.theory.sweeps import Point, slope_with_error, sweep


def test_slope_of_a_power():
    points = [Point(x, Row("c", "s", 3 * x**-1.5, 0.0, 1.0)) for x in (1.0, 10.0, 1000.0)]
    assert slope_with_error(points) == (pytest.approx(-1.5), 0.0)


def test_the_error_of_a_slope_is_that_of_the_measured_means():
    # By hand: between two points p = log(m2 / m1) / log 10, and each logarithm has the error 0.98 / 1.96 / 5 = 0.1.
    points = [Point(x, Row("c", "s", 5.0, 0.98, 1.0)) for x in (1.0, 10.0)]
    assert slope_with_error(points) == (pytest.approx(0.0), pytest.approx(0.1 * 2**0.5 / math.log(10)))


NUMBERS = {
    "fedbuff_server_steps": "T = {}, Q = 2, K = 2, τ = 1",
    "fedbuff_staleness": "T = 32400, Q = 2, K = 2, τ = {}",
    "fedbuff_buffer_size": "T = 32400, Q = 2, K = {}, τ = 1",
    "fedbuff_steps": "T = 32400, Q = {}, K = 2, τ = 1",
    "fedbuff_batch_size": "T = 32400, Q = 2, K = 2, τ = 1",
    "fedbuff_least_squares": "least squares, N = 8, n = 20, d = 3; uniform arrivals, T = {}, Q = 2, K = 2, τ = 1",
    "fedbuff_unequal_arrivals": "centres ±1; 0.9 / 0.1 arrivals, T = {}, Q = 1, K = 1, τ = 0",
    "async_comm_sgd_rounds": "N = 8, d = 2; full(4), Δ = 4, T = {}",
    "async_comm_sgd_clients": "N = {}, d = 2; full(4), Δ = 4, T = 4000",
    "async_comm_sgd_gap": "N = 8, d = 2; full({0}), Δ = {0}, T = 4000",
    "async_comm_sgd_drift_rounds": "unequal steepness, N = 2, d = 1; full(16), Δ = 16, T = {}",
    "async_comm_sgd_drift_gap": "unequal steepness, N = 2, d = 1; full({0}), Δ = {0}, T = 4000",
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_sweep_varies_only_its_own_number(name):
    value = 6 if NUMBERS[name].count("T = {}") == 0 else 6000
    (point,) = sweep(name, (value,), 2)
    assert NUMBERS[name].format(value) in point.row.setting
    assert point.value == value
    assert point.row.should_hold is (name not in ("fedbuff_staleness", "fedbuff_unequal_arrivals"))


def test_a_larger_batch_has_less_noise():
    one, many = (point.row for point in sweep("fedbuff_batch_size", (1, 64), 2))
    assert many.bound < one.bound
    assert many.measured < one.measured


def test_the_gap_grows_with_the_rounds():
    (point,) = sweep("async_comm_sgd_rounds_and_gap", (800,), 2)
    assert "Δ = 10, T = 800" in point.row.setting  # √(800 / 8)


def test_the_same_sweep_gives_the_same_numbers():
    assert sweep("async_comm_sgd_gap", (1, 4), 3) == sweep("async_comm_sgd_gap", (1, 4), 3)
