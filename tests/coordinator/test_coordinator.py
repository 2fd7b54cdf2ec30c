import copy
import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offbeat.algorithms import FedAvg, FedBuff, FedLuck, LocalPlan
from offbeat.coordinator import Coordinator
from offbeat.coordinator.calls import Call
from tests.algorithms.case import all_cases

CLIENTS = 6
LENGTH = 3
PLAN = LocalPlan(steps=2, batch_size=4, lr=0.1)

ALGORITHMS = {name: case.make for name, case in all_cases(CLIENTS).items()}


def make(algorithm, record=None, **settings):
    return Coordinator(algorithm, torch.zeros(LENGTH), clients=CLIENTS, local=PLAN, seed=5, record=record, **settings)


def everybody_present(coordinator):
    for client in range(CLIENTS):
        coordinator.present(0.0, client)


def receive(coordinator, now, assignment, vector=None):
    vector = torch.ones(LENGTH) if vector is None else vector
    said = {"examples": 10, "steps": 2, "normaliser": 2.0, "base": torch.zeros(LENGTH)}
    return coordinator.receive(now, assignment.client, assignment.visit, vector, **said)


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
                assert self.coordinator.assignment(assignment.client) == assignment
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
        elif action == "offer":
            answer = self.coordinator.offer(self.now, client, visit)
            if answer is not None:
                assert self.receive(client, visit) == answer
                self.given[client, visit] = "closed"
        elif action == "receive":
            receipt = self.receive(client, visit)
            if self.given[client, visit] != "closed" and receipt.counted:
                self.counted += 1
                self.last_counted[client] = (visit, receipt)
                self.since[client] = self.versions_of[client, visit]
            self.given[client, visit] = "closed"
            assert self.coordinator.assignment(client) is None
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
        said = {"examples": client + 1, "steps": 2, "normaliser": 2.0, "since": self.since.get(client)}
        base = torch.full((LENGTH,), 0.1 * visit)
        times = {"step_seconds": 0.1 * client, "upload_seconds": 0.2 * visit}
        return self.coordinator.receive(self.now, client, visit, vector_of(client, visit), base=base, **said, **times)

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
    "speed",
    "offer",
    "receive",
    "receive an old one",
    "receive a foreign one",
]
SCRIPTS = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, CLIENTS - 1)), max_size=80)


@pytest.mark.parametrize("name", ALGORITHMS)
@settings(max_examples=40)
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
        world.step(action, client)
        world.check()
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


@pytest.mark.parametrize("name", ALGORITHMS)
@settings(max_examples=40)
@given(script=SCRIPTS)
def test_a_call_that_is_not_recorded_changed_nothing(name, script, same_state):
    calls = []
    world = World(make(ALGORITHMS[name](), calls.append))
    everybody_present(world.coordinator)
    for action, client in script:
        before, recorded = world.coordinator.state_dict(), len(calls)
        world.step(action, client)
        if len(calls) == recorded:
            assert same_state(world.coordinator.state_dict(), before)


@settings(max_examples=60)
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


def test_an_upload_that_comes_again_gets_the_first_answer_and_counts_once(same_state):
    coordinator = make(FedBuff(buffer_size=1, concurrency=2))
    everybody_present(coordinator)
    first, second = coordinator.assign(0.0)
    answer = receive(coordinator, 1.0, first)
    receive(coordinator, 2.0, second)
    before = coordinator.state_dict()
    assert receive(coordinator, 3.0, first, vector=torch.full((LENGTH,), 9.0)) == answer
    assert answer.counted
    assert answer.new_version
    assert same_state(coordinator.state_dict(), before)


def test_a_lapsed_lease_frees_the_slot_but_the_late_update_counts_in_full():
    coordinator = make(FedBuff(buffer_size=1, concurrency=1), lease_seconds=5.0)
    everybody_present(coordinator)
    (slow,) = coordinator.assign(0.0)
    assert slow.lease_until == 5.0
    assert coordinator.assign(1.0) == []
    coordinator.drop(5.0, slow.client, slow.visit)
    assert coordinator.statistics.lost == 1
    (other,) = coordinator.assign(5.0)
    assert other.client != slow.client
    assert receive(coordinator, 9.0, slow, vector=torch.tensor([2.0, 0.0, 0.0])) == (True, 0, True)
    assert coordinator.statistics.lost == 0
    assert coordinator.algorithm.model.tolist() == [-2.0, 0.0, 0.0]


def test_an_update_that_is_staler_than_allowed_is_unused_and_frees_its_slot():
    coordinator = make(FedBuff(buffer_size=1, concurrency=2), max_staleness=1)
    everybody_present(coordinator)
    slow, fast = coordinator.assign(0.0)
    for now in range(3):
        receive(coordinator, now, fast)
        (fast,) = coordinator.assign(now)
    assert coordinator.algorithm.version == 3
    before = coordinator.algorithm.model.clone()
    assert receive(coordinator, 9.0, slow) == (False, 3, False)
    assert torch.equal(coordinator.algorithm.model, before)
    assert coordinator.statistics.unused == 1
    assert len(coordinator.assign(9.0)) == 1


@pytest.mark.parametrize(("staleness", "counts"), [(1, True), (2, False)])
def test_max_staleness_is_the_largest_that_counts(staleness, counts):
    coordinator = make(FedBuff(buffer_size=1, concurrency=2), max_staleness=1)
    everybody_present(coordinator)
    slow, fast = coordinator.assign(0.0)
    for now in range(staleness):
        receive(coordinator, now, fast)
        (fast,) = coordinator.assign(now)
    assert receive(coordinator, 9.0, slow).counted is counts


def test_a_client_is_told_before_it_uploads_that_its_round_is_over():
    coordinator = make(FedAvg(cohort=1, over_selection=2.0))
    everybody_present(coordinator)
    first, late = coordinator.assign(0.0)
    assert coordinator.offer(1.0, late.client, late.visit) is None
    receive(coordinator, 1.0, first)
    assert coordinator.offer(2.0, late.client, late.visit) == (False, 1, False)
    assert coordinator.statistics.unused == 1
    assert not receive(coordinator, 3.0, late).counted
    assert coordinator.statistics.unused == 1


def test_nobody_has_two_turns_in_a_round_and_everybody_may_come_again_in_the_next():
    coordinator = make(FedAvg(cohort=CLIENTS))
    everybody_present(coordinator)
    for round_number in range(3):
        assignments = coordinator.assign(0.0)
        assert sorted(assignment.client for assignment in assignments) == list(range(CLIENTS))
        assert {assignment.visit for assignment in assignments} == {round_number}
        for assignment in assignments:
            coordinator.present(1.0, assignment.client)
            assert coordinator.assign(1.0) == []
            receive(coordinator, 1.0, assignment)


def test_a_client_that_is_away_is_not_given_work():
    coordinator = make(FedBuff(concurrency=CLIENTS))
    everybody_present(coordinator)
    coordinator.absent(0.0, 3)
    assert 3 not in {assignment.client for assignment in coordinator.assign(0.0)}
    coordinator.present(1.0, 3)
    assert [assignment.client for assignment in coordinator.assign(1.0)] == [3]


def test_a_client_that_comes_back_without_its_work_is_given_new_work_and_the_old_does_not_count():
    coordinator = make(FedBuff(buffer_size=1, concurrency=1))
    coordinator.present(0.0, 2)
    (old,) = coordinator.assign(0.0)
    coordinator.present(1.0, 2)
    assert coordinator.assign(1.0) == []  # its slot is taken, by itself
    coordinator.drop(2.0, 2, old.visit)
    (new,) = coordinator.assign(2.0)
    assert (new.client, new.visit) == (2, 1)
    assert not receive(coordinator, 3.0, old).counted
    assert receive(coordinator, 3.0, new).counted


def test_statistics_of_staleness_are_over_the_counted_updates():
    coordinator = make(FedBuff(buffer_size=1, concurrency=3))
    everybody_present(coordinator)
    for number, assignment in enumerate(coordinator.assign(0.0)):
        assert receive(coordinator, 1.0, assignment).staleness == number
    assert coordinator.statistics.staleness_sum == 0 + 1 + 2
    assert coordinator.statistics.staleness_max == 2


def test_without_a_lease_a_slot_is_kept_for_ever():
    coordinator = make(FedBuff(concurrency=1))
    everybody_present(coordinator)
    (assignment,) = coordinator.assign(0.0)
    assert assignment.lease_until == math.inf


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.present(0.0, CLIENTS),
        lambda c: c.absent(0.0, -1),
        lambda c: c.offer(0.0, 0, 5),
        lambda c: c.drop(0.0, CLIENTS, 0),
        lambda c: c.receive(0.0, 0, -1, torch.ones(LENGTH), examples=1, steps=1, normaliser=1.0),
    ],
)
def test_who_does_not_exist_is_refused(call, same_state):
    coordinator = make(FedBuff(concurrency=CLIENTS))
    everybody_present(coordinator)
    coordinator.assign(0.0)
    before = coordinator.state_dict()
    with pytest.raises(ValueError, match="client"):
        call(coordinator)
    assert same_state(coordinator.state_dict(), before)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_malformed_update_is_refused_and_may_be_sent_again(name, same_state):
    coordinator = make(ALGORITHMS[name]())
    everybody_present(coordinator)
    assignment = coordinator.assign(0.0)[0]
    before = coordinator.state_dict()
    with pytest.raises(ValueError, match="shape"):
        receive(coordinator, 1.0, assignment, vector=torch.ones(LENGTH + 1))
    with pytest.raises(ValueError, match="examples"):
        coordinator.receive(
            1.0, assignment.client, assignment.visit, torch.ones(LENGTH), examples=0, steps=1, normaliser=1.0
        )
    assert same_state(coordinator.state_dict(), before)
    assert receive(coordinator, 2.0, assignment).counted


def test_only_recorded_calls_can_be_replayed():
    with pytest.raises(ValueError, match="not a call"):
        make(FedBuff()).replay(Call("load_state_dict", {"state": {}}))


def test_a_recorded_assignment_of_a_client_that_does_not_exist_changes_nothing(same_state):
    coordinator = make(FedBuff(concurrency=3))
    before = coordinator.state_dict()
    with pytest.raises(ValueError, match="client must be in"):
        coordinator.replay(Call("assign", {"now": 0.0, "clients": [1, CLIENTS]}))
    assert same_state(before, coordinator.state_dict())


def test_who_had_a_turn_in_this_round_is_known_after_a_restart():
    coordinator = make(FedAvg(cohort=2))
    everybody_present(coordinator)
    for assignment in coordinator.assign(0.0):
        receive(coordinator, 1.0, assignment)
    first, second = coordinator.assign(2.0)
    resumed = make(FedAvg(cohort=2))
    resumed.load_state_dict(coordinator.state_dict())
    resumed.present(3.0, first.client)
    receive(resumed, 3.0, first)
    resumed.present(3.0, first.client)
    assert resumed.assign(3.0) == []
    receive(resumed, 4.0, second)
    resumed.present(4.0, second.client)
    for client in set(range(CLIENTS)) - {first.client, second.client}:
        resumed.absent(4.0, client)
    assert {assignment.client for assignment in resumed.assign(4.0)} == {first.client, second.client}


def test_a_round_ends_without_the_clients_that_never_came_back():
    coordinator = make(FedAvg(cohort=CLIENTS), lease_seconds=5.0)
    everybody_present(coordinator)
    dead, *alive = coordinator.assign(0.0)
    for assignment in alive:
        receive(coordinator, 1.0, assignment)
        coordinator.present(1.0, assignment.client)
    coordinator.lapse(5.0)
    assert coordinator.algorithm.version == 1
    for version in (2, 3):
        now = 10.0 * version
        for assignment in coordinator.assign(now):
            assert assignment.client != dead.client
            receive(coordinator, now + 1.0, assignment)
            coordinator.present(now + 1.0, assignment.client)
        assert coordinator.algorithm.version == version - 1
        assert coordinator.next_lapse() == now + 5.0
        assert coordinator.lapse(now + 5.0)
        assert coordinator.algorithm.version == version


def test_a_counted_update_that_comes_again_after_the_next_assignment_gets_its_first_answer():
    coordinator = make(FedBuff(buffer_size=1, concurrency=1))
    coordinator.present(0.0, 2)
    (first,) = coordinator.assign(0.0)
    answer = receive(coordinator, 1.0, first)
    coordinator.present(1.0, 2)
    (second,) = coordinator.assign(1.0)
    assert receive(coordinator, 2.0, first) == answer == coordinator.offer(2.0, 2, first.visit)
    assert answer.counted
    assert (first.since, second.since) == (None, 0)
    assert coordinator.statistics.counted == 1


def test_a_client_that_lost_the_answer_to_its_call_gets_its_assignment_again():
    coordinator = make(FedAvg(cohort=2), lease_seconds=5.0)
    everybody_present(coordinator)
    assignment, _ = coordinator.assign(0.0)
    assert coordinator.assignment(assignment.client) == assignment
    receive(coordinator, 1.0, assignment)
    assert coordinator.assignment(assignment.client) is None


def test_leases_and_plans_of_their_own_survive_a_restart():
    class Halving(FedBuff):
        def assign(self, client, local):
            return dataclasses.replace(super().assign(client, local), steps=1 + client)

    coordinator = make(Halving(concurrency=3), lease_seconds=5.0)
    everybody_present(coordinator)
    assignments = coordinator.assign(2.0)
    resumed = make(Halving(concurrency=3), lease_seconds=5.0)
    resumed.load_state_dict(coordinator.state_dict())
    assert [resumed.assignment(assignment.client) for assignment in assignments] == assignments
    assert {assignment.plan.steps for assignment in assignments} == {1 + a.client for a in assignments}
    assert resumed.next_lapse() == 7.0
    resumed.lapse(7.0)
    assert resumed.statistics.lost == 3
    assert resumed.next_lapse() == math.inf


class Periodic(FedBuff):
    """Wants everybody, and opens a round at every tick."""

    period = 1.0
    ticks = 0

    @property
    def round(self):
        return self.ticks

    def tick(self):
        self.ticks += 1
        return False


def test_a_client_that_was_heard_in_this_round_waits_for_the_next():
    coordinator = make(Periodic(buffer_size=100, concurrency=CLIENTS))
    coordinator.present(0.0, 3)
    (assignment,) = coordinator.assign(0.0)
    coordinator.tick(1.0)
    coordinator.tick(2.0)
    receive(coordinator, 2.5, assignment)
    coordinator.present(2.5, 3)
    assert coordinator.assign(2.5) == []
    coordinator.tick(3.0)
    assert [again.client for again in coordinator.assign(3.0)] == [3]


def test_the_leases_of_a_periodic_algorithm_do_not_tick_it():
    algorithm = Periodic(buffer_size=100, concurrency=2)
    coordinator = make(algorithm, lease_seconds=5.0)
    everybody_present(coordinator)
    coordinator.assign(0.0)
    coordinator.lapse(5.0)
    assert (algorithm.ticks, coordinator.statistics.lost) == (0, 2)


def test_the_algorithm_hears_all_that_an_update_says():
    class Listening(FedBuff):
        def start(self, model, clients, data_weights=None):
            self.data_weights = data_weights
            super().start(model, clients, data_weights)

        def receive(self, update):
            self.heard = update
            return super().receive(update)

        def urgent(self):
            return [5]

    weights = torch.full((CLIENTS,), 1 / CLIENTS)
    algorithm = Listening(buffer_size=1, concurrency=CLIENTS)
    coordinator = make(algorithm, data_weights=weights)
    everybody_present(coordinator)
    assignments = {assignment.client: assignment for assignment in coordinator.assign(0.0)}
    assert coordinator.urgent() == [assignments[5]]
    said = {"examples": 7, "steps": 3, "normaliser": 2.5, "since": 4, "step_seconds": 0.5, "upload_seconds": 1.5}
    coordinator.receive(1.0, 5, 0, torch.ones(LENGTH), base=torch.zeros(LENGTH), **said)
    assert {name: getattr(algorithm.heard, name) for name in said} == said
    assert (algorithm.heard.client, algorithm.heard.version) == (5, 0)
    assert torch.equal(algorithm.heard.base, torch.zeros(LENGTH))
    assert algorithm.data_weights is weights


def test_an_algorithm_that_measures_its_clients_refuses_none_as_too_stale():
    with pytest.raises(ValueError, match=r"fedluck plans .*: leave server.max_staleness out"):
        Coordinator(FedLuck(), torch.zeros(LENGTH), clients=CLIENTS, local=PLAN, max_staleness=3)
    Coordinator(FedLuck(), torch.zeros(LENGTH), clients=CLIENTS, local=PLAN)
