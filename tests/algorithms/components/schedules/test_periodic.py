import pytest

from offbeat.algorithms.components import Periodic, RunFacts
from offbeat.algorithms.components.schedules.patterns import round_robin


def started(pattern=None, clients=4):
    schedule = Periodic(2.5, pattern)
    schedule.start(RunFacts(1, clients))
    return schedule


def test_all_clients_work_and_only_a_tick_closes_the_buffer():
    schedule = started()
    assert (schedule.period, schedule.number, schedule.slots()) == (2.5, 0, 4)
    assert (schedule.wants_all, schedule.has_rounds) == (True, False)
    schedule.assign(0, 0)
    schedule.assign(1, 0)
    assert schedule.slots() == 2
    assert schedule.hear(0) is False
    assert schedule.lose(1, 0) is False
    assert schedule.tick() is True
    assert schedule.number == 1


def test_a_client_that_is_back_rests_until_its_round():
    schedule = started()
    schedule.assign(0, 0)
    schedule.hear(0)
    assert (schedule.slots(), schedule.returns_in(0), schedule.returns_in(1)) == (3, 1, 0)
    with pytest.raises(ValueError, match="client 0 cannot be assigned before round "):
        schedule.assign(0, 0)
    schedule.tick()
    assert (schedule.slots(), schedule.returns_in(0)) == (4, 1)
    schedule.assign(0, 1)
    assert schedule.wants(0, 1)


def test_a_late_update_counts_in_the_next_round():
    schedule = started(round_robin(k=2, every=1))
    assert [schedule.talks_in(client) for client in range(4)] == [1, 1, 2, 2]
    for client in range(4):
        schedule.assign(client, 0)
    assert [schedule.counts_in(client) for client in range(4)] == [1, 1, 2, 2]
    schedule.hear(2)
    assert schedule.returns_in(2) == 2
    schedule.tick()
    assert [schedule.counts_in(client) for client in (0, 1, 3)] == [2, 2, 2]
    with pytest.raises(ValueError, match="client 2 cannot be assigned"):
        schedule.assign(2, 1)
    schedule.tick()
    assert [schedule.counts_in(client) for client in (0, 1, 3)] == [3, 3, 3]
    schedule.assign(2, 2)
    assert schedule.counts_in(2) == schedule.talks_in(2) == 4


def test_a_lost_client_frees_its_place_and_is_still_expected():
    schedule = started()
    schedule.assign(0, 0)
    schedule.lose(0, 0)
    assert schedule.slots() == 4
    schedule.tick()
    assert schedule.wants(0, 0)
    assert schedule.hear(0) is False
    assert (schedule.slots(), schedule.returns_in(0)) == (3, 2)
