import math

import numpy as np
import pytest
from offbeat_core.errors import OffbeatError
from offbeat_core.randomness import Purpose

from offbeat.population.availability import Always
from offbeat.population.devices import devices
from offbeat.population.devices.devices import Devices
from offbeat.population.devices.links import ConstantLink
from offbeat.uniform_numbers import uniform


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
    link = ConstantLink(np.ones(3))
    return Devices(np.ones(3), link, link, np.array([0.0, 0.3, 1.0]), Always(), "pause")


@pytest.mark.parametrize(("client", "probability"), [(0, 0.0), (1, 0.3), (2, 1.0)])
def test_the_fate_of_a_visit_is_the_documented_number(three, client, probability):
    lost = [three.visit_is_lost(5, client, visit) for visit in range(1000)]
    np.testing.assert_array_equal(lost, uniform(5, Purpose.LOSS, client, np.arange(1000)) < probability)


def test_a_reliable_client_loses_nothing_even_at_the_smallest_number(three, monkeypatch):
    monkeypatch.setattr(devices, "number", lambda *args: 0.0)
    assert [three.visit_is_lost(5, client, 0) for client in range(3)] == [False, True, True]
