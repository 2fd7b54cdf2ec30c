"""Steps that fail since the algorithm raises: what was done before is recorded, and the rest has not happened."""

from typing import ClassVar
from weakref import WeakKeyDictionary

import pytest
import torch

from offbeat.algorithms import FedAvg, FedBuff, FedLuck, LocalPlan
from offbeat.coordinator import Coordinator
from offbeat.coordinator.visit_states import VisitState

PLAN = LocalPlan(steps=1, batch_size=1, lr=0.1)


class Failing:
    """Mixed into an algorithm: its n-th call of a method raises.

    Attributes:
        method: Which method; None for none.
        left: Calls until then.
    """

    _plans: ClassVar = WeakKeyDictionary()  # beside the algorithms, since an attribute would be part of their state

    method = property(
        lambda self: self._plans.get(self, (None, 0))[0],
        lambda self, method: self._plans.update({self: (method, self.left)}),
    )
    left = property(
        lambda self: self._plans.get(self, (None, 0))[1],
        lambda self, left: self._plans.update({self: (self.method, left)}),
    )

    def _perhaps_fail(self, method):
        if self.method == method:
            self.left -= 1
            if self.left < 0:
                raise RuntimeError(f"{method} fails")

    def assign(self, client, local):
        self._perhaps_fail("assign")
        return super().assign(client, local)

    def receive(self, update):
        self._perhaps_fail("receive")
        return super().receive(update)

    def drop(self, client, version):
        self._perhaps_fail("drop")
        return super().drop(client, version)

    def tick(self):
        self._perhaps_fail("tick")
        return super().tick()

    def note_speed(self, client, step_seconds, upload_seconds):
        self._perhaps_fail("note_speed")
        super().note_speed(client, step_seconds, upload_seconds)


class FailingFedBuff(Failing, FedBuff):
    """FedBuff that may raise."""


class FailingFedAvg(Failing, FedAvg):
    """FedAvg that may raise."""


class FailingFedLuck(Failing, FedLuck):
    """FedLuck that may raise."""


class World:
    """A coordinator, and another one that only hears of the first one's records."""

    def __init__(self, make, **settings):
        def coordinator():
            return Coordinator(make(), torch.zeros(2), clients=6, local=PLAN, **settings)

        self.calls = []
        self.coordinator = coordinator()
        self.coordinator.record = self.calls.append
        self.replica = coordinator()

    def fails(self, method, after, work):
        """Have the algorithm's n-th call of a method raise in this work."""
        self.coordinator.algorithm.method, self.coordinator.algorithm.left = method, after
        with pytest.raises(RuntimeError, match=method):
            work()
        self.coordinator.algorithm.method = None

    def check(self):
        """Check that the records make the same coordinator again, and that nothing is counted that was not done."""
        while self.calls:
            self.replica.replay(self.calls.pop(0))
        mine, other = self.coordinator.state_dict(), self.replica.state_dict()
        assert mine.keys() == other.keys()
        for key, value in mine.items():
            if key.startswith("pool"):  # who is inside is compared below; in which order depends on the picks
                continue
            if isinstance(value, torch.Tensor):
                assert torch.equal(value, other[key]), key
            else:
                assert value == other[key], key
        coordinator = self.coordinator
        states = [coordinator.visits.state(client) for client in range(6)]
        statistics = coordinator.statistics
        open_visits = statistics.assigned - statistics.counted - statistics.unused - statistics.lost
        assert states.count(VisitState.OPEN) == open_visits
        candidates = coordinator._candidates
        assert set(candidates.pool) == set(candidates.available()) - set(candidates._had_turn)

    def all_present(self):
        for client in range(6):
            self.coordinator.present(0.0, client)

    def send(self, assignment, now=1.0):
        return self.coordinator.receive(
            now, assignment.client, assignment.visit, torch.ones(2), examples=1, steps=1, normaliser=1.0
        )


def fedbuff():
    return FailingFedBuff(buffer_size=2, concurrency=4)


def fedavg():
    return FailingFedAvg(cohort=3)


@pytest.mark.parametrize("make", [fedbuff, fedavg])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_assignments_before_the_error_are_recorded(make, after):
    world = World(make)
    world.all_present()
    world.fails("assign", after, lambda: world.coordinator.assign(0.0))
    assert len(world.coordinator.visits.open_assignments()) == after
    world.check()
    assert (
        len(world.coordinator.assign(0.0))
        == world.coordinator.algorithm.slots() + (4 if make is fedbuff else 3) - after
    )
    world.check()


def test_a_client_whose_assignment_failed_may_be_picked_again():
    world = World(lambda: FailingFedBuff(buffer_size=2, concurrency=6))
    world.all_present()
    world.fails("assign", 5, lambda: world.coordinator.assign(0.0))
    assert len(world.coordinator.assign(0.0)) == 1
    world.check()


@pytest.mark.parametrize("make", [fedbuff, fedavg])
def test_an_update_whose_receipt_failed_may_come_again(make):
    world = World(make)
    world.all_present()
    first, *_ = world.coordinator.assign(0.0)
    world.fails("receive", 0, lambda: world.send(first))
    world.check()
    assert world.send(first).counted
    world.check()


@pytest.mark.parametrize("make", [fedbuff, fedavg])
def test_a_visit_whose_drop_failed_is_open(make):
    world = World(make, lease_seconds=10.0)
    world.all_present()
    first, *_ = world.coordinator.assign(0.0)
    world.fails("drop", 0, lambda: world.coordinator.drop(1.0, first.client, first.visit))
    assert world.coordinator.visits.has_slot(first.client)
    world.check()
    world.coordinator.drop(1.0, first.client, first.visit)
    world.check()


def test_a_client_that_came_back_is_picked_again_after_its_drop_failed():
    world = World(lambda: FailingFedBuff(buffer_size=2, concurrency=2))
    world.coordinator.present(0.0, 3)
    world.coordinator.assign(0.0)
    world.coordinator.present(1.0, 3)
    world.fails("drop", 0, lambda: world.coordinator.assign(1.0))
    world.check()
    assert [assignment.client for assignment in world.coordinator.assign(1.0)] == [3]
    world.check()


def test_an_offer_that_failed_leaves_the_visit_open():
    world = World(fedbuff, max_staleness=0)
    world.all_present()
    first, second, third, *_ = world.coordinator.assign(0.0)
    for assignment in (first, second):
        world.send(assignment)
    world.fails("drop", 0, lambda: world.coordinator.offer(1.0, third.client, third.visit))
    assert world.coordinator.visits.has_slot(third.client)
    world.fails("drop", 0, lambda: world.send(third))
    world.check()
    receipt = world.coordinator.offer(1.0, third.client, third.visit)
    assert receipt is not None
    assert not receipt.counted
    world.check()


@pytest.mark.parametrize("make", [fedbuff, fedavg])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_leases_that_lapsed_before_the_error_are_recorded_and_the_others_lapse_later(make, after):
    world = World(make, lease_seconds=1.0)
    world.all_present()
    assignments = world.coordinator.assign(0.0)
    world.fails("drop", after, lambda: world.coordinator.lapse(1.0))
    held = [world.coordinator.visits.has_slot(assignment.client) for assignment in assignments]
    assert sum(held) == len(assignments) - after
    world.check()
    world.coordinator.lapse(1.0)
    assert not any(world.coordinator.visits.has_slot(assignment.client) for assignment in assignments)
    world.check()


def test_a_round_whose_end_failed_ends_later():
    world = World(fedavg, lease_seconds=1.0)
    for client in range(2):
        world.coordinator.present(0.0, client)
    first, _ = world.coordinator.assign(0.0)  # a place of the round stays free
    world.send(first, 0.5)
    world.fails("tick", 0, lambda: world.coordinator.lapse(1.0))
    world.check()
    world.coordinator.lapse(1.0)
    world.check()
    assert world.coordinator.algorithm.version == 1


def test_a_tick_that_failed_has_not_happened():
    world = World(fedavg)
    world.all_present()
    world.coordinator.assign(0.0)
    world.fails("tick", 0, lambda: world.coordinator.tick(1.0))
    world.check()


def test_a_speed_that_failed_may_come_again():
    world = World(FailingFedLuck)
    world.coordinator.note_speed(0.0, 0, 0.1, 40.0)
    before = world.coordinator.state_dict()
    world.fails("note_speed", 0, lambda: world.coordinator.note_speed(1.0, 1, 0.1, 40.0))
    assert str(world.coordinator.state_dict()) == str(before)
    world.check()
    world.coordinator.note_speed(2.0, 1, 0.2, 30.0)
    world.all_present()
    world.check()
    plans = {assignment.client: assignment.plan for assignment in world.coordinator.assign(3.0)}
    assert len({plans[0], plans[1], PLAN}) == 3
    world.check()
