"""The theory of FedLaAvg, for the algorithm as it runs under the coordinator."""

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offbeat.algorithms import FedAvg, FedLaAvg
from offbeat.coordinator import Coordinator
from offbeat.theory import fedavg_example_limit, fedlaavg_example_bound, fedlaavg_max_staleness


class Driver:
    """A coordinator, and clients that are there in some rounds and hand in at once."""

    def __init__(self, algorithm, plan, clients, start=0.0):
        self.algorithm = algorithm
        self.coordinator = Coordinator(algorithm, torch.tensor([start]), clients=clients, local=plan, lease_seconds=0.5)
        self.clients = clients
        self.now = 0.0
        self.last = [0] * clients  # R_i, of rounds that count from 1
        self.updates = [0.0] * clients

    def play(self, available, update=lambda client, model: 0.0):
        """Play one round with those that are available; ``update`` is what one makes of a model."""
        for client in range(self.clients):
            at = self.coordinator.present if client in available else self.coordinator.absent
            at(self.now, client)
        number, model = self.algorithm.version, self.algorithm.model.item()
        for client, visit, version, _, _, since, _ in self.coordinator.assign(self.now):
            assert version == number
            assert since == (self.last[client] - 1 if self.last[client] else None)
            made = update(client, model)
            change = made - self.updates[client] if self.algorithm.payload == "difference" else made
            vector = torch.tensor([change], dtype=torch.float32)
            sent = {"examples": 1, "steps": 1, "normaliser": 1.0, "since": since}
            assert self.coordinator.receive(self.now, client, visit, vector, **sent).counted
            self.updates[client], self.last[client] = made, number + 1
        self.now += 1
        self.coordinator.lapse(self.now)  # of fewer than K that are there nobody waits for the others
        assert self.algorithm.version == number + 1

    @property
    def oldest(self):
        """The largest r − R_i."""
        return self.algorithm.version - min(self.last)


@settings(max_examples=40)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 5), st.integers(0, 99))
def test_lemma_2_bounds_the_age_of_updates(plan, clients, cohort, every, seed):
    rng, cohort, away = random.Random(seed), min(cohort, clients), [0] * clients
    limit = fedlaavg_max_staleness(clients=clients, cohort=cohort, available_every=every)
    assert limit == math.ceil(clients / cohort) * every - 1
    driver = Driver(FedLaAvg(cohort=cohort), plan, clients)
    for _ in range(40):
        there = [i for i in range(clients) if away[i] == every - 1 or rng.random() < 0.2] or [rng.randrange(clients)]
        away = [0 if i in there else away[i] + 1 for i in range(clients)]
        driver.play(there)
        assert driver.oldest <= limit


@pytest.mark.parametrize(("clients", "cohort", "every"), [(6, 2, 1), (6, 2, 3), (5, 3, 4), (8, 3, 2), (4, 2, 5)])
def test_lemma_2_is_tight(plan, clients, cohort, every):
    # The last client keeps the rounds going in which nobody else is there.
    driver, oldest = Driver(FedLaAvg(cohort=cohort), plan, clients), []
    for r in range(1, 60):
        driver.play(range(clients) if r % every == 0 else [clients - 1])
        oldest.append(driver.oldest)
    assert max(oldest) == math.ceil(clients / cohort) * every - 1


def example(algorithm, plan, *, lr, first_rounds, second_rounds, centres, rounds, start=0.0):
    """Return x_0, x_1, … in the paper's Example 1: f_i = (x − e_i)², one exact step, the clients there in turn."""
    driver = Driver(algorithm, plan, 2, start)
    models = [start]
    for number in range(rounds):
        client = 0 if number % (first_rounds + second_rounds) < first_rounds else 1
        driver.play([client], lambda client, model: lr * 2 * (model - centres[client]))
        models.append(algorithm.model.item())
    return models


@pytest.mark.parametrize(("lr", "first_rounds", "second_rounds"), [(0.1, 3, 1), (0.01, 20, 5), (0.3, 1, 4)])
def test_fedlaavg_is_right_where_fedavg_is_wrong(plan, lr, first_rounds, second_rounds):
    setting = {"lr": lr, "first_rounds": first_rounds, "second_rounds": second_rounds}
    periods = math.ceil(10 / (lr * (first_rounds + second_rounds)))
    rounds = periods * (first_rounds + second_rounds)
    wrong = example(FedAvg(cohort=1), plan, **setting, centres=(1.0, -1.0), rounds=rounds)[-1]
    q, t1, t2, e1, e2 = 1 - 2 * lr, first_rounds, second_rounds, 1.0, -1.0
    limit = (q**t2 * (e1 - e2) + e2 - e1 * q ** (t1 + t2)) / (1 - q ** (t1 + t2))
    assert wrong == pytest.approx(limit, abs=1e-4)
    assert wrong == pytest.approx(fedavg_example_limit(**setting, first_centre=1, second_centre=-1), abs=1e-4)
    assert abs(wrong) > 0.3
    # A constant step must be small beside the clients' turns; then the right point is a fixed point.
    small = {**setting, "lr": 0.02}
    right = example(FedLaAvg(cohort=1), plan, **small, centres=(1.0, -1.0), rounds=1500)
    assert max(map(abs, right[-50:])) < 1e-3


@settings(max_examples=15)
@given(
    rounds=st.integers(2, 150),
    start=st.floats(-5, 5),
    first_rounds=st.integers(1, 8),
    second_rounds=st.integers(1, 8),
    centres=st.tuples(st.floats(-5, 5), st.floats(-5, 5)),
)
def test_theorem_1_bounds_the_error_in_the_example(plan, rounds, start, first_rounds, second_rounds, centres):
    turns = {"first_rounds": first_rounds, "second_rounds": second_rounds}
    lr, best = 1 / (2 * math.sqrt(rounds)), sum(centres) / 2
    models = example(FedLaAvg(cohort=1), plan, **turns, lr=lr, centres=centres, rounds=rounds, start=start)
    error = sum((model - best) ** 2 for model in models[:-1]) / rounds
    bound = fedlaavg_example_bound(
        rounds=rounds, start=start, **turns, first_centre=centres[0], second_centre=centres[1]
    )
    assert error <= bound.value * (1 + 1e-5) + 1e-9
