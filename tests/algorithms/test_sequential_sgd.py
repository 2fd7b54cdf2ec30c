import dataclasses

import pytest
import torch

from offbeat.algorithms import ALGORITHMS, Compression, LocalPlan, SequentialSGD
from tests.algorithms.case import Case

CASES = [Case("sequential sgd", lambda: SequentialSGD(cohort=3), places=1, clients=1, own_plan=True)]


@pytest.fixture
def begin(vector):
    def make(*model, cohort=3):
        algorithm = SequentialSGD(cohort=cohort)
        algorithm.start(vector(*model), 1)
        return algorithm

    return make


def test_each_round_ends_where_the_machine_ended(begin, plan, upload):
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


def test_there_is_nobody_to_stay_near(begin, plan):
    proximal = dataclasses.replace(plan, mu=0.5)
    assert begin(0, cohort=1).assign(0, proximal) == plan


def test_one_round_is_under_way_at_a_time(begin, plan, upload):
    algorithm = begin(0)
    assert algorithm.slots() == 1
    algorithm.assign(0, plan)
    assert algorithm.slots() == 0
    assert algorithm.drop(0, 0) is False
    assert algorithm.slots() == 1
    assert algorithm.receive(upload(0, 0, 4)) is True
    assert algorithm.slots() == 1


def test_a_round_that_was_not_asked_for_changes_nothing(begin, plan, upload):
    algorithm = begin(0)
    assert algorithm.receive(upload(0, 0, 4)) is False
    algorithm.assign(0, plan)
    algorithm.receive(upload(0, 0, 4))
    assert algorithm.receive(upload(0, 0, 9)) is False
    assert (algorithm.version, algorithm.model.tolist()) == (1, [4])


@pytest.mark.parametrize("clients", [2, 100])
def test_it_is_for_one_client(clients):
    with pytest.raises(ValueError, match=f"for 1 client that holds all the data, got {clients} clients"):
        SequentialSGD().start(torch.zeros(1), clients)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lr": (0.1,)}, "give lr as a number"),
        (
            {"compression": Compression("top_k", (("share", 0.1),))},
            "^sequential_sgd uploads whole models, which cannot be compressed",
        ),
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


def test_the_work_under_way_is_saved(begin, plan, upload, same_state):
    algorithm, loaded = begin(0), SequentialSGD(cohort=3)
    algorithm.assign(0, plan)
    algorithm.receive(upload(0, 0, 2))
    algorithm.assign(0, plan)
    state = algorithm.state_dict()
    loaded.load_state_dict(state)
    assert same_state(loaded.state_dict(), state)
    assert (loaded.version, loaded.slots()) == (1, 0)
    assert loaded.receive(upload(0, 1, 7)) is True
    assert loaded.model.tolist() == [7]


@pytest.mark.parametrize("cohort", [0, -1, 1.5])
def test_a_cohort_that_is_no_count_is_refused(cohort):
    with pytest.raises(ValueError, match=f"cohort must be a whole number of at least 1, got {cohort}"):
        SequentialSGD(cohort=cohort)


def test_nothing_is_federated_here_and_nowhere_else():
    assert [name for name, algorithm in ALGORITHMS.items() if algorithm.pooled] == ["sequential_sgd"]
    algorithm = SequentialSGD()
    assert (algorithm.cohort, algorithm.payload, algorithm.period) == (10, "params", None)
    assert algorithm.buffer.linear is False
