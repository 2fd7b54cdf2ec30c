import numpy as np
import pytest

from offbeat.population.availability import Alternating
from offbeat.population.devices.devices import Devices
from offbeat.population.devices.links import ConstantLink
from offbeat.worlds.pooled_population import pool_clients
from offbeat.worlds.population import Population

SHARDS = [np.array([7, 2]), np.array([5]), np.array([0, 9, 4])]


@pytest.fixture
def population() -> Population:
    devices = Devices(
        step_seconds=np.array([1.0, 2.0, 6.0]),
        down=ConstantLink(np.full(3, 10.0)),
        up=ConstantLink(np.full(3, 10.0)),
        loss_probability=np.array([0.0, 1.0, 0.5]),
        availability=Alternating(3, 10.0, np.arange(3)),
        when_away="lose",
    )
    return Population(SHARDS, devices)


def test_one_client_holds_what_all_hold(population: Population) -> None:
    (shard,) = pool_clients(population, 2).shards
    assert shard.tolist() == [0, 2, 4, 5, 7, 9]
    assert shard.dtype == SHARDS[0].dtype


@pytest.mark.parametrize(("cohort", "seconds"), [(1, 3.0), (2, 1.5), (3, 1.0)])
def test_a_round_takes_as_long_as_a_mean_visit(cohort: int, seconds: float, population: Population) -> None:
    assert pool_clients(population, cohort).devices.step_seconds.tolist() == [seconds]


def test_a_cohort_larger_than_the_population_is_refused(population: Population) -> None:
    with pytest.raises(ValueError, match="cohort must be at most the number of clients, 3, got 4"):
        pool_clients(population, 4)


def test_it_is_always_available_and_loses_nothing(population: Population) -> None:
    devices = pool_clients(population, 2).devices
    assert devices.loss_probability.tolist() == [0.0]
    for seconds in (0.0, 5.0, 10.0, 15.0):
        assert devices.availability.next_available(0, seconds) == seconds
        assert devices.availability.next_offline(0, seconds) == float("inf")
