import math
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offbeat.algorithms import FedFa, Update
from offbeat.algorithms.components.server_optimizer import adam, momentum
from tests.algorithms.case import Case, started
from tests.effort import cases

TOO_SMALL = ({"normaliser": 1e-39}, {"normaliser": np.float64(1e-310)})
CASES = [
    Case("fedfa", lambda: FedFa(window=4, server_lr=0.9, concurrency=4), places=4),
    Case("fedfa one by one", lambda: FedFa(window=1, concurrency=2, server_optimizer=momentum()), places=2),
    Case(
        "fedfa every second",
        lambda: FedFa(window=3, release_every=2, concurrency=6, server_optimizer=adam()),
        places=6,
    ),
    Case("fedfa normalising", lambda: FedFa(window=2, normalise=True, concurrency=5), places=5, also_broken=TOO_SMALL),
    Case("fedfa params", lambda: FedFa(window=3, transmit="params", concurrency=4), places=4),
]

LENGTH = 3


@pytest.fixture
def begin():
    return lambda model=(0.0,), **parameters: started(FedFa(**parameters), model)


@pytest.fixture
def visit(plan):
    """Return a function that gives work to a client and hands its update in at once; it says if that made a version."""

    def make(algorithm, *entries, client=0, a=1.0):
        vector = torch.tensor(entries, dtype=torch.float32) if isinstance(entries[0], int | float) else entries[0]
        algorithm.assign(client, plan)
        return algorithm.receive(Update(client, algorithm.version, vector, 1, math.ceil(a), a))

    return make


def play(rng, numbers, plan, algorithm, arrivals, a_of):
    """Assign, drop, hand in; yield each update that came and what ``receive`` answered."""
    clients, at_work = range(8), {}
    while arrivals > 0:
        idle = [client for client in clients if client not in at_work]
        if idle and algorithm.slots() > 0 and rng.random() < 0.6:
            client = rng.choice(idle)
            at_work[client] = algorithm.version
            algorithm.assign(client, plan)
        elif at_work:
            client = rng.choice(list(at_work))
            if rng.random() < 0.2:
                algorithm.drop(client, at_work[client])
                continue
            vector = torch.tensor(numbers.standard_normal(LENGTH), dtype=torch.float32)
            update = Update(client, at_work.pop(client), vector, rng.randint(1, 99), 1, rng.choice(a_of))
            arrivals -= 1
            yield update, algorithm.receive(update)


def test_deltas_by_hand(begin, visit):
    algorithm = begin(model=(100.0, 0.0), window=2)
    assert visit(algorithm, 2, 0) is False
    assert (algorithm.version, algorithm.model.tolist()) == (0, [100, 0])
    assert visit(algorithm, 4, 2) is True
    assert algorithm.model.tolist() == [97, -1]  # − (2 + 4, 0 + 2)/2
    assert visit(algorithm, 0, 8) is True
    assert algorithm.model.tolist() == [95, -6]  # − (4 + 0, 2 + 8)/2
    assert visit(algorithm, -2, 0) is True
    assert algorithm.model.tolist() == [96, -10]  # − (0 − 2, 8 + 0)/2
    assert algorithm.version == 3


def test_params_by_hand(begin, visit):
    algorithm = begin(model=(100.0, 0.0), window=2, transmit="params")
    assert visit(algorithm, 2, 0) is False
    assert (algorithm.version, algorithm.model.tolist()) == (0, [100, 0])
    assert visit(algorithm, 4, 2) is True
    assert algorithm.model.tolist() == [3, 1]
    assert visit(algorithm, 0, 8) is True
    assert algorithm.model.tolist() == [2, 5]
    assert visit(algorithm, 16, 0) is True
    assert algorithm.model.tolist() == [8, 4]
    assert algorithm.version == 3


@settings(max_examples=cases(100))
@given(
    seed=st.integers(0, 2**32),
    size=st.integers(1, 6),
    release_every=st.integers(1, 6),
    concurrency=st.integers(1, 6),
    transmit=st.sampled_from(["delta", "params"]),
    normalise=st.booleans(),
)
def test_random_arrivals_agree_with_a_window_in_numpy(
    plan, seed, size, release_every, concurrency, transmit, normalise
):
    release_every, normalise = min(release_every, size), normalise and transmit == "delta"
    server_lr = 0.7 if transmit == "delta" else 1.0
    algorithm = FedFa(
        window=size,
        transmit=transmit,
        server_lr=server_lr,
        release_every=release_every,
        concurrency=concurrency,
        normalise=normalise,
    )
    algorithm.start(torch.ones(LENGTH), 8)
    model, version, window, came = np.ones(LENGTH), 0, [], 0
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    for update, made in play(rng, numbers, plan, algorithm, 40, a_of=(0.0, 0.5, 1.0, 3.0, 7.0)):
        due = False
        if not normalise or update.normaliser > 0:
            window = [*window, (update.vector.numpy().astype(np.float64), update.normaliser)][-size:]
            came += 1
            due = came >= size and (came - size) % release_every == 0
        if due:
            vectors, a = (np.array(column) for column in zip(*window, strict=True))
            if transmit == "params":
                model = vectors.mean(axis=0)
            elif normalise:
                model = model - server_lr / size * a.mean() * (vectors / a[:, None]).sum(axis=0)
            else:
                model = model - server_lr / size * vectors.sum(axis=0)
            version += 1
        assert made is due
        assert algorithm.version == version
        np.testing.assert_allclose(algorithm.model.numpy(), model, rtol=1e-5, atol=1e-4 if normalise else 1e-5)


def test_normalised_deltas_by_hand(begin, visit):
    algorithm = begin(window=2, normalise=True)
    assert visit(algorithm, 4, a=4.0) is False
    assert visit(algorithm, 6, a=2.0) is True
    assert algorithm.model.tolist() == pytest.approx([-6])  # directions 1 and 3, their mean 2, times 3
    assert visit(algorithm, -4, a=8.0) is True
    assert algorithm.model.tolist() == pytest.approx([-12.25])  # 3 and −½, their mean 1¼, times 5


def test_a_client_without_a_step_does_not_enter_a_normalised_window(begin, visit, deferred, vector):
    algorithm, never = begin(window=2, normalise=True, concurrency=1), deferred(vector(1000))
    assert visit(algorithm, 4, a=2.0) is False
    assert visit(algorithm, never, a=0.0) is False
    assert algorithm.slots() == 1
    assert not algorithm.wants(0, 0)
    assert visit(algorithm, 8, a=2.0) is True
    assert algorithm.model.tolist() == [-6]
    assert visit(algorithm, never, a=0.0) is False
    assert (algorithm.version, algorithm.model.tolist()) == (1, [-6])
    assert never.resolved == 0


def test_a_failed_promise_is_resolved_again_and_the_window_moves_once(begin, visit, vector):
    class Failing:
        broken = True

        def resolve(self):
            if self.broken:
                raise RuntimeError("no power")
            return torch.tensor([4.0])

    algorithm, failing = begin(window=2), Failing()
    visit(algorithm, 8)
    visit(algorithm, 2)
    visit(algorithm, failing)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no power"):
            _ = algorithm.model
        with pytest.raises(RuntimeError, match="no power"):
            algorithm.state_dict()
    failing.broken = False
    assert algorithm.model.item() == -5 - 3
    visit(algorithm, 6)
    assert algorithm.model.item() == -8 - 5


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"window": 3, "release_every": 4}, "release_every must be at most the window, 3, got 4"),
        ({"transmit": "params", "server_lr": 0.5}, "are for transmit = 'delta'"),
        ({"transmit": "params", "normalise": True}, "are for transmit = 'delta'"),
        ({"transmit": "params", "server_optimizer": adam()}, "are for transmit = 'delta'"),
    ],
)
def test_hyper_parameters_that_do_not_go_together_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        FedFa(**parameters)


def test_the_window_and_the_payload_follow_from_the_hyper_parameters():
    assert (FedFa().payload, FedFa(transmit="params").payload) == ("delta", "params")
    assert (FedFa(window=5, release_every=3).buffer.size, FedFa(window=5, release_every=3).buffer.releases) == (5, 2)
