import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offbeat.algorithms import AsyncCommSGD, Update
from offbeat.algorithms.components.schedules.patterns import full, imbalanced, own, random, round_robin
from offbeat.algorithms.components.server_optimizer import momentum
from offbeat.algorithms.components.step_sizes import inverse_square_root, inverse_time
from offbeat.coordinator import Coordinator
from tests.algorithms.case import Case


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
        algorithm = AsyncCommSGD(**parameters)
        algorithm.start(torch.tensor(model), clients, data_weights)
        return algorithm

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


def test_the_optimiser_takes_its_step_from_the_average(begin, plan, upload):
    algorithm = begin(clients=1, pattern=full(), server_optimizer=momentum(beta=0.5))
    for version, expected in [(0, -2), (1, -5)]:  # m = 2, then 1 + 2
        algorithm.assign(0, plan)
        algorithm.receive(upload(0, version, 2))
        algorithm.tick()
        assert algorithm.model.item() == pytest.approx(expected)


def test_a_visit_has_the_steps_and_step_sizes_of_its_rounds(begin, plan, upload):
    algorithm = begin(clients=3, pattern=imbalanced(), step_sizes=inverse_square_root(1.0))
    local = replace(plan, steps=2, weight_decay=0.1)
    assert algorithm.assign(0, local) == replace(local, steps=2, lr=(1.0, 1.0))
    half = 1 / math.sqrt(2)
    assert algorithm.assign(1, local) == replace(local, steps=4, lr=(1.0, 1.0, half, half))
    algorithm.tick()
    third = 1 / math.sqrt(3)
    assert algorithm.assign(2, local) == replace(local, steps=4, lr=(half, half, third, third))


def test_without_step_sizes_it_is_the_runs(begin, plan):
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


def test_an_early_update_waits_for_its_round_and_so_does_its_client(begin, plan, upload):
    algorithm = begin(clients=2, pattern=own(lambda client, last, clients: last + 3 - client, longest_gap=3))
    algorithm.assign(0, plan)
    algorithm.assign(1, plan)
    algorithm.receive(upload(0, 0, 2))
    for number in range(3):
        assert (algorithm.version, algorithm.model.item()) == (number, 0)
        assert (algorithm.slots(), may_return(algorithm, 0), may_return(algorithm, 1)) == (0, False, True)
        with pytest.raises(ValueError, match="client 0 cannot be assigned before round "):
            algorithm.assign(0, plan)
        algorithm.tick()
    assert (algorithm.model.item(), algorithm.slots(), may_return(algorithm, 0)) == (-1, 1, True)
    assert algorithm.assign(0, plan).steps == 3


def test_a_late_update_counts_in_the_next_round(begin, plan, upload):
    algorithm = begin(clients=2, pattern=full(2))
    algorithm.assign(0, plan)
    for _ in range(3):
        algorithm.tick()
    algorithm.receive(upload(0, 0, 2))
    assert (algorithm.model.item(), may_return(algorithm, 0), algorithm.slots()) == (0, False, 1)
    algorithm.tick()
    assert (algorithm.model.item(), may_return(algorithm, 0), algorithm.slots()) == (-1, True, 2)
    assert algorithm.assign(0, plan).steps == 2


def test_a_lost_client_frees_its_slot_and_counts_should_it_come(begin, plan, upload):
    algorithm = begin(clients=2, pattern=full(1))
    algorithm.assign(0, plan)
    assert algorithm.slots() == 1
    assert [algorithm.drop(0, 0), algorithm.slots(), algorithm.wants(0, 0)] == [False, 2, True]
    algorithm.tick()
    algorithm.receive(upload(0, 0, 2))
    assert algorithm.slots() == 1
    algorithm.tick()
    assert (algorithm.model.item(), algorithm.slots()) == (-1, 2)


def test_new_work_replaces_what_was_lost(begin, plan, upload):
    algorithm = begin(clients=2, pattern=full(2))
    algorithm.assign(0, plan)
    algorithm.drop(0, 0)
    algorithm.tick()
    assert algorithm.assign(0, plan).steps == 1
    assert [algorithm.wants(0, 0), algorithm.receive(upload(0, 0, 100)), algorithm.slots()] == [False, False, 1]
    algorithm.receive(upload(0, 1, 2))
    algorithm.tick()
    assert algorithm.model.item() == -1


def test_a_round_in_which_nobody_talks_makes_a_version_too(begin):
    algorithm = begin()
    assert [algorithm.tick() for _ in range(3)] == [True] * 3
    assert (algorithm.version, algorithm.round, algorithm.model.item()) == (3, 3, 0)


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


def test_nothing_is_computed_before_it_is_read(begin, plan, deferred, vector):
    algorithm, promises = begin(clients=1, pattern=full(1), average=True), []
    for version in range(3):
        algorithm.assign(0, plan)
        promises.append(deferred(vector(1)))
        algorithm.receive(Update(0, version, promises[-1], 1, 1, 1.0))
        algorithm.tick()
    assert [promise.resolved for promise in promises] == [0, 0, 0]
    # x = 0, −1, −2, −3 with the weights 1, 4, 9, 16.
    assert algorithm.result.item() == pytest.approx(-(4 + 18 + 48) / 30)
    assert [promise.resolved for promise in promises] == [1, 1, 1]


def test_under_the_coordinator_clients_return_in_the_rounds_in_which_they_talk(plan):
    algorithm = AsyncCommSGD(pattern=imbalanced())
    coordinator = Coordinator(algorithm, torch.zeros(1), clients=3, local=plan)
    begun = {0: [], 1: [], 2: []}
    for now in range(13):
        for client in range(3):
            coordinator.present(now, client)
        for client, visit, version, *_ in coordinator.assign(now):
            assert version == now
            begun[client].append(now)
            vector = torch.ones(1)
            coordinator.receive(now + 0.5, client, visit, vector, examples=1, steps=1, normaliser=1.0)  # early
            coordinator.present(now + 0.5, client)
        assert coordinator.assign(now + 0.7) == []
        coordinator.tick(now + 1)
    assert begun == {0: list(range(13)), 1: [0, 2, 4, 6, 8, 10, 12], 2: [0, 3, 6, 9, 12]}
    assert algorithm.model.item() == pytest.approx(-(13 + 6 + 4) / 3)


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


@settings(max_examples=80)
@given(
    script=st.lists(STEPS, min_size=10, max_size=80),
    pattern=st.sampled_from([full(2), round_robin(k=1, every=2), random(p=0.3), imbalanced()]),
)
def test_whatever_comes_it_agrees_with_a_plain_table_and_with_a_reloaded_one(begin, plan, same_state, script, pattern):
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


def test_a_run_that_does_not_fit_is_refused_and_changes_nothing(begin, same_state):
    algorithm = begin(model=(1.0, 2.0))
    algorithm.tick()
    before = algorithm.state_dict()
    for clients, weights, message in [
        (0, None, "clients"),
        (3, torch.ones(2), "data_weights must be 3 finite numbers"),
    ]:
        with pytest.raises(ValueError, match=message):
            algorithm.start(torch.ones(7), clients, weights)
        assert same_state(algorithm.state_dict(), before)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"period": 0.0}, "period must be greater than 0, got 0.0"),
        ({"period": math.inf}, "period"),
        ({"server_lr": -1.0}, "server_lr must be greater than 0"),
        ({"weighting": "size"}, "weighting must be 'examples' or 'uniform', got 'size'"),
    ],
)
def test_hyper_parameters_out_of_range_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        AsyncCommSGD(**parameters)


def test_defaults_and_what_it_asks_of_its_driver():
    algorithm = AsyncCommSGD()
    assert (algorithm.pattern, algorithm.step_sizes, algorithm.average) == (round_robin(k=2, every=1), None, False)
    assert (algorithm.name, algorithm.payload, algorithm.buffer.linear) == ("async_comm_sgd", "delta", True)
    assert (algorithm.period, algorithm.server_lr, algorithm.weighting) == (1.0, 1.0, "examples")
    assert AsyncCommSGD(period=7.5).period == 7.5
