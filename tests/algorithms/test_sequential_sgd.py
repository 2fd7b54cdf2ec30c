import dataclasses

import pytest
import torch

from offbeat.algorithms import ALGORITHMS, LocalPlan, SequentialSGD
from tests.algorithms.case import Case

CASES = [Case("sequential sgd", lambda: SequentialSGD(cohort=3), places=1, clients=1, own_plan=True)]


@pytest.fixture
def begin(vector):
    def make(*model, cohort=3):
        algorithm = SequentialSGD(cohort=cohort)
        algorithm.start(vector(*model), 1)
        return algorithm

    return make


def test_the_model_is_the_machines_end_point(begin, plan, upload):
    algorithm = begin(1, 2)
    for number, end in enumerate([(3, 4), (5, 6)]):
        algorithm.assign(0, plan)
        assert algorithm.wants(0, number)
        assert algorithm.receive(upload(0, number, *end)) is True
        assert (algorithm.version, algorithm.model.tolist()) == (number + 1, list(end))
        assert not algorithm.wants(0, number)


@pytest.mark.parametrize(("cohort", "steps"), [(1, 1), (1, 7), (10, 1), (4, 5)])
def test_a_round_has_the_steps_of_a_whole_cohort(cohort, steps, begin):
    local = LocalPlan(steps=steps, batch_size=5, lr=0.1, weight_decay=0.01, clip_norm=2.0)
    assert begin(0, cohort=cohort).assign(0, local) == dataclasses.replace(local, steps=cohort * steps)


def test_the_proximal_term_is_dropped(begin, plan):
    proximal = dataclasses.replace(plan, mu=0.5)
    assert begin(0, cohort=1).assign(0, proximal) == plan


@pytest.mark.parametrize("clients", [2, 100])
def test_more_than_one_client_is_refused(clients):
    with pytest.raises(ValueError, match=f"for 1 client that holds all the data, got {clients} clients"):
        SequentialSGD().start(torch.zeros(1), clients)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lr": (0.1,)}, "give lr as a number"),
        ({"steps": 2**30}, "steps must be at most"),
    ],
)
def test_plans_that_do_not_fit_are_refused(change, message, begin, plan, same_state):
    algorithm = begin(0)
    before = algorithm.state_dict()
    with pytest.raises(ValueError, match=message):
        algorithm.assign(0, dataclasses.replace(plan, **change))
    assert same_state(algorithm.state_dict(), before)
    assert algorithm.slots() == 1


def test_only_sequential_sgd_is_pooled():
    assert [name for name, algorithm in ALGORITHMS.items() if algorithm.pooled] == ["sequential_sgd"]
