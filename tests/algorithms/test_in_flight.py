import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from offbeat.algorithms.in_flight import InFlight


@pytest.fixture
def three():
    assignments = InFlight()
    for client, version in [(5, 0), (2, 1), (9, 1)]:
        assignments.add(client, version)
    return assignments


def test_it_holds_what_was_added_with_its_version(three):
    assert three.slots_taken == 3
    assert three.holds(5, 0)
    assert three.holds(2, 1)
    assert not three.holds(5, 1)
    assert not three.holds(7, 0)


def test_new_work_replaces_the_old(three):
    three.add(5, 4)
    assert three.slots_taken == 3
    assert three.holds(5, 4)
    assert not three.holds(5, 0)


def test_a_lapsed_client_frees_its_slot_once_and_is_still_expected(three):
    assert three.lapse(5, 0) is True
    assert three.lapse(5, 0) is False
    assert three.slots_taken == 2
    assert three.holds(5, 0)


@pytest.mark.parametrize(("client", "version"), [(5, 1), (7, 0), (-1, 0)])
def test_an_unknown_lapse_does_nothing(three, client, version):
    assert three.lapse(client, version) is False
    assert three.slots_taken == 3


def test_a_removed_client_is_gone_lapsed_or_not(three):
    three.lapse(5, 0)
    three.remove(5)
    three.remove(2)
    assert three.slots_taken == 1
    assert not three.holds(5, 0)
    assert not three.holds(2, 1)
    three.add(5, 3)
    assert three.slots_taken == 2


def test_new_work_after_a_lapse_takes_a_slot_again(three):
    three.lapse(5, 0)
    three.add(5, 2)
    assert three.slots_taken == 3
    assert three.lapse(5, 2) is True


def test_those_from_before_a_version_are_at_work_and_have_not_lapsed(three):
    assert [three.before(version) for version in (0, 1, 2, 9)] == [[], [5], [5, 2, 9], [5, 2, 9]]
    three.lapse(2, 1)
    three.remove(5)
    assert three.before(2) == [9]
    three.add(2, 1)
    three.add(9, 3)
    assert three.before(3) == [2]


def test_state_by_hand(three):
    three.lapse(2, 1)
    state = three.state_dict()
    assert state["clients"].tolist() == [5, 2, 9]
    assert state["versions"].tolist() == [0, 1, 1]
    assert state["lapsed"].tolist() == [False, True, False]
    assert [value.dtype for value in state.values()] == [torch.int64, torch.int64, torch.bool]


def test_an_empty_state_keeps_its_types(same_state):
    other = InFlight()
    other.load_state_dict(InFlight().state_dict())
    assert other.slots_taken == 0
    assert same_state(other.state_dict(), InFlight().state_dict())
    assert other.state_dict()["clients"].dtype == torch.int64


@given(st.lists(st.tuples(st.sampled_from(["add", "lapse", "remove", "reload"]), st.integers(0, 4), st.integers(0, 2))))
def test_it_agrees_with_a_plain_table_and_a_reloaded_one(same_state, script):
    undisturbed, reloaded, table = InFlight(), InFlight(), {}
    for operation, client, version in script:
        if operation == "reload":
            state, reloaded = reloaded.state_dict(), InFlight()
            reloaded.load_state_dict(state)
            continue
        expected = operation == "lapse" and table.get(client) == (version, False)
        for assignments in (undisturbed, reloaded):
            if operation == "add":
                assignments.add(client, version)
            elif operation == "lapse":
                assert assignments.lapse(client, version) is expected
            elif client in table:
                assignments.remove(client)
        if operation == "add":
            table[client] = (version, False)
        elif expected:
            table[client] = (version, True)
        elif operation == "remove":
            table.pop(client, None)
        assert undisturbed.slots_taken == sum(not lapsed for _, lapsed in table.values())
        assert all(
            undisturbed.holds(other, number) == (other in table and table[other][0] == number)
            for other in range(5)
            for number in range(3)
        )
        for number in range(4):
            older = {other for other, (own, lapsed) in table.items() if own < number and not lapsed}
            assert set(undisturbed.before(number)) == older
            assert undisturbed.before(number) == reloaded.before(number)
        assert same_state(undisturbed.state_dict(), reloaded.state_dict())
