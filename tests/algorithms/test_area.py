import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from offbeat.algorithms import AREA, FedAvg, FedFa
from offbeat.coordinator import Coordinator
from tests.algorithms.case import PLAN, Case

CASES = [
    Case("area", lambda: AREA(concurrency=3), places=3),
    Case("area in twos", lambda: AREA(buffer_size=2, concurrency=6, weighting="uniform"), places=6),
]


def test_four_arrivals_by_hand(plan, upload):
    algorithm = AREA(weighting="uniform", concurrency=2)
    algorithm.start(torch.tensor([10.0]), clients=4)
    for client in (0, 1):
        algorithm.assign(client, plan)
    assert algorithm.receive(upload(0, 0, 2)) is True
    assert algorithm.model.tolist() == [8]  # (2 + 10 + 10 + 10) / 4: those that were never heard count with w_0
    algorithm.assign(0, plan)
    assert algorithm.receive(upload(0, 1, 6)) is True
    assert algorithm.model.tolist() == [9]  # (6 + 10 + 10 + 10) / 4: the new model of client 0 replaces its old one
    assert algorithm.receive(upload(1, 0, 18)) is True
    assert algorithm.model.tolist() == [11]  # (6 + 18 + 10 + 10) / 4: two versions old, and counts in full


def test_a_client_twice_in_a_buffer_counts_with_its_later_model(plan, upload):
    algorithm = AREA(buffer_size=2, weighting="uniform", concurrency=1)
    algorithm.start(torch.tensor([0.0]), clients=2)
    for model in (100, 4):
        algorithm.assign(0, plan)
        algorithm.receive(upload(0, 0, model))
    assert algorithm.model.tolist() == [2]


def test_shares_are_those_of_the_objective(plan, upload):
    algorithm = AREA(concurrency=2)
    algorithm.start(torch.tensor([0.0]), clients=2, data_weights=torch.tensor([3.0, 1.0]))
    algorithm.assign(0, plan)
    algorithm.receive(upload(0, 0, 8))
    assert algorithm.model.tolist() == [6]


def test_a_random_script_of_arrivals_agrees_with_numpy(plan, upload):
    """The paper's algorithm: clients keep y_i and upload x_i − y_i, the server has x and the sum of a buffer."""
    numbers = np.random.default_rng(3)
    algorithm = AREA(buffer_size=3, weighting="uniform", concurrency=4)
    start = numbers.standard_normal(4)
    algorithm.start(torch.tensor(start, dtype=torch.float32), clients=6)
    memory, model, aggregate, at_work = np.tile(start, (6, 1)), start.copy(), np.zeros(4), {}
    for number in range(1, 301):
        while algorithm.slots() > 0:
            client = int(numbers.choice([client for client in range(6) if client not in at_work]))
            algorithm.assign(client, plan)
            at_work[client] = algorithm.version, model.copy()
        client = int(numbers.choice(list(at_work)))
        version, begin = at_work.pop(client)
        end = 0.7 * begin + 0.3 * numbers.standard_normal(4)  # drawn to a random point, so that it depends on x
        assert algorithm.receive(upload(client, version, *end)) is (number % 3 == 0)
        aggregate += (end - memory[client]) / 6
        memory[client] = end
        if number % 3 == 0:
            model, aggregate = model + aggregate, np.zeros(4)
        np.testing.assert_allclose(algorithm.model.numpy(), model, atol=1e-5)
    assert algorithm.version == 100


@given(
    calls=st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from(["arrives", "twice", "late", "lost", "restart"])), max_size=40
    ),
    size=st.sampled_from([1, 3]),
    data_weights=st.lists(st.integers(1, 9), min_size=5, max_size=5),
)
def test_the_model_is_the_average_of_the_models_sent_last(calls, size, data_weights):
    """The paper's invariant, x = Σ p_i y_i, whatever is lost, late, sent twice or interrupted by a restart."""
    weights = torch.tensor(data_weights, dtype=torch.float32)

    def coordinator():
        algorithm = AREA(buffer_size=size, concurrency=5)
        return Coordinator(algorithm, torch.ones(2), clients=5, local=PLAN, data_weights=weights)

    shares = np.array(data_weights) / sum(data_weights)
    run, last, counted, visits = coordinator(), np.ones((5, 2)), 0, {}
    for number, (client, call) in enumerate(calls):
        for free in range(5):
            if free not in visits:
                run.present(0.0, free)
        visits |= {one.client: one.visit for one in run.assign(0.0)}
        if call == "restart":
            state = run.state_dict()
            run = coordinator()
            run.load_state_dict(state)
            continue
        visit = visits.pop(client)
        if call in ("late", "lost"):  # the client has trained, and its upload does not arrive in time, or at all
            run.drop(0.0, client, visit)
        if call != "lost":
            vector = torch.tensor([number + 2.0, -number])
            for _ in range(1 + (call == "twice")):
                run.receive(0.0, client, visit, vector, examples=1, steps=1, normaliser=1.0)
            last[client] = vector
            counted += 1
        if counted % size == 0:
            np.testing.assert_allclose(run.algorithm.model.numpy(), shares @ last, rtol=1e-5, atol=1e-5)
    assert run.algorithm.version == counted // size


def test_fast_clients_do_not_move_the_fixed_point(plan, upload):
    """Two quadratics with the minima 0 and 1; one client is heard nine times as often as the other."""
    algorithm = AREA(weighting="uniform", concurrency=2)
    algorithm.start(torch.tensor([5.0]), clients=2)
    starts = [(5.0, 0), (5.0, 0)]
    for client in (0, 1):
        algorithm.assign(client, plan)
    for number in range(2000):
        client = int(number % 10 == 9)
        start, version = starts[client]
        algorithm.receive(upload(client, version, start - 0.1 * (start - client)))
        algorithm.assign(client, plan)
        starts[client] = algorithm.model.item(), algorithm.version
    assert algorithm.model.item() == pytest.approx(0.5, abs=1e-3)  # FedBuff with K = 1 would tend to 0.1


def test_with_all_clients_in_each_buffer_it_is_fedavg(plan, upload):
    """x = Σ p_i x_i = w − Σ p_i Δ_i if all start from w."""
    weights, numbers = torch.tensor([1.0, 2.0, 5.0]), np.random.default_rng(4)
    area, fedavg = AREA(buffer_size=3, concurrency=3), FedAvg(cohort=3)
    for algorithm in (area, fedavg):
        algorithm.start(torch.ones(2), 3, weights)
    for version in range(5):
        for client in (1, 0, 2):
            area.assign(client, plan)
            fedavg.assign(client, plan)
        for client in (2, 1, 0):
            end = torch.tensor(numbers.standard_normal(2), dtype=torch.float32)
            area.receive(upload(client, version, *end.tolist()))
            delta = (fedavg.model - end).tolist()
            fedavg.receive(upload(client, version, *delta, examples=int(weights[client])))
        torch.testing.assert_close(area.model, fedavg.model)


def test_with_clients_in_turn_it_is_fedfa(plan, upload):
    """FedFa's window of N models has one of each client then, the last."""
    numbers, version = np.random.default_rng(5), 0
    area, fedfa = AREA(weighting="uniform", concurrency=1), FedFa(window=4, transmit="params", concurrency=1)
    for algorithm in (area, fedfa):
        algorithm.start(torch.ones(1), 4)
    for number in range(20):
        value = float(numbers.standard_normal())
        for algorithm in (area, fedfa):
            algorithm.assign(number % 4, plan)
            algorithm.receive(upload(number % 4, algorithm.version, value))
        if number >= 3:  # FedFa waits until its window is full
            version += 1
            torch.testing.assert_close(area.model, fedfa.model)
    assert fedfa.version == version == 17


def test_a_refused_step_leaves_the_average_of_the_others(plan, upload):
    algorithm = AREA(weighting="uniform", concurrency=2)
    algorithm.start(torch.tensor([1.0]), clients=2)
    for client, version, value in ((0, 0, 1e30), (1, 1, 5.0), (0, 2, 3.0)):
        algorithm.assign(client, plan)
        algorithm.receive(upload(client, version, value))
        assert algorithm.model.tolist() == [{0: 1.0, 1: 3.0, 2: 4.0}[version]]
    assert list(algorithm.refused_steps) == [0]


def test_a_shortened_step_is_made_up_for(plan, upload):
    algorithm = AREA(weighting="uniform", concurrency=2)
    algorithm.max_step_norm = 2.0
    algorithm.start(torch.tensor([0.0]), clients=2)
    for version, value in enumerate([10.0, 10.0, 10.0]):
        algorithm.assign(0, plan)
        algorithm.receive(upload(0, version, value))
        assert algorithm.model.tolist() == [[2.0], [4.0], [5.0]][version]


def test_rounding_errors_do_not_add_up(plan, upload):
    algorithm = AREA(weighting="uniform", concurrency=1)
    algorithm.start(torch.tensor([0.0]), clients=3)
    for version, value in enumerate([*np.random.default_rng(6).normal(scale=1e4, size=999), 1, 1, 1]):
        algorithm.assign(version % 3, plan)
        algorithm.receive(upload(version % 3, version, value))
    assert algorithm.model.item() == pytest.approx(1, abs=1e-6)


def test_the_memory_grows_with_the_clients_that_were_heard(plan, upload):
    algorithm = AREA(concurrency=1)
    algorithm.start(torch.zeros(2), clients=1000)
    for version, client in enumerate([7, 5, 7]):
        algorithm.assign(client, plan)
        algorithm.receive(upload(client, version, 1, version))
    state = algorithm.state_dict()
    assert state["latest.latest_of"].tolist() == [5, 7]
    assert state["latest.latest"].tolist() == [[1, 1], [1, 2]]


@pytest.mark.parametrize("parameters", [{"buffer_size": 0}, {"concurrency": 0}, {"weighting": "all"}])
def test_hyper_parameters_out_of_range_are_refused(parameters):
    with pytest.raises(ValueError, match=next(iter(parameters))):
        AREA(**parameters)
