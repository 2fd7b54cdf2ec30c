import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbeat.algorithms.components import Periodic, RunFacts
from offbeat.algorithms.components.schedules.patterns import full, random, round_robin


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


def test_a_client_counts_when_its_pattern_says_or_in_the_next_round_if_it_is_late():
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


def test_start_begins_with_round_0():
    schedule = started()
    schedule.assign(0, 0)
    schedule.hear(0)
    schedule.tick()
    schedule.start(RunFacts(1, 3))
    assert (schedule.number, schedule.slots(), schedule.returns_in(0)) == (0, 3, 0)


@pytest.mark.parametrize("pattern", [None, full(2), round_robin(k=2, every=2), random(p=0.4)], ids=str)
@given(
    st.lists(
        st.tuples(st.sampled_from(["assign", "assign", "hear", "lose", "tick", "reload"]), st.integers(0, 3)),
        max_size=60,
    )
)
def test_a_reloaded_schedule_goes_on_as_an_undisturbed_one(pattern, same_state, script):
    undisturbed, reloaded, versions = started(pattern), started(pattern), {}
    for operation, client in script:
        if operation == "reload":
            state, reloaded = reloaded.state_dict(), started(pattern)
            reloaded.load_state_dict(state)
        now = undisturbed.number
        may_work = undisturbed.returns_in(client) == now
        is_wanted = undisturbed.wants(client, versions.get(client, -1))
        for schedule in (undisturbed, reloaded):
            if operation == "assign" and may_work:
                schedule.assign(client, now)
            elif operation == "hear" and is_wanted:
                schedule.hear(client)
            elif operation == "lose":
                schedule.lose(client, versions.get(client, 0))
            elif operation == "tick":
                schedule.tick()
        if operation == "assign" and may_work:
            versions[client] = now
        assert undisturbed.slots() == reloaded.slots() >= 0
        assert [undisturbed.returns_in(c) for c in range(4)] == [reloaded.returns_in(c) for c in range(4)]
        assert same_state(undisturbed.state_dict(), reloaded.state_dict())
