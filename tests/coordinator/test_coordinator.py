import math

import pytest
import torch

from offbeat.algorithms import FedAvg, FedBuff, FedLuck
from offbeat.coordinator import Coordinator, RecordedCall
from tests.coordinator.conftest import CLIENTS, LENGTH, PLAN, Periodic, everybody_present, make, receive


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


@pytest.mark.parametrize(("staleness", "counts"), [(1, True), (2, False)])
def test_max_staleness_is_the_largest_that_counts(staleness, counts):
    coordinator = make(FedBuff(buffer_size=1, concurrency=2), max_staleness=1)
    everybody_present(coordinator)
    slow, fast = coordinator.assign(0.0)
    for now in range(staleness):
        receive(coordinator, now, fast)
        (fast,) = coordinator.assign(now)
    assert receive(coordinator, 9.0, slow) == (counts, staleness, counts)
    assert coordinator.statistics.unused == (not counts)
    assert len(coordinator.assign(9.0)) == 1


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


def test_a_malformed_update_is_refused_and_may_be_sent_again(same_state):
    coordinator = make(FedBuff(concurrency=CLIENTS))
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
        make(FedBuff()).replay(RecordedCall("load_state_dict", {"state": {}}))


def test_a_recorded_assignment_of_a_client_that_does_not_exist_changes_nothing(same_state):
    coordinator = make(FedBuff(concurrency=3))
    before = coordinator.state_dict()
    with pytest.raises(ValueError, match="client must be in"):
        coordinator.replay(RecordedCall("assign", {"now": 0.0, "clients": [1, CLIENTS]}))
    assert same_state(before, coordinator.state_dict())


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
    assert coordinator.visits.assignments(coordinator.algorithm.urgent()) == [assignments[5]]
    report = {"examples": 7, "steps": 3, "normaliser": 2.5, "since": 4, "step_seconds": 0.5, "upload_seconds": 1.5}
    coordinator.receive(1.0, 5, 0, torch.ones(LENGTH), base=torch.zeros(LENGTH), **report)
    assert {name: getattr(algorithm.heard, name) for name in report} == report
    assert (algorithm.heard.client, algorithm.heard.version) == (5, 0)
    assert torch.equal(algorithm.heard.base, torch.zeros(LENGTH))
    assert algorithm.data_weights is weights


def test_an_algorithm_that_measures_its_clients_refuses_none_as_too_stale():
    with pytest.raises(ValueError, match=r"fedluck plans .*: leave server.max_staleness out"):
        Coordinator(FedLuck(), torch.zeros(LENGTH), clients=CLIENTS, local=PLAN, max_staleness=3)
    Coordinator(FedLuck(), torch.zeros(LENGTH), clients=CLIENTS, local=PLAN)


def test_statistics_of_staleness_are_over_the_counted_updates():
    coordinator = make(FedBuff(buffer_size=1, concurrency=3))
    everybody_present(coordinator)
    for number, assignment in enumerate(coordinator.assign(0.0)):
        assert receive(coordinator, 1.0, assignment).staleness == number
    assert coordinator.statistics.staleness_sum == 0 + 1 + 2
    assert coordinator.statistics.staleness_max == 2


def test_receipts_are_remembered_back_to_the_last_counted_visit():
    coordinator = make(FedBuff(buffer_size=1, concurrency=1), max_staleness=0)
    visits = []
    for visit in range(3):
        coordinator.present(visit, 0)
        (assignment,) = coordinator.assign(visit)
        visits.append(assignment)
        if visit == 1:
            receive(coordinator, 1.5, assignment)
        else:
            coordinator.drop(visit, 0, visit)  # and the update never comes
    assert [coordinator.visits.remembers(0, visit) for visit in range(3)] == [False, True, True]
    assert [coordinator.visits.has_counted(0, visit) for visit in range(3)] == [False, True, False]


def test_the_next_lapse_is_the_earliest_of_leases_and_the_algorithms_deadline():
    class Impatient(FedBuff):
        def deadline(self):
            return 6.0

    for kind, expected in ((FedBuff, 8.0), (Impatient, 6.0)):
        coordinator = make(kind(concurrency=2), lease_seconds=5.0)
        assert coordinator.next_lapse() == min(math.inf, 6.0 if kind is Impatient else math.inf)
        for client, now in ((0, 3.0), (1, 4.0)):
            coordinator.present(now, client)
            coordinator.assign(now)
        assert coordinator.next_lapse() == expected


def test_after_a_restart_nobody_is_known_to_be_available():
    coordinator = make(FedBuff(buffer_size=1, concurrency=2))
    everybody_present(coordinator)
    coordinator.forget_presence()
    assert coordinator.assign(0.0) == []
    coordinator.present(1.0, 3)
    assert [assignment.client for assignment in coordinator.assign(1.0)] == [3]
