import math

import pytest

from offbeat_studies.papers.theory import async_comm_sgd, fedbuff, fedlaavg
from offbeat_studies.papers.theory.double_well import DoubleWell
from offbeat_studies.papers.theory.measured_bound import Row
from offbeat_studies.papers.theory.sweeps import SWEEPS, Point, slope_with_error, sweep


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
    "fedbuff_small_server_lr": "T = {}, Q = 2, K = 2, τ = 1",
    "fedbuff_large_server_lr": "T = {}, Q = 2, K = 2, τ = 1",
    "fedbuff_clients": "N = {}, d = 2; uniform arrivals, T = 11520, Q = 2, K = 2, τ = 1",
    "fedlaavg_rounds": "N = 16, d = 2; random availability, E = 2, K = 4, T = {}",
    "fedlaavg_clients": "N = {}, d = 2; random availability, E = 2, K = 1, T = 16384",
    "fedlaavg_clients_at_full_step": "N = {}, d = 2; random availability, E = 2, K = 1, T = 16384, γ = 0.00957",
    "fedlaavg_available_every": "N = 16, d = 2; random availability, E = {}, K = 4, T = 16384",
    "async_comm_sgd_smooth_gap": "double well, N = 2; full({0}), Δ = {0}, T = 16384, γ = 0.011",
    "fedfa_param": "N = 8, d = 3; uniform arrivals, T = {}, Q = 2, K = 4, τ = 1",
    "fedfa_delta": "N = 8, d = 3; uniform arrivals, T = {}, Q = 2, K = 4, τ = 1",
    "fedlaavg_steps": "N = 16, d = 2; random availability, E = 2, K = 4, T = 16384, γ = 0.00046, C = {}",
    "fedlaavg_rounds_with_steps": "N = 16, d = 2; random availability, E = 2, K = 4, T = {}, γ = 0.00114, C = 4",
    "fedlaavg_clients_with_steps": "N = {}, d = 2; random availability, E = 2, K = 1, T = 16384, γ = 0.000441, C = 4",
}
NOT_COVERED = ("fedbuff_staleness", "fedbuff_unequal_arrivals", "fedbuff_small_server_lr", "fedbuff_large_server_lr")


@pytest.fixture
def few_rounds(monkeypatch):
    """End long runs after 200 rounds; their settings and step sizes are those of all."""
    fedbuff_models, run_fedlaavg = fedbuff.fedbuff_models, fedlaavg.run_fedlaavg
    run_async_comm_sgd = async_comm_sgd.run_async_comm_sgd

    def few_models(problem, rng, chosen, **settings):
        return fedbuff_models(problem, rng, chosen[:200], **settings)

    def run_few(problem, rng, available, **settings):
        return run_fedlaavg(problem, rng, available[:200], **settings)

    def run_few_double_wells(problem, rng, seeds, pattern, step_size):
        # The convex bounds take the distance in every round.
        shown = pattern[:200] if isinstance(problem, DoubleWell) else pattern
        return run_async_comm_sgd(problem, rng, seeds, shown, step_size)

    monkeypatch.setattr(async_comm_sgd, "run_async_comm_sgd", run_few_double_wells)
    monkeypatch.setattr(fedbuff, "fedbuff_models", few_models)
    monkeypatch.setattr(fedlaavg, "run_fedlaavg", run_few)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.usefixtures("few_rounds")
def test_a_sweep_varies_only_its_own_number(name):
    value = 6 if NUMBERS[name].count("T = {}") == 0 else 6000
    (point,) = sweep(name, (value,), 2)
    assert NUMBERS[name].format(value) in point.row.setting
    assert point.value == value
    assert point.row.should_hold is (name not in NOT_COVERED)


@pytest.mark.long
def test_a_larger_batch_has_less_noise():
    one, many = (point.row for point in sweep("fedbuff_batch_size", (1, 64), 2))
    assert many.bound < one.bound
    assert many.measured < one.measured


def test_the_gap_grows_with_the_rounds():
    (point,) = sweep("async_comm_sgd_rounds_and_gap", (800,), 2)
    assert "Δ = 10, T = 800" in point.row.setting  # √(800 / 8)


@pytest.mark.parametrize(
    ("name", "value", "setting"),
    [
        ("async_comm_sgd_smooth_rounds_and_gap", 4096, "N = 2; full(4), Δ = 4, T = 4096"),  # 8 / 2^¾ = 4.8
        ("async_comm_sgd_smooth_rounds_and_long_gap", 800, "N = 2; full(20), Δ = 20, T = 800"),  # √(800 / 2)
        ("async_comm_sgd_smooth_clients", 4, "N = 4; full(4), Δ = 4, T = 16384"),  # 11.3 / 4^¾ = 4.0
        ("async_comm_sgd_smooth_clients", 16, "N = 16; full(1), Δ = 1, T = 16384"),  # 11.3 / 8 = 1.4
    ],
)
@pytest.mark.usefixtures("few_rounds")
def test_the_gap_is_the_largest_that_the_paper_allows(name, value, setting):
    (point,) = sweep(name, (value,), 2)
    assert setting in point.row.setting


@pytest.mark.usefixtures("few_rounds")
def test_the_bound_of_remark_2_does_not_grow_with_the_clients():
    few, many = (point.row.bound for point in sweep("fedbuff_clients", (4, 16), 2))
    # By hand: L = ½, f(x_0) − f* = ½ (¼ + ½) = 0.375, γ² = (¼·2)² + (½·2)² = 1.25, σ² = ½, T = 11520, Q = 2, τ = 1.
    assert many == few == pytest.approx((3 + 16 * 1.75) * (0.5 / 11_520) ** 0.5 + 320 * 0.5 * 3 * 2 * 1.75 / 11_520)


@pytest.mark.long
def test_a_larger_server_step_goes_farther():
    small, large = (sweep(f"fedbuff_{size}_server_lr", (6000,), 2)[0].row.measured for size in ("small", "large"))
    plain = sweep("fedbuff_server_steps", (6000,), 2)[0].row.measured
    assert small != plain != large != small


def test_the_noise_of_each_value_is_its_own(monkeypatch):
    name = "async_comm_sgd_gap"
    monkeypatch.setitem(SWEEPS, name, lambda value, seeds, random: Row("c", "s", random.random(), 0.0, 1.0))
    one, other = (point.row.measured for point in sweep(name, (1, 4), 3))
    assert one != other


@pytest.mark.long
def test_the_same_sweep_gives_the_same_numbers():
    assert sweep("async_comm_sgd_gap", (1, 4), 3) == sweep("async_comm_sgd_gap", (1, 4), 3)
