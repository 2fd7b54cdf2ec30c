import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from offbeat.algorithms import AREA
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
