import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offbeat.algorithms import AsyncCommSGD, Update
from offbeat.algorithms.components.schedules.patterns import full, imbalanced, random, round_robin
from offbeat.algorithms.components.server_optimizer import momentum
from offbeat.algorithms.components.weights import inverse_square_root, inverse_time
from tests.algorithms.case import Case, started
from tests.effort import cases


def pattern_case(name, **parameters):
    return Case(
        f"async_comm_sgd {name}", lambda: AsyncCommSGD(**parameters), places=6, own_plan=True, idle_versions=True
    )


CASES = [
    pattern_case("round robin", pattern=round_robin(k=2), average=True),
    pattern_case("full", pattern=full(3), step_sizes=inverse_time(), server_optimizer=momentum()),
    pattern_case("random", pattern=random(p=0.4)),
    pattern_case("imbalanced", pattern=imbalanced(), average=True),
]


def may_return(algorithm, client):
    return algorithm.returns_in(client) == algorithm.round


@pytest.fixture(scope="module")
def begin():
    """Return a function that starts AsyncCommSGD."""

    def make(clients=4, model=(0.0,), data_weights=None, **parameters):
        return started(AsyncCommSGD(**parameters), model, clients, data_weights)

    return make


def test_two_rounds_by_hand(begin, plan, upload):
    algorithm = begin(pattern=round_robin(k=2))
    assert [algorithm.assign(client, plan).steps for client in range(4)] == [1, 1, 2, 2]
    assert [algorithm.receive(upload(client, 0, delta)) for client, delta in [(0, 4), (1, 8)]] == [False, False]
    assert (algorithm.version, algorithm.model.item()) == (0, 0)
    assert algorithm.tick() is True
    assert (algorithm.version, algorithm.model.item()) == (1, -3)  # over all four clients, not the two that talked
    assert [algorithm.assign(client, plan).steps for client in (0, 1)] == [2, 2]
    for client, delta in [(2, 1), (3, 3)]:
        algorithm.receive(upload(client, 0, delta))
    assert algorithm.tick() is True
    assert (algorithm.version, algorithm.model.item()) == (2, -4)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [({}, -(1 * 4 + 3 * 8) / 8), ({"weighting": "uniform"}, -3), ({"server_lr": 0.5}, -1.75)],
)
def test_a_client_counts_by_its_share_of_the_objective(begin, plan, upload, parameters, expected):
    algorithm = begin(pattern=full(), data_weights=torch.tensor([1, 3, 0, 4]), **parameters)
    for client, delta in enumerate([4, 8, 0, 0]):
        algorithm.assign(client, plan)
        algorithm.receive(upload(client, 0, delta))
    algorithm.tick()
    assert algorithm.model.item() == expected


def test_a_visit_has_the_steps_and_step_sizes_of_its_rounds(begin, plan, upload):
    algorithm = begin(clients=3, pattern=imbalanced(), step_sizes=inverse_square_root(1.0))
    local = replace(plan, steps=2, weight_decay=0.1)
    assert algorithm.assign(0, local) == replace(local, steps=2, lr=(1.0, 1.0))
    half = 1 / math.sqrt(2)
    assert algorithm.assign(1, local) == replace(local, steps=4, lr=(1.0, 1.0, half, half))
    algorithm.tick()
    third = 1 / math.sqrt(3)
    assert algorithm.assign(2, local) == replace(local, steps=4, lr=(half, half, third, third))


def test_without_step_sizes_the_runs_lr_is_used(begin, plan):
    assert begin(pattern=full(7)).assign(0, replace(plan, steps=3)) == replace(plan, steps=21)


@pytest.mark.parametrize(
    ("local", "message"),
    [
        ({"steps": 2, "lr": (0.1, 0.2)}, "give local.lr as one number"),
        ({"mu": 0.5}, "lr · mu must be less than 2, .* got 2.5"),
        ({"steps": 2**30}, "steps must be at most 2147483647"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused_and_changes_nothing(begin, plan, same_state, local, message):
    algorithm = begin(pattern=full(2), step_sizes=inverse_square_root(5.0))
    before = algorithm.state_dict()
    with pytest.raises(ValueError, match=message):
        algorithm.assign(0, replace(plan, **local))
    assert same_state(algorithm.state_dict(), before)


def test_the_averaged_iterate_by_hand(begin, plan, upload):
    algorithm = begin(clients=1, model=(1.0, 0.0), pattern=full(2), average=True)
    assert algorithm.result.tolist() == [1, 0]
    algorithm.assign(0, plan)
    algorithm.receive(upload(0, 0, 3, 6))
    algorithm.tick()
    assert algorithm.result.tolist() == [1, 0]
    algorithm.tick()
    # x = (1, 0), (1, 0), (−2, −6) with the weights 2², 3², 4².
    expected = [(4 + 9 - 2 * 16) / 29, -6 * 16 / 29]
    assert algorithm.model.tolist() == [-2, -6]
    assert algorithm.result.tolist() == pytest.approx(expected)
    assert algorithm.result.dtype == torch.float32


def test_the_result_is_the_model_unless_it_is_averaged(begin):
    algorithm = begin(model=(3.0,))
    algorithm.tick()
    assert torch.equal(algorithm.result, algorithm.model)
    assert algorithm.state_dict()["iterates"].shape == (0,)


class Table:
    """The algorithm written down plainly, for three clients: rounds, who is at work, who rests, and the sums."""

    def __init__(self, pattern):
        self.pattern = pattern
        self.version = 0
        self.at_work = {}  # client: version, round in which it talks
        self.lapsed = set()
        self.resting = {}  # client: round in which it counts
        self.waiting = []  # (round, share of the update)
        self.models = [np.ones(3)]

    @property
    def slots(self):
        return 3 - len(set(self.at_work) - self.lapsed) - len(self.resting)

    def assign(self, client):
        due = self.pattern.next_round(client, self.version, 3)
        self.at_work[client] = self.version, due
        self.lapsed.discard(client)
        return due - self.version

    def receive(self, client, delta):
        _, due = self.at_work.pop(client)
        self.lapsed.discard(client)
        self.resting[client] = due if due > self.version else self.version + 1
        self.waiting.append((self.resting[client], SHARES[client] * delta))

    def tick(self):
        self.version += 1
        talked = [delta for due, delta in self.waiting if due == self.version]
        self.models.append(self.models[-1] - 0.7 * sum(talked, np.zeros(3)))
        self.resting = {client: due for client, due in self.resting.items() if due > self.version}

    @property
    def average(self):
        weights = (self.pattern.longest_gap(3) + np.arange(self.version + 1)) ** 2
        return weights @ np.array(self.models) / weights.sum()


SHARES = (0.5, 0.125, 0.375)
STEPS = st.tuples(
    st.sampled_from(["assign"] * 4 + ["arrive"] * 3 + ["drop", "foreign", "reload"] + ["tick"] * 3),
    st.integers(0, 2),
    st.integers(0, 2**32),
)


@settings(max_examples=cases(80))
@given(
    script=st.lists(STEPS, min_size=10, max_size=80),
    pattern=st.sampled_from([full(2), round_robin(k=1, every=2), random(p=0.3), imbalanced()]),
)
def test_random_scripts_agree_with_a_plain_table(begin, plan, same_state, script, pattern):
    parameters = {"pattern": pattern, "server_lr": 0.7, "average": True}
    undisturbed, twin = (begin(3, (1.0, 1.0, 1.0), torch.tensor(SHARES) * 16, **parameters) for _ in range(2))
    table = Table(pattern)
    for kind, client, seed in script:
        both = (undisturbed, twin)
        version = table.at_work[client][0] if client in table.at_work else table.version
        if kind == "assign" and client not in table.resting:
            steps = table.assign(client)
            assert [algorithm.assign(client, plan).steps for algorithm in both] == [steps, steps]
        elif kind in ("arrive", "foreign"):
            delta = np.random.default_rng(seed).standard_normal(3)
            version = version if kind == "arrive" else seed % (table.version + 1)
            wanted = client in table.at_work and table.at_work[client][0] == version
            for algorithm in both:
                assert algorithm.wants(client, version) == wanted
                vector = torch.tensor(delta, dtype=torch.float32)
                assert algorithm.receive(Update(client, version, vector, 1, 1, 1.0)) is False
            if wanted:
                table.receive(client, delta)
        elif kind == "drop":
            assert [algorithm.drop(client, version) for algorithm in both] == [False, False]
            table.lapsed |= {client} & set(table.at_work)
        elif kind == "tick":
            assert [algorithm.tick() for algorithm in both] == [True, True]
            table.tick()
        elif kind == "reload":
            state, twin = twin.state_dict(), AsyncCommSGD(**parameters)
            twin.load_state_dict(state)
        for algorithm in (undisturbed, twin):
            assert (algorithm.version, algorithm.round, algorithm.slots()) == (
                table.version,
                table.version,
                table.slots,
            )
            assert [may_return(algorithm, client) for client in range(3)] == [i not in table.resting for i in range(3)]
        assert same_state(undisturbed.state_dict(), twin.state_dict())
    np.testing.assert_allclose(undisturbed.model.numpy(), table.models[-1], atol=1e-4)
    np.testing.assert_allclose(undisturbed.result.numpy(), table.average, atol=1e-4)
    assert torch.equal(undisturbed.result, twin.result)
