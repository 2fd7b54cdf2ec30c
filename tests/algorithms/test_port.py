import math
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offbeat.algorithms import Port, Update
from offbeat.algorithms.components.server_optimizer import adam
from tests.algorithms.case import Case
from tests.effort import cases

BAD_BASES = ({"base": None}, {"base": torch.zeros(4)}, {"base": torch.zeros(3, dtype=torch.float64)})
CASES = [
    Case("port", lambda: Port(min_clients=3, staleness_bound=1, concurrency=4), places=4, also_broken=BAD_BASES),
    Case(
        "port waiting",
        lambda: Port(min_clients=1, staleness_bound=2, urgent_requests=False, concurrency=5, server_optimizer=adam()),
        places=5,
        also_broken=BAD_BASES,
    ),
]


class Server:
    """A Port, its models so far, and who works from which version."""

    def __init__(self, plan, length=1, clients=9, **parameters):
        self.plan, self.port = plan, Port(**parameters)
        self.port.start(torch.zeros(length), clients)
        self.models, self.versions = [self.port.model], {}

    def assign(self, *clients):
        for client in clients:
            assert self.port.assign(client, self.plan) == self.plan
            self.versions[client] = self.port.version

    def receive(self, client, *entries, n=1):
        """Hand in what the client made of the model it started from; return whether that made a version."""
        version = self.versions[client]
        vector = torch.tensor(entries, dtype=torch.float32)
        return self.note(self.port.receive(Update(client, version, vector, n, 1, 1.0, base=self.models[version])))

    def drop(self, client):
        return self.note(self.port.drop(client, self.versions[client]))

    def note(self, made):
        if made:
            self.models.append(self.port.model)
        return made

    def advance(self, *entries):
        """Make a version of fresh updates only, with equal vectors."""
        fresh = range(9 - self.port.min_clients, 9)
        self.assign(*fresh)
        assert [self.receive(client, *entries) for client in fresh][-1] is True


@pytest.fixture
def begin(plan):
    return lambda **parameters: Server(plan, **parameters)


def test_two_steps_by_hand(begin):
    server = begin(length=2, min_clients=2, staleness_bound=1)
    server.assign(0, 1, 2)
    assert server.receive(0, 2, 1) is False
    assert server.receive(1, 2, -1) is True
    assert server.port.model.tolist() == [-2, 0]
    server.assign(3)
    # From w_0 on the model went along −x, and (0, 4) is at right angles to that: 3 · (½ + 1/(1 + 1)) = 3.
    assert server.receive(2, 0, 4, n=3) is False
    # A fresh one: 1 · (1 + 1) = 2.
    assert server.receive(3, 8, 0, n=1) is True
    assert server.port.model.tolist() == pytest.approx([-2 - 2 * 8 / 5, -3 * 4 / 5])
    assert server.port.version == 2


@pytest.mark.parametrize(
    ("entries", "similarity"),
    [
        ((5, 0), 1.0),
        ((1e-20, 0), 1.0),
        ((1e-30, 1e-30), (1 / math.sqrt(2) + 1) / 2),
        ((0, 3), 0.5),
        ((-1, 0), 0.0),
        ((-1.5e19, 1.5e19), (1 - 1 / math.sqrt(2)) / 2),  # the squares are infinite in 32 bits
        ((0, 0), 0.5),  # cos = 0 for a zero vector
    ],
)
@pytest.mark.parametrize(("a", "b", "bound"), [(2.0, 0.5, 4), (1.0, 0.0, 10)])
def test_a_stale_updates_weight_by_hand(entries, similarity, a, b, bound, begin):
    server = begin(
        length=3, min_clients=2, staleness_bound=bound, similarity_weight=a, staleness_weight=b, server_lr=0.5
    )
    server.assign(0)
    server.advance(1, 0, 0)
    server.assign(1)
    server.receive(0, *entries, 0, n=7)
    server.receive(1, 0, 0, 8, n=2)
    stale, fresh = 7 * (a * similarity + b * bound / (1 + bound)), 2 * (a + b)
    assert server.port.model[2].item() == pytest.approx(-0.5 * 8 * fresh / (stale + fresh), rel=1e-6)


@pytest.mark.parametrize("entries", [(0, 0), (3, 0), (-3, 0)])
def test_a_fresh_update_has_similarity_1(entries, begin):
    server = begin(length=2, min_clients=2, staleness_bound=3, similarity_weight=4.0)
    server.assign(0, 1)
    server.receive(0, *entries)
    server.receive(1, 0, 10)
    assert server.port.model.tolist() == [-entries[0] / 2, -5]


def test_an_update_is_compared_with_the_movement_since_its_version(begin):
    server = begin(length=3, min_clients=3, staleness_bound=9, staleness_weight=0.0)
    server.assign(0)
    server.advance(2, 0, 0)
    server.assign(1)
    server.advance(0, 2, 0)
    server.assign(2)
    server.receive(0, 6, 0, 0)  # w_0 − w_2 = (2, 2, 0): the cosine is 1/√2
    server.receive(1, 6, 0, 0)  # w_1 − w_2 = (0, 2, 0): the cosine is 0
    server.receive(2, 0, 0, 1)
    older, newer, fresh = (1 / math.sqrt(2) + 1) / 2, 1 / 2, 1
    assert server.port.model[2].item() == pytest.approx(-fresh / (older + newer + fresh))


@pytest.mark.parametrize("urgent_requests", [True, False])
def test_the_server_waits_for_stale_clients_or_requests_their_updates(urgent_requests, begin):
    server = begin(min_clients=1, staleness_bound=1, urgent_requests=urgent_requests)
    asked = [0] if urgent_requests else []
    server.assign(0, 1)
    assert server.receive(1, 1) is True  # client 0 is now 1 version old, as it may be
    assert list(server.port.urgent()) == []
    server.advance(1)
    assert list(server.port.urgent()) == asked
    server.assign(2, 3)
    assert server.receive(2, 1) is False
    assert server.receive(3, 1) is False
    assert server.port.version == 2
    assert list(server.port.urgent()) == asked
    assert server.receive(0, 1) is True
    assert list(server.port.urgent()) == []
    assert server.port.version == 3
    assert server.port.model.item() == pytest.approx(-3)  # p sums to 1 over all three


def test_losing_the_stale_client_lets_the_step_happen(begin):
    server = begin(min_clients=1, staleness_bound=1)
    server.assign(0, 1)
    server.advance(1)
    server.advance(1)  # 0 and 1 are too stale now
    assert list(server.port.urgent()) == [0, 1]
    server.assign(2)
    assert server.receive(2, 4) is False
    assert server.drop(0) is False
    assert list(server.port.urgent()) == [1]
    assert server.drop(1) is True
    assert server.drop(1) is False
    assert server.port.model.tolist() == [-6]
    assert list(server.port.urgent()) == []


def test_updates_against_the_models_movement_do_not_move_it(begin):
    server = begin(min_clients=1, staleness_weight=0.0)
    server.assign(0)
    server.advance(1)
    assert server.receive(0, -5) is True
    assert server.port.model.tolist() == [-1]


@settings(max_examples=cases(100))
@given(
    seed=st.integers(0, 2**32),
    min_clients=st.integers(1, 3),
    bound=st.integers(1, 3),
    weights=st.sampled_from([(1.0, 1.0), (0.0, 2.0), (3.0, 0.5)]),
)
def test_random_arrivals_agree_with_numpy(plan, seed, min_clients, bound, weights):
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    (a, b), server_lr = weights, 0.3
    port = Port(
        min_clients=min_clients,
        staleness_bound=bound,
        similarity_weight=a,
        staleness_weight=b,
        server_lr=server_lr,
        concurrency=5,
    )
    port.start(torch.ones(4), 8)
    models, bases, waiting, at_work, lapsed = [np.ones(4)], [port.model], [], {}, set()
    for _ in range(60):
        client, version = rng.randrange(8), len(models) - 1
        if client not in at_work and port.slots() > 0:
            port.assign(client, plan)
            at_work[client] = version
            continue
        if client not in at_work:
            continue
        if rng.random() < 0.15:
            lapsed.add(client)
            made = port.drop(client, at_work[client])
        else:
            own, delta, n = at_work.pop(client), numbers.standard_normal(4).astype(np.float32), rng.randint(1, 50)
            assert version - own <= bound + 1 or client in lapsed
            lapsed.discard(client)
            waiting.append((delta.astype(np.float64), own, n))
            made = port.receive(Update(client, own, torch.tensor(delta), n, 1, 1.0, base=bases[own]))
        stale = {other for other, own in at_work.items() if version - own > bound and other not in lapsed}
        assert made is (len(waiting) >= min_clients and not stale)
        if made:
            p = []
            for delta, own, n in waiting:
                way = models[own] - models[version]
                cosine = 1 if own == version else delta @ way / np.linalg.norm(delta) / np.linalg.norm(way)
                p.append(n * (a * (cosine + 1) / 2 + b * bound / (version - own + bound)))
            mean = np.average([delta for delta, _, _ in waiting], axis=0, weights=p)
            models.append(models[version] - server_lr * mean)
            bases.append(port.model)
            waiting = []
            np.testing.assert_allclose(port.model.numpy(), models[-1], rtol=0, atol=1e-4)
        late = {other for other, own in at_work.items() if port.version - own > bound} - lapsed
        assert set(port.urgent()) == late


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"similarity_weight": 0.0, "staleness_weight": 0.0}, "are both 0: raise one of them"),
        ({"min_clients": 5, "concurrency": 4}, "min_clients must be at most concurrency, 4, got 5"),
    ],
)
def test_hyper_parameters_that_do_not_go_together_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        Port(**parameters)


def test_min_clients_is_at_most_the_number_of_clients():
    with pytest.raises(ValueError, match="min_clients must be at most the number of clients, 4, got 5"):
        Port(min_clients=5).start(torch.zeros(1), 4)
    port = Port(min_clients=4, concurrency=10)
    port.start(torch.zeros(1), 4)
    assert port.slots() == 4
