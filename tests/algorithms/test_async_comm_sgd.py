from dataclasses import replace

import pytest
import torch

from offbeat.algorithms import AsyncCommSGD
from offbeat.algorithms.components.schedules.patterns import full, imbalanced, random, round_robin
from offbeat.algorithms.components.server_optimizer import momentum
from offbeat.algorithms.components.weights import inverse_square_root, inverse_time
from tests.algorithms.case import Case, started


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


@pytest.fixture(scope="module")
def begin():
    """Return a function that starts AsyncCommSGD."""

    def make(clients=4, model=(0.0,), data_weights=None, **parameters):
        return started(AsyncCommSGD(**parameters), model, clients, data_weights)

    return make


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
