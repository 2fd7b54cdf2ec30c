"""Random scripts of calls: the numbers add up, and a replay and a checkpoint make the same state."""

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offbeat.algorithms import FedAvg
from tests.algorithms.case import by_parts, first_of_each
from tests.coordinator.conftest import CLIENTS, LENGTH, everybody_present, make, receive
from tests.effort import cases

ALGORITHMS = {name: case.make for name, case in first_of_each(by_parts, CLIENTS).items()}


def vector_of(client, visit):
    return torch.tensor([client + 1.0, visit + 1.0, 0.1 * client - 0.2 * visit])


class World:
    """Plays a random script, and keeps its own books on what should have happened."""

    def __init__(self, coordinator):
        self.coordinator = coordinator
        self.given = {}  # (client, visit): "open", "lapsed" or "closed"
        self.leases = {}
        self.versions_of = {}
        self.since = {}
        self.counted = 0
        self.last_counted = {}  # client: (visit, receipt)
        self.now = 0.0

    def latest(self, client):
        return max((visit for other, visit in self.given if other == client), default=None)

    def step(self, action, client):
        self.now += 1.0
        visit = self.latest(client)
        if action == "present":
            self.coordinator.present(self.now, client)
        elif action == "absent":
            self.coordinator.absent(self.now, client)
        elif action == "tick":
            self.coordinator.tick(self.now)
        elif action == "speed":
            self.speed(client, visit)
        elif action == "lapse":
            self.now += 10.0
            self.coordinator.lapse(self.now)
            for latest, until in self.leases.items():
                if until <= self.now and self.given[latest] == "open":
                    self.given[latest] = "lapsed"
        elif action == "assign":
            for assignment in self.coordinator.assign(self.now):
                self.leases[assignment.client, assignment.visit] = assignment.lease_until
                assert self.coordinator.visits.assignment(assignment.client) == assignment
                assert assignment.since == self.since.get(assignment.client)
                if self.given.get((assignment.client, assignment.visit - 1)) == "open":
                    self.given[assignment.client, assignment.visit - 1] = "replaced"
                self.given[assignment.client, assignment.visit] = "open"
                self.versions_of[assignment.client, assignment.visit] = assignment.version
        elif visit is None:
            with pytest.raises(ValueError, match="never given"):
                self.coordinator.drop(self.now, client, 0)
        elif action == "renew":
            renewed = self.coordinator.renew(self.now, client, visit)
            assert renewed is (self.given[client, visit] == "open")
            if renewed and self.leases[client, visit] < math.inf:
                self.leases[client, visit] = self.now + 15.0
        elif action == "drop":
            self.coordinator.drop(self.now, client, visit)
            if self.given[client, visit] == "open":
                self.given[client, visit] = "lapsed"
        elif action == "finish":
            version = self.coordinator.algorithm.version
            self.coordinator.finish(self.now)
            assert self.coordinator.algorithm.version == version
            ended = {"open": "finished", "lapsed": "closed"}
            self.given = {which: ended.get(state, state) for which, state in self.given.items()}
        elif action == "free a slot":
            self.coordinator.free_slot(self.now, client)
        elif action == "offer":
            answer = self.coordinator.offer(self.now, client, visit)
            if answer is not None:
                assert self.receive(client, visit) == answer
                self.given[client, visit] = "closed"
        elif action == "receive":
            receipt = self.receive(client, visit)
            assert not (receipt.counted and self.given[client, visit] == "finished")
            if self.given[client, visit] != "closed" and receipt.counted:
                self.counted += 1
                self.last_counted[client] = (visit, receipt)
                self.since[client] = self.versions_of[client, visit]
            self.given[client, visit] = "closed"
            assert self.coordinator.visits.assignment(client) is None
        elif action == "receive an old one" and visit > 0:
            remembered, receipt = self.last_counted.get(client, (None, None))
            answer = self.receive(client, visit - 1)
            assert answer == receipt if remembered == visit - 1 else not answer.counted
        elif action == "receive a foreign one":
            with pytest.raises(ValueError, match="never given"):
                self.receive(client, visit + 1)

    def speed(self, client, visit):
        algorithm = self.coordinator.algorithm
        before = algorithm.state_dict()
        self.coordinator.note_speed(self.now, client, 0.1 * client, 0.2 * self.now)
        after = algorithm.state_dict()
        changed = {key.partition(".")[0] for key in after if str(after[key]) != str(before[key])}
        assert bool(changed) is (algorithm.measures and visit is None)
        assert changed <= {"step_seconds", "upload_seconds"}

    def receive(self, client, visit):
        report = {"examples": client + 1, "steps": 2, "normaliser": 2.0, "since": self.since.get(client)}
        base = torch.full((LENGTH,), 0.1 * visit)
        times = {"step_seconds": 0.1 * client, "upload_seconds": 0.2 * visit}
        return self.coordinator.receive(self.now, client, visit, vector_of(client, visit), base=base, **report, **times)

    def check(self):
        statistics = self.coordinator.statistics
        states = list(self.given.values())
        assert statistics.assigned == len(states)
        assert statistics.counted == self.counted
        still_open = statistics.assigned - statistics.counted - statistics.unused - statistics.lost
        assert still_open == states.count("open")


ACTIONS = [
    "present",
    "absent",
    "assign",
    "renew",
    "drop",
    "lapse",
    "tick",
    "finish",
    "free a slot",
    "speed",
    "offer",
    "receive",
    "receive an old one",
    "receive a foreign one",
]


SCRIPTS = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, CLIENTS - 1)), max_size=80)


@pytest.mark.parametrize("name", ALGORITHMS)
@settings(max_examples=cases(40))
@given(script=SCRIPTS, max_staleness=st.sampled_from([None, 0, 2]), cut=st.integers(0, 80))
def test_any_script_adds_up_and_can_be_replayed_and_resumed(name, script, max_staleness, cut, same_state):
    calls = []
    settings = {"max_staleness": None if ALGORITHMS[name]().measures else max_staleness, "lease_seconds": 15.0}
    world = World(make(ALGORITHMS[name](), calls.append, **settings))
    everybody_present(world.coordinator)
    resumed = None
    for number, (action, client) in enumerate([("assign", 0), *script]):
        if number == cut:
            resumed = copy.deepcopy(world)
            resumed.coordinator = make(ALGORITHMS[name](), **settings)
            resumed.coordinator.load_state_dict(world.coordinator.state_dict())
        before, recorded = world.coordinator.state_dict(), len(calls)
        world.step(action, client)
        world.check()
        if len(calls) == recorded:  # a call that is not recorded changes nothing
            assert same_state(world.coordinator.state_dict(), before)
        if resumed:
            resumed.step(action, client)
    state = world.coordinator.state_dict()
    replayed = make(ALGORITHMS[name](), **settings)
    for call in calls:
        replayed.replay(call)
    assert same_state(replayed.state_dict(), state)
    without_presence = make(ALGORITHMS[name](), **settings)
    for call in calls:
        if call.name not in ("present", "absent"):
            without_presence.replay(call)
    assert same_state(without_presence.algorithm.state_dict(), replayed.algorithm.state_dict())
    if resumed:
        assert same_state(resumed.coordinator.state_dict(), state)


@settings(max_examples=cases(60))
@given(data=st.data())
def test_a_synchronous_round_with_lost_and_late_clients_never_hangs_and_counts_nobody_twice(data):
    coordinator = make(FedAvg(cohort=3, over_selection=1.5), lease_seconds=10.0)
    everybody_present(coordinator)
    at_work, counted = [], []
    for now in range(60):
        version = coordinator.algorithm.version
        at_work += coordinator.assign(now)
        if not at_work:
            raise AssertionError("nobody is at work and nobody is asked")
        chosen = at_work.pop(data.draw(st.integers(0, len(at_work) - 1)))
        fate = data.draw(st.sampled_from(["in time", "late", "lost"]))
        if fate != "in time":
            coordinator.drop(now, chosen.client, chosen.visit)
        if fate != "lost" and receive(coordinator, now, chosen).counted:
            counted.append((chosen.client, chosen.visit))
        coordinator.present(now, chosen.client)
        assert coordinator.algorithm.version - version in (0, 1)
    assert len(set(counted)) == len(counted)
    assert coordinator.algorithm.version <= len(counted) <= 3 * (coordinator.algorithm.version + 1)
