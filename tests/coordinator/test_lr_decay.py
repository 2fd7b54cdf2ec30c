"""The decay of the step size: a pure function of the version that a visit starts at."""

from dataclasses import replace

import pytest
import torch
from offbeat_core.lr_decay import exponential

from offbeat.algorithms import FedBuff, FedLuck, LocalPlan
from offbeat.coordinator import Coordinator, RecordedCall
from tests.coordinator.conftest import receive

PLAN = LocalPlan(steps=2, batch_size=4, lr=0.8)
DECAYING = replace(PLAN, lr_decay=exponential(0.5))


def make(algorithm=None, local=DECAYING, **more):
    algorithm = algorithm or FedBuff(buffer_size=1, concurrency=2)
    coordinator = Coordinator(algorithm, torch.zeros(3), clients=6, local=local, **more)
    for client in range(6):
        coordinator.present(0.0, client)
    return coordinator


def play(coordinator, versions):
    """Let one client be slow and the others make versions; return the slow one's assignment and the last one."""
    slow, fast = coordinator.assign(0.0)
    for now in range(versions):
        receive(coordinator, float(now), fast)
        (fast,) = coordinator.assign(float(now))
    return slow, fast


def test_a_visit_has_the_step_size_of_the_version_that_it_starts_at():
    coordinator = make()
    slow, fast = play(coordinator, 3)
    assert slow.plan == PLAN
    assert (fast.version, fast.plan) == (3, replace(PLAN, lr=0.1))
    receive(coordinator, 9.0, slow)
    (late,) = coordinator.assign(9.0)
    assert (late.version, late.plan.lr) == (4, 0.05)


def test_visits_of_one_version_share_a_plan():
    first, second = make().assign(0.0)
    assert first.plan is second.plan


def test_an_algorithm_plans_from_the_decayed_plan():
    coordinator = make(FedLuck(period=1.0, steps=(1, 5), compression=(0.1, 0.5)))
    before, *_ = coordinator.assign(0.0)
    receive(coordinator, 0.5, before)
    coordinator.tick(1.0)
    coordinator.present(1.0, before.client)
    (after,) = coordinator.assign(1.0)
    for assignment, lr in ((before, 0.8), (after, 0.4)):
        assert (assignment.plan.lr, assignment.plan.lr_decay) == (lr, None)
        assert assignment.plan.compression.name == "top_k"


def test_a_replay_and_a_resumed_run_have_the_same_plans():
    calls: list[RecordedCall] = []
    coordinator = make(record=calls.append)
    play(coordinator, 3)
    replayed, resumed = make(), make()
    replayed.forget_presence()
    for call in calls:
        replayed.replay(call)
    state = coordinator.state_dict()
    resumed.load_state_dict(state)
    for other in (replayed, resumed):
        slow, _ = other.visits.open_assignments()
        assert list(other.visits.open_assignments()) == list(coordinator.visits.open_assignments())
        receive(other, 9.0, slow)
        assert other.assign(9.0)[0].plan == replace(PLAN, lr=0.05)
    # Open visits from versions 0 and 3, and neither's plan is saved.
    assert sorted((version, plan) for _, _, version, plan, *_ in state["visits.open"]) == [(0, None), (3, None)]


def test_an_algorithm_may_refuse_the_runs_plan_before_it_starts():
    class Refusing(FedBuff):
        def check_local(self, local):
            raise ValueError(f"not {local.lr_decay.name}")

    algorithm = Refusing()
    with pytest.raises(ValueError, match=r"^not exponential$"):
        make(algorithm)
    assert not hasattr(algorithm, "_model")
