from collections import OrderedDict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from offbeat.algorithms.components import Continuous, RunFacts


def started(concurrency=10, clients=10):
    schedule = Continuous(concurrency)
    schedule.start(RunFacts(1, clients))
    return schedule


@pytest.fixture
def three():
    schedule = started()
    for client, version in [(5, 0), (2, 1), (9, 1)]:
        schedule.assign(client, version)
    return schedule


def test_clients_that_began_before_a_version(three):
    assert [list(three.before(version)) for version in (0, 1, 2, 9)] == [[], [5], [5, 2, 9], [5, 2, 9]]
    assert [5 in three.before(1), 2 in three.before(1), 7 in three.before(1)] == [True, False, False]
    assert [bool(three.before(0)), len(three.before(2))] == [False, 3]
    three.lose(2, 1)
    three.hear(5)
    assert list(three.before(2)) == [9]
    assert 2 not in three.before(2)
    three.assign(2, 1)
    three.assign(9, 3)
    assert list(three.before(3)) == [2]


@pytest.mark.parametrize(("concurrency", "clients", "places"), [(3, 10, 3), (10, 3, 3), (1, 1, 1)])
def test_concurrency_limits_the_clients_at_work(concurrency, clients, places):
    schedule = started(concurrency, clients)
    assert schedule.slots() == places
    schedule.assign(0, 0)
    assert schedule.slots() == places - 1


def test_a_continuous_schedule_has_neither_rounds_nor_a_clock(three):
    assert (three.number, three.period, three.returns_in(5)) == (None, None, None)
    assert three.wants_all is True
    assert three.has_rounds is False
    assert three.tick() is False


def test_start_forgets_the_clients_at_work(three):
    three.lose(5, 0)
    three.start(RunFacts(1, 4))
    assert (three.at_work, three.slots()) == (0, 4)
    assert not three.wants(2, 1)


def test_state_by_hand(three):
    three.lose(2, 1)
    state = three.state_dict()
    assert state["clients"].tolist() == [5, 9, 2]
    assert state["versions"].tolist() == [0, 1, 1]
    assert state["lapsed"].tolist() == [False, False, True]
    assert [value.dtype for value in state.values()] == [torch.int64, torch.int64, torch.bool]


def test_clients_that_are_too_stale_are_found_among_many_as_fast_as_among_few(monkeypatch):
    looked = 0

    class Counted(OrderedDict):
        def __getitem__(self, client):
            nonlocal looked
            looked += 1
            return super().__getitem__(client)

    schedule = started(100_000, 100_000)
    schedule._versions = Counted()
    for client in range(100_000):
        schedule.assign(client, client // 10)
    for _ in range(3):
        stale = schedule.before(1)
        assert 5 in stale
        assert 50_000 not in stale
        assert list(stale) == list(range(10))
        assert schedule.before(1)
    assert looked < 100


SCRIPTS = st.lists(
    st.tuples(st.sampled_from(["assign", "lose", "hear", "reload"]), st.integers(0, 4), st.integers(0, 2))
)


@given(SCRIPTS)
def test_random_scripts_agree_with_a_plain_table(same_state, script):
    undisturbed, reloaded, table = started(), started(), {}
    for operation, client, version in sorted(script, key=lambda step: step[2]):  # versions grow
        if operation == "reload":
            state, reloaded = reloaded.state_dict(), started()
            reloaded.load_state_dict(state)
            continue
        is_lost = operation == "lose" and table.get(client) == (version, False)
        for schedule in (undisturbed, reloaded):
            if operation == "assign":
                schedule.assign(client, version)
            elif operation == "lose":
                assert schedule.lose(client, version) is is_lost
            elif client in table:
                assert schedule.hear(client) is True
        if operation == "assign":
            table[client] = (version, False)
        elif is_lost:
            table[client] = (version, True)
        elif operation == "hear":
            table.pop(client, None)
        assert undisturbed.at_work == sum(not lapsed for _, lapsed in table.values())
        assert undisturbed.slots() == 10 - undisturbed.at_work
        assert all(
            undisturbed.wants(other, number) == (other in table and table[other][0] == number)
            for other in range(5)
            for number in range(3)
        )
        for number in range(4):
            older = {other for other, (own, lapsed) in table.items() if own < number and not lapsed}
            assert set(undisturbed.before(number)) == older
            assert list(undisturbed.before(number)) == list(reloaded.before(number))
        assert same_state(undisturbed.state_dict(), reloaded.state_dict())
