import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offbeat.algorithms import FedLaAvg, Update
from offbeat.algorithms.components.server_optimizer import adam
from tests.algorithms.case import Case, started
from tests.effort import cases

CASES = [
    Case("fedlaavg", lambda: FedLaAvg(cohort=2, server_lr=0.9), places=2, also_broken=({"since": 10**6},)),
    Case(
        "fedlaavg everybody",
        lambda: FedLaAvg(cohort=6, server_optimizer=adam()),
        places=6,
        also_broken=({"since": -1},),
    ),
    Case(
        "fedlaavg keeping",
        lambda: FedLaAvg(cohort=3, server_keeps_updates=True),
        places=3,
        also_broken=({"since": -1},),
    ),
]


@pytest.fixture(scope="module")
def begin():
    """Return a function that starts FedLaAvg."""

    def make(clients=4, model=(0.0,), data_weights=None, **parameters):
        return started(FedLaAvg(**{"cohort": 2} | parameters), model, clients, data_weights)

    return make


@pytest.fixture
def visit(plan):
    """Return a function that lets a client be assigned and heard at once."""

    def run(algorithm, client, *change, since=None):
        algorithm.assign(client, plan)
        return algorithm.receive(difference(client, algorithm.version, *change, since=since))

    return run


def difference(client, version, *change, since=None):
    return Update(client, version, torch.tensor(change, dtype=torch.float32), 1, 1, 1.0, since=since)


def average(algorithm):
    return algorithm.state_dict()["buffer.average"].tolist()


@pytest.mark.parametrize(("server_lr", "expected"), [(1.0, [-3.0, -7.5, -13.0]), (0.5, [-1.5, -3.75, -6.5])])
def test_three_rounds_by_hand(begin, visit, server_lr, expected):
    algorithm, models = begin(server_lr=server_lr), []
    # u_0 … u_3 after each round: 4 8 0 0, then 6 8 4 0, then 6 10 4 2; a quarter of their sums is 3, 4.5, 5.5.
    for heard in ([(0, 4, None), (1, 8, None)], [(2, 4, None), (0, 6 - 4, 0)], [(3, 2, None), (1, 10 - 8, 0)]):
        made = [visit(algorithm, client, change, since=since) for client, change, since in heard]
        assert made == [False, True]
        models.append(algorithm.model.item())
    assert models == expected
    assert average(algorithm) == [5.5]


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [({}, [-(1 * 4 + 3 * 8) / 8, 0.0]), ({"weighting": "uniform"}, [-(4 + 8) / 4, 0.0])],
)
def test_a_client_counts_by_its_share_of_the_objective(begin, visit, parameters, expected):
    algorithm = begin(model=(0.0, 0.0), data_weights=torch.tensor([1, 3, 0, 4]), **parameters)
    visit(algorithm, 0, 4.0, 0.0)
    visit(algorithm, 1, 8.0, 0.0)
    assert algorithm.model.tolist() == expected


def test_the_average_keeps_small_updates_beside_huge_ones(begin, visit):
    algorithm = begin(clients=2, cohort=1)
    visit(algorithm, 0, 2.0**30)
    visit(algorithm, 1, 1.0)
    visit(algorithm, 0, -(2.0**30), since=0)
    assert average(algorithm) == [0.5]


def test_kept_updates_are_not_chains_of_promises(begin, visit, deferred, vector, plan):
    algorithm, promises = begin(clients=1, cohort=1, server_keeps_updates=True), []
    for version in range(1200):
        algorithm.assign(0, plan)
        promises.append(deferred(vector(1)))
        algorithm.receive(Update(0, version, promises[-1], 1, 1, 1.0, since=version - 1 if version else None))
    visit(algorithm, 0, 7.0)
    assert average(algorithm) == [7]
    assert {promise.resolved for promise in promises} == {1}


def test_kept_updates_have_no_graph_and_the_right_length(begin, plan, deferred):
    algorithm = begin(clients=1, cohort=1, model=(0.0, 0.0), server_keeps_updates=True)
    algorithm.assign(0, plan)
    algorithm.receive(Update(0, 0, torch.ones(2, requires_grad=True), 1, 1, 1.0))
    assert not algorithm.state_dict()["buffer.kept"].requires_grad
    algorithm.assign(0, plan)
    algorithm.receive(Update(0, 1, deferred(torch.ones(1)), 1, 1, 1.0, since=0))
    with pytest.raises(ValueError, match=r"shape \(2,\)"):
        algorithm.state_dict()


class Clients:
    """Six clients, and what the server should have of them; a forgetful one loses its last counted update."""

    def __init__(self, seed):
        self.numbers = np.random.default_rng(seed)
        self.latest = np.zeros((6, 3))  # u_i^{R_i}
        self.since = [None] * 6  # R_i
        self.forgetful = set()

    def upload(self, client, version):
        """Return what the client sends; that it counted it learns from ``count``."""
        update = self.numbers.standard_normal(3)
        if client in self.forgetful:
            return update, difference(client, version, *update)
        return update, difference(client, version, *(update - self.latest[client]), since=self.since[client])

    def count(self, client, version, update):
        self.latest[client], self.since[client] = update, version
        self.forgetful.discard(client)


@settings(max_examples=cases(50))
@given(
    seed=st.integers(0, 2**32),
    cohort=st.integers(1, 6),
    loss=st.sampled_from([0.0, 0.3, 0.8]),
    weighted=st.booleans(),
    keeps=st.booleans(),
)
def test_random_rounds_agree_with_numpy(begin, plan, same_state, seed, cohort, loss, weighted, keeps):
    rng, clients, model = random.Random(seed), Clients(seed), np.ones(3)
    weights = torch.tensor([rng.random() for _ in range(6)]) if weighted else None
    shares = np.full(6, 1 / 6) if weights is None else (weights / weights.sum()).numpy()
    parameters = {"cohort": cohort, "server_lr": 0.7, "server_keeps_updates": keeps}
    algorithm, twin = (begin(6, (1.0, 1.0, 1.0), weights, **parameters) for _ in range(2))
    for number in range(12):
        version, there, missed = algorithm.version, rng.sample(range(6), rng.randint(1, cohort)), []
        for client in there:
            algorithm.assign(client, plan)
            twin.assign(client, plan)
        for client in there:
            if keeps and rng.random() < 0.2:
                clients.forgetful.add(client)
            fate = "arrives" if rng.random() >= loss else rng.choice(["lost", "late"])
            if fate != "arrives":
                assert algorithm.drop(client, version) == twin.drop(client, version) == (algorithm.version > version)
            if fate != "lost" and algorithm.wants(client, version):
                update, upload = clients.upload(client, version)
                assert algorithm.receive(upload) == twin.receive(upload) == (algorithm.version > version)
                clients.count(client, version, update)
            else:
                missed.append(client)
            if rng.random() < 0.3:
                state, twin = twin.state_dict(), FedLaAvg(**parameters)
                twin.load_state_dict(state)
            assert same_state(algorithm.state_dict(), twin.state_dict())
        if algorithm.round == number:  # somebody is still to be asked
            assert algorithm.tick() == twin.tick() == (algorithm.version > version)
        assert algorithm.round == twin.round == number + 1
        assert algorithm.version == version + (version in clients.since)
        for client in missed:
            assert algorithm.receive(clients.upload(client, version)[1]) is False
        if version in clients.since:
            model -= 0.7 * shares @ clients.latest
        np.testing.assert_allclose(average(algorithm), shares @ clients.latest, atol=1e-5)
        np.testing.assert_allclose(algorithm.model.numpy(), model, atol=1e-4)
