"""Masked simulations: equal to plain whole numbers, in every algorithm that goes with masks."""

import hashlib
import math

import numpy as np
import pytest
import torch
from offbeat_private.masks.share import mask

from offbeat.algorithms import FedLuck
from tests.worlds.private_simulations import CLIENTS, MASKED, finished


class BehindMask:
    """The promise of a vector of whole numbers behind the mask of a seed."""

    def __init__(self, vector, seed):
        self.vector, self.seed = vector, seed

    def resolve(self):
        return torch.from_numpy(mask(self.vector.resolve().numpy().copy(), self.seed).view(np.int32))


def behind_masks(simulation, monkeypatch):
    """Let clients add masks, and the helper take them off the sums that it opens."""
    buffer, sums = simulation.coordinator.algorithm.buffer, simulation.coordinator.sealed_sums
    add, reveal = buffer.add, sums.reveal

    def add_masked(update, weight):
        seed = hashlib.sha256(f"mask {update.client} {update.version}".encode()).digest()
        add(update._replace(vector=BehindMask(update.vector, seed)), weight)

    def take_off(now, total):
        for entry in sums.waiting()[0].entries:
            words = mask(np.zeros(len(total), np.int32), entry.update.vector.seed)
            total = total - torch.from_numpy(words.view(np.int32))
        return reveal(now, total)

    monkeypatch.setattr(buffer, "add", add_masked)
    monkeypatch.setattr(sums, "reveal", take_off)
    return simulation


@pytest.mark.parametrize(
    "table",
    [
        "{ algorithm = 'fedbuff', buffer_size = 4, concurrency = 6 }",
        "{ algorithm = 'fedavg', cohort = 4, over_selection = 1.5, weighting = 'uniform' }",
        "{ algorithm = 'fednova', cohort = 4 }",
        "{ algorithm = 'fedlaavg', cohort = 4, weighting = 'uniform' }",
        "{ algorithm = 'mifa', weighting = 'uniform' }",
        "{ algorithm = 'async_comm_sgd', weighting = 'uniform', pattern = { name = 'random', p = 0.1 }, period = 5.0 }",
        "{ algorithm = 'fedluck', period = 5.0 }",
        "{ algorithm = 'fedluck', period = 5.0, normalise = true }",
    ],
)
def test_masked_runs_equal_plain_whole_numbers_bit_for_bit(simulation, table, monkeypatch):
    changes = (f"algorithms={{ mine = {table} }}", "server.lease_seconds=30.0", "population.when_away='lose'")
    plain = simulation(MASKED, *changes)
    finished(plain)
    masked = behind_masks(simulation(MASKED, *changes), monkeypatch)
    finished(masked)
    assert torch.equal(masked.model, plain.model)
    assert masked.coordinator.algorithm.version == 6


LOOSE = "{ helper = 'here', clip_norm = 1e3, min_clients = MIN, bits = 24 }"
NO_LOSS = "population.lossy={ fraction = 0.0, probability = 0.0 }"
FAST = "population.up_bytes_per_second={ distribution = 'constant', value = 1e12 }"


@pytest.mark.parametrize(
    ("table", "least"),
    [
        ("async_comm_sgd', weighting = 'uniform', pattern = { name = 'round_robin', k = 5, every = 1 }", 5),
        ("async_comm_sgd', weighting = 'uniform', pattern = { name = 'full', every = 3 }", 19),
        ("fedluck', steps = [2, 9]", 19),
        ("fedluck', steps = [2, 9], normalise = true", 19),
    ],
)
def test_with_enough_clients_in_each_sum_masked_periods_are_the_algorithm_itself(simulation, table, least, monkeypatch):
    """Up to rounding, and to speeds: a plain FedLuck plans by them, so it is not told any here."""
    monkeypatch.setattr(FedLuck, "note_speed", lambda *_: None)
    changes = (f"algorithms={{ mine = {{ algorithm = '{table}, period = 300.0 }} }}", FAST, NO_LOSS)
    masked = simulation(LOOSE.replace("MIN", str(least)), *changes)
    # In the plain run of this pattern there is a version in each round, also where no client talks.
    rounds = 18 if "full" in table else 6
    plain = simulation(None, *changes, versions=rounds)
    finished(masked)
    finished(plain)
    assert masked.coordinator.algorithm.round == plain.coordinator.algorithm.round == rounds
    step, length = 1e3 / (2**23 - 1), len(masked.model)
    assert plain.coordinator.statistics.counted == masked.coordinator.statistics.counted >= 30
    assert 0 < (masked.model - plain.model).norm().item() < 6 * 10 * step * math.sqrt(length)


@pytest.mark.parametrize(
    "table",
    [
        "async_comm_sgd', weighting = 'uniform', pattern = { name = 'random', p = 0.1 }, period = 5.0",
        "async_comm_sgd', weighting = 'uniform', pattern = { name = 'imbalanced' }, period = 5.0",
        "fedluck', period = 2.0",
    ],
)
def test_in_sums_of_any_size_are_enough_clients_and_each_once(simulation, table, monkeypatch):
    run = simulation(
        MASKED.replace("min_clients = 2", "min_clients = 4"),
        f"algorithms={{ mine = {{ algorithm = '{table} }} }}",
        "server.lease_seconds=30.0",
        "population.when_away='lose'",
        versions=25,
    )
    sums, starts = [], {}
    reveal = run.coordinator.sealed_sums.reveal

    def seen(now, total):
        updates = [entry.update for entry in run.coordinator.sealed_sums.waiting()[0].entries]
        sums.append([update.client for update in updates])
        for update in updates:  # as the helper asks
            assert update.version > starts.get(update.client, -1)
            assert update.version <= len(sums) - 1
            starts[update.client] = update.version
        return reveal(now, total)

    monkeypatch.setattr(run.coordinator.sealed_sums, "reveal", seen)
    finished(run)
    assert len(sums) == run.coordinator.algorithm.version == 25
    assert all(len(set(clients)) == len(clients) >= 4 for clients in sums)
    assert len({len(clients) for clients in sums}) > 1
    counts = run.coordinator.participation.counts()
    assert sum(map(len, sums)) <= sum(counts) <= sum(map(len, sums)) + CLIENTS
    assert run.coordinator.algorithm.round > 25 or "fedluck" in table  # rounds without a version


def test_speeds_are_not_used(simulation):
    run = simulation(MASKED, "algorithms={ mine = { algorithm = 'fedluck', period = 5.0 } }")
    finished(run)
    assert run.coordinator.algorithm.step_seconds == {}
    assert not run.coordinator.wants_speed(0)


@pytest.mark.parametrize("table", ["fedlaavg', cohort = 4", "mifa'"])
def test_the_average_of_masked_differences_is_that_of_the_clients_own_numbers(simulation, table):
    """Exactly, after many sums; and in every sum is one update of a client that was in an earlier one."""
    run = simulation(
        MASKED,
        f"algorithms={{ mine = {{ algorithm = '{table}, weighting = 'uniform' }} }}",
        "server.lease_seconds=30.0",
        "population.when_away='lose'",
        versions=15,
    )
    finished(run)
    buffer, remembered = run.coordinator.algorithm.buffer, run._masked.state_dict()
    assert len(remembered) > 10
    assert sum(run.coordinator.participation.counts()) > 2 * len(remembered)
    run.coordinator.algorithm.model  # noqa: B018 - opened sums are added as the model is read
    assert torch.equal(buffer._total, sum(numbers.long() for numbers in remembered.values()))
