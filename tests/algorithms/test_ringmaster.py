import numpy as np
import pytest
import torch

from offbeat.algorithms import RingmasterASGD
from tests.algorithms.case import Case

CASES = [
    Case("ringmaster", lambda: RingmasterASGD(delay_bound=2, concurrency=4), places=4, delay_bound=2),
    Case(
        "ringmaster without stops",
        lambda: RingmasterASGD(delay_bound=3, stops=False, concurrency=6),
        places=6,
        delay_bound=3,
    ),
]


def test_an_update_at_the_bound_is_unused_by_hand(begin, plan, upload):
    algorithm = begin(RingmasterASGD(delay_bound=2, server_lr=0.5, concurrency=3), (10.0,))
    assert algorithm.receive(upload(0, 0, 4)) is True
    assert list(algorithm.cancelled()) == []
    assert algorithm.receive(upload(1, 0, 8)) is True  # τ = 1 < 2
    assert algorithm.model.tolist() == [4]
    assert list(algorithm.cancelled()) == [2]  # τ would be 2
    assert (algorithm.wants(2, 0), algorithm.wants_all) == (False, False)
    assert algorithm.receive(upload(2, 0, 100)) is False
    assert (algorithm.model.tolist(), algorithm.version) == ([4], 2)
    algorithm.drop(2, 0)
    assert list(algorithm.cancelled()) == []
    algorithm.assign(2, plan)
    assert algorithm.receive(upload(2, 2, 2)) is True
    assert algorithm.model.tolist() == [3]


def test_without_stops_no_client_is_cancelled(begin, upload):
    algorithm = begin(RingmasterASGD(delay_bound=1, stops=False, concurrency=2))
    algorithm.receive(upload(0, 0, 1))
    assert not algorithm.cancelled()
    assert not algorithm.wants(1, 0)


@pytest.mark.parametrize("stops", [True, False])
def test_a_random_script_of_arrivals_agrees_with_numpy(stops, plan, upload):
    """The paper's Algorithms 5 and 4: workers of very different speeds, whose gradients depend on their own models."""
    numbers = np.random.default_rng(7)
    algorithm = RingmasterASGD(delay_bound=4, server_lr=0.2, stops=stops, concurrency=6)
    algorithm.start(torch.zeros(3), clients=6)
    seconds, model, step, unused = np.array([1, 1.3, 1.7, 4, 9, 30]), np.zeros(3), 0, 0
    for client in range(6):
        algorithm.assign(client, plan)
    ends, starts = seconds.copy(), [(0, model)] * 6
    for _ in range(300):
        client = int(ends.argmin())
        now, (version, point) = ends[client], starts[client]
        gradient = point - numbers.standard_normal(3)
        assert algorithm.receive(upload(client, version, *gradient)) is (step - version < 4)
        finished = {client}
        if step - version < 4:
            model, step = model - 0.2 * gradient, step + 1
            if stops:
                finished |= {other for other in range(6) if step - starts[other][0] >= 4}
                assert set(algorithm.cancelled()) == finished - {client}
        else:
            unused += 1
        for worker in finished:
            algorithm.drop(worker, starts[worker][0])
            algorithm.assign(worker, plan)
            ends[worker], starts[worker] = now + seconds[worker], (step, model)
        np.testing.assert_allclose(algorithm.model.numpy(), model, atol=1e-4)
    assert (unused == 0) is stops
