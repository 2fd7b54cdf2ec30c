import json
from dataclasses import replace

import pytest
import torch
from offbeat_core.errors import OffbeatError
from offbeat_core.local_plan import Epochs
from offbeat_core.lr_decay import exponential

from offbeat.algorithms import AsyncCommSGD, FedBuff, FedLuck, LocalPlan
from offbeat.algorithms.components import Compression
from offbeat.config.local_section import StepsFunction
from offbeat.coordinator import Coordinator, RecordedCall
from offbeat.coordinator.participation_limits import Participation
from offbeat.coordinator.visit_plans import plan_from_plain, plan_to_plain
from tests.coordinator.conftest import receive

EPOCHS = LocalPlan(steps=1, batch_size=4, lr=0.8, steps_by=Epochs(2))
EXAMPLES = [11, 3, 11, 40]
STEPS = [6, 2, 6, 20]


def make(local=EPOCHS, algorithm=None, **more):
    algorithm = algorithm or FedBuff(buffer_size=1, concurrency=4)
    return Coordinator(algorithm, torch.zeros(3), clients=4, local=local, **more)


def assigned(coordinator):
    for client in range(4):
        coordinator.present(0.0, client)
    return sorted(coordinator.assign(0.0))


def test_each_client_has_the_steps_of_its_examples():
    plans = [assignment.plan for assignment in assigned(make(examples=EXAMPLES))]
    assert plans == [LocalPlan(steps, 4, 0.8, by_epochs=True) for steps in STEPS]
    assert plans[0] is plans[2]


def test_the_step_size_decays_too():
    local = LocalPlan(steps=1, batch_size=4, lr=0.8, lr_decay=exponential(0.5), steps_by=Epochs(2))
    coordinator = make(local, examples=EXAMPLES)
    first, *_ = assigned(coordinator)
    receive(coordinator, 0.0, first)
    coordinator.present(1.0, first.client)
    (again,) = coordinator.assign(1.0)
    assert again.plan == LocalPlan(6, 4, 0.4, by_epochs=True)


def test_an_algorithm_plans_from_the_clients_steps():
    """In two rounds until it talks, a client goes twice through its examples in each."""
    coordinator = make(algorithm=AsyncCommSGD(), examples=EXAMPLES)
    rounds = [coordinator.algorithm.schedule.talks_in(client) for client in range(4)]
    assert [one.plan.steps for one in assigned(coordinator)] == [
        steps * number for steps, number in zip(STEPS, rounds, strict=True)
    ]


def test_a_function_is_asked_for_each_client_before_the_run():
    local = LocalPlan(1, 4, 0.8, steps_by=StepsFunction(lambda examples: examples // 11, "mine"))
    with pytest.raises(OffbeatError, match=r"^local.steps = 'mine' returned 0 for 3 examples"):
        make(local, examples=EXAMPLES)
    assert [one.plan.steps for one in assigned(make(local, examples=[11, 22, 33, 44]))] == [1, 2, 3, 4]


def test_a_client_is_not_available_before_its_steps_are_noted():
    coordinator = make()
    assert all(map(coordinator.needs_steps, range(4)))
    with pytest.raises(ValueError, match=r"^the steps of client 0 are not known yet$"):
        coordinator.present(0.0, 0)
    for client, steps in enumerate(STEPS):
        coordinator.note_steps(0.0, client, steps)
        coordinator.note_steps(0.0, client, 99)  # the first number stays
    assert not any(map(coordinator.needs_steps, range(4)))
    assert [one.plan.steps for one in assigned(coordinator)] == STEPS
    for client, steps in ((4, 1), (0, 0)):
        with pytest.raises(ValueError, match=r"client must be|steps must be"):
            coordinator.note_steps(0.0, client, steps)


def test_steps_are_not_noted_where_they_are_known():
    calls: list[RecordedCall] = []
    for coordinator in (make(examples=EXAMPLES, record=calls.append), make(LocalPlan(5, 4, 0.8), record=calls.append)):
        assert not coordinator.needs_steps(0)
        coordinator.note_steps(0.0, 0, 3)
    assert not calls


def test_a_replay_and_a_resumed_run_have_the_same_plans():
    """They do not ask the function again, which may have changed."""
    calls: list[RecordedCall] = []
    coordinator = make(record=calls.append)
    for client, steps in enumerate(STEPS):
        coordinator.note_steps(0.0, client, steps)
    first, *_ = assigned(coordinator)
    receive(coordinator, 1.0, first)

    def broken(examples):
        raise AssertionError

    changed = LocalPlan(1, 4, 0.8, steps_by=StepsFunction(broken, "mine"), by_epochs=True)
    for local in (EPOCHS, changed):
        replayed, resumed = make(local), make(local)
        for call in calls:
            replayed.replay(call)
        state = coordinator.state_dict()
        resumed.load_state_dict(state)
        for other in (replayed, resumed):
            assert [one.plan.steps for one in sorted(other.visits.open_assignments())] == STEPS[1:]
            other.present(2.0, 0)
            (again,) = other.assign(2.0)
            assert (again.client, again.plan.steps) == (0, 6)
    assert [plan for _, _, _, plan, *_ in state["visits.open"]] == [None] * 3


def test_private_runs_refuse_steps_that_tell_of_the_data():
    limits = Participation(4, limit=2)
    with pytest.raises(ValueError, match=r"^\[privacy\] needs the same number of steps for all clients"):
        make(examples=EXAMPLES, participation=limits)
    make(LocalPlan(5, 4, 0.8), examples=EXAMPLES, participation=limits)


DECAYING = LocalPlan(steps=2, batch_size=4, lr=0.8, lr_decay=exponential(0.5))


def test_a_visit_has_the_step_size_of_the_version_that_it_starts_at():
    calls: list[RecordedCall] = []
    settings = {"local": DECAYING, "algorithm": FedBuff(buffer_size=1, concurrency=2)}
    coordinator = make(**settings, record=calls.append)
    slow, fast = assigned(coordinator)
    assert slow.plan is fast.plan
    for now in range(3):
        receive(coordinator, float(now), fast)
        coordinator.present(float(now), fast.client)
        (fast,) = coordinator.assign(float(now))
    assert (slow.plan.lr, slow.plan.lr_decay) == (0.8, None)
    assert (fast.version, fast.plan) == (3, replace(slow.plan, lr=0.1))
    replayed, resumed = (make(DECAYING, FedBuff(buffer_size=1, concurrency=2)) for _ in range(2))
    for call in calls:
        replayed.replay(call)
    state = coordinator.state_dict()
    resumed.load_state_dict(state)
    # Open visits from versions 0 and 3, and neither's plan is saved.
    assert sorted((version, plan) for _, _, version, plan, *_ in state["visits.open"]) == [(0, None), (3, None)]
    for other in (replayed, resumed):
        assert list(other.visits.open_assignments()) == list(coordinator.visits.open_assignments())
        receive(other, 9.0, slow)
        other.present(9.0, slow.client)
        assert other.assign(9.0)[0].plan == replace(slow.plan, lr=0.05)


def test_an_algorithm_plans_from_the_decayed_plan():
    coordinator = make(DECAYING, FedLuck(period=1.0, steps=(1, 5), compression=(0.1, 0.5)))
    before, *_ = assigned(coordinator)
    receive(coordinator, 0.5, before)
    coordinator.tick(1.0)
    coordinator.present(1.0, before.client)
    (after,) = coordinator.assign(1.0)
    for assignment, lr in ((before, 0.8), (after, 0.4)):
        assert (assignment.plan.lr, assignment.plan.lr_decay) == (lr, None)
        assert assignment.plan.compression.name == "top_k"


def test_an_algorithm_may_refuse_the_runs_plan_before_it_starts():
    class Refusing(FedBuff):
        def check_local(self, local):
            raise ValueError(f"not {local.lr_decay.name}")

    algorithm = Refusing()
    with pytest.raises(ValueError, match=r"^not exponential$"):
        make(DECAYING, algorithm)
    assert not hasattr(algorithm, "_model")


LOCAL = LocalPlan(steps=2, batch_size=1, lr=0.1)


TOP_K = Compression("top_k", (("share", 0.1),))
RANDOM_K = Compression("random_k", (("share", 0.5), ("scaled", False)))
PLANS = [
    LOCAL,
    LocalPlan(steps=2, batch_size=1, lr=(0.1, 0.2)),
    LocalPlan(3, 4, 0.5, mu=0.1),
    LocalPlan(3, 4, 0.5, compression=TOP_K),
    LocalPlan(3, 4, 0.5, compression=RANDOM_K, error_feedback=True),
    LocalPlan(3, 4, (0.5, 0.25, 0.125), compression=Compression("sign")),
]


@pytest.mark.parametrize("plan", PLANS)
def test_a_plan_survives_a_trip_through_json(plan):
    restored = plan_from_plain(json.loads(json.dumps(plan_to_plain(plan, LOCAL))), LOCAL)
    assert restored == plan
    # As a key, too, of which LocalPlan and Compression are used.
    assert hash(restored) == hash(plan)


def test_the_runs_own_plan_is_not_written_down():
    assert plan_to_plain(LocalPlan(steps=2, batch_size=1, lr=0.1), LOCAL) is None
    assert plan_from_plain(None, LOCAL) is LOCAL
