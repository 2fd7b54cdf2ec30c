import math
from statistics import NormalDist

import numpy as np
import pytest

from offbeat.errors import OffbeatError
from offbeat.population import devices
from offbeat.population.devices import Devices
from offbeat.randomness import Purpose, uniform

N = 100_000
SOURCE = {"seed": 3, "purpose": Purpose.DEVICE_SPEED}
DISTRIBUTIONS = [
    (devices.constant, {"value": 2.0}),
    (devices.lognormal, {"median": 0.1, "sigma": 1.0}),
    (devices.pareto, {"minimum": 0.1, "shape": 1.5}),
]
QUANTILES = [0.01, 0.1, 0.5, 0.9, 0.99, 0.999]


def part_below(values, quantile_values):
    return np.searchsorted(np.sort(values), quantile_values) / len(values)


def assert_quantiles(values, expected):
    """The part of the values below the q-quantile has mean q and variance q (1 - q) / n."""
    q = np.array(QUANTILES)
    deviation = np.sqrt(q * (1 - q) / len(values))
    assert (np.abs(part_below(values, expected) - q) < 4 * deviation).all()


def test_constant():
    assert devices.constant(3, value=2.5, **SOURCE).tolist() == [2.5] * 3


def test_lognormal_quantiles():
    values = devices.lognormal(N, median=0.1, sigma=0.7, **SOURCE)
    assert_quantiles(values, [0.1 * math.exp(0.7 * NormalDist().inv_cdf(q)) for q in QUANTILES])


def test_pareto_quantiles():
    values = devices.pareto(N, minimum=0.1, shape=1.5, **SOURCE)
    assert values.min() >= 0.1
    assert_quantiles(values, [0.1 * (1 - q) ** (-1 / 1.5) for q in QUANTILES])


def test_lognormal_without_sigma_is_constant():
    assert devices.lognormal(5, median=0.3, sigma=0, **SOURCE).tolist() == [0.3] * 5


@pytest.mark.parametrize(("distribution", "parameters"), DISTRIBUTIONS)
def test_a_clients_value_does_not_depend_on_the_number_of_clients(distribution, parameters):
    few, many = (distribution(clients, **parameters, **SOURCE) for clients in (10, 1000))
    assert few.dtype == np.float64
    assert few.shape == (10,)
    np.testing.assert_array_equal(few, many[:10])


@pytest.mark.parametrize(("distribution", "parameters"), DISTRIBUTIONS[1:])
def test_seed_purpose_and_draw_tell_values_apart(distribution, parameters):
    sources = [
        {"seed": 3, "purpose": Purpose.BANDWIDTH},
        {"seed": 4, "purpose": Purpose.BANDWIDTH},
        {"seed": 3, "purpose": Purpose.DEVICE_SPEED},
        {"seed": 3, "purpose": Purpose.BANDWIDTH, "draw": 1},
    ]
    values = [distribution(1000, **parameters, **source) for source in sources]
    again = distribution(1000, **parameters, seed=3, purpose=Purpose.BANDWIDTH, draw=0)
    np.testing.assert_array_equal(values[0], again)
    correlations = np.corrcoef(np.log(values))
    assert np.abs(correlations - np.eye(4)).max() < 0.15


@pytest.mark.parametrize("u", [0.0, 1 - 2.0**-53])
def test_the_ends_of_the_uniform_numbers_give_finite_positive_values(monkeypatch, u):
    monkeypatch.setattr(devices, "uniform", lambda *args, **kwargs: np.array([u]))
    log = math.log(devices.lognormal(1, median=1.0, sigma=1.0, **SOURCE)[0])
    # A float32 quantile would be infinite at the upper end.
    assert log == pytest.approx(NormalDist().inv_cdf(max(u, 2.0**-54)), rel=1e-9)
    assert 8 < abs(log) < 8.4
    assert devices.pareto(1, minimum=1.0, shape=1.0, **SOURCE)[0] == pytest.approx(1 / (1 - u))


@pytest.mark.parametrize(
    ("distribution", "parameters", "message"),
    [
        (devices.constant, {"value": 0.0}, "value is 0.0, but must be above 0"),
        (devices.lognormal, {"median": -1.0, "sigma": 1.0}, "median is -1.0, but must be above 0"),
        (devices.lognormal, {"median": 1.0, "sigma": -1.0}, "sigma is -1.0, but must be at least 0"),
        (devices.lognormal, {"median": 1.0, "sigma": math.nan}, "sigma is nan, but must be at least 0"),
        (devices.lognormal, {"median": 1.0, "sigma": 1000.0}, "sigma = 1000.0 is too large"),
        (devices.pareto, {"minimum": 0.0, "shape": 1.0}, "minimum is 0.0, but must be above 0"),
        (devices.pareto, {"minimum": 1.0, "shape": math.nan}, "shape is nan, but must be above 0"),
        (devices.pareto, {"minimum": 1.0, "shape": 0.001}, "shape = 0.001 is too small"),
    ],
)
def test_parameters_out_of_range(distribution, parameters, message):
    with pytest.raises(OffbeatError, match=message):
        distribution(1000, **parameters, **SOURCE)


@pytest.mark.parametrize(
    ("clients", "fraction", "count"), [(100, 0.29, 29), (7, 0.5, 4), (10, 0.0, 0), (10, 1.0, 10), (1000, 0.123, 123)]
)
def test_lossy_clients_are_exactly_so_many(clients, fraction, count):
    probabilities = devices.lossy(clients, fraction=fraction, probability=0.4, seed=0)
    assert probabilities.shape == (clients,)
    assert np.sum(probabilities == 0.4) == count
    assert np.sum(probabilities == 0.0) == clients - count


def test_lossy_clients_are_a_random_choice_by_the_seed():
    chosen = np.stack([devices.lossy(20, fraction=0.5, probability=1.0, seed=seed) for seed in range(400)])
    np.testing.assert_allclose(chosen.mean(axis=0), 0.5, atol=4 * math.sqrt(0.25 / 400))
    np.testing.assert_array_equal(chosen[7], devices.lossy(20, fraction=0.5, probability=1.0, seed=7))


@pytest.mark.parametrize("wrong", [{"fraction": 1.1}, {"fraction": -0.1}, {"probability": math.nan}])
def test_lossy_parameters_out_of_range(wrong):
    parameters = {"fraction": 0.5, "probability": 0.5} | wrong
    with pytest.raises(OffbeatError, match=rf"{next(iter(wrong))} is \S+, but must be between 0 and 1"):
        devices.lossy(10, **parameters, seed=0)


@pytest.fixture
def three() -> Devices:
    ones = np.ones(3)
    return Devices(ones, ones, ones, loss_probability=np.array([0.0, 0.3, 1.0]))


def test_visits_are_lost_as_often_as_the_client_says(three):
    visits = np.arange(10_000)
    lost = [three.visit_is_lost(5, client, visits).mean() for client in range(3)]
    assert lost[0] == 0
    assert lost[1] == pytest.approx(0.3, abs=4 * math.sqrt(0.21 / 10_000))
    assert lost[2] == 1


def test_one_visit_has_one_fate_however_it_is_asked_for(three):
    clients, visits = np.array([1, 2, 0, 1]), np.array([4, 0, 2, 9])
    together = three.visit_is_lost(5, clients, visits)
    one_by_one = [three.visit_is_lost(5, int(c), int(v)) for c, v in zip(clients, visits, strict=True)]
    assert together.shape == (4,)
    assert together.dtype == np.bool_
    np.testing.assert_array_equal(together, np.concatenate(one_by_one))


def test_the_fate_of_a_visit_is_the_documented_number(three):
    visits = np.arange(1000)
    np.testing.assert_array_equal(three.visit_is_lost(5, 1, visits), uniform(5, Purpose.LOSS, 1, visits) < 0.3)


def test_a_reliable_client_loses_nothing_even_at_the_smallest_number(three, monkeypatch):
    monkeypatch.setattr(devices, "uniform", lambda *args: np.zeros(3))
    assert three.visit_is_lost(5, [0, 1, 2], 0).tolist() == [False, True, True]


def test_the_fates_of_visits_depend_on_seed_client_and_visit():
    half = Devices(np.ones(2), np.ones(2), np.ones(2), loss_probability=np.full(2, 0.5))
    visits = np.arange(2000)
    fates = [half.visit_is_lost(seed, client, visits) for seed in (0, 1) for client in (0, 1)]
    assert np.abs(np.corrcoef(fates) - np.eye(4)).max() < 0.1
