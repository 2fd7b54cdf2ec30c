import math

import numpy as np
import pytest

from offbeat.errors import OffbeatError
from offbeat.population.availability import Always
from offbeat.population.devices import devices
from offbeat.population.devices.devices import Devices
from offbeat.population.devices.links import ConstantLink
from offbeat.randomness import Purpose, uniform

N = 100_000


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


def lossy_devices(*probabilities) -> Devices:
    ones = np.ones(len(probabilities))
    link = ConstantLink(ones)
    return Devices(ones, link, link, np.array(probabilities), Always(), "pause")


@pytest.fixture
def three() -> Devices:
    return lossy_devices(0.0, 0.3, 1.0)


def fates(devices, seed, client, visits=2000):
    return [devices.visit_is_lost(seed, client, visit) for visit in range(visits)]


def test_visits_are_lost_as_often_as_the_client_says(three):
    lost = [np.mean(fates(three, 5, client, 10_000)) for client in range(3)]
    assert lost[0] == 0
    assert lost[1] == pytest.approx(0.3, abs=4 * math.sqrt(0.21 / 10_000))
    assert lost[2] == 1


def test_the_fate_of_a_visit_is_the_documented_number(three):
    np.testing.assert_array_equal(fates(three, 5, 1), uniform(5, Purpose.LOSS, 1, np.arange(2000)) < 0.3)


def test_a_reliable_client_loses_nothing_even_at_the_smallest_number(three, monkeypatch):
    monkeypatch.setattr(devices, "number", lambda *args: 0.0)
    assert [three.visit_is_lost(5, client, 0) for client in range(3)] == [False, True, True]


def test_the_fates_of_visits_depend_on_seed_client_and_visit():
    half = lossy_devices(0.5, 0.5)
    four = [fates(half, seed, client) for seed in (0, 1) for client in (0, 1)]
    assert np.abs(np.corrcoef(four) - np.eye(4)).max() < 0.1
